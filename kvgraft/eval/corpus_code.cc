#include "kvgraft/eval/corpus_text.h"

namespace kvgraft::eval {

const std::string_view kCorpusCode = R"TEXT(package queue

import (
	"container/heap"
	"errors"
	"sync"
	"time"
)

// ErrClosed is returned by Put after Close.
var ErrClosed = errors.New("queue: closed")

type item struct {
	due   time.Time
	seq   uint64 // keeps insertion order for equal times
	value any
}

type byDue []item

func (h byDue) Len() int { return len(h) }
func (h byDue) Less(i, j int) bool {
	if h[i].due.Equal(h[j].due) {
		return h[i].seq < h[j].seq
	}
	return h[i].due.Before(h[j].due)
}
func (h byDue) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *byDue) Push(x any)   { *h = append(*h, x.(item)) }
func (h *byDue) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

// Put schedules value for the given time. It never blocks for longer than the lock is held.
func (q *Queue) Put(value any, due time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrClosed
	}
	q.seq++
	heap.Push(&q.items, item{due: due, seq: q.seq, value: value})
	q.wake.Signal()
	return nil
}

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from collections import defaultdict
from pathlib import Path


def read_readings(path: Path) -> dict[str, list[float]]:
    """Readings by sensor; lines that do not parse are counted and reported, never dropped silently."""
    readings: dict[str, list[float]] = defaultdict(list)
    bad = 0
    with path.open(newline="", encoding="utf-8") as handle:
        for row in csv.DictReader(handle, delimiter=";"):
            try:
                readings[row["sensor"]].append(float(row["value"].replace(",", ".")))
            except (KeyError, ValueError, AttributeError):
                bad += 1
    if bad:
        print(f"{path.name}: {bad} lines skipped", file=sys.stderr)
    return readings


def outliers(values: list[float], k: float = 3.5) -> list[int]:
    """Indices whose modified z-score exceeds k (median absolute deviation)."""
    if len(values) < 5:
        return []
    median = statistics.median(values)
    mad = statistics.median(abs(v - median) for v in values)
    if mad == 0:
        return [i for i, v in enumerate(values) if v != median]
    return [i for i, v in enumerate(values) if 0.6745 * abs(v - median) / mad > k]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("-k", type=float, default=3.5, help="threshold, default %(default)s")
    args = parser.parse_args()
    worst = 0
    for path in args.files:
        for sensor, values in sorted(read_readings(path).items()):
            found = outliers(values, args.k)
            worst = max(worst, len(found))
            print(f"{path.stem:20} {sensor:8} n={len(values):5d} outliers={len(found)}")
    return 1 if worst > 10 else 0

/// A fixed-size bitmap over page frames. Bit set means: in use.
pub struct FrameMap<const WORDS: usize> {
    words: [u64; WORDS],
    hint: usize,
}

impl<const WORDS: usize> FrameMap<WORDS> {
    pub const fn new() -> Self {
        Self { words: [0; WORDS], hint: 0 }
    }

    /// Finds and claims a free frame, starting near the last one that was handed out.
    pub fn claim(&mut self) -> Option<usize> {
        for step in 0..WORDS {
            let w = (self.hint + step) % WORDS;
            let free = !self.words[w];
            if free != 0 {
                let bit = free.trailing_zeros() as usize;
                self.words[w] |= 1 << bit;
                self.hint = w;
                return Some(w * 64 + bit);
            }
        }
        None
    }

    pub fn release(&mut self, frame: usize) -> Result<(), FrameError> {
        let (w, mask) = (frame / 64, 1u64 << (frame % 64));
        match self.words.get_mut(w) {
            None => Err(FrameError::OutOfRange(frame)),
            Some(word) if *word & mask == 0 => Err(FrameError::AlreadyFree(frame)),
            Some(word) => {
                *word &= !mask;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_every_frame_once() {
        let mut map = FrameMap::<2>::new();
        let mut seen = std::collections::HashSet::new();
        while let Some(frame) = map.claim() {
            assert!(seen.insert(frame), "frame {frame} was handed out twice");
        }
        assert_eq!(seen.len(), 128);
        assert!(map.release(5).is_ok());
        assert!(matches!(map.release(5), Err(FrameError::AlreadyFree(5))));
    }
}

/* Cyclic redundancy check, reflected polynomial 0xEDB88320, one nibble at a time: sixteen table
 * entries fit in a cache line, which matters more on this controller than the second lookup. */
static const uint32_t crc_nibble[16] = {
    0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
    0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
};

uint32_t crc32_update(uint32_t crc, const uint8_t *data, size_t length) {
    crc = ~crc;
    for (size_t i = 0; i < length; i++) {
        crc ^= data[i];
        crc = (crc >> 4) ^ crc_nibble[crc & 15];
        crc = (crc >> 4) ^ crc_nibble[crc & 15];
    }
    return ~crc;
}

export async function* readLines(stream, { maxBytes = 1 << 20 } = {}) {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let rest = "";
  let total = 0;
  for await (const chunk of stream) {
    total += chunk.byteLength;
    if (total > maxBytes) throw new RangeError(`more than ${maxBytes} bytes without an end`);
    rest += decoder.decode(chunk, { stream: true });
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) yield line.endsWith("\r") ? line.slice(0, -1) : line;
  }
  rest += decoder.decode();
  if (rest !== "") yield rest;
}

#!/bin/sh
# Keeps the last N archives of each day and one of each month.
set -eu
dir=${1:?usage: prune DIR [N]}
keep=${2:-3}
ls -1 "$dir"/*.tar.zst 2>/dev/null | sed 's/.*-\([0-9]\{8\}\)-.*/\1/' | sort -u |
while read -r day; do
  case $day in
    ??????01) continue ;;  # first of the month: never removed
  esac
  ls -1 "$dir"/*-"$day"-*.tar.zst | sort -r | tail -n +"$((keep + 1))" |
  while read -r old; do
    printf 'removing %s\n' "$old"
    rm -- "$old"
  done
done

WITH RECURSIVE parts(assembly, part, quantity, depth) AS (
    SELECT assembly, part, quantity, 1 FROM bill_of_materials WHERE assembly = 'HP-3'
    UNION ALL
    SELECT b.assembly, b.part, p.quantity * b.quantity, p.depth + 1
    FROM bill_of_materials b JOIN parts p ON b.assembly = p.part
    WHERE p.depth < 12
)
SELECT part, sum(quantity) AS needed, coalesce(s.on_hand, 0) AS on_hand,
       greatest(sum(quantity) - coalesce(s.on_hand, 0), 0) AS to_order
FROM parts LEFT JOIN stock s USING (part)
WHERE NOT EXISTS (SELECT 1 FROM bill_of_materials x WHERE x.assembly = parts.part)
GROUP BY part, s.on_hand ORDER BY to_order DESC, part;

version: 3
services:
  ingest:
    image: registry.internal/ingest:2.14.1
    environment:
      BATCH_ROWS: "500"
      FLUSH_AFTER: 750ms
    healthcheck:
      test: ["CMD", "wget", "-qO-", "http://localhost:8080/ready"]
      interval: 10s
      retries: 6
    deploy:
      resources:
        limits: { cpus: "1.5", memory: 768M }

module Interval (Interval, mk, width, overlap, hull) where

-- | Closed intervals with lo <= hi; the constructor is not exported, so no other can be made.
data Interval a = Interval { lo :: !a, hi :: !a } deriving (Eq, Show)

mk :: Ord a => a -> a -> Interval a
mk a b | a <= b    = Interval a b
       | otherwise = Interval b a

width :: Num a => Interval a -> a
width (Interval a b) = b - a

overlap :: Ord a => Interval a -> Interval a -> Maybe (Interval a)
overlap (Interval a b) (Interval c d)
  | l <= h    = Just (Interval l h)
  | otherwise = Nothing
  where l = max a c
        h = min b d

hull :: Ord a => Interval a -> Interval a -> Interval a
hull (Interval a b) (Interval c d) = Interval (min a c) (max b d)
)TEXT";

}  // namespace kvgraft::eval
