"""ask with several artifacts: exact when their very sequence is stored, composed behind the drift
gate, or computed; and eval compose."""

import glob
import json
import os

from harness import CliTest, TOY, main, text_of

PARTS = {"one": text_of(400), "two": "The lamp of Skarv burns whale oil.\n" * 9,
         "three": "Keeper Holm counts the ships twice a day, and writes them down.\n" * 4}


class Compose(CliTest):
    def setUp(self):
        super().setUp()
        self.made = {name: self.json("capture", *TOY, "--name", name, "--text", text)
                     for name, text in PARTS.items()}

    def ask(self, *args):
        return self.json("ask", *TOY, *args, "Who counts?", "-n", 12)

    def gated(self, *args):
        return self.ask("--graft", "one", "--graft", "two", "--graft", "three", *args)

    def three(self, *args):
        return self.gated("--gate", "off", *args)

    def cold(self):
        return self.ask("--text", "\n\n".join(PARTS.values()))

    def set_record(self, **fields):
        """Changes what the calibration has found."""
        paths = glob.glob(os.path.join(self.home, "cache", "kvgraft", "doctor", "*.drift-16.json"))
        self.assertEqual(len(paths), 1)
        with open(paths[0], encoding="utf-8") as file:
            record = json.load(file)
        record.update(fields)
        with open(paths[0], "w", encoding="utf-8") as file:
            json.dump(record, file)
        return record

    def test_fields(self):
        got = self.three()
        self.assertEqual(got["tier"], "composed")
        self.assertEqual(got["artifacts"], [self.made[name]["id"] for name in PARTS])
        self.assertEqual(got["tokens_reused"] + got["tokens_computed"], got["prompt_tokens"])
        # The template's head stands once, and 16 tokens of each further artifact are computed.
        tokens = sum(made["tokens"] for made in self.made.values())
        self.assertLess(got["prompt_tokens"], tokens + 40)
        none, many = self.three("--link", 0), self.three("--link", 100)
        self.assertEqual(none["tokens_reused"], got["tokens_reused"] + 32)
        self.assertEqual(many["tokens_reused"], none["tokens_reused"] - 200)

    def test_all_links_are_the_cold_answer(self):
        got = self.three("--link", 100000)
        cold = self.cold()
        self.assertEqual(got["answer"], cold["answer"])
        self.assertEqual(got["prompt_tokens"], cold["prompt_tokens"])
        self.assertEqual(got["tokens_reused"], self.made["one"]["tokens"])

    def test_exact_is_kept_and_found_again(self):
        made = self.three("--exact")
        self.assertEqual(made["tier"], "exact")
        self.assertEqual(made["tokens_reused"], self.made["one"]["tokens"])
        self.assertIsNotNone(made["stored"])
        again = self.three()
        self.assertEqual((again["tier"], again["artifacts"]), ("exact", [made["stored"]]))
        self.assertEqual(again["answer"], made["answer"])
        self.assertLess(again["tokens_computed"], 40)  # the question
        cold = self.cold()
        self.assertEqual(again["answer"], cold["answer"])
        # Another order is another sequence; the same start is used.
        other = self.ask("--graft", "two", "--graft", "one", "--graft", "three", "--gate", "off")
        self.assertEqual(other["tier"], "composed")
        longer = self.ask("--graft", "one", "--graft", "two", "--graft", "three", "--graft", "two",
                          "--gate", "off")
        self.assertEqual(longer["tier"], "composed")
        self.assertEqual(longer["artifacts"], [made["stored"], self.made["two"]["id"]])
        # LMCache-Ascend#277: tokens computed at wrong positions behind a prefix that was found. All
        # of the fourth computed there is the cold answer.
        linked = self.ask("--graft", "one", "--graft", "two", "--graft", "three", "--graft", "two",
                          "--gate", "off", "--link", 100000)
        whole = self.ask("--text", "\n\n".join([*PARTS.values(), PARTS["two"]]))
        self.assertEqual(linked["answer"], whole["answer"])
        self.assertEqual(linked["tokens_reused"], made["prompt_tokens"] - again["tokens_computed"])

    # LMCache#4666: blending loses quality, and nothing says for which models. Random weights predict
    # nothing, so the gate cannot tell good from broken: composing stays off.
    def test_a_model_that_the_gate_cannot_judge_computes(self):
        run = self.ok("ask", *TOY, "--graft", "one", "--graft", "two", "--graft", "three",
                      "Who counts?", "-n", 12)
        self.assertIn("calibrating the drift gate", run.err)
        self.assertIn("composing is off", run.err)
        got = self.gated()
        self.assertEqual((got["tier"], got["fell_back"], got["gate"]), ("computed", True, []))
        self.assertIn("composing is off", got["tier_reason"])
        self.assertEqual(got["answer"], self.cold()["answer"])
        self.assertEqual(got["tokens_reused"], self.made["one"]["tokens"])
        doctor = self.json("doctor", *TOY)
        self.assertEqual([r["link_tokens"] for r in doctor["drift"]], [16])
        self.assertFalse(doctor["drift"][0]["usable"])
        self.assertIn("link 16", self.ok("doctor", *TOY).out)

    def test_the_gate_passes_or_computes(self):
        self.gated()
        self.set_record(usable=True, threshold=100.0)
        got = self.gated()
        self.assertEqual((got["tier"], got["fell_back"]), ("composed", False))
        self.assertIn("passed the drift gate", got["tier_reason"])
        self.assertEqual([g["artifact"] for g in got["gate"]],
                         [self.made[name]["id"] for name in ("two", "three")])
        for gate in got["gate"]:
            self.assertTrue(gate["passed"])
            self.assertFalse(gate["fell_back"])
            self.assertEqual((gate["held_tokens"], gate["threshold"]), (32, 100.0))
            self.assertLess(abs(gate["delta"]), 20)
        self.assertEqual(got["tokens_reused"], self.three()["tokens_reused"] - 66)

        self.set_record(threshold=-100.0)
        got = self.gated()
        self.assertEqual((got["tier"], got["fell_back"]), ("computed", True))
        self.assertIn("did not pass the gate", got["tier_reason"])
        self.assertEqual(len(got["gate"]), 1)  # the first that did not pass ends it
        self.assertEqual(got["answer"], self.cold()["answer"])
        self.assertEqual(got["tokens_reused"] + got["tokens_computed"],
                         got["prompt_tokens"] + 16 + 33)  # what was decoded in vain counts
        self.assertEqual(self.three()["tier"], "composed")
        self.assertIn("gate is off", self.three()["tier_reason"])
        # All tokens linked: nothing is attached, and nothing to judge.
        self.assertEqual(self.three("--link", 100000)["tier"], "computed")

    def test_eval(self):
        items = os.path.join(self.home, "items.jsonl")
        out = os.path.join(self.home, "out.json")
        args = ("eval", "compose", *TOY, "--links", "0,16", "--samples", 3, "--items", items)
        got = self.json(*args, "--out", out)
        arms = {(a["arm"], a["kind"]): a for a in got["arms"]}
        full = arms["full", "all"]
        self.assertEqual((full["items"], full["kl"]["mean"], full["top1_agreement"]), (3, 0, 1))
        self.assertGreater(arms["paste", "all"]["kl"]["mean"], 0)
        self.assertEqual(arms["link-16", "all"]["gate"]["asked"], 3)
        # Only the default number of link tokens is calibrated for it.
        self.assertEqual([g["link_tokens"] for g in got["gates"]], [16])
        self.assertNotIn("gate", arms["link-0", "all"])
        with open(items, encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.assertEqual(len(lines), 4)  # the settings first
        # Cut off in the middle of a line, as by kill -9: what is whole is kept.
        self.write("items.jsonl", "\n".join(lines[:3]) + "\n" + lines[3][:50])
        again = self.json(*args, "--resume")
        for a, b in zip(got["arms"], again["arms"]):
            self.assertEqual((a["kl"], a["correct"]), (b["kl"], b["correct"]))
        self.fails(3, *args, "--resume", "-s", 2, says="other settings")
        question = {"id": "q", "kind": "one", "chunks": ["The lamp of Skarv burns oil."] * 2,
                    "question": "What burns?", "answers": ["oil"]}
        data = self.write("q.jsonl", json.dumps(question) + "\n")
        got = self.json("eval", "compose", *TOY, "--data", data, "--gate", "off", "--links", "4")
        self.assertEqual((got["items"], got["gates"]), (1, []))
        question["chunks"] = ["one"]
        data = self.write("q.jsonl", "\n" + json.dumps(question) + "\n")
        self.fails(2, "eval", "compose", *TOY, "--data", data, says=["line 2", "2 to 6"])
        self.fails(2, "eval", "compose", *TOY, "--resume", says="--items")
        self.fails(2, "eval", "offset", *TOY, "--links", "4")

    def test_refusals(self):
        self.json("capture", "-m", "toy:5", "--name", "foreign", "--text", PARTS["two"])
        self.fails(3, "ask", *TOY, "--graft", "one", "--graft", "foreign", "Who?",
                   says="model.sha256")
        self.fails(1, "ask", *TOY, "--graft", "one", "--graft", "nothing", "Who?")
        self.fails(1, "ask", *TOY, "--graft", "one", "--graft", "two", "-c", 500, "Who?",
                   says="needed")
        self.fails(2, "ask", *TOY, "--graft", "one", "--exact", "Who?", says="several")
        self.fails(2, "ask", *TOY, "--graft", "one", "--graft", "two", "--or-compute", "Who?")


if __name__ == "__main__":
    main()
