"""Runs the kvgraft program for the end-to-end tests: on the built-in toy model (-m toy), in a home
of its own, in an empty current folder that must stay empty. KVGRAFT_PROGRAM names the program."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest

PROGRAM = os.environ.get("KVGRAFT_PROGRAM", "build/bin/kvgraft")
TOY = ["-m", "toy"]


class Run:
    def __init__(self, process):
        self.code = process.returncode
        self.out = process.stdout
        self.err = process.stderr

    def __repr__(self):
        return "exit %d\nstdout: %s\nstderr: %s" % (self.code, self.out[:2000], self.err[:2000])


class CliTest(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.mkdtemp(prefix="kvgraft-cli-")
        self.addCleanup(shutil.rmtree, self.home, ignore_errors=True)
        self.cwd = os.path.join(self.home, "cwd")
        os.mkdir(self.cwd)
        self.store = os.path.join(self.home, "data", "kvgraft", "store")

    def tearDown(self):
        self.assertEqual(os.listdir(self.cwd), [], "the current folder was written to")

    def environment(self, **more):
        env = {"HOME": self.home, "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8",
               "XDG_DATA_HOME": os.path.join(self.home, "data"),
               "XDG_CACHE_HOME": os.path.join(self.home, "cache"),
               "KVGRAFT_FREE_FLOOR": "0"}
        for name in ("LD_LIBRARY_PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS", "OMP_WAIT_POLICY"):
            if name in os.environ:
                env[name] = os.environ[name]
        env.update(more)
        return env

    def run_cli(self, *args, stdin="", env=None, timeout=120, **more):
        process = subprocess.run([os.path.abspath(PROGRAM), *map(str, args)], input=stdin,
                                 capture_output=True, text=True, cwd=self.cwd, timeout=timeout,
                                 env=self.environment(**(env or {})), **more)
        return Run(process)

    def start(self, *args, **more):
        return subprocess.Popen([os.path.abspath(PROGRAM), *map(str, args)], cwd=self.cwd, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=self.environment(), **more)

    def ok(self, *args, **more):
        run = self.run_cli(*args, **more)
        self.assertEqual(run.code, 0, run)
        return run

    def json(self, *args, **more):
        """Success with --json: exactly one line on standard output, an object."""
        run = self.ok(*args, "--json", **more)
        self.assertEqual(run.out.count("\n"), 1, run)
        self.assertTrue(run.out.endswith("\n"), run)
        value = json.loads(run.out)
        self.assertIsInstance(value, dict)
        return value

    def fails(self, code, *args, says="", **more):
        """The exit code, one line on standard error, nothing on standard output."""
        run = self.run_cli(*args, **more)
        self.assertEqual(run.code, code, run)
        lines = [line for line in run.err.splitlines() if line.startswith("kvgraft: ")]
        self.assertEqual(len(lines), 1, run)
        self.assertEqual(run.err.splitlines()[-1], lines[0], run)
        self.assertEqual(run.out, "", run)
        for word in [says] if isinstance(says, str) else says:
            self.assertIn(word, lines[0])
        return run

    def write(self, name, text):
        path = os.path.join(self.home, name)
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        return path

    def objects(self):
        found = []
        for folder, _, files in os.walk(os.path.join(self.store, "objects")):
            found += [os.path.join(folder, name) for name in files if name.endswith(".kvg")]
        return sorted(found)


def text_of(n_bytes, seed=0):
    """Text that does not repeat itself soon."""
    words, state = [], seed * 7919 + 12345
    while sum(map(len, words)) + len(words) < n_bytes:
        state = (state * 1103515245 + 12345) % 2**31
        words.append("abcdefghijklmnopqrstuvwxyz"[state % 26] * 1 + str(state % 9973))
    return " ".join(words)[:n_bytes]


def main():
    unittest.main(verbosity=1)
