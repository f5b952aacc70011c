"""Writes GGUF files with random weights; what all tiny models have in common. Standard library only.
GGUF: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import array
import os
import random
import struct
import sys

U32, I32, F32, BOOL, STR, ARR = 4, 5, 6, 7, 8, 9
ALIGN = 32


def pack_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def pack_value(kind, value):
    if kind == STR:
        return pack_string(value)
    if kind == ARR:
        item, values = value
        return struct.pack("<IQ", item, len(values)) + b"".join(pack_value(item, v) for v in values)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], value)


class Gguf:
    def __init__(self, arch, seed):
        self.arch, self.meta, self.tensors = arch, [], []
        self.random = random.Random(seed)
        self.put("general.architecture", STR, arch)
        self.put("general.name", STR, "tiny " + arch)

    def put(self, key, kind, value):
        self.meta.append((key, kind, value))

    def own(self, key, kind, value):
        self.put(self.arch + "." + key, kind, value)

    def tensor(self, name, shape, scale=None, constant=None):
        """shape: ggml order, fastest axis first. Normal weights of variance 1/shape[0]."""
        count = 1
        for n in shape:
            count *= n
        if constant is not None:
            data = array.array("f", [constant]) * count
        else:
            sigma = scale if scale is not None else shape[0] ** -0.5
            gauss = self.random.gauss
            data = array.array("f", (gauss(0, sigma) for _ in range(count)))
        self.data(name, shape, data)

    def data(self, name, shape, values):
        if sys.byteorder == "big":
            values.byteswap()
        self.tensors.append((name, shape, values.tobytes()))

    def write(self, path):
        head = struct.pack("<4sIQQ", b"GGUF", 3, len(self.tensors), len(self.meta))
        for key, kind, value in self.meta:
            head += pack_string(key) + struct.pack("<I", kind) + pack_value(kind, value)
        offset = 0
        for name, shape, data in self.tensors:
            head += pack_string(name) + struct.pack("<I", len(shape))
            head += struct.pack("<%dQ" % len(shape), *shape) + struct.pack("<IQ", 0, offset)
            offset += -(-len(data) // ALIGN) * ALIGN
        head += b"\0" * (-len(head) % ALIGN)
        part = path + ".part.%d" % os.getpid()
        with open(part, "wb") as out:
            out.write(head)
            for _, _, data in self.tensors:
                out.write(data + b"\0" * (-len(data) % ALIGN))
        os.replace(part, path)


def vocabulary(g, bert=False):
    words = [" the", " of", " and", " state", " key", " value", " graft", " model", "ing", "er"]
    if bert:
        tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"] + [chr(c) for c in range(33, 127)]
        tokens += ["\u2581" + chr(c) for c in range(33, 127)]
        g.put("tokenizer.ggml.model", STR, "bert")
        for key, token in (("padding", 0), ("unknown", 1), ("bos", 2), ("seperator", 3), ("cls", 2)):
            g.put("tokenizer.ggml.%s_token_id" % key, U32, token)
        kinds, scores = [3, 2, 3, 3] + [1] * (len(tokens) - 4), [0.0] * len(tokens)
    else:
        tokens = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)]
        tokens += [w.replace(" ", "\u2581") for w in words]
        tokens += ["<pad%d>" % i for i in range(272 - len(tokens))]
        kinds = [2, 3, 3] + [6] * 256 + [1] * len(words) + [5] * (272 - 259 - len(words))
        scores = [0.0] * 259 + [-float(i) for i in range(272 - 259)]
        g.put("tokenizer.ggml.model", STR, "llama")
        g.put("tokenizer.ggml.add_bos_token", BOOL, True)
        g.put("tokenizer.ggml.add_space_prefix", BOOL, False)
        g.put("tokenizer.ggml.bos_token_id", U32, 1)
        g.put("tokenizer.ggml.eos_token_id", U32, 2)
        g.put("tokenizer.ggml.unknown_token_id", U32, 0)
        g.put("tokenizer.chat_template", STR,
              "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
              "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
              "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
    g.put("tokenizer.ggml.tokens", ARR, (STR, tokens))
    g.put("tokenizer.ggml.scores", ARR, (F32, scores))
    g.put("tokenizer.ggml.token_type", ARR, (I32, kinds))
    return len(tokens)


def ffn(g, at, width, ff):
    g.tensor(at + "ffn_norm.weight", [width], constant=1.0)
    g.tensor(at + "ffn_gate.weight", [width, ff])
    g.tensor(at + "ffn_up.weight", [width, ff])
    g.tensor(at + "ffn_down.weight", [ff, width])


def experts(g, at, width, ff, n):
    g.tensor(at + "ffn_norm.weight", [width], constant=1.0)
    g.tensor(at + "ffn_gate_inp.weight", [width, n])
    g.tensor(at + "ffn_gate_exps.weight", [width, ff, n])
    g.tensor(at + "ffn_up_exps.weight", [width, ff, n])
    g.tensor(at + "ffn_down_exps.weight", [ff, width, n])


def embedding(g, width, norm="output_norm"):
    """The vocabulary, its embedding and the output head."""
    vocab = vocabulary(g)
    g.tensor("token_embd.weight", [width, vocab], scale=1.0)
    g.tensor(norm + ".weight", [width], constant=1.0)
    g.tensor("output.weight", [width, vocab])
