# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What releases refuse about ranks, pipelines and speculative decoding, with a proof for each end of a span.

Read in the assertions and errors of 0.5.0rc0 to 0.5.23. Up to 0.5.18 they stand in `sglang/srt/server_args.py`, later
ones below `sglang/srt/arg_groups/`. What depends on a GPU, a quantization or a model is not here but in
`compat_data.py`.
"""

from __future__ import annotations

from ansible_collections.tokforge.sglang.plugins.module_utils.argument_view import (
    NEW,
    NEWEST,
    OLD,
    PARALLEL,
    SPECULATIVE,
    VALIDATION,
    WARN,
    Rule,
    View,
    at,
    since,
)


def _draft_steps(view: View) -> bool:
    several = [view.given(f"speculative-{name}") for name in ("eagle-topk", "num-draft-tokens")]
    family = view.speculative in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")
    return family and any(several) and not view.given("speculative-num-steps") and not view.on("speculative-adaptive")


def _draft_topk(view: View) -> bool:
    family = view.speculative in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")
    return (
        family
        and view.given("speculative-num-steps")
        and not view.given("speculative-eagle-topk")
        and not view.on("speculative-adaptive")
    )


def _prefill_cp(view: View) -> bool:
    return any(view.given(name) for name in view.args if "context-parallel" in name or name == "enable-prefill-cp")


RULES = (
    # --- ranks and nodes ---
    Rule(
        "ranks_over_nodes",
        ("nnodes", "tp-size", "pp-size"),
        lambda view: (
            view.count("tp-size") * view.count("pp-size") % view.count("nnodes") != 0
            and not view.given("elastic-ep-join-mode")
        ),
        "tp-size times pp-size must be a multiple of nnodes",
        "give every node the same number of GPUs",
        "",
        since("tp_size must be divisible by number of nodes", "0.5.0rc0", VALIDATION),
    ),
    Rule(
        "attention_dp_divides_tp",
        ("tp-size", "dp-size", "attn-dp-size", "enable-dp-attention"),
        lambda view: view.count("tp-size") % view.attention_dp != 0,
        "with attention data parallelism tp-size must be a multiple of its groups",
        "choose a number of groups that divides tp-size",
        "",
        (
            *at("tp_size % self.dp_size == 0", ("0.5.0rc0", OLD), ("0.5.18", OLD)),
            *at("tp_size % cfg.dp_size == 0", ("0.5.19", PARALLEL), ("0.5.21", PARALLEL)),
            *at("tp_size % cfg.attn_dp_size == 0", ("0.5.22", PARALLEL), (NEWEST, PARALLEL)),
        ),
    ),
    Rule(
        "replicas_over_nodes",
        ("dp-size", "nnodes"),
        lambda view: (
            view.count("dp-size") > 1
            and view.count("nnodes") > 1
            and not view.on("enable-dp-attention")
            and not _prefill_cp(view)
        ),
        "replicas of the whole model cannot spread over several nodes",
        "use attention data parallelism, or one node",
        "",
        (
            *at(
                "multi-node data parallel is not supported unless dp attention",
                ("0.5.0rc0", OLD),
                ("0.5.21", VALIDATION),
            ),
            *at("multi-node data-parallel replicas are not supported", ("0.5.22", VALIDATION), (NEWEST, VALIDATION)),
        ),
    ),
    Rule(
        "replicas_with_attention_dp",
        ("attn-dp-size", "dp-size"),
        lambda view: (
            view.count("attn-dp-size") > 1 and view.count("dp-size") > 1 and not view.on("enable-dp-attention")
        ),
        "replicas of the model and attention data parallelism exclude each other",
        "leave one of them at 1",
        "0.5.22..",
        at(
            "data-parallel replicas combined with attention data parallelism",
            ("0.5.22", PARALLEL),
            (NEWEST, PARALLEL),
        ),
    ),
    Rule(
        "lm_head_dp",
        ("enable-dp-lm-head", "dp-size", "enable-dp-attention"),
        lambda view: (
            view.on("enable-dp-lm-head")
            and view.count("dp-size") > 1
            and not view.on("enable-dp-attention")
            and not _prefill_cp(view)
        ),
        "it needs enable-dp-attention",
        "add enable-dp-attention: true, or leave it out",
        "0.5.2..0.5.21",
        at(
            "Please enable dp attention when setting enable_dp_lm_head",
            ("0.5.2", OLD),
            ("0.5.21", f"{NEW}overrides.py"),
        ),
    ),
    Rule(
        "attention_dp_of_one",
        ("enable-dp-attention", "dp-size", "attn-dp-size"),
        lambda view: view.on("enable-dp-attention") and view.count("dp-size") == 1 and view.count("attn-dp-size") == 1,
        "it is switched off without a dp-size above 1",
        "set dp-size, or leave it out",
        "0.5.2..",
        (
            *at("enable_dp_attention = False", ("0.5.2", OLD), ("0.5.14", OLD)),
            *at("_data_parallelism_defaults", ("0.5.15", f"{NEW}overrides.py"), (NEWEST, f"{NEW}overrides.py")),
        ),
        WARN,
    ),
    Rule(
        "attention_cp_divides_tp",
        ("attn-cp-size", "tp-size"),
        lambda view: view.count("tp-size") % view.count("attn-cp-size") != 0,
        "tp-size must be a multiple of it",
        "choose a number that divides tp-size",
        "0.5.9..",
        since("tp_size must be divisible by attn_cp_size", "0.5.9", PARALLEL),
    ),
    Rule(
        "moe_dp_divides_tp",
        ("moe-dp-size", "tp-size"),
        lambda view: view.count("tp-size") % view.count("moe-dp-size") != 0,
        "tp-size must be a multiple of it",
        "choose a number that divides tp-size",
        "0.5.9..",
        since("tp_size must be divisible by moe_dp_size", "0.5.9", PARALLEL),
    ),
    Rule(
        "moe_groups",
        ("moe-dp-size", "ep-size", "tp-size"),
        lambda view: (
            view.count("moe-dp-size") > 1 and view.count("ep-size") * view.count("moe-dp-size") > view.count("tp-size")
        ),
        "ep-size times moe-dp-size must not be above tp-size",
        "lower one of them",
        "0.5.9..",
        since("ep_size * moe_dp_size must be less than or equal to tp_size", "0.5.9", PARALLEL),
    ),
    Rule(
        "moe_dp_with_pp",
        ("moe-dp-size", "pp-size"),
        lambda view: view.count("moe-dp-size") > 1 and view.count("pp-size") > 1,
        "it does not work with pipeline parallelism",
        "set pp-size to 1, or leave it out",
        "0.5.9..",
        since("PP is not supported with context parallelism", "0.5.9", PARALLEL),
    ),
    Rule(
        "moe_dp_without_attention_cp",
        ("moe-dp-size", "attn-cp-size"),
        lambda view: (
            view.count("moe-dp-size") > 1
            and view.count("attn-cp-size") != view.count("moe-dp-size")
            and not _prefill_cp(view)
        ),
        "above 1 it must equal attn-cp-size",
        "set both to the same number",
        "0.5.11..",
        since("attn_cp_size != moe_dp_size is only supported when moe_dp_size == 1", "0.5.11", PARALLEL),
    ),
    Rule(
        "join_without_elastic",
        ("elastic-ep-join-mode", "elastic-ep-backend"),
        lambda view: view.given("elastic-ep-join-mode") and not view.given("elastic-ep-backend"),
        "it needs elastic-ep-backend",
        "set it, or leave it out",
        "0.5.16..",
        since("--elastic-ep-join-mode requires --elastic-ep-backend", "0.5.16", PARALLEL),
    ),
    Rule(
        "eplb_without_ep",
        ("enable-eplb", "ep-size", "moe-a2a-backend"),
        lambda view: (
            view.on("enable-eplb") and view.count("ep-size") == 1 and view.text("moe-a2a-backend", "none") == "none"
        ),
        "the start ends unless an all-to-all backend sets an ep-size above 1",
        "set ep-size, or leave it out",
        "0.5.4.post1..",
        since("ep_size > 1", "0.5.4.post1", PARALLEL),
        WARN,
    ),
    Rule(
        "prefill_cp_strategy",
        ("enable-prefill-cp", "cp-strategy"),
        lambda view: view.on("enable-prefill-cp") and not view.given("cp-strategy"),
        "it needs cp-strategy",
        "set cp-strategy to zigzag or interleave",
        "0.5.14..",
        since("--cp-strategy must be set when --enable-prefill-cp", "0.5.14", PARALLEL),
    ),
    Rule(
        "decode_cp_with_prefill_cp",
        ("dcp-size", "enable-prefill-cp"),
        lambda view: view.count("dcp-size") > 1 and view.on("enable-prefill-cp"),
        "it does not work with enable-prefill-cp",
        "leave one of them out",
        "0.5.22..",
        at("--dcp-size > 1 does not support --enable-prefill-cp", ("0.5.22", PARALLEL), (NEWEST, PARALLEL)),
    ),
    # --- pipeline parallelism ---
    Rule(
        "pp_with_speculative",
        ("pp-size", "speculative-algorithm"),
        lambda view: view.count("pp-size") > 1 and view.speculative != "",
        "pipeline parallelism does not work with speculative decoding",
        "set pp-size to 1, or leave speculative-algorithm out",
        "..0.5.20",
        at(
            "Pipeline parallelism is not compatible with overlap schedule, speculative decoding",
            ("0.5.0rc0", OLD),
            ("0.5.20", VALIDATION),
        ),
    ),
    Rule(
        "pp_with_speculative_algorithm",
        ("pp-size", "speculative-algorithm"),
        lambda view: view.count("pp-size") > 1 and view.speculative not in ("", "EAGLE", "NEXTN", "DSPARK"),
        "pipeline parallelism works with no other speculative algorithm than EAGLE and DSPARK",
        "set pp-size to 1, or choose another algorithm",
        "0.5.21..",
        at("Pipeline parallelism currently only supports EAGLE", ("0.5.21", VALIDATION), (NEWEST, VALIDATION)),
    ),
    Rule(
        "pp_with_speculative_decode",
        ("pp-size", "speculative-algorithm", "disaggregation-mode"),
        lambda view: (
            view.count("pp-size") > 1
            and view.speculative in ("EAGLE", "NEXTN", "DSPARK")
            and view.text("disaggregation-mode", "null") != "prefill"
            and not view.env.get("SGLANG_ENABLE_PP_SPEC")
        ),
        "pipeline parallelism with speculative decoding works on prefill servers only",
        "set pp-size to 1, or leave speculative-algorithm out",
        "0.5.21..",
        at(
            "PP + speculative decoding (MTP) is only supported on prefill nodes",
            ("0.5.21", VALIDATION),
            (NEWEST, VALIDATION),
        ),
    ),
    # --- speculative decoding ---
    Rule(
        "draft_without_steps",
        ("speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens"),
        _draft_steps,
        "speculative-eagle-topk and speculative-num-draft-tokens need speculative-num-steps",
        "set all three, or none of them",
        "",
        since("speculative_eagle_topk is None", "0.5.0rc0", SPECULATIVE),
    ),
    Rule(
        "draft_without_topk",
        ("speculative-num-steps", "speculative-eagle-topk"),
        _draft_topk,
        "it needs speculative-eagle-topk",
        "set speculative-eagle-topk (1 is a chain of drafts) and speculative-num-draft-tokens",
        "0.5.2rc0..",
        since("speculative_eagle_topk > 1", "0.5.2rc0", SPECULATIVE),
    ),
    Rule(
        "tree_with_pages",
        ("page-size", "speculative-eagle-topk", "attention-backend"),
        lambda view: (
            view.speculative in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")
            and view.count("speculative-eagle-topk") > 1
            and view.count("page-size") > 1
            and view.text("attention-backend") not in ("", "flashinfer", "fa3")
        ),
        "a tree of drafts (speculative-eagle-topk above 1) needs page-size 1 with this attention backend",
        "set page-size or speculative-eagle-topk to 1, or attention-backend to flashinfer",
        "0.5.2rc0..0.5.12.post1",
        at("speculative_eagle_topk > 1 with page_size > 1", ("0.5.2rc0", OLD), ("0.5.12.post1", OLD)),
    ),
    Rule(
        "ngram_with_attention_dp",
        ("speculative-algorithm", "enable-dp-attention", "attn-dp-size"),
        lambda view: view.speculative == "NGRAM" and view.attention_dp > 1,
        "NGRAM does not work with attention data parallelism",
        "choose another algorithm, or leave the data parallelism out",
        "0.5.3rc2..",
        since("Currently ngram speculative decoding does not support dp attention", "0.5.3rc2", SPECULATIVE),
    ),
    Rule(
        "standalone_with_attention_dp",
        ("speculative-algorithm", "enable-dp-attention", "attn-dp-size"),
        lambda view: view.speculative == "STANDALONE" and view.attention_dp > 1,
        "STANDALONE does not work with attention data parallelism",
        "choose another algorithm, or leave the data parallelism out",
        "0.5.2..",
        since("Currently standalone speculative decoding does not support dp attention", "0.5.2", SPECULATIVE),
    ),
    Rule(
        "dflash_without_draft",
        ("speculative-algorithm", "speculative-draft-model-path"),
        lambda view: view.speculative == "DFLASH" and not view.given("speculative-draft-model-path"),
        "DFLASH needs speculative-draft-model-path",
        "set it",
        "0.5.11..",
        since("DFLASH speculative decoding requires setting --speculative-draft-model-path", "0.5.11", SPECULATIVE),
    ),
    Rule(
        "flex_attention_with_speculative",
        ("attention-backend", "speculative-algorithm"),
        lambda view: view.text("attention-backend") == "flex_attention" and view.speculative != "",
        "flex_attention does not work with speculative decoding",
        "choose another attention backend, or leave speculative-algorithm out",
        "0.5.3rc2..",
        since(
            "Speculative decoding is currently not supported with Flex Attention backend",
            "0.5.3rc2",
            f"{NEW}attention_hook.py",
        ),
    ),
)
