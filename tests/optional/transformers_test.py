"""A state exported by kvgraft against Hugging Face transformers: the same keys and values as its own
prefill but for the engines' arithmetic, and the same next token.

    python3 -m venv .venv && .venv/bin/pip install -r tests/optional/requirements.txt
    .venv/bin/python tests/optional/transformers_test.py [--model smollm2-135m] [--tokens 200]

Skips, and says so, where the packages or the model are not there. KVGRAFT_PROGRAM names the
program (build/bin/kvgraft)."""

import argparse
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PROGRAM = os.path.abspath(os.environ.get("KVGRAFT_PROGRAM") or
                          os.path.join(ROOT, "build", "bin", "kvgraft"))
# A wrong order of the keys is far above this, the arithmetic of a quantised model well
# below (0.05 measured): mean absolute difference by mean size.
LIMIT = 0.1


def skip(why):
    print("SKIPPED: %s" % why)
    sys.exit(77)


try:
    import torch
    from safetensors import safe_open
    from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache
    import gguf  # noqa: F401  transformers reads GGUF files with it
except ImportError as error:
    skip("%s; pip install -r tests/optional/requirements.txt" % error)


def kvgraft(*args, home):
    """The last line of standard output, which is the object of --json."""
    run = subprocess.run([PROGRAM, *map(str, args), "--json"], capture_output=True, text=True,
                         env=dict(os.environ, KVGRAFT_STORE=os.path.join(home, "store"),
                                  KVGRAFT_FREE_FLOOR="0"))
    if run.returncode != 0:
        sys.exit("kvgraft %s: exit %d: %s" % (" ".join(map(str, args)), run.returncode, run.stderr))
    return json.loads(run.stdout.splitlines()[-1])


def text_of(tokenizer, count):
    """The beginning of a document of this repository, about `count` tokens of it."""
    with open(os.path.join(ROOT, "examples", "demo", "document.md"), encoding="utf-8") as file:
        text = file.read()
    words = text.split(" ")
    low, high = 1, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        if len(tokenizer(" ".join(words[:middle])).input_ids) <= count:
            low = middle
        else:
            high = middle - 1
    return " ".join(words[:low])


def cache_of(file, layers):
    """The exported cache without its last token."""
    cache = DynamicCache()
    for layer in range(layers):
        cache.update(file.get_tensor("layers.%d.key" % layer)[None, :, :-1].float(),
                     file.get_tensor("layers.%d.value" % layer)[None, :, :-1].float(), layer)
    return cache


def compare(file, own, layers):
    """Rows of (layer, mean |difference| of keys, mean |key|, the same of values)."""
    rows = []
    for layer in range(layers):
        row = [layer]
        for kind, theirs in (("key", own.layers[layer].keys), ("value", own.layers[layer].values)):
            ours = file.get_tensor("layers.%d.%s" % (layer, kind)).float()
            row += [(ours - theirs[0]).abs().mean().item(), theirs.abs().mean().item()]
        rows.append(row)
    return rows


def interleaved(key):
    """Halves put back into pairs: what a file that had not been permuted would hold."""
    half = key.shape[-1] // 2
    return torch.stack((key[..., :half], key[..., half:]), dim=-1).flatten(-2)


def report(rows, wrong):
    print("| layer | keys: mean abs. difference | mean abs. | values: mean abs. difference | mean abs. |")
    print("|---|---|---|---|---|")
    for row in rows:
        print("| %d | %.5f | %.4f | %.5f | %.4f |" % tuple(row))
    print("keys of layer 0 with the halves of a head taken for pairs, for comparison: %.4f" % wrong)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--tokens", type=int, default=200)
    args = parser.parse_args()
    if not os.path.exists(PROGRAM):
        skip("no program at %s; ./dev build" % PROGRAM)
    found = subprocess.run([PROGRAM, "models", "path", args.model], capture_output=True, text=True)
    path = os.path.realpath(found.stdout.strip() or args.model)
    if not os.path.isfile(path):
        skip("no model; kvgraft models pull %s" % args.model)
    folder, name = os.path.split(path)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32).eval()
    layers = model.config.num_hidden_layers

    with tempfile.TemporaryDirectory(prefix="kvgraft-transformers-") as home:
        out = os.path.join(home, "state.safetensors")
        text = text_of(tokenizer, args.tokens)
        kvgraft("capture", "-m", path, "--raw", "--text", text, "--name", "text", home=home)
        kvgraft("export", "text", out, "--format", "safetensors", "-m", path, home=home)
        asked = kvgraft("ask", "-m", path, "--raw", text, "-n", 1, "--ignore-eos", home=home)
        with safe_open(out, framework="pt") as file, torch.no_grad():
            tokens = file.get_tensor("tokens").long()
            if asked["prompt_tokens"] != len(tokens):
                sys.exit("ask took %d tokens, capture %d" % (asked["prompt_tokens"], len(tokens)))
            n = len(file.get_tensor("positions"))
            own = DynamicCache()
            model(tokens[None, :n], past_key_values=own)
            rows = compare(file, own, layers)
            wrong = (interleaved(file.get_tensor("layers.0.key").float()) -
                     own.layers[0].keys[0]).abs().mean().item()
            # The cache's last token and what the image does not hold are computed.
            logits = model(tokens[None, n - 1:], past_key_values=cache_of(file, layers)).logits
            cold = model(tokens[None]).logits[0, -1]
    choice = logits[0, -1].argmax()
    theirs = tokenizer.decode(choice)
    print("%s, %d tokens (%d in the image), %s" % (args.model, len(tokens), n,
                                                   type(model).__name__))
    report(rows, wrong)
    print("next token: kvgraft %r, transformers with kvgraft's cache %r, its own prefill %r; mean "
          "absolute difference of its logits %.4f (mean size %.3f)"
          % (asked["answer"], theirs, tokenizer.decode(cold.argmax()),
             (logits[0, -1] - cold).abs().mean().item(), cold.abs().mean().item()))
    failures = 0
    for layer, key, key_size, value, value_size in rows:
        if key > LIMIT * key_size or value > LIMIT * value_size:
            print("FAILED: layer %d differs by more than %.1f of its size" % (layer, LIMIT))
            failures += 1
    if theirs != asked["answer"]:
        print("FAILED: another next token")
        failures += 1
    print("1 passed, 0 failed" if failures == 0 else "0 passed, 1 failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
