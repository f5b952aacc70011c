#include "kvgraft/eval/corpus_text.h"

namespace kvgraft::eval {

const std::string_view kCorpusChat =
    R"TEXT(User: Can you explain why my sourdough is flat? I follow the recipe exactly.
Assistant: Most flat loaves are fermented for too long or too short. Press a wet finger into the dough
before baking: if the dent springs back at once, wait; if it stays as it is, you are late. How warm is
your kitchen?
User: around 26, we have floor heating
Assistant: Then the times in your recipe, probably written for 21 degrees, are too long by a third or
so. Try three hours instead of four and a half, and judge by volume: stop when it has grown by half.
User: it says double
Assistant: For strong flour that works. With a soft flour the gluten gives way before the dough has
doubled, especially in the warm. Which flour do you use?
User: type 550, no idea about the protein. The bag says 10.2 g
Assistant: That is on the soft side. Half its volume more, then shape, then into the fridge overnight.

<system> You are the support desk of a public library. Be brief. Never give out other readers' loans.
<reader> hi, is "A Field Guide to Lichens" back yet
<desk> It is on loan until the 22nd. Shall I put you in the queue? There is one person before you.
<reader> who has it? maybe I know them
<desk> I can't tell you that, I'm sorry. I can reserve it, or get a copy from the branch at the harbour
by Thursday.
<reader> harbour is fine
<desk> Done. Pick it up from Thursday noon, shelf with your card's last four digits. It's kept 7 days.
<reader> can i also renew the Icelandic grammar, third time
<desk> Three renewals are the limit and this would be the fourth; nobody is waiting for it, though, so
bring it in and take it out again. It only has to touch the desk.
<reader> lol ok

[10:02] tomasz: build 4411 is red again, same test, test_merge_overlapping
[10:03] ngozi: passes here 200 times in a row
[10:04] tomasz: seed?
[10:04] ngozi: no seed, it uses the clock, which is probably our problem
[10:09] ngozi: ok with faketime 23:59:58 it fails. the interval crosses midnight and end < start
[10:10] tomasz: so the code is wrong and the test is right and just polite about it
[10:10] ngozi: the test is right twice a day at most
[10:26] ngozi: fixed in 8f03c1, and the test now takes the time as a parameter. added the two ends of
daylight saving while I was there. one of them failed too :)
[10:27] tomasz: which one
[10:27] ngozi: October. the hour that happens twice

User: Solve 3x + 7 = 2(x - 5) and show each step please.
Assistant: Expand the right side: 3x + 7 = 2x - 10. Subtract 2x from both sides: x + 7 = -10. Subtract
7: x = -17. Check: the left side is 3 * (-17) + 7 = -44, the right side is 2 * (-22) = -44.
User: And if it was 3x + 7 = 3(x - 5)?
Assistant: Then expanding gives 3x + 7 = 3x - 15, and subtracting 3x leaves 7 = -15, which is false for
every x. There is no solution: the two sides are parallel lines.
User: when would there be infinitely many
Assistant: When both sides are the same line, for instance 3x + 7 = 3(x - 5) + 22.

Anna: The landlord says that the damp comes from our breathing. 🙄
Benedikt: Everyone breathes. Is it on the outer wall?
Anna: Corner of the bedroom, behind the wardrobe. And under the window, but only left.
Benedikt: Behind the wardrobe can be both. Under the window only on the left sounds like a gutter.
Anna: How would I prove that
Benedikt: Tape a piece of kitchen foil over the spot, tight on all sides, and wait two days. Water on
the room side: it's you. Water behind the foil: it's the wall.
Anna: That is so simple that I'm annoyed.
Anna: Update: behind. Photo sent to landlord, with today's newspaper in the picture like a kidnapper.

User: Translate to French, keep it formal: "We regret that we cannot extend your contract beyond June."
Assistant: « Nous regrettons de ne pouvoir prolonger votre contrat au-delà du mois de juin. »
User: and a version that sounds a bit warmer
Assistant: « C'est avec un réel regret que nous vous informons qu'il ne nous sera pas possible de
prolonger votre contrat au-delà du mois de juin. Nous tenons à vous remercier pour votre engagement. »
User: Japanese?
Assistant: 「誠に残念ながら、六月以降の契約延長はいたしかねます。」
User: thx. what is the literal meaning of the last word?
Assistant: いたしかねます joins the humble verb "to do" with a suffix that means "to be unable to, much as
one might wish". It refuses without saying no, which is why it appears in so many letters.

interviewer: You have kept bees for forty years. What has changed?
keeper: The bees least of all. The lime trees flower eleven days sooner. The road is wider. I used to
know when the rape was sprayed, since Karl would come over the evening before and say so; now it is a
company and it sprays at night, which is better for the bees, I admit, and worse for the talking.
interviewer: Do you lose more colonies than before?
keeper: Some winters none, some winters half. It used to be a few each year. People hear the average
and think that it's the same. You can't plan with it. You can't feed an average.
interviewer: Would you start again today?
keeper: (laughs) I did start again. Three times. You only ever start again.

User: write a function in python that tells if a year is a leap year, no imports
Assistant: def is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
User: why the 400
Assistant: A year has about 365.2422 days. A leap day every 4 years is slightly too much (365.25), so
three of them are dropped in 400 years: the full centuries that 400 does not divide. That gives 365.2425
and an error of one day in roughly three thousand years.
User: so 2100 is not one
Assistant: Right, 2100, 2200 and 2300 are ordinary years; 2000 and 2400 are leap years.

Q: At what temperature does water boil on a mountain of 3,000 m, roughly?
A: About 90 °C: the boiling point falls by one degree for every 300 m or so.
Q: Does pasta take longer then?
A: Yes. Starch swells more slowly, so allow a third more time, or use a lid with a weight on it.
Q: What about tea?
A: Black tea comes out thin. Green tea, which likes 80 °C, does not mind at all.
)TEXT";

}  // namespace kvgraft::eval
