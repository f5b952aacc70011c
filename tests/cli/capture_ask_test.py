"""capture, ask, chat, verify, diff, prove: the fields of the contract, and exactness over processes."""

import json
import os

from harness import CliTest, TOY, main, text_of

DOCUMENT = "The lighthouse at Skarv was lit in 1871. Its keeper was Ane Holm.\n" * 4


class CaptureAsk(CliTest):
    def capture(self, text=DOCUMENT, *args):
        return self.json("capture", *TOY, *args, self.write("doc.txt", text))

    def test_capture_has_the_fields_of_the_contract(self):
        got = self.capture(DOCUMENT, "--name", "lamp")
        for field in ("id", "name", "tokens", "bytes", "prefill_ms", "store_ms"):
            self.assertIn(field, got)
        self.assertEqual(got["name"], "lamp")
        self.assertRegex(got["id"], "^[0-9a-f]{64}$")
        self.assertGreater(got["tokens"], len(DOCUMENT))  # bytes and the template
        self.assertEqual(got["bytes"], os.path.getsize(self.objects()[0]))
        self.assertGreater(got["prefill_ms"], 0)
        self.assertEqual(got["tokens_reused"], 0)
        self.assertTrue(got["exact"])

    def test_file_standard_input_and_text_are_the_same_document(self):
        a = self.capture()
        b = self.json("capture", *TOY, "-", stdin=DOCUMENT)
        c = self.json("capture", *TOY, "--text", DOCUMENT)
        self.assertEqual(a["id"], b["id"])
        self.assertEqual(a["id"], c["id"])
        self.assertTrue(b["already_stored"])
        self.assertEqual(len(self.objects()), 1)

    def test_the_same_content_gets_another_name_at_once(self):
        self.capture(DOCUMENT, "--name", "one")
        again = self.capture(DOCUMENT, "--name", "two")
        self.assertTrue(again["already_stored"])
        self.assertEqual(again["prefill_ms"], 0)
        self.assertEqual(sorted(self.json("ls")["artifacts"][0]["names"]), ["one", "two"])

    def test_a_longer_text_goes_on_from_the_stored_prefix(self):
        # The raw document's tokens are a prefix of the longer one's.
        short = self.json("capture", *TOY, "--raw", "--text", text_of(300))
        long = self.json("capture", *TOY, "--raw", "--text", text_of(700))
        self.assertEqual(long["resumed_from"], short["id"])
        self.assertEqual(long["tokens_reused"], short["tokens"])
        self.assertEqual(long["tokens_reused"] + long["tokens_computed"], long["tokens"])
        # And is the state that one prefill gives.
        self.ok("rm", long["id"])
        whole = self.json("capture", *TOY, "--raw", "--no-resume", "--text", text_of(700))
        self.assertEqual(whole["tokens_reused"], 0)
        self.assertEqual(whole["id"], long["id"])

    def test_ask_has_the_fields_of_the_contract(self):
        made = self.capture(DOCUMENT, "--name", "lamp")
        got = self.json("ask", *TOY, "--graft", "lamp", "Who kept it?", "-n", 24, "--temp", 0)
        for field in ("answer", "tier", "tokens_reused", "tokens_computed", "restore_ms",
                      "first_token_ms", "tokens_generated", "artifacts"):
            self.assertIn(field, got)
        self.assertEqual(got["tier"], "exact")
        self.assertEqual(got["tokens_reused"], made["tokens"])
        self.assertEqual(got["artifacts"], [made["id"]])
        self.assertLessEqual(got["tokens_generated"], 24)
        self.assertEqual(got["prompt_tokens"], got["tokens_reused"] + got["tokens_computed"])
        self.assertGreaterEqual(got["first_token_ms"], got["restore_ms"])
        self.assertAlmostEqual(got["restore_ms"], got["verify_ms"] + got["load_ms"], places=6)

    def test_a_grafted_answer_is_the_cold_answer(self):
        # sglang#38031: loaded-back states gave other answers than cold ones.
        self.capture(DOCUMENT, "--name", "lamp")
        path = self.write("doc.txt", DOCUMENT)
        for sampling in (["--temp", "0"], ["--temp", "0.8", "-s", "7"]):
            cold = self.json("ask", *TOY, "--file", path, "Who kept it?", "-n", 40, *sampling)
            warm = self.json("ask", *TOY, "--graft", "lamp", "Who kept it?", "-n", 40, *sampling)
            self.assertEqual(cold["tier"], "computed")
            self.assertEqual(cold["tokens_reused"], 0)
            self.assertEqual(cold["artifacts"], [])
            self.assertEqual(cold["prompt_tokens"], warm["prompt_tokens"])
            self.assertEqual(cold["answer"], warm["answer"])

    def test_a_question_alone_and_its_text_form(self):
        run = self.ok("ask", *TOY, "Hello?", "-n", 8)
        got = self.json("ask", *TOY, "Hello?", "-n", 8)
        self.assertEqual(run.out, got["answer"] + "\n")
        self.assertIn("tier computed", run.err)

    def test_artifacts_of_one_to_three_tokens(self):
        # mlx-examples#977: short prompts gave gibberish after a load.
        for text in ("a", "ab", "abc"):
            self.json("capture", *TOY, "--raw", "--name", "tiny", "--text", text)
            warm = self.json("ask", *TOY, "--graft", "tiny", "xy", "-n", 16)
            cold = self.json("ask", *TOY, "--raw", "--text", text, "xy", "-n", 16)
            self.assertEqual(warm["answer"], cold["answer"])

    def test_fast_generation_and_drafts_say_so(self):
        self.capture(DOCUMENT, "--name", "lamp")
        fast = self.json("ask", *TOY, "--graft", "lamp", "Who?", "-n", 12, "--fast")
        self.assertEqual((fast["generation"], fast["drafted"]), ("fast", 0))
        drafts = self.json("ask", *TOY, "--graft", "lamp", "Who?", "-n", 40)
        plain = self.json("ask", *TOY, "--graft", "lamp", "Who?", "-n", 40, "--no-drafts")
        self.assertEqual(drafts["answer"], plain["answer"])
        self.assertEqual(plain["drafted"], 0)

    def test_stop_strings_and_limits(self):
        self.capture(DOCUMENT, "--name", "lamp")
        whole = self.json("ask", *TOY, "--graft", "lamp", "Who?", "-n", 30)["answer"]
        self.assertGreater(len(whole), 4)
        stop = whole[3]
        cut = self.json("ask", *TOY, "--graft", "lamp", "Who?", "-n", 30, "--stop", stop)
        self.assertEqual(cut["answer"], whole.split(stop)[0])
        self.assertEqual(cut["finish_reason"], "stop")
        one = self.json("ask", *TOY, "--graft", "lamp", "Who?", "-n", 1)
        self.assertLessEqual(one["tokens_generated"], 1)

    def test_messages(self):
        messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi."},
                    {"role": "assistant", "content": "Hello."}]
        path = self.write("chat.json", json.dumps(messages))
        got = self.json("capture", *TOY, "--messages", path, "--name", "talk")
        self.assertGreater(got["tokens"], 20)
        shown = self.json("show", "talk", "--text")
        self.assertEqual(json.loads(shown["text"]), messages)
        self.assertEqual(shown["prompt_kind"], "chat")
        self.json("ask", *TOY, "--graft", "talk", "And now?", "-n", 4)

    def test_verify_and_recompute(self):
        made = self.capture(DOCUMENT, "--name", "lamp")
        plain = self.json("verify", "lamp")
        self.assertEqual((plain["id"], plain["ok"]), (made["id"], True))
        self.assertIsNone(plain["recomputed_identical"])
        self.assertGreaterEqual(plain["pages"], 1)
        again = self.json("verify", "lamp", "--recompute", *TOY)
        self.assertIs(again["recomputed_identical"], True)
        self.assertIs(again["probe_identical"], True)
        every = self.json("verify", "--all")
        self.assertTrue(every["ok"])
        self.assertEqual(len(every["artifacts"]), 1)

    def test_diff(self):
        a = self.capture("The keeper was Ane.")
        b = self.capture("The keeper was Ola.")
        got = self.json("diff", a["id"], b["id"], *TOY)
        self.assertTrue(got["compatible"])
        self.assertFalse(got["image_identical"])
        first = got["first_token"]
        self.assertEqual((first["a_text"], first["b_text"]), ("A", "O"))
        self.assertEqual(first["index"], got["common_prefix_tokens"])
        same = self.json("diff", a["id"], a["id"][:12])
        self.assertTrue(same["identical"])
        other = self.json("diff", a["id"], "-m", "toy:2")
        self.assertFalse(other["compatible"])
        self.assertIn("model.sha256", [d["field"] for d in other["identity"]])

    def test_another_build_is_flagged_and_answers(self):
        self.capture(DOCUMENT, "--name", "lamp")
        got = self.json("ask", "-m", "toy:1,build=toy-2", "--graft", "lamp", "Who?", "-n", 4)
        self.assertIn(got["tier"], ("exact", "exact-build-differs"))
        self.assertIn("engine.build", got["tier_reason"])
        self.assertTrue(got["probe_identical"])

    def test_no_exact_configuration_is_said(self):
        wild = ["-m", "toy:1,quantum=0"]
        run = self.ok("capture", *wild, "--name", "wild", "--text", DOCUMENT)
        self.assertIn("not as proven bit-exact", run.err)
        got = self.json("ask", *wild, "--graft", "wild", "Who?", "-n", 4)
        self.assertEqual(got["tier"], "restored")
        self.assertTrue(got["tier_reason"])

    def test_sliding_window_keeps_its_alignment(self):
        window = ["-m", "toy:1,window=96"]
        made = self.json("capture", *window, "--raw", "--name", "w", "--text", text_of(300))
        got = self.json("ask", *window, "--graft", "w", "Who?", "-n", 12)
        self.assertEqual(got["tokens_reused"], made["tokens"] // 64 * 64)
        self.assertEqual(got["tokens_reused"] + got["tokens_computed"], got["prompt_tokens"])
        cold = self.json("ask", *window, "--raw", "--text", text_of(300), "Who?", "-n", 12)
        self.assertEqual(got["answer"], cold["answer"])

    def test_prove(self):
        out = os.path.join(self.home, "prove.json")
        got = self.json("prove", *TOY, "--samples", 4, "--seed", 3, "--max-tokens", 200,
                        "--out", out)
        self.assertEqual((got["samples"], got["identical"]), (4, 4))
        self.assertEqual((got["kl_max"], got["max_abs_logit_diff"]), (0, 0))
        self.assertIn("ordinary_max_abs_logit_diff", got)
        self.assertEqual(got["new_process_skipped"], 0)
        with open(out, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
        self.assertEqual(len(rows), 4)
        self.assertIn("restore-new-process", [row["arm"] for row in rows])

    def test_prove_goes_on_where_it_was_interrupted(self):
        out = os.path.join(self.home, "prove.json")
        args = [*TOY, "--seed", 3, "--max-tokens", 200]
        whole = self.json("prove", *args, "--samples", 6, "--out", out)
        with open(out, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
        # Killed: the file has what was done.
        os.remove(out)
        process = self.start("prove", *args, "--samples", 100000, "--out", out)
        while not os.path.exists(out):
            self.assertIsNone(process.poll())
        process.kill()
        process.communicate()
        with open(out, encoding="utf-8") as file:
            done = len(json.load(file)["rows"])
        samples = done + 2
        got = self.json("prove", *args, "--samples", samples, "--out", out, "--resume")
        self.assertEqual((got["samples"], got["identical"]), (samples, samples))
        with open(out, encoding="utf-8") as file:
            resumed = json.load(file)["rows"]
        self.assertEqual([row["index"] for row in resumed], list(range(samples)))
        for one, other in zip(rows, resumed):
            self.assertEqual(one, other)
        self.assertEqual(whole["new_process_skipped"], 0)
        # Nothing is left to do.
        again = self.json("prove", *args, "--samples", samples, "--out", out, "--resume")
        self.assertEqual(again["samples"], samples)

    def test_prove_refuses_to_go_on_with_another_proof(self):
        out = os.path.join(self.home, "prove.json")
        args = ["--samples", 2, "--max-tokens", 100, "--out", out, "--same-process"]
        self.json("prove", *TOY, *args)
        with open(out, encoding="utf-8") as file:
            before = file.read()
        run = self.run_cli("prove", *TOY, *args, "--resume", "--seed", 2)
        self.assertEqual(run.code, 3, run)
        self.assertIn("its proof has seed 1, this run 2", run.err)
        run = self.run_cli("prove", "-m", "toy:5", *args, "--resume")
        self.assertEqual(run.code, 3, run)
        self.assertIn("profile", run.err)
        run = self.run_cli("prove", *TOY, "--resume")
        self.assertEqual(run.code, 2, run)
        self.assertIn("--out", run.err)
        with open(out, encoding="utf-8") as file:
            self.assertEqual(file.read(), before)
        for text in ("", "{}", "[]", before[:-200]):
            with open(out, "w", encoding="utf-8") as file:
                file.write(text)
            run = self.run_cli("prove", *TOY, *args, "--resume")
            self.assertEqual(run.code, 3, run)

    def test_prove_says_when_it_does_not_hold(self):
        run = self.run_cli("prove", "-m", "toy:1,quantum=0", "--samples", 2, "--max-tokens", 100,
                           "--json")
        self.assertEqual(run.code, 1, run)
        self.assertLess(json.loads(run.out)["identical"], 2)


class Chat(CliTest):
    def chat(self, lines, *args):
        return self.json("chat", *TOY, "-n", 12, *args, stdin="\n".join(lines) + "\n")

    def test_a_conversation_is_saved_exactly_and_goes_on(self):
        got = self.chat(["Hello", "/stats", "Tell me more", "/save talk", "/exit", "not read"])
        self.assertEqual(len(got["turns"]), 2)
        self.assertEqual(got["saved"][0]["names"], ["talk"])
        self.assertIs(self.json("verify", "talk", "--recompute", *TOY)["recomputed_identical"], True)
        on = self.chat(["And then?"], "--graft", "talk")
        self.assertEqual(on["tier"], "exact")
        self.assertEqual(on["tokens_reused"], got["saved"][0]["tokens"])
        # The same conversation without a save in between gives the same answer.
        whole = self.chat(["Hello", "Tell me more", "And then?"])
        self.assertEqual(whole["turns"][2]["answer"], on["turns"][0]["answer"])

    def test_fast_spans_are_computed_again_before_they_are_saved(self):
        got = self.chat(["Hello", "Go on", "/save quick"], "--fast")
        self.assertEqual(got["tokens_exact"], got["tokens"])
        self.assertIs(self.json("verify", "quick", "--recompute", *TOY)["recomputed_identical"], True)

    def test_going_on_after_a_save(self):
        a = self.chat(["Hello", "/save one", "More"])
        b = self.chat(["Hello", "More"])
        self.assertEqual(a["turns"], [dict(t, first_token_ms=u["first_token_ms"])
                                      for t, u in zip(b["turns"], a["turns"])])

    def test_errors_end_a_script(self):
        run = self.fails(2, "chat", *TOY, stdin="/dance\n", says="/dance")
        self.assertNotIn("Traceback", run.err)


if __name__ == "__main__":
    main()
