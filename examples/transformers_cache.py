"""A state from kvgraft in Hugging Face transformers: the next token, without computing the text.

    kvgraft export manual manual.safetensors --format safetensors -m smollm2-135m
    python3 transformers_cache.py "$(kvgraft models path smollm2-135m)" manual.safetensors

Packages: tests/optional/requirements.txt. What the file holds: docs/exchange.md."""
import os
import sys

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

folder, name = os.path.split(os.path.realpath(sys.argv[1]))
model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
cache = DynamicCache()
with safe_open(sys.argv[2], framework="pt") as file:
    tokens = file.get_tensor("tokens").long()
    # All but the last of its tokens: that one is computed, since a cache holds no logits.
    kept = len(file.get_tensor("positions")) - 1
    for layer in range(model.config.num_hidden_layers):
        key, value = (file.get_tensor(f"layers.{layer}.{part}")[None, :, :-1].float()
                      for part in ("key", "value"))
        cache.update(key, value, layer)
with torch.no_grad():
    logits = model(tokens[None, kept:], past_key_values=cache).logits[0, -1]
print(repr(tokenizer.decode(logits.argmax())))
