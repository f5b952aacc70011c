#include "kvgraft/session/sample_text.h"

namespace kvgraft::session {
namespace {

constexpr std::string_view kProse =
    R"TEXT(The ferry to the outer islands leaves at twenty past six, before the baker on the quay has put
out his first tray. For eleven years Ilse Maartens has taken it on Mondays, Wednesdays and every
other Saturday, with a canvas bag, a thermos and a wooden box of glass tubes, because somebody has
to measure the salt. The institute could send a buoy, and twice it did. The first one was pulled up
by a trawler off the western bank; the second still transmits, faithfully and uselessly, from the
garden of a retired harbour master who likes the blinking light.

Her method has not changed. She lowers a bottle to two metres, to five and to nine, closes it with a
brass weight that slides down the line, and writes the temperature in pencil before she writes the
number of the tube. Pencil does not run when spray comes over the rail. In a good year she fills four
notebooks. In 2014, when the big inflow came through the straits and the bottom water turned fresh
for sixteen days, she filled seven, and a professor from another country drove nine hours to
photograph each page.

What the notebooks show is a slow argument between two bodies of water. The ocean pushes in along
the floor whenever storms have emptied the inner basin; rivers lean on it from above, lighter and
warmer and brown with peat. Between them lies a boundary so sharp that a swimmer, she says, would
feel it across the knees. Cod eggs float on that boundary if it is salty enough, and sink into dead
water if it is not. So the price of fish in a city three hundred kilometres away depends, with a
delay of two winters, on which way the wind blew in a week that nobody there remembers.

She distrusts averages. "An average is where nothing happens," she told the children of the island
school, who had come to see the box of tubes. One of them asked whether the sea was getting better.
She thought about it for longer than adults usually do when a child asks. Then she said that it was
getting different, that different was harder to measure than better, and that this was the reason
for the pencil.

On the return trip the boat smells of diesel and oranges. The mate, who studied accounting for a
term, helps her to read the scale when her glasses fog. He has begun to guess the numbers before she
says them, and is right to within a tenth more often than chance allows. Neither of them has
mentioned this to the institute.
)TEXT";

constexpr std::string_view kCode =
    R"TEXT(// Ring buffer of fixed capacity for one writer and one reader. Indices count up for ever; only
// their difference matters, so wrap-around of the unsigned type is harmless.
template <typename T, size_t N>
class RingBuffer {
  static_assert((N & (N - 1)) == 0, "capacity must be a power of two");

 public:
  bool Push(const T& item) {
    const size_t head = head_.load(std::memory_order_relaxed);
    if (head - tail_.load(std::memory_order_acquire) == N) return false;  // full
    slots_[head & (N - 1)] = item;
    head_.store(head + 1, std::memory_order_release);
    return true;
  }

  std::optional<T> Pop() {
    const size_t tail = tail_.load(std::memory_order_relaxed);
    if (tail == head_.load(std::memory_order_acquire)) return std::nullopt;
    T item = slots_[tail & (N - 1)];
    tail_.store(tail + 1, std::memory_order_release);
    return item;
  }

 private:
  std::array<T, N> slots_{};
  alignas(64) std::atomic<size_t> head_{0};
  alignas(64) std::atomic<size_t> tail_{0};
};

def tide_height(constituents, hours):
    """Sum of harmonic constituents, in metres above the chart datum.

    constituents: list of (amplitude_m, speed_deg_per_hour, phase_deg)
    """
    height = 0.0
    for amplitude, speed, phase in constituents:
        height += amplitude * math.cos(math.radians(speed * hours - phase))
    return height


HARBOUR = [(1.42, 28.984, 211.0), (0.47, 30.0, 254.5), (0.29, 28.44, 187.2), (0.11, 13.943, 96.0)]

for hour in range(0, 25, 3):
    print(f"{hour:02d}:00  {tide_height(HARBOUR, hour):+6.2f} m")

SELECT s.station_id, s.name, date_trunc('month', m.taken_at) AS month,
       round(avg(m.salinity)::numeric, 2) AS mean_salinity, count(*) AS samples
FROM measurements m
JOIN stations s USING (station_id)
WHERE m.depth_m BETWEEN 4.5 AND 5.5 AND m.quality IN ('good', 'checked')
GROUP BY 1, 2, 3
HAVING count(*) >= 6
ORDER BY month DESC, mean_salinity;
)TEXT";

constexpr std::string_view kTable = R"TEXT(Station log, outer harbour, third quarter
| date       | depth m | temp C | salinity | oxygen ml/l | remark                     |
|------------|--------:|-------:|---------:|------------:|----------------------------|
| 2021-07-05 |     2.0 |   16.8 |     7.41 |        6.92 | calm, jellyfish            |
| 2021-07-05 |     9.0 |   11.3 |     9.87 |        4.10 |                            |
| 2021-07-19 |     2.0 |   18.9 |     7.12 |        6.55 | after rain, brown water    |
| 2021-07-19 |     9.0 |   11.9 |    10.02 |        3.31 | smell at the bottle        |
| 2021-08-02 |     2.0 |   20.1 |     7.08 |        6.20 | algae, visibility 1.4 m    |
| 2021-08-16 |     5.0 |   17.7 |     7.95 |        5.48 | tube 118 cracked, repeated |
| 2021-08-30 |     9.0 |   12.4 |    11.64 |        2.05 | westerly 8 Bft for 3 days  |
| 2021-09-13 |     2.0 |   15.2 |     8.33 |        7.07 | mixed to 6 m               |
| 2021-09-27 |     9.0 |   13.0 |    12.20 |        1.48 | no sample at 5 m           |

item,unit,stock,reorder_at,supplier,last_order
brass messenger,piece,3,2,Hollander & Zn,2020-11-14
sample tube 250 ml,box of 24,11,6,Glaswerk Oost,2021-06-02
pencil HB,dozen,2,1,"paper shop, Kade 7",2021-01-20
line 6 mm polyester,m,85,40,Touwslagerij De Anker,2019-08-30
thermos 1 l,piece,1,1,"(own)",2012-03-01
)TEXT";

constexpr std::string_view kChat =
    R"TEXT(User: I have a bicycle wheel with 32 spokes and one broke on the drive side. Can I ride home, about
12 km, or should I walk?
Assistant: You can usually ride home gently. Three things first: remove or tape the broken spoke so
that it cannot catch, open the rim brake a little if the rim now rubs, and check that the tyre does
not touch the frame. Avoid standing on the pedals, because the drive side carries most of the load.
User: It rubs the frame a tiny bit at one spot.
Assistant: Then loosen the two neighbouring spokes on the opposite flange by half a turn each. That
pulls the rim back towards the middle at the gap. Turn the wheel and look again before you ride.
User: That worked! Why does loosening help, I would have tightened something.
Assistant: The missing spoke no longer pulls the rim to its side, so the opposite ones win. You can
restore the balance by pulling harder on the weak side or by letting go on the strong side. With one
spoke already gone the neighbours on the weak side are overloaded, so letting go is the kinder choice.
User: ok danke, und auf Deutsch, wie heisst der Schluessel dafuer?
Assistant: Das ist ein Nippelspanner, auch Speichenschlüssel genannt. Für die meisten Nippel passt
die Größe 3,23 mm; ältere französische Räder haben manchmal 3,45 mm.
User: Could you make me a list for the repair shop?
Assistant: 1. Replace one drive-side spoke, rear, 32 holes; measure the length of a neighbour. 2. Check
the tension of all spokes, since one failure is often followed by the next. 3. True the wheel
sideways and in height. 4. Look at the rim around the nipple holes for cracks. Expect 20 to 35 euros.
)TEXT";

constexpr SampleText kTexts[] = {{TextKind::kProse, kProse},
                                 {TextKind::kCode, kCode},
                                 {TextKind::kTable, kTable},
                                 {TextKind::kChat, kChat}};

}  // namespace

std::span<const SampleText> SampleTexts() { return kTexts; }

}  // namespace kvgraft::session
