"""docs/kvgraft.1 against --help: every verb and flag is there, and nothing that is not."""

import os
import re

from harness import CliTest, main

MAN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "kvgraft.1")
FLAG = re.compile(r"(?<![\w-])(--?[a-z][a-z-]*)")


def plain(roff):
    return re.sub(r"\\f[A-Z]", "", roff.replace("\\-", "-"))


class ManPage(CliTest):
    def setUp(self):
        super().setUp()
        with open(MAN, encoding="utf-8") as file:
            self.page = plain(file.read())

    def verbs(self):
        text = self.ok("--help").out
        return re.findall(r"^  ([a-z]+) {2,}", text[text.index("Subcommands:"):], re.M)

    def help_flags(self, verb):
        text = self.ok("help", verb).out
        flags = set(re.findall(r"^  (-[a-zA-Z-]+)", text, re.M))
        flags |= set(re.findall(r"^  -\w,(--[a-z-]+)", text, re.M))
        return flags | set(re.findall(r"\[(-[a-z]+)\]", text))

    def test_verbs(self):
        verbs = self.verbs()
        self.assertGreater(len(verbs), 18)
        documented = re.findall(r'^\.SS "?([a-z]+)', self.page, re.M)
        self.assertEqual(sorted(documented), sorted(verbs))

    def test_flags(self):
        known = set()
        for verb in self.verbs():
            flags = self.help_flags(verb)
            self.assertGreater(len(flags), 2, verb)
            known |= flags
        tagged = set()
        for line in re.findall(r"^\.TP\n(.*)$", self.page, re.M):
            tagged |= set(FLAG.findall(line.replace(".B", "").replace(".I", "")))
        self.assertEqual(tagged - known - {"--version"}, set(), "in the man page only")
        self.assertEqual(known - tagged, set(), "not in the man page")

    def test_environment(self):
        for name in ("KVGRAFT_STORE", "KVGRAFT_BUDGET", "KVGRAFT_FREE_FLOOR", "KVGRAFT_TENANT",
                     "KVGRAFT_MODELS", "LLAMA_ARG_MODEL", "LLAMA_ARG_CTX_SIZE", "NO_COLOR"):
            self.assertIn(name, self.page)


if __name__ == "__main__":
    main()
