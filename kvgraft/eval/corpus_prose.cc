#include "kvgraft/eval/corpus_text.h"

namespace kvgraft::eval {

const std::string_view kCorpusProse =
    R"TEXT(The Clock of Sankt Veit

When the tower clock of Sankt Veit stopped, nobody noticed for two days, because everyone in the
village had a telephone and the only person who still looked up was the postman, and he was on
holiday. On the third day the sexton heard the silence. He described it later as a missing stair: he
had been counting eleven strokes while peeling potatoes and found himself, knife in the air, still
waiting for the first.

The mechanism is older than the tower. It came from a monastery that had been dissolved, on an ox
cart, in a winter so hard that the driver was paid in firewood. It has one hand. The second was added
in 1790 and removed in 1803, since farmers complained that it made the day look shorter than it was.
Weights of sandstone hang in a shaft beside the stairs; each Saturday somebody turns a crank ninety
times and brings them up again. For the last nineteen years that somebody was Agathe Brunner, a
retired teacher of chemistry with a bad hip and a very good ear.

She climbed up with a torch and a sandwich. The escapement was in order, the pendulum swung when she
pushed it, and stopped when she did not. She wrote down the length of each swing by holding a ruler
behind it. Eleven centimetres, nine, eight and a half, eight. Something was eating the swing, and it
was eating more at the beginning than at the end, which ruled out dust, since dust eats evenly. She
ate the sandwich and thought about air.

In spring the parish had closed the louvres against pigeons, with a fine steel net. Pigeons no longer
came in; neither did the wind. The tower, she reasoned, had always breathed, and the bob of the
pendulum, a lens of iron as wide as a dinner plate, had been built for moving air of the temperature
outside. Now warm air stood in the chamber and grew damp at night. She touched the rod: wet. She
touched the wooden guide that kept it from swaying: swollen by a hair, enough to brush the brass.

She did not plane the guide, although a plane was lying there. She took down one square of the net,
the one on the north side, and waited. On the following Saturday the wood was dry, the clock went, and
two pigeons sat on the crank with the calm of owners. Agathe reported to the parish council that the
repair had cost nothing and would have to be paid for every week with a broom.

What a Map Leaves Out

Every map is a list of decisions about what does not matter. The walker's map leaves out the depth of
the river and shows the bench beside it; the boatman's map leaves out the bench. A map of sewers is a
map of a city in which nobody has a face. When two maps of one place disagree, it is tempting to ask
which is right, but usually the better question is who was in a hurry, and why.

Consider the island of Lesser Skarv, which until 1931 appeared on charts as a single rock with a
cross, meaning danger. Fishermen knew that it was four rocks with a channel between them, deep enough
for a rowing boat at half tide, and that the channel was the only shelter for twenty miles. They did
not tell the surveyors. A rock with a cross keeps strangers away from the lobsters. The surveyors,
for their part, had seen the channel from the deck and left it out, because a channel on a chart is an
invitation, and they did not want to have invited anybody.

So the omission was agreed upon by two parties who never spoke, and it lasted for sixty years. It
ended when a schoolboy with a box camera photographed his uncle's boat in the middle of the rock.

There is a lesson here for anyone who keeps records. Data that are wrong by accident are found by
comparing them; data that are wrong by consent are found only by standing where they say that you
cannot. The most careful statistics of the fishery showed no catch at Lesser Skarv, year after year,
with a standard deviation of nought. That nought should have rung like a bell.

The Bread Problem

My grandmother's recipe says: flour, as much as it takes. For a long time I took this for modesty, or
for a joke. Then I moved to a city in the mountains, where water boils at ninety-three degrees and
flour dries out in the cupboard, and my bread turned into something between a brick and a sponge. I
measured everything to the gram. I bought a thermometer for the dough, a second one for the oven and a
third to check the other two, which agreed with each other and with nothing else.

It took me most of a winter to understand what the sentence meant. Flour is not a quantity but an
answer. You put your hand into the bowl and ask: does it let go? If it clings, there is more water
than this flour can hold today, in this air, at this height. A number would be an answer to the
question that was asked in her kitchen, with the window open towards the lake, on a Thursday.

I still weigh the salt. Salt does not care about the weather.

Night Shift

At ten past two the paper machine tears. It always tears between two and four; the engineers have a
theory about the temperature of the river, and the shift has a theory about the engineers. The web,
eight metres wide and moving faster than a bus, whips up into the hood and is shredded. Horns. The
dryer section slows with a sound like an animal that has decided to sit down. Six people who were
bored a moment ago know exactly where to stand.

Marek takes the tail, a strip as wide as a hand, that has to be led by air jets and ropes through
forty-two cylinders before the whole width may follow. You cannot see the tail. You see the place
where it was. His first foreman taught him to listen for it, a flutter that climbs a little in pitch
from one group to the next, and to keep his hands in his pockets until the fourth group, because until
then there is nothing that hands can do except be lost.

Tonight it goes through at the second try: eleven minutes, nobody hurt, thirty tonnes lost, which will
be pulp again by breakfast. On the screen the web appears as a green line. The young woman from the
university, who came to install a camera and stayed for the night, asks him what he would like to know
before it tears. He thinks that she means a warning. "No," he says. "I would like to know afterwards
what it was. Every time. Nobody has ever told us what it was."

She writes this down, under a sketch of the camera, and underlines it twice. In her thesis it will be
a sentence about explanation and prediction. In the control room it is written on the whiteboard,
between the rota and a drawing of a cat.

On Being Exact

People who repair instruments distinguish between three kinds of sameness. Two violins can be the same
model, which means little. They can sound the same, which means that nobody in the room has heard the
difference yet. And a violin can be the same violin, after its neck has been replaced, its varnish
retouched and its bridge cut anew, because its owner says so and the insurance agrees.

A fourth kind exists only where things are written in symbols. A copied poem is not like the poem; it
is the poem. There is no tolerance and no ageing. If one letter differs, then either it does not
matter, and one has to say who decided that, or the copy is not a copy. This severity is restful. It is
the reason why a scribe could be proud of a day's work in which nothing new had come into the world.

The trouble begins when a thing of the fourth kind is treated as a thing of the second. Somebody
rounds a number because the difference cannot be heard. Somebody else compares the rounded numbers and
finds, with relief, that they agree. Years later a third person needs the digits and discovers that
they were polite rather than true.

The Well at Oued Tazrit

The engineers said that the water would reach the upper gardens by March, provided that the pump was
not run at noon. It was run at noon. It was run at noon because at noon the men were at home, and
because the water, for an hour, was there. By February the level had fallen below the lower filter and
the pump drew air, coughing so loudly that goats ran out of the shade.

Old Tafsut, whose family had owned the sixth hour of the old canal for longer than there had been
paper to write it on, came to see the pit. She asked how many hours the pump had. Twenty-four, they
said. She asked to whom they belonged. They explained that the pump belonged to the cooperative. That
was not what she had asked.

In the canal each hour had had a name and an owner, and owners quarrelled at dawn and at dusk, when the
light made the shadow on the measuring stone hard to read. It had been a bad system, with feuds and
lawyers. But in it nobody had ever been thirsty by accident. They hung a board beside the switch,
twenty-four nails and a name on each, and the sixth nail they offered to her. She took the seventeenth,
which is cool, and which nobody had wanted since one could not see the shadow.
)TEXT";

}  // namespace kvgraft::eval
