"""ask with several artifacts: composed, or exact when their very sequence is stored."""

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

    def three(self, *args):
        return self.ask("--graft", "one", "--graft", "two", "--graft", "three", *args)

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
        cold = self.ask("--text", "\n\n".join(PARTS.values()))
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
        cold = self.ask("--text", "\n\n".join(PARTS.values()))
        self.assertEqual(again["answer"], cold["answer"])
        # Another order is another sequence; the same start is used.
        other = self.ask("--graft", "two", "--graft", "one", "--graft", "three")
        self.assertEqual(other["tier"], "composed")
        longer = self.ask("--graft", "one", "--graft", "two", "--graft", "three", "--graft", "two")
        self.assertEqual(longer["tier"], "composed")
        self.assertEqual(longer["artifacts"], [made["stored"], self.made["two"]["id"]])

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
