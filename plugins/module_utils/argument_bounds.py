# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The numbers that releases take for a flag, where their sources state them; with a proof for each end of a span."""

from __future__ import annotations

from ansible_collections.tokforge.sglang.plugins.module_utils.argument_view import (
    CACHE,
    LORA,
    NEW,
    NEWEST,
    PARALLEL,
    VALIDATION,
    Bound,
    at,
    since,
)

_ENGINE = "sglang/srt/entrypoints/engine.py"
# Ranks and replicas are counted with range(), so none of them would start.
_RANKS = at("pp_size_per_node = max(", ("0.5.0rc0", _ENGINE), (NEWEST, _ENGINE))

BOUNDS = (
    Bound("tp-size", 1, None, "", _RANKS),
    Bound("pp-size", 1, None, "", _RANKS),
    Bound("dp-size", 1, None, "", _RANKS),
    Bound("ep-size", 1, None, "", _RANKS),
    Bound("nnodes", 1, None, "", _RANKS),
    Bound(
        "mem-fraction-static",
        0,
        1,
        "0.5.3rc2..",
        since(
            "mem_fraction_static is defined as (model weights + KV cache pool) / GPU memory",
            "0.5.3rc2",
            f"{NEW}memory_hook.py",
        ),
        above=True,
    ),
    Bound("base-gpu-id", 0, None, "", since("base_gpu_id must be non-negative", "0.5.0rc0", VALIDATION)),
    Bound("gpu-id-step", 1, None, "", since("gpu_id_step must be positive", "0.5.0rc0", VALIDATION)),
    Bound(
        "tokenizer-worker-num", 1, None, "0.5.2rc0..", since("Tokenizer worker num must >= 1", "0.5.2rc0", VALIDATION)
    ),
    Bound(
        "detokenizer-worker-num", 1, None, "0.5.12..", since("Detokenizer worker num must >= 1", "0.5.12", VALIDATION)
    ),
    Bound(
        "schedule-conservativeness",
        0,
        None,
        "0.5.5..",
        since("schedule_conservativeness must be non-negative", "0.5.5", VALIDATION),
    ),
    Bound(
        "pp-max-micro-batch-size",
        1,
        None,
        "0.5.11..",
        since("pp_max_micro_batch_size must be a positive integer", "0.5.11", VALIDATION),
    ),
    Bound(
        "swa-full-tokens-ratio",
        0,
        1,
        "0.5.7..",
        since("--swa-full-tokens-ratio should be in range (0, 1.0]", "0.5.7", CACHE),
        above=True,
    ),
    Bound(
        "max-loras-per-batch", 1, None, "0.5.0rc1..", since("max_loras_per_batch must be positive", "0.5.0rc1", LORA)
    ),
    Bound(
        "lora-drain-wait-threshold",
        0,
        None,
        "0.5.12..",
        since("--lora-drain-wait-threshold must be non-negative", "0.5.12", LORA),
    ),
    Bound(
        "attn-dp-size",
        1,
        None,
        "0.5.22..",
        at("--attn-dp-size must be positive", ("0.5.22", PARALLEL), (NEWEST, PARALLEL)),
    ),
    Bound(
        "dcp-size",
        1,
        None,
        "0.5.15..",
        since("Decode context parallel size (--dcp-size", "0.5.15", PARALLEL),
    ),
    Bound(
        "prefill-decode-interval",
        0,
        None,
        "0.5.19..",
        at("--prefill-decode-interval must be non-negative", ("0.5.19", VALIDATION), (NEWEST, VALIDATION)),
    ),
    Bound(
        "hicache-host-memory-fraction",
        0,
        1,
        "0.5.21..",
        at(
            "--hicache-host-memory-fraction must be in (0, 1]",
            ("0.5.21", f"{NEW}hicache_hook.py"),
            (NEWEST, f"{NEW}hicache_hook.py"),
        ),
        above=True,
    ),
)
