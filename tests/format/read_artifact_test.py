"""The independent reader against the golden files and the corpus of the fuzzer: it prints what the
.json beside each golden file says, refuses every damage that is tried, and agrees with the C++
reader on what is an artifact."""

import json
import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "..", "golden")
CORPUS = os.path.join(HERE, "..", "fuzz", "corpus", "artifact_reader")
sys.path.insert(0, HERE)

import read_artifact  # noqa: E402


def load(path):
    with open(path, "rb") as file:
        return file.read()


class ReadArtifactTest(unittest.TestCase):
    def test_xxh3(self):
        # The values of kvgraft/core/hash_test.cc.
        data = bytes((i * 131 + (i >> 8)) & 255 for i in range(5000))
        expected = {
            0: 0x2D06800538D394C2, 1: 0xC44BDFF4074EECDB, 3: 0x6811538B444FC6DC,
            8: 0xE5B43AB074C9C13B, 16: 0x0A0EC5AE8679CB7F, 17: 0x57C52D21CE492C1E,
            128: 0x696069C4F1E6A91A, 129: 0xB1ADA52285757BEB, 240: 0xB80284837259EEE4,
            241: 0x44DBD3180A664E27, 1024: 0xC6C700C409D40C4B, 1025: 0x3EF78C3256F23450,
            2048: 0x7B13F69FAD35DE00, 5000: 0x01F8AB17E509B9D1,
        }  # fmt: skip
        for n, value in expected.items():
            self.assertEqual(read_artifact.xxh3(data[:n]), value, n)

    def test_golden_files(self):
        names = sorted(n for n in os.listdir(GOLDEN) if n.endswith(".kvg"))
        self.assertGreaterEqual(len(names), 3)
        for name in names:
            with self.subTest(name):
                path = os.path.join(GOLDEN, name)
                command = [sys.executable, os.path.join(HERE, "read_artifact.py"), path]
                run = subprocess.run(command, capture_output=True, text=True, check=False)
                self.assertEqual(run.returncode, 0, run.stderr)
                expected = json.loads(load(path[:-4] + ".json"))
                self.assertEqual(json.loads(run.stdout), expected)

    def test_tail_loss(self):
        manifest = json.loads(load(os.path.join(GOLDEN, "v1-small.json")))["manifest"]
        read = lambda loss: read_artifact.read_manifest(
            json.dumps({**manifest, "tail_loss": loss}).encode())  # fmt: skip
        self.assertEqual(read([5, 2**53 - 1])["tail_loss"], [5, 2**53 - 1])
        for bad in (3, [1.5], [-1], [2**53], ["1"], [1] * 65, [1] * (manifest["n_tokens"] + 1)):
            with self.assertRaises(read_artifact.Refused, msg=str(bad)):
                read(bad)

    def refused(self, data, what):
        with self.assertRaises(read_artifact.Refused, msg=what):
            read_artifact.read(data)

    def test_every_prefix_and_a_flip_in_every_byte(self):
        data = load(os.path.join(GOLDEN, "v1-small.kvg"))
        read_artifact.read(data)
        for n in range(len(data)):
            self.refused(data[:n], f"prefix of {n} bytes")
            flipped = bytearray(data)
            flipped[n] ^= 1 << n % 8
            self.refused(bytes(flipped), f"flip in byte {n}")
        self.refused(data + b"\0", "one byte more")

    def test_corpus(self):
        names = os.listdir(CORPUS)
        self.assertGreaterEqual(len(names), 20)
        for name in sorted(names):
            with self.subTest(name):
                data = load(os.path.join(CORPUS, name))
                if name.startswith("ok-"):
                    read_artifact.read(data)
                else:
                    self.refused(data, name)

    def test_exit_codes(self):
        script = os.path.join(HERE, "read_artifact.py")
        for path, code in ((script, 3), (script + ".none", 1)):
            run = subprocess.run([sys.executable, script, path], capture_output=True, check=False)
            self.assertEqual(run.returncode, code, run.stderr)


if __name__ == "__main__":
    unittest.main()
