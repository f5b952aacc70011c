"""Writes tiny GGUF models with random weights, one for each kind of state that the tests need.

    tiny_gguf.py FOLDER [KIND ...]      writes FOLDER/tiny-<kind>.gguf (all kinds by default)

The weights come from a fixed generator, so the files are the same bytes
everywhere. The vocabulary is SentencePiece-like: <unk>, <s>, </s>, 256 byte tokens, a few words.
"""

import array
import os
import sys

from gguf_file import ARR, BOOL, F32, Gguf, I32, STR, U32, embedding, experts, ffn, vocabulary


def hyper(g, layers, width, ff, heads, kv_heads, ctx=2048):
    g.own("context_length", U32, ctx)
    g.own("embedding_length", U32, width)
    g.own("block_count", U32, layers)
    g.own("feed_forward_length", U32, ff)
    g.own("attention.head_count", U32, heads)
    each = isinstance(kv_heads, tuple)  # a number for each layer
    g.own("attention.head_count_kv", ARR if each else U32, kv_heads)
    g.own("attention.layer_norm_rms_epsilon", F32, 1e-5)


def decoder(arch, seed, heads, kv_heads, layers=2, width=128, head_dim=None, bias=False,
            norms=False, window=0, freq_base=10000.0, rope=(), freq_factors=None, own=(),
            n_experts=0):
    g = Gguf(arch, seed)
    dim = head_dim or width // heads
    hyper(g, layers, width, 2 * width, heads, kv_heads)
    g.own("rope.freq_base", F32, freq_base)
    for key, kind, value in rope:
        g.own("rope." + key, kind, value)
    for key, kind, value in own:
        g.own(key, kind, value)
    if n_experts:
        g.own("expert_count", U32, n_experts)
        g.own("expert_used_count", U32, 2)
        g.own("expert_feed_forward_length", U32, width)
    if head_dim:
        g.own("attention.key_length", U32, dim)
        g.own("attention.value_length", U32, dim)
    if window:
        g.own("attention.sliding_window", U32, window)
    embedding(g, width)
    for name, factors in (freq_factors or {}).items():
        g.data(name + ".weight", [len(factors)], array.array("f", factors))
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
        if n_experts:
            experts(g, at, width, width, n_experts)
        else:
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


def mla(seed, layers=2, width=128, heads=4, rope=16, nope=32, rank=64, indexer=0):
    """DeepSeek-V2 attention, all layers dense: the cache holds a latent, no values. `indexer`: with
    the lightning indexer of sparse attention (DeepSeek-V3.2), which chooses so many tokens."""
    g = Gguf("deepseek32" if indexer else "deepseek2", seed)
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
    if indexer:
        g.own("attention.indexer.head_count", U32, 2)
        g.own("attention.indexer.key_length", U32, 64)
        g.own("attention.indexer.top_k", U32, indexer)
        g.own("expert_gating_func", U32, 1)
    embedding(g, width)
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
        if indexer:
            g.tensor(at + "indexer.k_norm.weight", [64], constant=1.0)
            g.tensor(at + "indexer.k_norm.bias", [64], constant=0.0)
            g.tensor(at + "indexer.proj.weight", [width, 2])
            g.tensor(at + "indexer.attn_k.weight", [width, 64])
            g.tensor(at + "indexer.attn_q_b.weight", [48, 2 * 64])
        ffn(g, at, width, 2 * width)
    return g


def mamba(seed, layers=2, width=64, state=16):
    """Selective state space: nothing but a recurrent state, no attention."""
    g = Gguf("mamba", seed)
    inner, rank = 2 * width, 4
    hyper(g, layers, width, 0, 0, 0)
    for key, value in (("conv_kernel", 4), ("inner_size", inner), ("state_size", state),
                       ("time_step_rank", rank)):
        g.own("ssm." + key, U32, value)
    embedding(g, width)
    for i in range(layers):
        at = "blk.%d." % i
        g.tensor(at + "attn_norm.weight", [width], constant=1.0)
        g.tensor(at + "ssm_in.weight", [width, 2 * inner])
        g.tensor(at + "ssm_conv1d.weight", [4, inner])
        g.tensor(at + "ssm_conv1d.bias", [inner], scale=0.1)
        g.tensor(at + "ssm_x.weight", [inner, rank + 2 * state])
        g.tensor(at + "ssm_dt.weight", [rank, inner])
        g.tensor(at + "ssm_dt.bias", [inner], scale=0.1)
        decays = [-1.0 - k for _ in range(inner) for k in range(state)]
        g.data(at + "ssm_a", [state, inner], array.array("f", decays))
        g.tensor(at + "ssm_d", [inner], constant=1.0)
        g.tensor(at + "ssm_out.weight", [inner, width])
    return g


def lfm2(seed, width=128, heads=4, kv=(0, 2, 0, 2)):
    """A hybrid: short convolutions, whose state is recurrent, and layers of attention."""
    g = Gguf("lfm2", seed)
    hyper(g, len(kv), width, 2 * width, heads, (I32, list(kv)))
    g.own("rope.freq_base", F32, 1000000.0)
    g.own("shortconv.l_cache", U32, 3)
    embedding(g, width, norm="token_embd_norm")
    dim = width // heads
    for i, kv_heads in enumerate(kv):
        at = "blk.%d." % i
        g.tensor(at + "attn_norm.weight", [width], constant=1.0)
        if kv_heads:
            g.tensor(at + "attn_q.weight", [width, width])
            g.tensor(at + "attn_k.weight", [width, kv_heads * dim])
            g.tensor(at + "attn_v.weight", [width, kv_heads * dim])
            g.tensor(at + "attn_q_norm.weight", [dim], constant=1.0)
            g.tensor(at + "attn_k_norm.weight", [dim], constant=1.0)
            g.tensor(at + "attn_output.weight", [width, width])
        else:
            g.tensor(at + "shortconv.conv.weight", [3, width])
            g.tensor(at + "shortconv.in_proj.weight", [width, 3 * width])
            g.tensor(at + "shortconv.out_proj.weight", [width, width])
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
                               freq_factors={
                                   "rope_freqs": [1.0] * 6 + [1.5, 2.5, 4.0, 6.0] + [8.0] * 6}),
    "yarn": lambda: decoder("llama", 14, heads=4, kv_heads=2, rope=[
        ("scaling.type", STR, "yarn"), ("scaling.factor", F32, 4.0),
        ("scaling.original_context_length", U32, 512)]),
    "partial": lambda: partial_rope(15),
    "mistral3": lambda: decoder("mistral3", 16, heads=4, kv_heads=2, rope=[
        ("scaling.type", STR, "yarn"), ("scaling.factor", F32, 4.0),
        ("scaling.original_context_length", U32, 512),
        ("scaling.yarn_log_multiplier", F32, 1.0)],
        own=[("attention.temperature_scale", F32, 0.1)]),
    "moe": lambda: decoder("qwen3moe", 17, heads=4, kv_heads=2, norms=True, n_experts=8),
    "mla": lambda: mla(8),
    "dsa": lambda: mla(18, indexer=32),
    "mamba": lambda: mamba(19),
    "lfm2": lambda: lfm2(20),
    "mrope": lambda: decoder("qwen2vl", 21, heads=4, kv_heads=2, bias=True, rope=[
        ("dimension_sections", ARR, (I32, [4, 6, 6, 0]))]),
    "longrope": lambda: decoder("llama", 22, heads=4, kv_heads=2, rope=[
        ("scaling.type", STR, "longrope"), ("scaling.original_context_length", U32, 512)],
        freq_factors={"rope_factors_short": [1.0] * 16, "rope_factors_long": [2.0] * 16}),
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
