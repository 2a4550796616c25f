# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Arguments that a release refuses together, and numbers that it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import argument_conflicts, argument_rules, releases
from ansible_collections.tokforge.sglang.plugins.module_utils.argument_view import View
from ansible_collections.tokforge.sglang.plugins.module_utils.flag_history import RELEASES

NEW = releases.get("0.5.23")
OLD = releases.get("0.5.12.post1")
EAGLE = {"speculative-algorithm": "EAGLE"}
ON = True


def of(version: str) -> releases.Release:
    """A release of this name; its flags are the newest one's, which these rules need for aliases only."""
    return replace(NEW, version=version)


def broken(args: dict[str, Any], version: str, **env: str) -> list[str]:
    """The messages for these arguments."""
    return [problem.message for problem in argument_conflicts.find(args, of(version), env)]


# Rule -> release, arguments that break it, and arguments that nearly do.
CASES: dict[str, tuple[str, dict[str, Any], list[dict[str, Any]]]] = {
    "ranks_over_nodes": (
        "0.5.23",
        {"tp-size": 8, "nnodes": 3},
        [{"tp-size": 6, "nnodes": 3}, {"tp-size": 1, "pp-size": 2, "nnodes": 2},
         {"tp-size": 8, "nnodes": 3, "elastic-ep-join-mode": "scale"}],
    ),
    "attention_dp_divides_tp": (
        "0.5.12.post1",
        {"tp-size": 8, "dp-size": 3, "enable-dp-attention": ON},
        [{"tp-size": 8, "dp-size": 4, "enable-dp-attention": ON}, {"tp-size": 8, "dp-size": 3}],
    ),
    "replicas_over_nodes": (
        "0.5.23",
        {"dp-size": 2, "nnodes": 2, "tp-size": 2},
        [{"dp-size": 2, "nnodes": 2, "tp-size": 2, "enable-dp-attention": ON}, {"dp-size": 2, "tp-size": 2},
         {"dp-size": 2, "nnodes": 2, "tp-size": 2, "enable-nsa-prefill-context-parallel": ON}],
    ),
    "replicas_with_attention_dp": (
        "0.5.22",
        {"attn-dp-size": 2, "dp-size": 2, "tp-size": 2},
        [{"attn-dp-size": 2, "dp-size": 1, "tp-size": 2}],
    ),
    "lm_head_dp": (
        "0.5.12.post1",
        {"enable-dp-lm-head": ON, "dp-size": 2},
        [{"enable-dp-lm-head": ON, "dp-size": 2, "tp-size": 2, "enable-dp-attention": ON},
         {"enable-dp-lm-head": ON, "dp-size": 1},
         {"enable-dp-lm-head": ON, "dp-size": 2, "enable-prefill-cp": ON, "cp-strategy": "zigzag"}],
    ),
    "attention_dp_of_one": (
        "0.5.23", {"enable-dp-attention": ON}, [{"enable-dp-attention": ON, "dp-size": 2, "tp-size": 2}],
    ),
    "attention_cp_divides_tp": ("0.5.9", {"attn-cp-size": 3, "tp-size": 8}, [{"attn-cp-size": 4, "tp-size": 8}]),
    "moe_dp_divides_tp": ("0.5.9", {"moe-dp-size": 3, "tp-size": 8}, [{"moe-dp-size": 2, "tp-size": 8}]),
    "moe_groups": (
        "0.5.9", {"moe-dp-size": 2, "ep-size": 8, "tp-size": 8}, [{"moe-dp-size": 2, "ep-size": 4, "tp-size": 8}],
    ),
    "moe_dp_with_pp": ("0.5.9", {"moe-dp-size": 2, "tp-size": 2, "pp-size": 2}, [{"moe-dp-size": 2, "tp-size": 2}]),
    "moe_dp_without_attention_cp": (
        "0.5.23", {"moe-dp-size": 2, "tp-size": 8},
        [{"moe-dp-size": 2, "attn-cp-size": 2, "tp-size": 8}, {"attn-cp-size": 2, "tp-size": 8},
         {"moe-dp-size": 2, "tp-size": 8, "enable-prefill-cp": ON, "cp-strategy": "zigzag"}],
    ),
    "join_without_elastic": (
        "0.5.16", {"elastic-ep-join-mode": "recover"},
        [{"elastic-ep-join-mode": "recover", "elastic-ep-backend": "mooncake"}],
    ),
    "eplb_without_ep": (
        "0.5.23", {"enable-eplb": ON, "tp-size": 8},
        [{"enable-eplb": ON, "ep-size": 8}, {"enable-eplb": ON, "moe-a2a-backend": "deepep"}],
    ),
    "prefill_cp_strategy": (
        "0.5.14", {"enable-prefill-cp": ON}, [{"enable-prefill-cp": ON, "cp-strategy": "zigzag"}],
    ),
    "decode_cp_with_prefill_cp": (
        "0.5.22",
        {"dcp-size": 2, "enable-prefill-cp": ON, "cp-strategy": "zigzag"},
        [{"dcp-size": 1, "enable-prefill-cp": ON, "cp-strategy": "zigzag"}],
    ),
    "pp_with_speculative": ("0.5.20", {"pp-size": 2, "speculative-algorithm": "NGRAM"}, [{"pp-size": 2}, EAGLE]),
    "pp_with_speculative_algorithm": (
        "0.5.21", {"pp-size": 2, "speculative-algorithm": "ngram"},
        [{"speculative-algorithm": "ngram"}, {"pp-size": 2, "disaggregation-mode": "prefill", **EAGLE}],
    ),
    "pp_with_speculative_decode": (
        "0.5.21", {"pp-size": 2, **EAGLE},
        [{"pp-size": 2, "disaggregation-mode": "prefill", **EAGLE}, EAGLE],
    ),
    "draft_without_steps": (
        "0.5.12.post1", {**EAGLE, "speculative-num-draft-tokens": 4},
        [EAGLE, {"speculative-num-draft-tokens": 4}, {**EAGLE, "speculative-eagle-topk": 1, "speculative-adaptive": ON},
         {**EAGLE, "speculative-eagle-topk": 1, "speculative-num-steps": 3, "speculative-num-draft-tokens": 4}],
    ),
    "draft_without_topk": (
        "0.5.23", {"speculative-algorithm": "NEXTN", "speculative-num-steps": 3},
        [{"speculative-algorithm": "NGRAM", "speculative-num-steps": 3}],
    ),
    "tree_with_pages": (
        "0.5.12.post1",
        {**EAGLE, "speculative-num-steps": 3, "speculative-eagle-topk": 4, "page-size": 64,
         "attention-backend": "triton"},
        [{**EAGLE, "speculative-num-steps": 3, "speculative-eagle-topk": 4, "page-size": 64},
         {**EAGLE, "speculative-num-steps": 3, "speculative-eagle-topk": 4, "page-size": 1,
          "attention-backend": "triton"},
         {**EAGLE, "speculative-num-steps": 3, "speculative-eagle-topk": 1, "page-size": 64,
          "attention-backend": "triton"},
         {**EAGLE, "speculative-num-steps": 3, "speculative-eagle-topk": 4, "page-size": 64,
          "attention-backend": "fa3"}],
    ),
    "ngram_with_attention_dp": (
        "0.5.12.post1",
        {"speculative-algorithm": "NGRAM", "dp-size": 2, "tp-size": 2, "enable-dp-attention": ON},
        [{"speculative-algorithm": "NGRAM", "dp-size": 2, "tp-size": 2}],
    ),
    "standalone_with_attention_dp": (
        "0.5.23",
        {"speculative-algorithm": "STANDALONE", "attn-dp-size": 2, "tp-size": 2},
        [{"speculative-algorithm": "STANDALONE", "tp-size": 2}],
    ),
    "dflash_without_draft": (
        "0.5.23", {"speculative-algorithm": "DFLASH"},
        [{"speculative-algorithm": "DFLASH", "speculative-draft-model-path": "d"}],
    ),
    "flex_attention_with_speculative": (
        "0.5.12.post1", {"attention-backend": "flex_attention", **EAGLE}, [{"attention-backend": "flex_attention"}],
    ),
    "hicache_without_radix": (
        "0.5.23", {"enable-hierarchical-cache": ON, "disable-radix-cache": ON},
        [{"enable-hierarchical-cache": ON, "disable-radix-cache": False}],
    ),
    "lmcache_without_radix": (
        "0.5.21", {"enable-lmcache": ON, "disable-radix-cache": ON}, [{"disable-radix-cache": ON}],
    ),
    "chunk_of_whole_pages": (
        "0.5.23", {"chunked-prefill-size": 8192, "page-size": 48},
        [{"chunked-prefill-size": 8192, "page-size": 64}, {"chunked-prefill-size": -1, "page-size": 48},
         {"chunked-prefill-size": 8192, "page-size": 48, "disaggregation-mode": "decode"}, {"page-size": 48}],
    ),
    "priority_policy": (
        "0.5.12.post1", {"enable-priority-scheduling": ON, "schedule-policy": "lpm"},
        [{"enable-priority-scheduling": ON}, {"enable-priority-scheduling": ON, "schedule-policy": "lof"},
         {"schedule-policy": "lpm"}],
    ),
    "retraction_by_priority": (
        "0.5.16", {"retraction-policy": "priority"},
        [{"retraction-policy": "priority", "enable-priority-scheduling": ON}, {"retraction-policy": "length"}],
    ),
    "pdmux_with_pp": ("0.5.12.post1", {"enable-pdmux": ON, "pp-size": 2}, [{"enable-pdmux": ON}, {"pp-size": 2}]),
    "pdmux_with_chunks": (
        "0.5.23", {"enable-pdmux": ON, "chunked-prefill-size": 8192},
        [{"enable-pdmux": ON, "chunked-prefill-size": -1}, {"chunked-prefill-size": 8192}, {"enable-pdmux": ON}],
    ),
    "pdmux_with_disaggregation": (
        "0.5.12.post1", {"enable-pdmux": ON, "disaggregation-mode": "prefill"},
        [{"enable-pdmux": ON, "disaggregation-mode": "null"}],
    ),
    "two_batches_without_a2a": (
        "0.5.12.post1", {"enable-two-batch-overlap": ON},
        [{"enable-two-batch-overlap": ON, "moe-a2a-backend": "deepep"}],
    ),
    "two_batches_without_a2a_or_dp": (
        "0.5.23", {"enable-two-batch-overlap": ON, "moe-a2a-backend": "none"},
        [{"enable-two-batch-overlap": ON, "attn-dp-size": 2, "tp-size": 2}],
    ),
    "padding_with_compile": (
        "0.5.12.post1", {"disable-cuda-graph-padding": ON, "enable-torch-compile": ON}, [{"enable-torch-compile": ON}],
    ),
    "sizes_without_graphs": (
        "0.5.12.post1", {"disable-cuda-graph": ON, "cuda-graph-max-bs": 64},
        [{"disable-cuda-graph": ON}, {"cuda-graph-max-bs": 64}],
    ),
    "lora_with_speculative": (
        "0.5.18", {"lora-paths": ["a=b"], **EAGLE},
        [{"lora-paths": ["a=b"], "speculative-algorithm": "NGRAM"},
         {"enable-lora": False, **EAGLE}],
    ),
    "lora_without_shape": (
        "0.5.23", {"enable-lora": ON, "max-lora-rank": 16},
        [{"enable-lora": ON, "max-lora-rank": 16, "lora-target-modules": ["all"]},
         {"enable-lora": ON, "lora-paths": ["a=b"]}],
    ),
    "loaded_loras": (
        "0.5.23", {"lora-paths": ["a=b"], "max-loaded-loras": 4},
        [{"lora-paths": ["a=b"], "max-loaded-loras": 4, "max-loras-per-batch": 4}, {"max-loaded-loras": 4}],
    ),
    "offload_of_decode": (
        "0.5.12.post1", {"disaggregation-decode-enable-offload-kvcache": ON},
        [{"disaggregation-decode-enable-offload-kvcache": ON, "disaggregation-mode": "decode"}],
    ),
    "offload_without_storage": (
        "0.5.12.post1",
        {"disaggregation-decode-enable-offload-kvcache": ON, "disaggregation-mode": "decode"},
        [{"disaggregation-decode-enable-offload-kvcache": ON, "disaggregation-mode": "decode",
          "hicache-storage-backend": "file"}, {"disaggregation-mode": "decode"}],
    ),
    "encoder_and_language": ("0.5.12.post1", {"encoder-only": ON, "language-only": ON}, [{"encoder-only": ON}]),
    "encoder_with_disaggregation": (
        "0.5.12.post1", {"encoder-only": ON, "disaggregation-mode": "decode"}, [{"encoder-only": ON}],
    ),
    "name_with_colon": (
        "0.5.12.post1", {"served-model-name": "a:b"},
        [{"served-model-name": "a"}, {"served-model-name": "s3://a"}, {"model-path": "a:b"}],
    ),
    "grpc_port": (
        "0.5.23", {"grpc-port": 30000, "port": 30000},
        [{"grpc-port": 30001, "port": 30000}, {"port": 30000}, {"grpc-port": 30000, "port": 30000, "grpc-mode": ON}],
    ),
    "one_port_twice": (
        "0.5.12.post1", {"port": 30000, "nccl-port": "30000"},
        [{"port": 30000, "disaggregation-bootstrap-port": 30000}, {"port": 30000, "nccl-port": 30001}],
    ),
    "key_without_certificate": (
        "0.5.12.post1", {"ssl-keyfile": "k"}, [{"ssl-keyfile": "k", "ssl-certfile": "c"}, {"ssl-ca-certs": "a"}],
    ),
    "authorities_without_certificate": (
        "0.5.23", {"ssl-ca-certs": "a"}, [{"ssl-ca-certs": "a", "ssl-certfile": "c", "ssl-keyfile": "k"}],
    ),
    "refresh_without_certificate": (
        "0.5.12.post1", {"enable-ssl-refresh": ON},
        [{"enable-ssl-refresh": ON, "ssl-keyfile": "k", "ssl-certfile": "c"}],
    ),
    "refresh_with_http2": (
        "0.5.12.post1",
        {"enable-ssl-refresh": ON, "enable-http2": ON, "ssl-keyfile": "k", "ssl-certfile": "c"},
        [{"enable-http2": ON}],
    ),
    "http2_workers": (
        "0.5.12.post1", {"enable-http2": ON, "tokenizer-worker-num": 2},
        [{"enable-http2": ON, "tokenizer-worker-num": 1}],
    ),
    "two_tokenizer_batchings": (
        "0.5.12.post1",
        {"enable-tokenizer-batch-encode": ON, "enable-dynamic-batch-tokenizer": ON},
        [{"enable-tokenizer-batch-encode": ON}],
    ),
    "tokenizers_that_are_skipped": (
        "0.5.12.post1", {"skip-tokenizer-init": ON, "tokenizer-worker-num": 4}, [{"skip-tokenizer-init": ON}],
    ),
    "metrics_file": (
        "0.5.12.post1", {"export-metrics-to-file": ON},
        [{"export-metrics-to-file": ON, "export-metrics-to-file-dir": "/m"}],
    ),
}  # fmt: skip
RULES = {rule.name: rule for rule in argument_rules.RULES}
BOUNDS = {bound.flag: bound for bound in argument_rules.BOUNDS}


def test_every_rule_has_a_case_and_every_name_is_its_own() -> None:
    assert set(CASES) == set(RULES)
    assert len(RULES) == len(argument_rules.RULES) and len(BOUNDS) == len(argument_rules.BOUNDS)


@pytest.mark.parametrize("name", CASES)
def test_arguments_that_clash_are_told_with_their_values_and_the_way_out(name: str) -> None:
    version, args, _fine = CASES[name]
    rule = RULES[name]
    [problem] = [p for p in argument_conflicts.find(args, of(version)) if f": {rule.message} in SGLang" in p.message]
    given = next(flag for flag in rule.flags if flag in args)
    assert problem.flag == given
    assert problem.level == rule.level
    assert problem.message.startswith(f"--{given}: {rule.message} in SGLang {version} ({given} ")
    assert problem.message.endswith(f"; {rule.remedy}")


@pytest.mark.parametrize("name", CASES)
def test_arguments_that_nearly_clash_are_not_told(name: str) -> None:
    version, _args, fine = CASES[name]
    assert [args for args in fine if RULES[name].broken(View(args, {}))] == []
    assert [
        args for args in fine if any(f": {RULES[name].message} in SGLang" in said for said in broken(args, version))
    ] == []


@pytest.mark.parametrize("name", CASES)
def test_rule_speaks_only_in_the_releases_that_refuse(name: str) -> None:
    _version, args, _fine = CASES[name]
    rule = RULES[name]
    first, _dots, last = rule.sglang.partition("..")
    spoken = {
        version for version in RELEASES if any(f": {rule.message} in SGLang" in said for said in broken(args, version))
    }
    begin = RELEASES.index(first) if first else 0
    end = RELEASES.index(last) if last else len(RELEASES) - 1
    assert spoken == set(RELEASES[begin : end + 1])


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"tp-size": 0}, "--tp-size is 0, and SGLang 0.5.23 needs at least 1"),
        ({"nnodes": -1}, "--nnodes is -1, and"),
        ({"mem-fraction-static": 0}, "needs more than 0 and at most 1"),
        ({"mem-fraction-static": "90"}, "--mem-fraction-static is 90, and"),
        ({"swa-full-tokens-ratio": 1.01}, "is 1.01, and"),
        ({"base-gpu-id": -1}, "needs at least 0"),
        ({"tensor-parallel-size": 0}, "--tp-size is 0"),
    ],
)
def test_number_out_of_bounds_is_refused_with_the_bounds(args: dict[str, Any], words: str) -> None:
    [problem] = [p for p in argument_conflicts.find(args, NEW) if "needs" in p.message]
    assert words in problem.message and problem.level == "fail"


@pytest.mark.parametrize("flag", BOUNDS)
def test_bounds_themselves_are_fine_and_what_lies_beyond_is_not(flag: str) -> None:
    bound = BOUNDS[flag]
    assert bound.holds(bound.least) is not bound.above
    assert not bound.holds(bound.least - 0.01)
    assert bound.holds(bound.least + 0.01)
    assert bound.holds(bound.most if bound.most is not None else 10**9)
    assert bound.most is None or not bound.holds(bound.most + 0.01)


def test_bound_holds_only_in_the_releases_that_state_it() -> None:
    args = {"detokenizer-worker-num": 0}
    assert broken(args, "0.5.11") == [] and len(broken(args, "0.5.12")) == 1


@pytest.mark.parametrize(
    "value", ["eight", None, True, float("nan"), float("inf"), 10**400, [1], {"a": 1}, b"1", "", "1e999"]
)
@pytest.mark.parametrize("flag", ["tp-size", "nnodes", "page-size", "port", "dp-size", "served-model-name"])
def test_value_of_the_wrong_type_breaks_no_rule_and_no_program(flag: str, value: Any) -> None:
    others = {"enable-dp-attention": ON, "chunked-prefill-size": 8192, "moe-dp-size": 1}
    found = argument_conflicts.find({**others, flag: value}, OLD)
    assert [p.message for p in found if p.flag == flag] == []


def test_chunks_are_divided_by_attention_dp_before_they_are_held_against_pages() -> None:
    args = {"chunked-prefill-size": 4096, "page-size": 64, "tp-size": 128, "enable-dp-attention": ON}
    assert broken({**args, "dp-size": 64}, "0.5.12.post1") == []
    assert len(broken({**args, "dp-size": 128}, "0.5.12.post1")) == 1


def test_environment_that_allows_a_combination_is_looked_at() -> None:
    args = {"pp-size": 2, "speculative-algorithm": "EAGLE"}
    assert len(broken(args, "0.5.23")) == 1
    assert broken(args, "0.5.23", SGLANG_ENABLE_PP_SPEC="1") == []


def test_bootstrap_port_counts_on_a_prefill_server_only() -> None:
    args = {"port": 8998, "disaggregation-bootstrap-port": 8998}
    assert broken({**args, "disaggregation-mode": "decode"}, "0.5.23") == []
    assert "one port cannot serve two" in broken({**args, "disaggregation-mode": "prefill"}, "0.5.23")[0]


@pytest.mark.parametrize("release", [OLD, NEW])
@pytest.mark.parametrize("name", ["tensor_parallel_size", "tp-size", "--tp_size"])
def test_aliases_and_underscores_are_the_same_arguments(release: releases.Release, name: str) -> None:
    [problem] = argument_conflicts.find({name: 8, "nnodes": 3}, release)
    assert "(nnodes 3, tp-size 8)" in problem.message


def test_problems_come_sorted_by_flag() -> None:
    found = argument_conflicts.find(
        {"tp-size": 0, "nnodes": 2, "base-gpu-id": -1, "enable-pdmux": ON, "pp-size": 3}, OLD
    )
    assert [p.flag for p in found] == sorted(p.flag for p in found) and len(found) == 4


@pytest.mark.parametrize(
    ("span", "version", "inside"),
    [
        ("", "0.5.0rc0", True),
        ("0.5.12..", "0.5.12", True),
        ("0.5.12..", "0.5.12.post1", True),
        ("0.5.12..", "0.5.12rc1", False),
        ("..0.5.9", "0.5.10", False),
        ("..0.5.9", "0.5.9", True),
        ("0.5.9..0.5.18", "0.5.18.post1", False),
        ("0.5.9..", "0.5.24.dev3+g1234", True),
        ("..0.5.9", "unknown", False),
    ],
)
def test_span_has_both_its_ends_and_a_checkout_is_newer_than_all(span: str, version: str, inside: bool) -> None:
    assert releases.in_span(version, span) is inside


def test_every_fact_has_proofs_in_releases_that_it_speaks_for() -> None:
    facts = [(bound.sglang, bound.proofs) for bound in argument_rules.BOUNDS]
    facts += [(rule.sglang, rule.proofs) for rule in argument_rules.RULES]
    for span, proofs in facts:
        assert proofs
        for proof in proofs:
            name, version = proof.wheel.split()
            assert name == "sglang" and version in RELEASES
            assert releases.in_span(version, span), proof
    assert list(argument_rules.proofs()) == [proof for _span, proofs in facts for proof in proofs]
