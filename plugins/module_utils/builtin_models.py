# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The built-in models, mixtures of experts that every machine can make: ``builtin:tiny-moe`` and ``builtin:moe-30b``.

A built-in model has a configuration and a tokenizer but no weights; the server makes random ones
(``--load-format dummy``). That exercises the whole path of a real MoE model (router, experts, KV cache, tokenizer, chat
template) without a download, and takes no disk.

tiny-moe: a few million parameters, for any machine. Its speed says nothing of a real model.
moe-30b: the published shape of Qwen3-30B-A3B (config.json of Qwen/Qwen3-30B-A3B, 30.5e9 parameters), so that figures
of a GPU mean something. Only the vocabulary is smaller, that of the tokenizer made here: 8192 instead of 151936, which
leaves out 0.6e9 parameters of embedding and head. 29.9e9 remain, 60 GB in bfloat16.

The file is also a program. The module sends its source to the environment's Python (``python -I - DIRECTORY NAME``),
because the ``tokenizers`` package is there and not beside Ansible. It therefore imports nothing of this collection.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from typing import Any

#: Changes whenever the files of any model below would come out different, so that models made by an older collection
#: are made again. A further model changes nothing of the others.
RECIPE = 1

VOCABULARY = 8192
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

#: How much source text (characters) the tokenizer learns from. 3 million give the full vocabulary; more only takes
#: longer.
CORPUS_CHARACTERS = 3_000_000

#: Not part of the interpreter itself: what is installed there must not change the tokenizer.
_FOREIGN = frozenset({"site-packages", "dist-packages", "__pycache__", "test", "tests"})

# ChatML, as the Qwen models have it.
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

#: What the models have in common, also with the published Qwen3-MoE models.
_QWEN3_MOE: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "router_aux_loss_coef": 0.001,
    "output_router_logits": False,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "use_sliding_window": False,
    "sliding_window": None,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "vocab_size": VOCABULARY,
}

#: The models' configurations by name.
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    # Hidden size 256 = 4 heads of 64; 8 experts of width 128, 2 of them a token; 2 layers.
    "tiny-moe": {
        **_QWEN3_MOE,
        "hidden_size": 256,
        "intermediate_size": 512,
        "moe_intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "max_window_layers": 2,
        "max_position_embeddings": 8192,
        "rope_theta": 10000.0,
    },
    # 32 heads of 128, wider together than the hidden size; 128 experts of width 768, 8 of them a token; 48 layers.
    "moe-30b": {
        **_QWEN3_MOE,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "max_window_layers": 48,
        "max_position_embeddings": 40960,
        "rope_theta": 1000000.0,
    },
}

_TOKENIZER_CONFIG: dict[str, Any] = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": None,
    "eos_token": "<|im_end|>",
    "pad_token": "<|endoftext|>",
    "unk_token": None,
    "clean_up_tokenization_spaces": False,
    "add_bos_token": False,
    "chat_template": CHAT_TEMPLATE,
}

_GENERATION_CONFIG: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0, "do_sample": False}


def corpus(directory: str, limit: int = CORPUS_CHARACTERS) -> Iterator[str]:
    """The sources of a standard library as texts, in one fixed order, until `limit` characters are reached.

    Files that are not readable as UTF-8 are left out. The same interpreter gives the same texts on every machine.
    """
    left = limit
    for folder, folders, files in os.walk(directory):
        folders[:] = sorted(set(folders) - _FOREIGN)
        for name in sorted(files):
            if left <= 0:
                return
            if not name.endswith(".py"):
                continue
            try:
                with open(os.path.join(folder, name), encoding="utf-8") as handle:
                    text = handle.read(left)
            except (OSError, UnicodeDecodeError):
                continue
            left -= len(text)
            yield text


def files(name: str, vocabulary: int) -> dict[str, str]:
    """The texts of a model's files beside its tokenizer, by file name. `vocabulary` is how many tokens that has."""
    config = CONFIGS[name]
    contents = {
        "tokenizer_config.json": {**_TOKENIZER_CONFIG, "model_max_length": config["max_position_embeddings"]},
        "generation_config.json": _GENERATION_CONFIG,
        "config.json": {**config, "vocab_size": vocabulary},
    }
    return {file: json.dumps(content, indent=2, sort_keys=True) + "\n" for file, content in contents.items()}


def write(directory: str, name: str, texts: Iterator[str]) -> None:
    """Train the tokenizer on `texts` and write a model's configuration and tokenizer into the existing `directory`."""
    # Only the environment's Python has it.
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL_TOKENS),
        # Every byte has a token, so that no text is unknown to it.
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(os.path.join(directory, "tokenizer.json"))
    for file, text in files(name, tokenizer.get_vocab_size()).items():
        with open(os.path.join(directory, file), "w", encoding="utf-8") as handle:
            handle.write(text)


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2], corpus(sysconfig.get_path("stdlib")))
