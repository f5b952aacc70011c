#include "kvgraft/eval/corpus_text.h"

namespace kvgraft::eval {

const std::string_view kCorpusManual = R"TEXT(Hand Pump HP-3: Operation and Care

1. Before first use
1.1 Remove the transport lock (red, under the base plate) by a quarter turn to the left.
1.2 Fill the priming cup to the mark with clean water, about 0.3 l. Do not use oil.
1.3 Check that the suction hose has no kinks and that the foot valve hangs at least 20 cm above the
bottom of the well. Sand shortens the life of the piston seal more than any other cause.

2. Pumping
Move the lever through its whole range at 30 to 40 strokes a minute. Short, fast strokes deliver less
water and wear the upper bearing. At a lift of 7 m expect 0.6 l a stroke; above 7.5 m a hand pump of
this type cannot work, whatever the effort, because the pressure of the air is not sufficient.

3. In frost
Open the drain screw (4) and pump ten strokes without water. WARNING: a cylinder that has frozen once
may hold pressure and still leak under load. Replace it; do not weld it.

4. Faults
Water falls back over night: foot valve dirty or its flap hardened. Clean, or replace part 17.
Lever moves too easily: no priming water, or the seal (part 9) is worn. See figure 6.
Knocking at the upper dead point: nuts 12a and 12b have come loose. Tighten to 25 Nm, crosswise.

Minutes of the residents' meeting, staircase C, 14 February, 19:00 to 20:50
Present: flats 1, 2, 4, 5, 7, 8 (by proxy of 7), 11. Excused: 3. Chair: Ms Okonkwo. Minutes: Mr Lind.

1. Minutes of the last meeting. Approved with one correction: the lamp in the cellar was repaired by
flat 5, not by the caretaker. Flat 5 asks that this be written down, and it is.
2. Bicycle room. Fourteen bicycles, nine hooks. Ms Abadi proposes to mark all bicycles with a tag until
the end of March and to give unmarked ones to the youth workshop. Accepted, 6 to 1. Flat 11 objects
that a tricycle is not a bicycle. The tricycle is exempted, unanimously.
3. Heating. The supplier has sent two bills for December that differ by 212.40. Mr Lind has written
to them twice and been answered once, in verse. He will write a third letter.
4. Noise. The sound of a flute between 21 and 22 h was praised by two flats and deplored by one. The
flautist, who was present, offers to stop at half past nine. Applause.
5. Other. Somebody has been leaving jars of plum jam on the landing of the second floor. The meeting
thanks this person and asks for labels with the year.

Dear Dr Haverkamp,
thank you for your letter of the 3rd and for returning the two herbarium sheets unharmed. I have
compared them with ours under the lens, and I am afraid that we are both wrong. The hairs on the calyx
are forked, as you wrote, but they are forked once, not twice, and the seeds (I have soaked one, with
a bad conscience) show five ribs. That is neither your species nor mine. If the label is right and the
plant was collected above two thousand metres, then it has no business to exist there at all.
Before we disturb anybody in Geneva, could you ask your colleague with the good knees whether the
scree below the hut is still free of snow? Ripe fruit would settle it. I enclose a photograph, a
drawing which is better than the photograph, and a cheque for the postage.
Yours, with some excitement,
E. Castellanos-Whyte

Rezept für Linsen mit Backpflaumen (vier Personen)
250 g Berglinsen, 1 Lorbeerblatt, 2 Möhren, 1 Stange Lauch, 8 Backpflaumen, 2 EL Essig, Salz, Öl.
Die Linsen ohne Salz in der dreifachen Menge Wasser aufsetzen und 25 Minuten leise kochen lassen.
Inzwischen Möhren und Lauch klein schneiden und in Öl anschwitzen, bis die Ränder braun werden; die
Pflaumen vierteln und kurz mitbraten. Alles mischen, salzen und vom Feuer nehmen. Der Essig kommt erst
am Tisch dazu, sonst werden die Linsen grau. Am nächsten Tag schmeckt es besser, aber so lange hat es
bei uns noch nie gereicht.

Avis aux voyageurs
En raison de travaux sur le viaduc, la ligne 7 est interrompue du lundi 4 au vendredi 15 mars entre la
gare de l'Est et le pont des Tanneurs. Un autobus de remplacement part toutes les douze minutes devant
la sortie nord. Les bicyclettes n'y sont pas admises, sauf pliées. Le billet de train reste valable.
Nous vous prions d'excuser la gêne et vous remercions de votre patience, qui est connue.

Cuaderno de campo, sierra norte, 9 de octubre
Niebla hasta las diez. Subimos por el lado del río, porque el puente de arriba sigue roto. Tres
buitres, un arrendajo, huellas de jabalí frescas en el barro. La estación meteorológica marca 6,4
grados, pero el termómetro de bolsillo dice 8,1; habrá que calibrar uno de los dos, probablemente el
caro. A las doce encontramos la cueva que buscábamos: seca, orientada al sur, con hollín en el techo.
No entramos. Volveremos con cuerda y con alguien que sepa de murciélagos.

How the archive is kept
Every box has a number on its short side and nowhere else. The number says where the box stands, not
what is in it; contents change and shelves do not. The register lists the contents by box and is kept
twice, here and in the town hall. Whoever takes a folder out puts a red card in its place with name
and day. Whoever finds a card that is older than a month telephones. Pencils only. Folders are not
lent to members of the council during an election, for reasons that are explained in box 311.

Safety data, short form: lime wash, ready to use
Contains calcium hydroxide, suspension in water, pH 12.5. Irritates skin, damages eyes. Wear goggles
when painting overhead; splashes always fall where one looks. First aid, eyes: rinse with plenty of
water for 15 minutes, lids open, then see a doctor and take this sheet along. Skin: wash off, apply
oil afterwards. Store frost-free, out of reach of children, for at most two years. Dried residues may
be put on the compost in small amounts. Clean brushes with water at once, and with vinegar too late.

Rules of the Tuesday chess evening
A piece touched is a piece moved, except after nine, when the light is bad. Draws may be offered once
a game, politely. Analysis takes place at the other table. Anyone who loses on time may blame the
clock, which is wrong by about forty seconds in the hour, in favour of Black. Dogs are welcome as long
as they do not comment. The cup is washed by the winner.
)TEXT";

}  // namespace kvgraft::eval
