"""Verbs over the store; processes one after the other and side by side; interruptions."""

import json
import os
import signal
import time

from harness import CliTest, TOY, main, text_of


class StoreVerbs(CliTest):
    def capture(self, name, text=None, *args):
        return self.json("capture", *TOY, "--raw", "--name", name, "--text", text or text_of(100, len(name)),
                         *args)

    def test_ls_show_and_a_new_process(self):
        self.assertEqual(self.json("ls")["artifacts"], [])
        made = self.capture("one", "Some text.", "--pin")
        entry = self.json("ls")["artifacts"][0]
        for field in ("id", "names", "tokens", "bytes", "model", "tier", "created", "pinned"):
            self.assertIn(field, entry)
        self.assertEqual((entry["id"], entry["pinned"], entry["tier"]), (made["id"], True, "exact"))
        table = self.ok("ls").out
        self.assertIn(made["id"][:12], table)
        self.assertIn("pinned", table)
        self.assertNotIn("\x1b", table)
        self.assertEqual(self.ok("ls", "--refs").out, "one\n")
        shown = self.json("show", "one")
        self.assertIn("model.sha256", shown["identity"])
        self.assertEqual(shown["schedule"]["kind"], "exact")
        self.assertRegex(shown["probe"]["padded_sha256"], "^[0-9a-f]{64}$")
        self.assertEqual(self.ok("show", "one", "--text").out, "Some text.")
        self.assertEqual(len(self.ok("show", "one", "--tokens").out.split()), made["tokens"])
        self.assertIn("model.sha256", self.ok("show", "one").out)

    def test_names_pins_and_rm(self):
        a = self.capture("a")
        self.ok("name", "a", "b")
        self.assertEqual(sorted(self.json("show", "b")["names"]), ["a", "b"])
        self.assertTrue(self.json("pin", "b")["pinned"])
        self.assertFalse(self.json("unpin", "b")["pinned"])
        self.ok("rm", "a")
        self.assertEqual(self.json("show", "b")["id"], a["id"])
        self.assertEqual(self.json("rm", "b")["removed"][0]["id"], a["id"])
        self.assertEqual(self.objects(), [])

    def test_export_and_import_between_stores(self):
        made = self.capture("x")
        out = os.path.join(self.home, "x.kvg")
        self.assertEqual(self.json("export", "x", out)["bytes"], os.path.getsize(out))
        self.fails(2, "export", "x", out)
        self.ok("export", "x", out, "--force")
        other = os.path.join(self.home, "other")
        got = self.json("import", out, "--store", other)
        self.assertEqual((got["id"], got["names"]), (made["id"], ["x"]))
        self.assertEqual(self.json("ls", env={"KVGRAFT_STORE": other})["artifacts"][0]["id"], made["id"])

    def test_gc_tells_first_and_does_then(self):
        for name in ("a", "bb", "ccc"):
            self.capture(name)
        self.ok("pin", "a")
        size = os.path.getsize(self.objects()[0])
        budget = ["--budget", 2 * size + 1000]
        dry = self.json("gc", "--dry-run", *budget)
        self.assertEqual([e["names"] for e in dry["evicted"]], [["bb"]])
        self.assertEqual(len(self.objects()), 3)
        done = self.json("gc", *budget)
        self.assertEqual([e["names"] for e in done["evicted"]], [["bb"]])
        self.assertEqual(len(self.objects()), 2)

    def test_a_budget_that_is_too_small_is_told_before_the_work(self):
        # ik_llama.cpp#2320: one entry larger than the limit was kept.
        self.fails(1, "capture", *TOY, "--text", text_of(3000), "--budget", "64KiB", says="budget")
        self.assertEqual(self.objects(), [])

    def test_the_catalog_is_made_again(self):
        # LMCache#1175, Mooncake#1196: files without their index were forgotten.
        made = self.capture("one")
        for name in os.listdir(self.store):
            if name.startswith("catalog"):
                os.remove(os.path.join(self.store, name))
        self.assertEqual(self.json("ls")["artifacts"][0]["id"], made["id"])
        self.assertEqual(self.json("rebuild")["entries"], 1)

    def test_a_file_that_is_gone_is_a_miss(self):
        # LMCache#1690: the index said present.
        self.capture("one")
        os.remove(self.objects()[0])
        self.fails(1, "ask", *TOY, "--graft", "one", "Who?")
        self.assertEqual(self.json("ls")["artifacts"], [])

    def test_models(self):
        os.makedirs(os.path.join(self.home, "models"))
        path = self.write("models/mine.gguf", "x")
        env = {"KVGRAFT_MODELS": os.path.join(self.home, "models")}
        self.assertEqual(self.ok("models", "path", "mine", env=env).out, path + "\n")
        got = {m["name"]: m for m in self.json("models", "list", env=env)["models"]}
        self.assertTrue(got["mine"]["present"])
        self.assertEqual(got["mine"]["path"], path)

    def test_doctor_and_version(self):
        got = self.json("doctor")
        self.assertTrue(got["ok"])
        self.assertIsNone(got["profile"])
        got = self.json("doctor", *TOY)
        self.assertTrue(got["profile"]["holds"])
        kept = got["profile"]["path"]
        self.assertTrue(os.path.exists(kept))
        again = self.json("doctor", *TOY, "--again")
        self.assertGreaterEqual(len(again["profile"]["trials"]), len(got["profile"]["trials"]))
        self.assertIn("<- used", self.ok("doctor", *TOY).out)
        run = self.run_cli("doctor", "-m", "toy:1,quantum=0", "--json")
        self.assertEqual(run.code, 1)
        self.assertFalse(json.loads(run.out)["ok"])
        self.assertEqual(self.json("version")["version"], "0.1.0")
        self.assertEqual(self.ok("--version").out, "kvgraft 0.1.0\n")

    def test_the_self_test_runs_once(self):
        first = self.ok("capture", *TOY, "--text", "a b c")
        self.assertIn("self-test", first.err)
        self.assertNotIn("self-test", self.ok("capture", *TOY, "--text", "d e f").err)

    def test_embed(self):
        self.fails(3, "embed", *TOY, "text")
        got = self.json("embed", "-m", "toy:1,pooled", "text")
        self.assertEqual(len(got["embedding"]), got["dimensions"])
        self.assertAlmostEqual(sum(x * x for x in got["embedding"]), 1, places=4)

    def test_completions_and_help(self):
        for shell in ("bash", "zsh", "fish"):
            script = self.ok("completions", shell).out
            for word in ("capture", "verify", "graft", "recompute", "ctk"):
                self.assertIn(word, script)
            self.assertNotIn("prove-restore", script)
        top = self.ok("--help").out
        self.assertEqual(self.ok("help").out, top)
        self.assertNotIn("prove-restore", top)
        self.assertIn("--graft", self.ok("help", "ask").out)

    def test_quiet_and_json_keep_standard_output_clean(self):
        run = self.ok("capture", *TOY, "-q", "--text", text_of(500), "--json")
        self.assertEqual(run.err, "")
        for env in ({}, {"NO_COLOR": "1"}, {"TERM": "xterm-256color"}):
            run = self.ok("ls", env=env)
            self.assertNotIn("\x1b", run.out + run.err)


class Processes(CliTest):
    def test_two_processes_capture_the_same_text(self):
        self.ok("capture", *TOY, "--text", "warm up")  # the self-test is kept
        self.ok("rm", self.json("ls")["artifacts"][0]["id"])
        path = self.write("doc.txt", text_of(1500))
        running = [self.start("capture", *TOY, "--raw", "--name", "same", "--json", path)
                   for _ in range(3)]
        ids = set()
        for process in running:
            out, err = process.communicate(timeout=300)
            self.assertEqual(process.returncode, 0, err)
            ids.add(json.loads(out)["id"])
        self.assertEqual(len(ids), 1)
        self.assertEqual(len(self.objects()), 1)
        self.assertEqual(os.listdir(os.path.join(self.store, "tmp")), [])
        self.assertIs(self.json("verify", "same", "--recompute", *TOY)["recomputed_identical"], True)

    def interrupt(self, path, after):
        process = self.start("capture", *TOY, "--raw", "-c", 13000, path)
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)  # timeout(1) signals twice
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def test_an_interrupted_capture_goes_on(self):
        self.ok("capture", *TOY, "--text", "warm up")
        self.ok("rm", self.json("ls")["artifacts"][0]["id"])
        # Long enough that a signal hits the prefill; the moment is found by trying.
        path = self.write("doc.txt", text_of(12000))
        kept = None
        for after in (0.5, 1.0, 0.3, 2.0, 0.2, 4.0, 0.1):
            code, out, err = self.interrupt(path, after)
            self.assertIn(code, (0, 130), err)
            if code == 0:
                self.ok("rm", self.json("ls")["artifacts"][0]["id"])
                continue
            self.assertEqual(out, "")
            self.assertEqual(len([e for e in err.splitlines() if e.startswith("kvgraft:")]), 1, err)
            if "kept as" in err:
                kept = self.json("ls")["artifacts"]
                break
        self.assertTrue(kept, "no interruption hit the prefill")
        self.assertEqual(kept[0]["names"], [])
        got = self.json("capture", *TOY, "--raw", "-c", 13000, path, "--name", "doc")
        self.assertEqual(got["resumed_from"], kept[0]["id"])
        self.assertGreaterEqual(got["tokens_reused"], 64)
        self.assertEqual(got["tokens_reused"] + got["tokens_computed"], got["tokens"])
        self.ok("rm", "doc")
        self.ok("rm", kept[0]["id"])
        whole = self.json("capture", *TOY, "--raw", "-c", 13000, path)
        self.assertEqual(whole["id"], got["id"])


if __name__ == "__main__":
    main()
