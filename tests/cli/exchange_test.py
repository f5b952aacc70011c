"""export and import of states as safetensors files."""

import json
import os
import struct

from harness import CliTest, TOY, main, text_of


def take_apart(path):
    with open(path, "rb") as file:
        raw = file.read()
    (length,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8:8 + length]), raw[8 + length:]


def put_together(path, header, data):
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


class Exchange(CliTest):
    def setUp(self):
        super().setUp()
        self.made = self.json("capture", *TOY, "--name", "one", "--text", text_of(400))
        self.file = os.path.join(self.home, "one.safetensors")

    def export(self, *args):
        return self.json("export", "one", self.file, "--format", "safetensors", *TOY, *args)

    def edit(self, change):
        """The exported file with one byte of a value changed, or its header."""
        header, data = take_apart(self.file)
        data = bytearray(data)
        change(header, data)
        path = os.path.join(self.home, "edited.safetensors")
        put_together(path, header, bytes(data))
        return path

    def test_there_and_back(self):
        out = self.export()
        self.assertEqual(out["id"], self.made["id"])
        self.assertEqual(out["bytes"], os.path.getsize(self.file))
        header, _ = take_apart(self.file)
        self.assertEqual(out["tensors"], len(header) - 1)
        self.assertEqual(header["layers.0.key"]["shape"][1], self.made["tokens"])
        self.assertTrue(all(isinstance(v, str) for v in header["__metadata__"].values()))
        question = ("ask", *TOY, "--graft", "one", "Who counts the ships?", "-n", 12)
        before = self.json(*question)

        again = self.json("import", self.file, *TOY)  # there already
        self.assertEqual((again["id"], again["identical"]), (self.made["id"], True))
        self.ok("rm", "one")
        self.assertEqual(self.objects(), [])
        back = self.json("import", self.file, *TOY)
        self.assertEqual((back["id"], back["identical"], back["tier"]),
                         (self.made["id"], True, "exact"))
        self.assertEqual(back["names"], ["one"])
        after = self.json(*question)
        self.assertEqual((after["answer"], after["tier"]), (before["answer"], "exact"))
        self.assertTrue(self.json("verify", "one", *TOY, "--recompute")["recomputed_identical"])
        # The same text is found again, and nothing of it computed.
        self.assertTrue(self.json("capture", *TOY, "--text", text_of(400))["already_stored"])

    def test_what_is_edited_is_never_exact(self):
        self.export()

        def flip(header, data):
            data[header["layers.1.value"]["data_offsets"][0]] ^= 1
        run = self.ok("import", self.edit(flip), *TOY, "--name", "mine")
        self.assertIn("never exact", run.err)
        self.assertIn("tier imported", run.out)
        again = self.json("import", self.edit(flip), *TOY)
        self.assertEqual((again["tier"], again["identical"]), ("imported", False))
        self.assertNotEqual(again["id"], self.made["id"])
        self.assertEqual(again["names"], ["mine"])  # "one" is not taken away
        asked = self.json("ask", *TOY, "--graft", "mine", "Who?", "-n", 4)
        self.assertEqual(asked["tier"], "imported")
        # No look-up by tokens may find it.
        self.ok("rm", "one")
        made = self.json("capture", *TOY, "--text", text_of(400))
        self.assertEqual((made["already_stored"], made["tokens_reused"]), (False, 0))
        more = self.json("capture", *TOY, "--text", text_of(400) + " more", "--no-resume")
        self.assertEqual(more["tokens_reused"], 0)

    def test_refusals(self):
        self.export()
        self.fails(2, "export", "one", self.file, "--format", "safetensors", *TOY, says="exists")
        self.export("--force")
        self.fails(2, "export", "one", self.file, "--format", "npz", *TOY, says="--format")
        other = os.path.join(self.home, "other.safetensors")
        self.fails(3, "export", "one", other, "--format", "safetensors", "-m", "toy:7",
                   says="model.sha256")
        self.fails(1, "export", "nothing", other, "--format", "safetensors", *TOY, says="nothing")
        self.assertFalse(os.path.exists(other))
        self.fails(2, "export", "one", other, "--format", "safetensors", says="-m")
        self.fails(2, "import", self.file, says="-m")
        self.fails(3, "import", self.file, "-m", "toy:7", says="model.sha256")
        self.fails(3, "import", self.file, *TOY, "--format", "kvg", says="not")
        self.fails(3, "import", self.edit(lambda header, data: data.pop()), *TOY, says="cut off")

        def rename(header, data):
            header["layers.0.keys"] = header.pop("layers.0.key")
        self.fails(3, "import", self.edit(rename), *TOY, says='no tensor "layers.0.key"')
        self.fails(3, "import", self.edit(lambda header, data: header.pop("__metadata__")), *TOY,
                   says="kvgraft.format")
        self.fails(3, "import", self.write("text.safetensors", "hello, world"), *TOY,
                   "--format", "safetensors", says="header")
        self.fails(1, "import", os.path.join(self.home, "none.safetensors"), *TOY)
        # Nothing of all that was stored, and no temporary file is left.
        self.assertEqual(len(self.objects()), 1)
        self.assertEqual([n for n in os.listdir(self.home) if n.endswith(".safetensors")].__len__(),
                         3)

    def test_damage_goes_to_quarantine(self):
        path = self.objects()[0]
        size = os.path.getsize(path)
        os.chmod(path, 0o600)
        with open(path, "r+b") as file:
            file.seek(size - 100)
            byte = file.read(1)
            file.seek(size - 100)
            file.write(bytes([byte[0] ^ 1]))
        self.fails(3, "export", "one", self.file, "--format", "safetensors", *TOY,
                   says="quarantine")
        self.assertFalse(os.path.exists(self.file))
        self.assertEqual(self.objects(), [])


if __name__ == "__main__":
    main()
