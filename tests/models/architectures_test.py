"""Every kind of model state that the engine has, on tiny random models: 20 of 20 proofs each, restores
in new processes among them, or a refusal that says what cannot be kept; what can be read as arrays,
moved and composed. The table that comes out is the one in README.md, line by line.

    KVGRAFT_WRITE_TABLE=1 python3 tests/models/architectures_test.py     writes it there
"""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from harness import CliTest  # noqa: E402

BUILD = os.path.abspath(os.environ.get("KVGRAFT_BINARY_DIR", "build"))
README = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "README.md")
SAMPLES = 20
# What a graft moves is turned; what it does not carry a position stays as it is.
KINDS = [
    ("mha", "llama, a KV head for each head"),
    ("gqa", "llama, grouped KV heads"),
    ("mqa", "llama, one KV head"),
    ("linear", "llama, linear RoPE scaling"),
    ("llama31", "llama, Llama 3.1 RoPE factors"),
    ("yarn", "llama, YaRN"),
    ("longrope", "llama, LongRoPE"),
    ("qwen2", "qwen2"),
    ("qwen3", "qwen3 (q/k norm)"),
    ("gemma3", "gemma3 (sliding window)"),
    ("mistral3", "mistral3 (Ministral)"),
    ("partial", "stablelm (partial RoPE)"),
    ("moe", "qwen3moe (mixture of experts)"),
    ("mla", "deepseek2 (MLA)"),
    ("dsa", "deepseek32 (MLA, lightning indexer)"),
    ("mamba", "mamba (recurrent)"),
    ("lfm2", "lfm2 (hybrid)"),
    ("mrope", "qwen2vl (M-RoPE)"),
]
HEAD = ["| state of | exact | planes | other position | composed |", "|---|---|---|---|---|"]
ONE = ("The gauge by the lock is read at six. On the first day it stood at two metres and a hand, on "
       "the second a little lower, and on the third the boats lay dry.")
TWO = ("Nobody wrote down why; the miller said that the weir upstream had been opened for the geese, "
       "and that it would be closed again when the rain came.")


class Architectures(CliTest):
    def exact(self, model, flags=()):
        """"20 of 20", or why the state cannot be kept."""
        run = self.run_cli("prove", "-m", model, *flags, "--samples", SAMPLES, "--seed", "1",
                           "--max-tokens", "700", "--json", timeout=600)
        if run.code == 3:
            self.fails(3, "capture", "-m", model, "--text", ONE, says="cannot be captured")
            return None
        self.assertEqual(run.code, 0, run)
        proof = json.loads(run.out)
        self.assertEqual(proof["identical"], SAMPLES, proof)
        self.assertEqual(proof["samples"], SAMPLES)
        self.assertEqual(proof["max_abs_logit_diff"], 0)
        self.assertEqual(proof["new_process_skipped"], 0)
        self.assertTrue(proof["self_test_holds"])
        return "%d of %d" % (proof["identical"], proof["samples"])

    def planes(self, model):
        report = self.json("doctor", "-m", model)
        if report["planes"] is None:
            return None, report["planes_refused"]
        kinds = []
        for group in report["planes"]:
            name = group["kind"] + (" (window)" if group["window"] else "")
            if name not in kinds:
                kinds.append(name)
        if report["keeps_position"]:
            return ", ".join(kinds), report["keeps_position"]
        self.assertTrue(any(group["position"] for group in report["planes"]), report["planes"])
        return ", ".join(kinds), None

    def composed(self, model, why_not):
        tokens = [self.json("capture", "-m", model, "-c", "2048", "--raw", "--name", name, "--text",
                            text)["tokens"] for name, text in (("one", ONE), ("two", TWO))]
        ask = ["ask", "-m", model, "-c", "2048", "--graft", "one", "--graft", "two", "--gate", "off", "-n", "4", "Why?"]
        if why_not:
            # Refused, never half of it; exactly computed it can be had.
            self.fails(3, *ask, says=why_not)
            self.assertEqual(self.json(*ask, "--exact")["tier"], "exact")
            return "refused"
        answer = self.json(*ask)
        self.assertEqual(answer["tier"], "composed", answer)
        self.assertGreater(answer["tokens_reused"], tokens[0])  # cells of the second too
        return "yes"

    def row(self, kind, what):
        model = os.path.join(BUILD, "tiny", "tiny-%s.gguf" % kind)
        exact = self.exact(model)
        if exact is None:
            return "| %s | refused | refused | refused | refused |" % what
        planes, why_not = self.planes(model)
        composed = self.composed(model, why_not)
        moved = "refused" if why_not else "yes"
        return "| %s | %s | %s | %s | %s |" % (what, exact, planes or "refused", moved, composed)

    def test_table(self):
        rows = []
        for kind, what in KINDS:
            with self.subTest(kind):
                rows.append(self.row(kind, what))
                print(rows[-1], flush=True)
                for name in ("one", "two"):
                    self.run_cli("rm", name)
        table = HEAD + rows
        with open(README, encoding="utf-8") as file:
            text = file.read()
        if os.environ.get("KVGRAFT_WRITE_TABLE"):
            begin = text.index(HEAD[0])
            end = text.index("\n\n", begin)
            with open(README, "w", encoding="utf-8") as file:
                file.write(text[:begin] + "\n".join(table) + text[end:])
            return
        for line in table:
            self.assertTrue("\n" + line + "\n" in text,
                            "README.md has another line than " + line + "; write the table anew: "
                            "KVGRAFT_WRITE_TABLE=1 python3 tests/models/architectures_test.py")

    def test_two_adapters(self):
        """Two adapters at once, in this order and with their scales, are one identity."""
        model = os.path.join(BUILD, "tiny", "tiny-gqa.gguf")
        a, b = (os.path.join(BUILD, "tiny", "tiny-lora-%s.gguf" % x) for x in "ab")
        both = ["--lora", a, "--lora-scaled", b, "0.5"]
        self.assertEqual(self.exact(model, both), "20 of 20")
        self.ok("capture", "-m", model, *both, "--name", "doc", "--text", ONE)
        for flags in ([], ["--lora", a], ["--lora", a, "--lora", b]):
            self.fails(3, "ask", "-m", model, *flags, "--graft", "doc", "Who?", says="adapters")


if __name__ == "__main__":
    unittest.main()
