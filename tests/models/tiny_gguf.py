"""Writes tiny GGUF models with random weights, one for each kind of state that the tests need.

    tiny_gguf.py FOLDER [KIND ...]      writes FOLDER/tiny-<kind>.gguf (all kinds by default)

Standard library only. The weights come from a fixed generator, so the files are the same bytes
everywhere. The vocabulary is SentencePiece-like: <unk>, <s>, </s>, 256 byte tokens, a few words.
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


def hyper(g, layers, width, ff, heads, kv_heads, ctx=2048):
    g.own("context_length", U32, ctx)
    g.own("embedding_length", U32, width)
    g.own("block_count", U32, layers)
    g.own("feed_forward_length", U32, ff)
    g.own("attention.head_count", U32, heads)
    g.own("attention.head_count_kv", U32, kv_heads)
    g.own("attention.layer_norm_rms_epsilon", F32, 1e-5)


def ffn(g, at, width, ff):
    g.tensor(at + "ffn_norm.weight", [width], constant=1.0)
    g.tensor(at + "ffn_gate.weight", [width, ff])
    g.tensor(at + "ffn_up.weight", [width, ff])
    g.tensor(at + "ffn_down.weight", [ff, width])


def decoder(arch, seed, heads, kv_heads, layers=2, width=128, head_dim=None, bias=False,
            norms=False, window=0, freq_base=10000.0, rope=(), freq_factors=None):
    g = Gguf(arch, seed)
    dim = head_dim or width // heads
    hyper(g, layers, width, 2 * width, heads, kv_heads)
    g.own("rope.freq_base", F32, freq_base)
    for key, kind, value in rope:
        g.own("rope." + key, kind, value)
    if head_dim:
        g.own("attention.key_length", U32, dim)
        g.own("attention.value_length", U32, dim)
    if window:
        g.own("attention.sliding_window", U32, window)
    vocab = vocabulary(g)
    g.tensor("token_embd.weight", [width, vocab], scale=1.0)
    g.tensor("output_norm.weight", [width], constant=1.0)
    g.tensor("output.weight", [width, vocab])
    if freq_factors:
        g.data("rope_freqs.weight", [len(freq_factors)], array.array("f", freq_factors))
    for i in range(layers):
        at = "blk.%d." % i
        g.tensor(at + "attn_norm.weight", [width], constant=1.0)
        for name, n in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            g.tensor(at + "attn_%s.weight" % name, [width, n * dim])
            if bias:
                g.tensor(at + "attn_%s.bias" % name, [n * dim], scale=0.1)
        if norms:
            g.tensor(at + "attn_q_norm.weight", [dim], constant=1.0)
            g.tensor(at + "attn_k_norm.weight", [dim], constant=1.0)
        g.tensor(at + "attn_output.weight", [heads * dim, width])
        if window:
            g.tensor(at + "post_attention_norm.weight", [width], constant=1.0)
            g.tensor(at + "post_ffw_norm.weight", [width], constant=1.0)
        ffn(g, at, width, 2 * width)
    return g


def partial_rope(seed, layers=2, width=128, heads=4, rot=8):
    """StableLM: only the first dimensions of a head are rotated."""
    g = Gguf("stablelm", seed)
    hyper(g, layers, width, 2 * width, heads, heads)
    g.own("attention.layer_norm_epsilon", F32, 1e-5)
    g.own("use_parallel_residual", BOOL, False)
    g.own("rope.dimension_count", U32, rot)
    vocab = vocabulary(g)
    g.tensor("token_embd.weight", [width, vocab], scale=1.0)
    g.tensor("output.weight", [width, vocab])
    norms = ["output_norm"] + ["blk.%d.%s" % (i, n) for i in range(layers)
                               for n in ("attn_norm", "ffn_norm")]
    for name in norms:
        g.tensor(name + ".weight", [width], constant=1.0)
        g.tensor(name + ".bias", [width], constant=0.0)
    for i in range(layers):
        at = "blk.%d." % i
        for name in ("q", "k", "v", "output"):
            g.tensor(at + "attn_%s.weight" % name, [width, width])
        g.tensor(at + "ffn_gate.weight", [width, 2 * width])
        g.tensor(at + "ffn_up.weight", [width, 2 * width])
        g.tensor(at + "ffn_down.weight", [2 * width, width])
    return g


def mla(seed, layers=2, width=128, heads=4, rope=16, nope=32, rank=64):
    """DeepSeek-V2 attention, all layers dense: the cache holds a latent, no values."""
    g = Gguf("deepseek2", seed)
    hyper(g, layers, width, 2 * width, heads, 1)
    g.own("attention.q_lora_rank", U32, 48)
    g.own("attention.kv_lora_rank", U32, rank)
    g.own("attention.key_length", U32, rank + rope)
    g.own("attention.value_length", U32, rank)
    g.own("attention.key_length_mla", U32, nope + rope)
    g.own("attention.value_length_mla", U32, nope)
    g.own("rope.dimension_count", U32, rope)
    g.own("leading_dense_block_count", U32, layers)
    g.own("expert_feed_forward_length", U32, 32)
    g.own("expert_shared_count", U32, 0)
    g.own("expert_weights_scale", F32, 1.0)
    vocab = vocabulary(g)
    g.tensor("token_embd.weight", [width, vocab], scale=1.0)
    g.tensor("output_norm.weight", [width], constant=1.0)
    g.tensor("output.weight", [width, vocab])
    for i in range(layers):
        at = "blk.%d." % i
        g.tensor(at + "attn_norm.weight", [width], constant=1.0)
        g.tensor(at + "attn_q_a_norm.weight", [48], constant=1.0)
        g.tensor(at + "attn_kv_a_norm.weight", [rank], constant=1.0)
        g.tensor(at + "attn_q_a.weight", [width, 48])
        g.tensor(at + "attn_q_b.weight", [48, heads * (nope + rope)])
        g.tensor(at + "attn_kv_a_mqa.weight", [width, rank + rope])
        g.tensor(at + "attn_k_b.weight", [nope, rank, heads])
        g.tensor(at + "attn_v_b.weight", [rank, nope, heads])
        g.tensor(at + "attn_output.weight", [heads * nope, width])
        ffn(g, at, width, 2 * width)
    return g


def bert(seed, layers=2, width=64, heads=4, ff=128, ctx=128):
    """An embedding model with mean pooling."""
    g = Gguf("bert", seed)
    g.own("context_length", U32, ctx)
    g.own("embedding_length", U32, width)
    g.own("block_count", U32, layers)
    g.own("feed_forward_length", U32, ff)
    g.own("attention.head_count", U32, heads)
    g.own("attention.layer_norm_epsilon", F32, 1e-12)
    g.own("attention.causal", BOOL, False)
    g.own("pooling_type", U32, 1)
    g.put("tokenizer.ggml.token_type_count", U32, 2)
    vocab = vocabulary(g, bert=True)
    g.tensor("token_embd.weight", [width, vocab], scale=1.0)
    g.tensor("token_types.weight", [width, 2], scale=0.1)
    g.tensor("position_embd.weight", [width, ctx], scale=0.1)
    for name in ("token_embd_norm",):
        g.tensor(name + ".weight", [width], constant=1.0)
        g.tensor(name + ".bias", [width], constant=0.0)
    for i in range(layers):
        at = "blk.%d." % i
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            g.tensor(at + name + ".weight", [width, width])
            g.tensor(at + name + ".bias", [width], constant=0.0)
        g.tensor(at + "ffn_up.weight", [width, ff])
        g.tensor(at + "ffn_up.bias", [ff], constant=0.0)
        g.tensor(at + "ffn_down.weight", [ff, width])
        g.tensor(at + "ffn_down.bias", [width], constant=0.0)
        for name in ("attn_output_norm", "layer_output_norm"):
            g.tensor(at + name + ".weight", [width], constant=1.0)
            g.tensor(at + name + ".bias", [width], constant=0.0)
    return g


def lora(seed, width=128, rank=4):
    """An adapter for the query weights of tiny-gqa."""
    g = Gguf("llama", seed)
    g.put("general.type", STR, "adapter")
    g.put("adapter.type", STR, "lora")
    g.put("adapter.lora.alpha", F32, 8.0)
    for i in range(2):
        g.tensor("blk.%d.attn_q.weight.lora_a" % i, [width, rank])
        g.tensor("blk.%d.attn_q.weight.lora_b" % i, [rank, width], scale=0.5)
    return g


KINDS = {
    "mha": lambda: decoder("llama", 1, heads=4, kv_heads=4),
    "gqa": lambda: decoder("llama", 2, heads=4, kv_heads=2),
    "gqa-other": lambda: decoder("llama", 3, heads=4, kv_heads=2),  # same shape, other weights
    "mqa": lambda: decoder("llama", 4, heads=4, kv_heads=1),
    "qwen2": lambda: decoder("qwen2", 5, heads=4, kv_heads=2, bias=True),
    "qwen3": lambda: decoder("qwen3", 6, heads=4, kv_heads=2, head_dim=64, norms=True),
    "gemma3": lambda: decoder("gemma3", 7, heads=4, kv_heads=1, layers=7, head_dim=32, norms=True,
                              window=64, freq_base=1000000.0),
    "linear": lambda: decoder("llama", 12, heads=4, kv_heads=2, rope=[
        ("scaling.type", STR, "linear"), ("scaling.factor", F32, 4.0)]),
    "llama31": lambda: decoder("llama", 13, heads=4, kv_heads=2, freq_base=500000.0,
                               freq_factors=[1.0] * 6 + [1.5, 2.5, 4.0, 6.0] + [8.0] * 6),
    "yarn": lambda: decoder("llama", 14, heads=4, kv_heads=2, rope=[
        ("scaling.type", STR, "yarn"), ("scaling.factor", F32, 4.0),
        ("scaling.original_context_length", U32, 512)]),
    "partial": lambda: partial_rope(15),
    "mla": lambda: mla(8),
    "bert": lambda: bert(9),
    "lora-a": lambda: lora(10),
    "lora-b": lambda: lora(11),
}


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder, kinds = sys.argv[1], sys.argv[2:] or list(KINDS)
    os.makedirs(folder, exist_ok=True)
    for kind in kinds:
        if kind not in KINDS:
            sys.exit("tiny_gguf: no kind %r; kinds: %s" % (kind, " ".join(KINDS)))
        path = os.path.join(folder, "tiny-%s.gguf" % kind)
        KINDS[kind]().write(path)


if __name__ == "__main__":
    main()
