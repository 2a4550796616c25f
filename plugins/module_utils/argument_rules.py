# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What releases refuse about arguments together, with a proof for each end of a span: all but ranks and drafts.

Those are in `argument_rules_parallel.py`, which also says where all this was read.
"""

from __future__ import annotations

from ansible_collections.tokforge.sglang.plugins.module_utils import argument_bounds, argument_rules_parallel
from ansible_collections.tokforge.sglang.plugins.module_utils.argument_view import (
    CACHE,
    DISAGGREGATION,
    LORA,
    NEWEST,
    OLD,
    SERVING,
    VALIDATION,
    WARN,
    Rule,
    View,
    at,
    since,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.compat_data import Proof


def _chunk(view: View) -> bool:
    chunk, page = view.count("chunked-prefill-size", 0) // view.attention_dp, view.count("page-size")
    return chunk > 0 and chunk % page != 0 and view.text("disaggregation-mode") != "decode"


def _ports(view: View) -> bool:
    names = ["port", "nccl-port"]
    if view.text("disaggregation-mode") == "prefill":
        names.append("disaggregation-bootstrap-port")
    ports = [view.number(name) for name in names if view.number(name) is not None]
    return len(set(ports)) < len(ports)


def _lora(view: View) -> bool:
    # False leaves enable-lora out, and then the paths switch it on.
    return view.on("enable-lora") or view.given("lora-paths")


def _no_graphs(view: View) -> bool:
    off = view.on("disable-cuda-graph") or view.text("cuda-graph-backend-decode") == "disabled"
    return off and any(
        view.given(f"cuda-graph-{name}{phase}") for name in ("bs", "max-bs") for phase in ("", "-decode")
    )


RULES: tuple[Rule, ...] = (
    *argument_rules_parallel.RULES,
    # --- schedule and cache ---
    Rule(
        "hicache_without_radix",
        ("enable-hierarchical-cache", "disable-radix-cache"),
        lambda view: view.on("enable-hierarchical-cache") and view.on("disable-radix-cache"),
        "it needs the radix cache, which disable-radix-cache takes away",
        "leave one of them out",
        "0.5.1..",
        since("enable-hierarchical-cache and disable-radix-cache are mutually exclusive", "0.5.1", CACHE),
    ),
    Rule(
        "lmcache_without_radix",
        ("enable-lmcache", "disable-radix-cache"),
        lambda view: view.on("enable-lmcache") and view.on("disable-radix-cache"),
        "it needs the radix cache, which disable-radix-cache takes away",
        "leave one of them out",
        "0.5.21..",
        at("--enable-lmcache requires radix cache to be enabled", ("0.5.21", CACHE), (NEWEST, CACHE)),
    ),
    Rule(
        "chunk_of_whole_pages",
        ("chunked-prefill-size", "page-size", "dp-size", "attn-dp-size"),
        _chunk,
        "it must be a multiple of page-size (after its division by the attention data parallelism)",
        "choose a multiple, or -1 for no chunks",
        "",
        since("chunked_prefill_size must be divisible by page_size", "0.5.0rc0", VALIDATION),
    ),
    Rule(
        "priority_policy",
        ("schedule-policy", "enable-priority-scheduling"),
        lambda view: (
            view.on("enable-priority-scheduling") and view.text("schedule-policy", "fcfs") not in ("fcfs", "lof")
        ),
        "with enable-priority-scheduling it must be fcfs or lof",
        "choose one of them",
        "0.5.3rc2..",
        since("To use priority scheduling, schedule_policy must be", "0.5.3rc2", VALIDATION),
    ),
    Rule(
        "retraction_by_priority",
        ("retraction-policy", "enable-priority-scheduling"),
        lambda view: view.text("retraction-policy") == "priority" and not view.on("enable-priority-scheduling"),
        "priority needs enable-priority-scheduling",
        "add enable-priority-scheduling: true, or choose another policy",
        "0.5.16..",
        since("--retraction-policy priority requires --enable-priority-scheduling", "0.5.16", VALIDATION),
    ),
    Rule(
        "pdmux_with_pp",
        ("enable-pdmux", "pp-size"),
        lambda view: view.on("enable-pdmux") and view.count("pp-size") > 1,
        "it does not work with pipeline parallelism",
        "set pp-size to 1, or leave it out",
        "0.5.3.post2..",
        since("PD-Multiplexing is only supported with pipeline parallelism disabled", "0.5.3.post2", VALIDATION),
    ),
    Rule(
        "pdmux_with_chunks",
        ("enable-pdmux", "chunked-prefill-size"),
        lambda view: view.on("enable-pdmux") and view.number("chunked-prefill-size") not in (None, -1),
        "it does not work with chunked prefill",
        "set chunked-prefill-size to -1, or leave it out",
        "0.5.3.post2..",
        since("PD-Multiplexing is not compatible with chunked prefill", "0.5.3.post2", VALIDATION),
    ),
    Rule(
        "pdmux_with_disaggregation",
        ("enable-pdmux", "disaggregation-mode"),
        lambda view: view.on("enable-pdmux") and view.text("disaggregation-mode", "null") != "null",
        "it does not work with disaggregation",
        "leave one of them out",
        "0.5.3.post2..",
        since("PD-Multiplexing is not compatible with disaggregation mode", "0.5.3.post2", VALIDATION),
    ),
    Rule(
        "two_batches_without_a2a",
        ("enable-two-batch-overlap", "moe-a2a-backend"),
        lambda view: view.on("enable-two-batch-overlap") and view.text("moe-a2a-backend", "none") == "none",
        "it needs a moe-a2a-backend",
        "set moe-a2a-backend, or leave it out",
        "0.5.7..0.5.14",
        at("When enabling two batch overlap, moe_a2a_backend cannot be 'none'", ("0.5.7", OLD), ("0.5.14", OLD)),
    ),
    Rule(
        "two_batches_without_a2a_or_dp",
        ("enable-two-batch-overlap", "moe-a2a-backend", "enable-dp-attention", "attn-dp-size"),
        lambda view: (
            view.on("enable-two-batch-overlap")
            and view.text("moe-a2a-backend", "none") == "none"
            and view.attention_dp == 1
        ),
        "it needs a moe-a2a-backend or attention data parallelism",
        "set one of them, or leave it out",
        "0.5.15..",
        since("When enabling two batch overlap without an EP a2a backend", "0.5.15", VALIDATION),
    ),
    # --- graphs and compilation ---
    Rule(
        "padding_with_compile",
        ("disable-cuda-graph-padding", "enable-torch-compile"),
        lambda view: view.on("disable-cuda-graph-padding") and view.on("enable-torch-compile"),
        "without padding every batch size would be compiled by itself",
        "leave one of them out",
        "0.5.12..",
        since("--disable-cuda-graph-padding is incompatible with --enable-torch-compile", "0.5.12", VALIDATION),
    ),
    Rule(
        "sizes_without_graphs",
        (
            "disable-cuda-graph",
            "cuda-graph-backend-decode",
            "cuda-graph-bs",
            "cuda-graph-max-bs",
            "cuda-graph-bs-decode",
            "cuda-graph-max-bs-decode",
        ),
        _no_graphs,
        "without CUDA graphs their batch sizes mean nothing",
        "leave the sizes or the switch out",
        "",
        since("disable_cuda_graph", "0.5.0rc0", OLD),
        WARN,
    ),
    # --- LoRA ---
    Rule(
        "lora_with_speculative",
        ("enable-lora", "lora-paths", "speculative-algorithm"),
        lambda view: _lora(view) and view.speculative not in ("", "NGRAM"),
        "LoRA works with no other speculative algorithm than NGRAM",
        "leave one of them out",
        "0.5.5.post3..0.5.18",
        at("Currently LoRA is only compatible with NGRAM speculative decoding", ("0.5.5.post3", OLD), ("0.5.18", OLD)),
    ),
    Rule(
        "lora_without_shape",
        ("enable-lora", "max-lora-rank", "lora-target-modules"),
        lambda view: (
            view.on("enable-lora")
            and not view.given("lora-paths")
            and not (view.given("max-lora-rank") and view.given("lora-target-modules"))
        ),
        "without lora-paths it needs max-lora-rank and lora-target-modules",
        "set both",
        "",
        since("you need to specify both", "0.5.0rc0", LORA),
    ),
    Rule(
        "loaded_loras",
        ("max-loaded-loras", "max-loras-per-batch"),
        lambda view: (
            _lora(view)
            and view.given("max-loaded-loras")
            and view.count("max-loaded-loras") < view.count("max-loras-per-batch", 8)
        ),
        "it must not be below max-loras-per-batch (8 when not set)",
        "raise it, or lower max-loras-per-batch",
        "",
        since("max_loaded_loras should be greater than or equal to max_loras_per_batch", "0.5.0rc0", LORA),
    ),
    # --- disaggregation ---
    Rule(
        "offload_of_decode",
        ("disaggregation-decode-enable-offload-kvcache", "disaggregation-mode"),
        lambda view: (
            view.on("disaggregation-decode-enable-offload-kvcache") and view.text("disaggregation-mode") != "decode"
        ),
        "it is for decode servers only",
        "set disaggregation-mode to decode, or leave it out",
        "0.5.3rc2..",
        since("disaggregation-decode-enable-offload-kvcache is only supported for decode side", "0.5.3rc2", CACHE),
    ),
    Rule(
        "offload_without_storage",
        ("disaggregation-decode-enable-offload-kvcache", "hicache-storage-backend"),
        lambda view: (
            view.on("disaggregation-decode-enable-offload-kvcache") and not view.given("hicache-storage-backend")
        ),
        "it needs hicache-storage-backend",
        "set it, or leave the offload out",
        "0.5.10rc0..",
        since("only supported when hicache-storage-backend is provided", "0.5.10rc0", CACHE),
    ),
    Rule(
        "encoder_and_language",
        ("encoder-only", "language-only"),
        lambda view: view.on("encoder-only") and view.on("language-only"),
        "it excludes language-only",
        "leave one of them out",
        "0.5.7..",
        since("Cannot set --encoder-only and --language-only together", "0.5.7", DISAGGREGATION),
    ),
    Rule(
        "encoder_with_disaggregation",
        ("encoder-only", "disaggregation-mode"),
        lambda view: view.on("encoder-only") and view.text("disaggregation-mode", "null") != "null",
        "it excludes disaggregation-mode",
        "leave one of them out",
        "0.5.7..",
        since("Cannot set --encoder-only and --disaggregation-mode", "0.5.7", DISAGGREGATION),
    ),
    # --- serving ---
    Rule(
        "name_with_colon",
        ("served-model-name",),
        lambda view: (
            ":" in view.text("served-model-name")
            and not view.text("served-model-name").startswith(("s3://", "gs://", "az://"))
        ),
        "a model's name must not hold a colon, which separates a model from a LoRA adapter",
        "set sglang_served_model_name to a name without it",
        "0.5.5.post1..",
        since("served_model_name cannot contain a colon", "0.5.5.post1", VALIDATION),
    ),
    Rule(
        "grpc_port",
        ("grpc-port", "port"),
        lambda view: (
            view.given("grpc-port")
            and view.number("grpc-port") == view.number("port")
            and not view.on("smg-grpc-mode")
            and not view.on("grpc-mode")
        ),
        "it must be another port than the server's own",
        "choose another port",
        "0.5.16..",
        since("must differ from --port", "0.5.16", VALIDATION),
    ),
    Rule(
        "one_port_twice",
        ("port", "nccl-port", "disaggregation-bootstrap-port"),
        _ports,
        "one port cannot serve two listeners",
        "give each its own port",
        "",
        at("server_args.nccl_port is None", ("0.5.0rc0", OLD), (NEWEST, OLD)),
    ),
    Rule(
        "key_without_certificate",
        ("ssl-keyfile", "ssl-certfile"),
        lambda view: view.given("ssl-keyfile") != view.given("ssl-certfile"),
        "ssl-keyfile and ssl-certfile need each other",
        "set both or none",
        "0.5.10rc0..",
        since("--ssl-certfile requires --ssl-keyfile", "0.5.10rc0", SERVING),
    ),
    Rule(
        "authorities_without_certificate",
        ("ssl-ca-certs", "ssl-certfile", "ssl-keyfile"),
        lambda view: view.given("ssl-ca-certs") and not (view.given("ssl-certfile") or view.given("ssl-keyfile")),
        "it means nothing without ssl-certfile and ssl-keyfile",
        "set both, or leave it out",
        "0.5.10rc0..",
        since("--ssl-ca-certs has no effect without", "0.5.10rc0", SERVING),
    ),
    Rule(
        "refresh_without_certificate",
        ("enable-ssl-refresh", "ssl-certfile", "ssl-keyfile"),
        lambda view: view.on("enable-ssl-refresh") and not (view.given("ssl-certfile") and view.given("ssl-keyfile")),
        "it needs ssl-certfile and ssl-keyfile",
        "set both, or leave it out",
        "0.5.10rc0..",
        since("--enable-ssl-refresh requires --ssl-certfile and --ssl-keyfile", "0.5.10rc0", SERVING),
    ),
    Rule(
        "refresh_with_http2",
        ("enable-ssl-refresh", "enable-http2"),
        lambda view: view.on("enable-ssl-refresh") and view.on("enable-http2"),
        "it does not work with enable-http2",
        "leave one of them out",
        "0.5.11..",
        since("--enable-ssl-refresh is not supported with --enable-http2", "0.5.11", SERVING),
    ),
    Rule(
        "http2_workers",
        ("enable-http2", "tokenizer-worker-num"),
        lambda view: view.on("enable-http2") and view.count("tokenizer-worker-num") > 1,
        "it works with one tokenizer worker only",
        "set tokenizer-worker-num to 1, or leave it out",
        "0.5.11..0.5.13.post1",
        at("--enable-http2 does not yet support --tokenizer-worker-num > 1", ("0.5.11", OLD), ("0.5.13.post1", OLD)),
    ),
    Rule(
        "two_tokenizer_batchings",
        ("enable-tokenizer-batch-encode", "enable-dynamic-batch-tokenizer"),
        lambda view: (
            view.on("enable-tokenizer-batch-encode")
            and view.on("enable-dynamic-batch-tokenizer")
            and not view.on("skip-tokenizer-init")
        ),
        "it excludes enable-dynamic-batch-tokenizer",
        "leave one of them out",
        "0.5.3rc0..",
        since(
            "Cannot enable both --enable-tokenizer-batch-encode and --enable-dynamic-batch-tokenizer",
            "0.5.3rc0",
            SERVING,
        ),
    ),
    Rule(
        "tokenizers_that_are_skipped",
        ("skip-tokenizer-init", "tokenizer-worker-num", "enable-tokenizer-batch-encode"),
        lambda view: (
            view.on("skip-tokenizer-init")
            and (view.count("tokenizer-worker-num") > 1 or view.on("enable-tokenizer-batch-encode"))
        ),
        "without a tokenizer its workers and batches are switched off",
        "leave them out",
        "0.5.12..",
        since("skip_tokenizer_init=True ignores --enable-tokenizer-batch-encode", "0.5.12", SERVING),
        WARN,
    ),
    Rule(
        "metrics_file",
        ("export-metrics-to-file", "export-metrics-to-file-dir"),
        lambda view: view.on("export-metrics-to-file") and not view.given("export-metrics-to-file-dir"),
        "it needs export-metrics-to-file-dir",
        "set it",
        "0.5.5.post3..",
        since("--export-metrics-to-file-dir is required", "0.5.5.post3", VALIDATION),
    ),
)


BOUNDS = argument_bounds.BOUNDS


def proofs() -> tuple[Proof, ...]:
    """Where everything here was read."""
    found = [proof for bound in BOUNDS for proof in bound.proofs]
    return (*found, *(proof for rule in RULES for proof in rule.proofs))
