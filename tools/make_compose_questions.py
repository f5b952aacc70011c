#!/usr/bin/env python3
"""Writes questions for `kvgraft eval compose --data`: natural passages with planted facts.

  make_compose_questions.py --data DIR --out FILE [--groups 10] [--seed 1]

DIR holds books/*.txt.gz and longctx/needles_v1.jsonl. Each group of six passages of about 60 words
gives six questions whose answer is in one passage and six that join two. The same seed gives the
same file. A line: {"id", "kind": "one"|"two", "chunks": [...], "question",
"prefix": the start of the answer, "answers": [...]}.
"""

import argparse
import glob
import gzip
import json
import os
import random
import re
import sys

GROUP = 6
WORDS = 60
PEOPLE_FIRST = "Anna Tomas Clara Edwin Marta Oskar Ruth Simon Helen Victor Ida Paul".split()
PEOPLE_LAST = "Berg Lind Voss Hale Quint Penn Adler Crane Brandt Moss Falk Storm".split()
PLACES = ["north lighthouse", "old mill", "river ferry", "glass works", "hill chapel",
          "fish market", "stone bridge", "apple orchard", "salt house", "bell tower",
          "harbour crane", "rope yard"]
# The first fact, the second, the question, the start of the answer; P a place, N a person, V the answer.
TWO = [
    ("The keeper of the P is N.", "The badge number of N is V.",
     "What is the badge number of the keeper of the P? Reply with the number only.",
     "The badge number of the keeper of the P is"),
    ("The owner of the P is N.", "N was born in the town of V.",
     "In which town was the owner of the P born? Reply with the name of the town only.",
     "The owner of the P was born in the town of"),
]
TOWNS = "Carlow Dunmore Elvedon Farleigh Gorsley Hexton Ingham Keldale Lowick Marfield".split()


def passages(data):
    """Runs of whole sentences from the books, about WORDS words each."""
    found = []
    for path in sorted(glob.glob(os.path.join(data, "books", "*.txt.gz"))):
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
            text = file.read()
        for paragraph in re.split(r"\n\s*\n", text):
            sentences = re.split(r"(?<=[.!?]) +", " ".join(paragraph.split()))
            run = []
            for sentence in sentences:
                run.append(sentence)
                n_words = sum(len(s.split()) for s in run)
                if n_words > WORDS:
                    if n_words <= WORDS * 5 // 4 and len(run) >= 3:
                        found.append(run)
                    run = []
    return found


def plant(sentences, facts, rng):
    """Facts between sentences, none at the very start or end."""
    sentences = list(sentences)
    for fact in facts:
        sentences.insert(rng.randint(1, len(sentences) - 1), fact)
    return " ".join(sentences)


def choose(chunks, needed, rng):
    """The needed passages and others of the group, in random order."""
    count = max(rng.choices((2, 3, 4, 5, 6), (40, 35, 15, 6, 4))[0], len(needed))
    others = [i for i in range(len(chunks)) if i not in needed]
    chosen = list(needed) + rng.sample(others, count - len(needed))
    rng.shuffle(chosen)
    return [chunks[i] for i in chosen]


def make_group(group, pool, needles, rng):
    first, last = rng.sample(PEOPLE_FIRST, GROUP), rng.sample(PEOPLE_LAST, GROUP)
    places, towns = rng.sample(PLACES, GROUP), rng.sample(TOWNS, GROUP)
    facts, asked = [[] for _ in range(GROUP)], []
    for i in range(GROUP):
        needle = needles.pop()
        facts[i].append(needle["needle"])
        asked.append(("one", needle["question_paraphrase"],
                      f"The special magic number for {needle['key']} is", needle["answer"], [i]))
        template = TWO[i % len(TWO)]
        value = towns[i] if "town" in template[1] else str(rng.randint(10000, 99999))
        fill = lambda text: re.sub(r"\b[PNV]\b", lambda m: {
            "P": places[i], "N": f"{first[i]} {last[i]}", "V": value}[m.group()], text)
        facts[i].append(fill(template[0]))
        facts[(i + 1) % GROUP].append(fill(template[1]))
        asked.append(("two", fill(template[2]), fill(template[3]), value, [i, (i + 1) % GROUP]))
    chunks = [plant(pool.pop(), facts[i], rng) for i in range(GROUP)]
    return [{"id": f"{kind}-{group:02d}-{n:02d}", "kind": kind, "chunks": choose(chunks, needed, rng),
             "question": question, "prefix": prefix, "answers": [answer]}
            for n, (kind, question, prefix, answer, needed) in enumerate(asked)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--groups", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    try:
        with open(os.path.join(args.data, "longctx", "needles_v1.jsonl"), encoding="utf-8") as file:
            needles = [json.loads(line) for line in file]
    except OSError as error:
        print(f"make_compose_questions: {error}; expected --data to hold books/ and longctx/",
              file=sys.stderr)
        return 1
    pool = passages(args.data)
    if len(pool) < GROUP * args.groups or len(needles) < GROUP * args.groups:
        print(f"make_compose_questions: {args.data} gives {len(pool)} passages and {len(needles)} "
              f"needles, {GROUP * args.groups} of each are needed", file=sys.stderr)
        return 1
    rng.shuffle(pool)
    rng.shuffle(needles)
    with open(args.out, "w", encoding="utf-8") as file:
        for group in range(args.groups):
            for question in make_group(group, pool, needles, rng):
                file.write(json.dumps(question, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
