"""tools/check_layers.py passes this tree and refuses each kind of bad one."""

import os
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
CHECK = os.path.join(SOURCE, "tools", "check_layers.py")
LAYERS = "core:\nengine: core\nengine_llama: core engine\napp: core engine engine_llama\n"


class LayersTest(unittest.TestCase):
    def check(self, files, layers=LAYERS):
        with tempfile.TemporaryDirectory() as root:
            for name, text in {"layers.txt": layers, **files}.items():
                path = os.path.join(root, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            done = subprocess.run([sys.executable, CHECK, root], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    def test_this_tree_is_clean(self):
        done = subprocess.run([sys.executable, CHECK, SOURCE], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_good_tree(self):
        code, said = self.check({
            "kvgraft/core/a.h": "#include <vector>\n",
            "kvgraft/engine/b.cc": '#include "kvgraft/core/a.h"\n#include "kvgraft/engine/b.h"\n',
            "kvgraft/engine_llama/c.cc": "#include <llama.h>\n#include <ggml-backend.h>\n"})
        self.assertEqual((code, said), (0, "check_layers: 3 files, clean\n"))

    def test_include_of_a_module_above(self):
        code, said = self.check({"kvgraft/core/a.h": '#include "kvgraft/engine/b.h"\n'})
        self.assertEqual(code, 1)
        self.assertIn("kvgraft/core/a.h:1: core may not include engine", said)

    def test_spaces_and_angle_brackets_hide_nothing(self):
        code, said = self.check({"kvgraft/core/a.cc": "\n  #  include <kvgraft/app/x.h>\n"})
        self.assertEqual(code, 1)
        self.assertIn("kvgraft/core/a.cc:2: core may not include app", said)

    def test_engine_headers_only_in_engine_llama(self):
        for header in ("llama.h", "ggml.h", "ggml-cpu.h", "gguf.h", "llama-cpp.h"):
            code, said = self.check({"kvgraft/app/x.cc": "#include <%s>\n" % header})
            self.assertEqual(code, 1, header)
            self.assertIn("only engine_llama may include the engine's " + header, said)

    def test_tests_obey_too(self):
        code, _ = self.check({"kvgraft/core/a_test.cc": '#include "kvgraft/app/x.h"\n'})
        self.assertEqual(code, 1)

    def test_module_without_a_line(self):
        code, said = self.check({"kvgraft/stray/a.h": "\n"})
        self.assertEqual(code, 1)
        self.assertIn("module stray has no line", said)

    def test_relative_include(self):
        code, said = self.check({"kvgraft/core/a.cc": '#include "../app/x.h"\n'})
        self.assertEqual(code, 1)
        self.assertIn('write "../app/x.h"', said)

    def test_a_cycle_cannot_be_written_down(self):
        code, said = self.check({"kvgraft/core/a.h": "\n"}, "core: engine\nengine: core\n")
        self.assertEqual(code, 2)
        self.assertIn("core uses engine, which is not above it", said)

    def test_empty_tree_is_no_success(self):
        self.assertEqual(self.check({})[0], 2)


if __name__ == "__main__":
    unittest.main()
