"""What must be refused, and how: exit codes, one line, the differing field with both values."""

import os
import stat

from harness import CliTest, TOY, main, text_of

DOCUMENT = text_of(400)
BAD_NAMES = ["../x", "/abs", "a/../b", "a\\..\\b", "%2e%2e", "a\nb", "CON", "x" * 300, "caf\u00e9",
             "trailing.", ".hidden", "-dash", "a b", "", "a" * 64]


class Refusals(CliTest):
    def setUp(self):
        super().setUp()
        self.json("capture", *TOY, "--raw", "--name", "doc", "--text", DOCUMENT)

    def ask(self, *args):
        return ["ask", *args, "--graft", "doc", "Who?", "-n", 2]

    def test_another_model(self):
        # sglang#24758: a cache keyed by name served one model's state to another.
        run = self.fails(3, *self.ask("-m", "toy:2"), says=["model.sha256", "artifact", "here"])
        mine = self.json("show", "doc")["identity"]["model.sha256"]
        self.assertIn(mine, run.err)
        self.assertNotIn("cache.type_k", run.err)
        self.assertNotIn("self-test", run.err)  # refused before anything that takes long
        self.fails(3, *self.ask("-m", "toy:2"), "--json", says="model.sha256")
        self.fails(3, "verify", "doc", "--recompute", "-m", "toy:2", says="model.sha256")
        self.fails(3, "chat", "-m", "toy:2", "--graft", "doc", says="model.sha256")

    def test_another_configuration(self):
        # vllm#55904, vllm#56311: a change of layout or RoPE read old bytes as new.
        for flags, field in ((["-ctk", "q8_0"], "cache.type_k"), (["-ctv", "q8_0"], "cache.type_v"),
                             (["-fa", "on"], "cache.attention"),
                             (["--rope-freq-base", "20000"], "rope.freq_base"),
                             (["--rope-freq-scale", "0.5"], "rope.freq_scale")):
            run = self.run_cli(*self.ask(*TOY, *flags))
            if run.code == 2 and "cache" in field:
                continue  # a type that this engine does not have at all
            self.assertEqual(run.code, 3, run)
            self.assertIn(field, run.err.splitlines()[-1])

    def test_the_other_attention_in_both_directions(self):
        self.json("capture", *TOY, "-fa", "on", "--raw", "--name", "flash", "--text", DOCUMENT)
        self.ok("ask", *TOY, "-fa", "on", "--graft", "flash", "Who?", "-n", 2)
        self.fails(3, "ask", *TOY, "-fa", "off", "--graft", "flash", "Who?", "-n", 2,
                   says=["cache.attention", "flash", "plain"])

    def test_a_context_that_is_too_small(self):
        run = self.fails(1, *self.ask(*TOY, "-c", 100), says=["-c gives 100", "needed"])
        self.assertRegex(run.err, r"4\d\d tokens are needed")
        self.fails(1, "capture", *TOY, "-c", 64, "--text", DOCUMENT, says="needed")

    def test_a_small_context_of_another_model_names_the_model(self):
        self.fails(3, *self.ask("-m", "toy:2", "-c", 100), says="model.sha256")

    def test_names(self):
        # llama.cpp#26316: names that leave the folder.
        for name in BAD_NAMES:
            if name == "":
                continue  # the same as no name
            self.fails(2, "capture", *TOY, "--text", "x", "--name=" + name)
            self.fails(2, "name", "doc", "--", name)
        self.assertEqual(len(self.objects()), 1)
        self.assertEqual(sorted(os.listdir(self.home)), ["cache", "cwd", "data"])

    def test_references_that_name_nothing(self):
        self.fails(1, "ask", *TOY, "--graft", "nothing", "Who?", says="nothing")
        self.fails(1, "show", "0123456789", says="0123456789")
        self.fails(1, "rm", "nothing")
        for ref in ("../doc", "/etc/passwd"):
            self.assertIn(self.run_cli("show", ref).code, (1, 2))

    def test_damage(self):
        # llama.cpp#27068: a corrupt file was half loaded and spoilt what came after.
        path = self.objects()[0]
        with open(path, "r+b") as file:
            file.seek(os.path.getsize(path) - 5000)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))
        ident = os.path.basename(path)[:-4]
        self.fails(3, *self.ask(*TOY))
        self.assertEqual(self.objects(), [])
        quarantine = os.listdir(os.path.join(self.store, "quarantine"))
        self.assertTrue([name for name in quarantine if ident[:12] in name], quarantine)
        self.fails(1, *self.ask(*TOY))
        # The same text is captured and works again.
        again = self.json("capture", *TOY, "--raw", "--name", "doc", "--text", DOCUMENT)
        self.assertEqual(again["id"], ident)
        self.assertFalse(again["already_stored"])
        self.ok(*self.ask(*TOY))

    def test_damage_can_be_computed_anew(self):
        # dynamo#15079: after a failed read another request's state was served as success.
        cold = self.json("ask", *TOY, "--raw", "--text", DOCUMENT, "Who?", "-n", 12)
        path = self.objects()[0]
        with open(path, "r+b") as file:
            file.seek(os.path.getsize(path) - 5000)
            file.write(b"\xff" * 9)
        got = self.json("ask", *TOY, "--graft", "doc", "Who?", "-n", 12, "--or-compute")
        self.assertEqual(got["answer"], cold["answer"])
        self.assertEqual((got["tier"], got["tokens_reused"], got["artifacts"]), ("computed", 0, []))
        self.assertEqual(got["tokens_computed"], cold["tokens_computed"])
        self.assertIn("checksum", got["fallback"])
        self.assertEqual(self.objects(), [])  # in quarantine: nobody gets it any more
        self.assertIsNone(cold["fallback"])
        # What is sound but foreign is still refused: its tokens are another model's.
        self.json("capture", *TOY, "--raw", "--name", "doc", "--text", DOCUMENT)
        self.fails(3, "ask", "-m", "toy:5", "--graft", "doc", "Who?", "--or-compute")
        self.fails(2, "ask", *TOY, "Who?", "--or-compute", says="--graft")

    def test_damage_found_by_verify_and_by_capture(self):
        for verb in (["verify", "doc"], ["capture", *TOY, "--raw", "--name", "doc", "--text", DOCUMENT]):
            path = self.objects()[0]
            with open(path, "r+b") as file:
                file.seek(os.path.getsize(path) - 70000)
                file.write(b"\xff" * 9)
            if verb[0] == "verify":
                self.fails(3, *verb, says="quarantine")
                self.json("capture", *TOY, "--raw", "--name", "doc", "--text", DOCUMENT)
            else:
                self.assertFalse(self.json(*verb)["already_stored"])

    def test_truncated_and_empty_files_are_not_imported(self):
        # llama.cpp#9173: an empty file.
        out = os.path.join(self.home, "doc.kvg")
        self.ok("export", "doc", out)
        with open(out, "rb") as file:
            whole = file.read()
        for n in (0, 1, 63, len(whole) // 2, len(whole) - 1):
            with open(out, "wb") as file:
                file.write(whole[:n])
            self.fails(3, "import", out)
        with open(out, "wb") as file:
            file.write(whole)
        self.ok("rm", "doc")
        self.assertEqual(self.json("import", out, "--name", "back")["names"], ["back"])
        self.ok("ask", *TOY, "--graft", "back", "Who?", "-n", 2)

    def test_a_failure_of_the_engine(self):
        self.fails(1, *self.ask("-m", "toy:1,fail_load"))
        self.ok(*self.ask(*TOY))

    def test_the_store_is_private_whatever_the_umask(self):
        # caporalCoder/hearth: snapshots equal a plaintext transcript.
        home = os.path.join(self.home, "open")
        env = {"XDG_DATA_HOME": home}
        self.json("capture", *TOY, "--text", "secret", "--name", "s", env=env,
                  preexec_fn=lambda: os.umask(0))
        for folder, folders, files in os.walk(os.path.join(home, "kvgraft")):
            self.assertEqual(stat.S_IMODE(os.stat(folder).st_mode), 0o700, folder)
            for name in files:
                mode = stat.S_IMODE(os.lstat(os.path.join(folder, name)).st_mode)
                self.assertEqual(mode & 0o177, 0, (folder, name, oct(mode)))


class Usage(CliTest):
    def test_wrong_usage_is_one_line_and_2(self):
        doc = self.write("doc.txt", "text")
        for args in ([], ["dance"], ["capture", *TOY], ["capture", "-m"], ["ask", *TOY],
                     ["capture", *TOY, doc, "--text", "x"], ["capture", *TOY, doc, "--dance"],
                     ["capture", doc], ["ask", "Who?"], ["models", "dance"], ["models", "path"],
                     ["completions", "csh"], ["diff"], ["diff", "x"], ["verify"], ["help", "dance"],
                     ["ask", *TOY, "Who?", "-n", "x"], ["ask", *TOY, "Who?", "-n", "0"],
                     ["ask", *TOY, "Who?", "-c", "-5"], ["ask", *TOY, "Who?", "-fa", "maybe"],
                     ["ask", *TOY, "Who?", "--temp", "-1"], ["ask", *TOY, "Who?", "--top-p", "2"],
                     ["ls", "--budget", "many"], ["capture", "-m", "toy:x", doc],
                     ["ask", *TOY, "two", "questions"], ["ls", "extra"], ["ls", "-m", "toy"],
                     ["capture", *TOY, doc, "--raw", "--system", "x"], ["doctor", "--again"],
                     ["capture", *TOY, "--text", ""], ["prove", *TOY, "--samples", "0"]):
            self.fails(2, *args)

    def test_missing_files_and_models(self):
        self.fails(1, "capture", *TOY, "/nowhere/doc.txt", says="No such file")
        self.fails(1, "capture", "-m", "/nowhere/m.gguf", "--text", "x", says="/nowhere/m.gguf")
        self.fails(1, "ask", "-m", "smollm2-135m", "Who?", says="kvgraft models pull smollm2-135m")
        self.fails(1, "models", "path", "smollm2-135m", says="kvgraft models pull")

    def test_text_that_is_not_utf8(self):
        path = os.path.join(self.home, "latin1.txt")
        with open(path, "wb") as file:
            file.write(b"caf\xe9 au lait")
        self.fails(2, "capture", *TOY, path, says=["not UTF-8 at byte 3", "iconv"])

    def test_a_file_that_is_no_model(self):
        # A broken model file must be told apart from a crash.
        path = self.write("broken.gguf", "this is no model")
        self.fails(3, "ask", "-m", path, "Who?")

    def test_messages_that_are_none(self):
        for text in ("", "{}", "[]", "[1]", '[{"role":"user"}]', '[{"role":"user","content":1}]'):
            self.fails(2, "capture", *TOY, "--messages", self.write("m.json", text),
                       says="messages")

    def test_the_environment_is_checked_like_flags(self):
        self.fails(2, "ask", *TOY, "Who?", env={"LLAMA_ARG_CTX_SIZE": "x"}, says="LLAMA_ARG_CTX_SIZE")
        self.fails(2, "ls", env={"KVGRAFT_BUDGET": "x"}, says="KVGRAFT_BUDGET")
        # A flag wins over its twin.
        self.ok("ask", *TOY, "-c", 600, "-n", 2, "Who?", env={"LLAMA_ARG_CTX_SIZE": "x"})
        got = self.json("ask", "-n", 2, "Who?", env={"LLAMA_ARG_MODEL": "toy",
                                                     "LLAMA_ARG_CTX_SIZE": "700"})
        self.assertEqual(got["n_ctx"], 700)


if __name__ == "__main__":
    main()
