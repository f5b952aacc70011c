"""A state captured by one process answers in another exactly as a cold run does, for every kind of
attention state and cache type (LMCache#4492: in a new process 38 of 38 answers were corrupted), and
what was restored is what the next request reuses (llama.cpp#26676: restored, and nothing reused).
Uses the tiny models that the build makes."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from harness import CliTest  # noqa: E402

TINY = os.path.join(os.environ.get("KVGRAFT_BINARY_DIR", "build"), "tiny")
TEXT = ("The gauge by the lock is read at six. On the first day it stood at two metres and a hand, "
        "on the second a little lower, and on the third the boats lay dry. Nobody wrote down why; "
        "the miller said that the weir upstream had been opened for the geese.")


class TwoProcesses(CliTest):
    def check(self, kind, *flags):
        model = ["-m", os.path.abspath(os.path.join(TINY, "tiny-%s.gguf" % kind)), *flags]
        captured = self.json("capture", *model, "--name", "doc", "--text", TEXT)
        ask = ["-n", "24", "--ignore-eos", "What did the miller say?"]
        warm = self.json("ask", *model, "--graft", "doc", *ask)
        cold = self.json("ask", *model, "--text", TEXT, *ask)
        self.assertEqual(warm["tier"], "exact", warm)
        self.assertEqual(cold["tier"], "computed")
        self.assertEqual(warm["answer"], cold["answer"])
        self.assertEqual(warm["tokens_generated"], 24)
        # Reuse as the request saw it, not as the restore claimed.
        self.assertEqual(warm["tokens_reused"] + warm["tokens_computed"], cold["tokens_computed"])
        self.assertGreaterEqual(warm["tokens_reused"], captured["tokens"] - 63)
        self.assertGreater(warm["tokens_reused"], 0)
        self.assertTrue(warm["probe_identical"])
        verified = self.json("verify", "doc", "--recompute", *model)
        self.assertTrue(verified["ok"] and verified["recomputed_identical"], verified)

    def test_multi_head(self):
        self.check("mha")

    def test_grouped_query(self):
        self.check("gqa")

    def test_multi_query(self):
        self.check("mqa")

    def test_query_key_norms(self):
        self.check("qwen3")

    def test_sliding_window(self):
        self.check("gemma3")

    def test_multi_head_latent(self):
        self.check("mla")

    def test_quantised_cache(self):
        for kind in ("q8_0", "q4_0"):
            self.check("qwen3", "-fa", "on", "-ctk", kind, "-ctv", kind)

    def test_wide_cache(self):
        self.check("gqa", "-ctk", "f32", "-ctv", "f32")

    def test_adapter(self):
        """llama.cpp#26207, vllm#44250: a state belongs to its adapter and the adapter's scale."""
        lora = os.path.abspath(os.path.join(TINY, "tiny-lora-a.gguf"))
        other = os.path.abspath(os.path.join(TINY, "tiny-lora-b.gguf"))
        self.check("gqa", "--lora", lora)
        base = ["-m", os.path.abspath(os.path.join(TINY, "tiny-gqa.gguf"))]
        for flags in ([], ["--lora", other], ["--lora-scaled", lora, "0.5"]):
            self.fails(3, "ask", *base, *flags, "--graft", "doc", "Who?", says="adapters")

    def test_embedding_model(self):
        bert = ["-m", os.path.abspath(os.path.join(TINY, "tiny-bert.gguf"))]
        one = self.json("embed", *bert, "a lock and a weir")
        self.assertEqual(len(one["embedding"]), 64)
        self.fails(3, "capture", *bert, "--text", TEXT, says="no decoder")


if __name__ == "__main__":
    unittest.main()
