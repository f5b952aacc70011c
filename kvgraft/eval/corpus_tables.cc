#include "kvgraft/eval/corpus_text.h"

namespace kvgraft::eval {

const std::string_view kCorpusTables = R"TEXT(Timetable, mountain railway, valid from 12 May
| station         |  km  | height m | train 2 | train 4 | train 6* | train 8 |
|-----------------|-----:|---------:|--------:|--------:|---------:|--------:|
| Unterdorf       |  0.0 |      612 |    6:40 |    9:15 |    11:50 |   15:32 |
| Säge            |  2.1 |      688 |    6:48 |    9:23 |        x |   15:40 |
| Kapelle         |  4.7 |      911 |    7:01 |    9:37 |    12:09 |   15:54 |
| Mittelstation   |  6.3 |    1,104 |    7:12 |    9:49 |    12:20 |   16:06 |
| Gamsboden       |  8.8 |    1,466 |       - |   10:08 |    12:38 |   16:25 |
| Gipfelhaus      |  9.9 |    1,702 |       - |   10:17 |    12:46 |   16:34 |
* Saturdays, Sundays and holidays only; x: stops on request, tell the conductor.

id,species,ring,sex,weight_g,wing_mm,net,time,released_by
1041,Erithacus rubecula,B71K902,,17.2,73,4,06:15,AS
1042,Sylvia atricapilla,B71K903,m,19.8,75,4,06:15,AS
1043,Parus major,B70C118,f,16.9,74,1,06:40,JW
1044,Troglodytes troglodytes,9R2217,,8.7,48,6,07:05,JW
1045,Turdus merula,G55120,f,92.4,126,2,07:05,AS
1046,Sylvia atricapilla,B71K904,f,20.6,74,3,07:30,AS
1047,Erithacus rubecula,B69H077,,16.1,71,4,07:30,LP
1048,Phylloscopus collybita,8T5531,,7.4,59,6,08:00,LP
1049,Aegithalos caudatus,8T5532,,7.9,62,6,08:00,LP
1050,Parus major,B70C118,f,16.7,74,2,08:20,JW

{"run": 318, "started": "2022-11-03T04:12:55Z", "operator": "night", "recipe": {"name": "K-40",
"temperature_c": [182, 188, 191, 187], "line_speed_m_min": 1240, "basis_weight_g_m2": 80.2},
"events": [{"t": 0.0, "kind": "start"}, {"t": 412.6, "kind": "moisture_high", "value": 7.9},
{"t": 431.0, "kind": "correction", "steam_bar": 4.35}, {"t": 1187.3, "kind": "break", "section": 3},
{"t": 1871.9, "kind": "restart", "attempts": 2}], "tonnes": {"gross": 96.4, "net": 63.8}}

Household budget, in euros
category        January   February      March      April    mean
rent             780.00     780.00     780.00     805.00   786.25
electricity       64.10      61.75      58.20      49.90    58.49
groceries        312.48     287.03     341.90     298.66   310.02
books             41.00       0.00      87.50      23.90    38.10
repairs            0.00     418.00       0.00      36.20   113.55
travel            49.00      49.00     131.80      49.00    69.70
total          1,246.58   1,595.78   1,399.40   1,262.66  1,376.11

2023-04-18 03:12:07.118 INFO  scheduler   job=nightly-index started shards=12
2023-04-18 03:12:07.640 DEBUG shard-03    opened segment 000418.seg size=73400320 entries=1182034
2023-04-18 03:12:09.001 WARN  shard-07    checksum retry page=9114 expected=5be1f20a got=5be1f28a
2023-04-18 03:12:09.377 INFO  shard-07    page 9114 repaired from replica b
2023-04-18 03:14:51.902 INFO  shard-11    merged 8 -> 1 in 162.3 s (41.7 MB/s)
2023-04-18 03:14:52.115 ERROR shard-02    cannot rename 000511.tmp: No space left on device
2023-04-18 03:14:52.120 INFO  scheduler   job=nightly-index failed=1 ok=11 elapsed=165.0s next=04:12:07
2023-04-18 03:15:00.000 INFO  janitor     removed 3 temporary files, 512 MiB

Element | symbol | Z | mass u | melts at C | boils at C | found by
lithium | Li | 3 | 6.94 | 180.5 | 1342 | Arfwedson 1817
gallium | Ga | 31 | 69.72 | 29.8 | 2400 | Lecoq 1875
indium | In | 49 | 114.82 | 156.6 | 2072 | Reich, Richter 1863
tellurium | Te | 52 | 127.60 | 449.5 | 988 | Müller 1782
hafnium | Hf | 72 | 178.49 | 2233 | 4603 | Coster, Hevesy 1923

Results of the regatta, class B, three races, worst one dropped
rank  sail    helm              r1  r2  r3  points
   1  NED 12  de Vries, M.       2   1   1       2
   2  GER 88  Petersen, K.       1   3  (6)      4
   3  FRA 7   Le Goff, A.        4   2   2       4
   4  DEN 31  Skov, I.           3  (9)  3       6
   5  POL 5   Zielinska, D.     (8)  4   5       9
   6  SWE 60  Holm, B.           6   5  DNF     11
Protest NED 12 against FRA 7, race 3, mark 2: dismissed. Tie of GER 88 and FRA 7 by best single race.

<inventory date="2020-09-30" counted-by="R. Imboden">
  <shelf id="A-04"><box n="17" sealed="yes">glass negatives, 13 x 18, 1902 to 1911</box></shelf>
  <shelf id="A-05"><box n="18" sealed="no">letters, unsorted, water stains at the lower edge</box>
    <box n="19" sealed="yes">account books (3), bread tax</box></shelf>
  <shelf id="B-01"><box n="40" sealed="no">maps, rolled; two missing, see red cards</box></shelf>
</inventory>

Sowing calendar for the school garden, beds of 1.2 m
bed  crop            sow          depth cm  row cm  harvest        after
 1   broad beans     late Feb         5       40    June           spinach
 1   leek (plants)   July             8       30    winter         beans
 2   carrots         March - June     1       25    from July      leek
 3   potatoes        mid April       10       60    August         rye, dug in
 4   kohlrabi        from March       1       30    May, again     peas
 5   squash          after 15 May     3      120    October        compost, two barrows
 6   phacelia        any gap        0.5    broad    never, it is for the bees

[server]
listen = "127.0.0.1:7070"   # never the outer address
workers = 4
timeout_s = 12.5
[cache]
path = "/var/cache/atlas"
max_bytes = 34_359_738_368
evict = ["oldest", "largest"]
[[layer]]
name = "contours"
zoom = [9, 15]
simplify_m = 2.5
)TEXT";

}  // namespace kvgraft::eval
