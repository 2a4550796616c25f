# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The built-in model ``builtin:tiny-moe``, a Qwen3-MoE of a few million parameters that every machine can make.


It has a configuration and a tokenizer but no weights; the server makes random ones (``--load-format dummy``). That
exercises the whole path of a real MoE model (router, experts, KV cache, tokenizer, chat template) without a download.

The file is also a program. The module sends its source to the environment's Python (``python -I - DIRECTORY``), because
the ``tokenizers`` package is there and not beside Ansible. It therefore imports nothing of this collection.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from collections.abc import Iterator
from typing import Any

#: Changes whenever the files below would come out different, so that a model made by an older collection is made again.
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

#: Shapes: hidden size 256 = 4 heads of 64; 8 experts of width 128, 2 of them a token; 2 layers.
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 256,
    "intermediate_size": 512,
    "moe_intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "router_aux_loss_coef": 0.001,
    "output_router_logits": False,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "use_sliding_window": False,
    "sliding_window": None,
    "max_window_layers": 2,
    "max_position_embeddings": 8192,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 0,
}

TOKENIZER_CONFIG: dict[str, Any] = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": None,
    "eos_token": "<|im_end|>",
    "pad_token": "<|endoftext|>",
    "unk_token": None,
    "model_max_length": 8192,
    "clean_up_tokenization_spaces": False,
    "add_bos_token": False,
    "chat_template": CHAT_TEMPLATE,
}

GENERATION_CONFIG: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0, "do_sample": False}


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


def write(directory: str, texts: Iterator[str]) -> None:
    """Train the tokenizer on `texts` and write configuration and tokenizer into the existing `directory`."""
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
    for name, content in (
        ("tokenizer_config.json", TOKENIZER_CONFIG),
        ("generation_config.json", GENERATION_CONFIG),
        ("config.json", {**CONFIG, "vocab_size": tokenizer.get_vocab_size()}),
    ):
        with open(os.path.join(directory, name), "w", encoding="utf-8") as handle:
            json.dump(content, handle, indent=2, sort_keys=True)
            handle.write("\n")


if __name__ == "__main__":
    write(sys.argv[1], corpus(sysconfig.get_path("stdlib")))
