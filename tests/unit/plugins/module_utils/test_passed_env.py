# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine sets for its servers: each name is required, and nothing else of the environment is taken."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import launch_plan, passed_env, preflight

MULTICAST = ["NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS"]
MACHINE = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1", "HOME": "/r"}


def test_values_are_the_machines_and_nothing_else_is_taken() -> None:
    values, problems = passed_env.passed_on(MULTICAST, MACHINE, {"OTHER": 1})
    assert (values, problems) == ({name: MACHINE[name] for name in MULTICAST}, [])
    assert passed_env.passed_on([], MACHINE, {"HOME": "/x"}) == ({}, [])


def test_empty_value_is_set_and_a_name_may_be_there_twice() -> None:
    assert passed_env.passed_on(["A", "A"], {"A": ""}, {}) == ({"A": ""}, [])
    assert passed_env.passed_on(["A"], {"A": " 0=x "}, {})[0] == {"A": " 0=x "}


def test_missing_ones_are_told_together_and_the_others_have_their_values() -> None:
    values, [problem] = passed_env.passed_on([*MULTICAST, "GONE"], {"NCCL_NVLS_ENABLE": "0", "gone": "1"}, {})
    assert values == {"NCCL_NVLS_ENABLE": "0"}
    assert problem.startswith("sglang_server_env_pass_on: this machine does not set TORCH_SYMM_MEM_DISABLE_MULTICAST, ")
    assert "TORCH_SYMM_MEM_DISABLE_MULTICAST, NVSHMEM_DISABLE_NVLS, GONE, which" in problem
    assert "/etc/environment" in problem and "env_keep" in problem and "off the list" in problem


@pytest.mark.parametrize(
    ("name", "environ", "given", "told"),
    [
        ("A-B", {"A-B": "1"}, {}, "'A-B' is no name of an environment variable"),
        ("", {}, {}, "'' is no name of an environment variable"),
        # What is wrong with a name is told whether it is set or not.
        ("HF_TOKEN", {}, {}, "HF_TOKEN looks like a secret"),
        ("hf_token", {"hf_token": "hf_value"}, {}, "hf_token looks like a secret"),
        ("TOKFORGE_RELEASE", {"TOKFORGE_RELEASE": "/x"}, {}, "TOKFORGE_RELEASE is set by the collection"),
        # Also with the very value that the collection gives, since that is none of the machine's.
        ("HF_HUB_OFFLINE", {"HF_HUB_OFFLINE": "1"}, {}, "HF_HUB_OFFLINE is set by the collection"),
        ("SGLANG_USE_CPU_ENGINE", {}, {}, "SGLANG_USE_CPU_ENGINE is set by the collection"),
        ("A", {"A": "1\n2"}, {}, "the value of A holds a line end"),
        ("A", {"A": "http://user:hunter22@host/"}, {}, "the value of A is an address with a password"),
        ("A", {"A": "\udcff"}, {}, "the value of A is no UTF-8 text"),
        ("A", {"A": "1"}, {"A": "1"}, "A is in sglang_server_env too"),
        ("A", {}, {"A": None}, "A is in sglang_server_env too"),
    ],
)
def test_what_cannot_be_handed_on_is_told_without_its_value(
    name: str, environ: dict[str, str], given: dict[str, Any], told: str
) -> None:
    values, problems = passed_env.passed_on([name, "FINE"], {**environ, "FINE": "2"}, given)
    assert values == {"FINE": "2"}
    [problem] = problems
    assert problem.startswith(f"sglang_server_env_pass_on: {told}") and "; " in problem
    assert "hunter22" not in problem and "hf_value" not in problem


def test_both_make_one_environment_or_all_problems_are_raised() -> None:
    assert passed_env.merged(["A"], {"A": "0", "B": "1"}, {"C": 2}) == {"C": 2, "A": "0"}
    with pytest.raises(launch_plan.PlanError) as caught:
        passed_env.merged(["A", "GONE", "C"], {"A": "0"}, {"C": 2})
    assert len(caught.value.facts["problems"]) == 2
    assert all(f"\n- {problem}" in str(caught.value) for problem in caught.value.facts["problems"])


def test_release_keeps_what_the_machine_sets_or_it_is_told_why_not() -> None:
    assert passed_env.unlike(["A", "B"], {"A": "0", "B": ""}, {"A": "0", "B": "", "C": "1"}) == []
    assert passed_env.unlike([], {"A": "0"}, {}) == []
    assert passed_env.unlike(["A", "B"], {"A": "0", "B": ""}, {"A": "1"}) == [
        "sglang_server_env_pass_on: this machine sets A=0, and the release has A=1",
        "sglang_server_env_pass_on: this machine sets B=, and the release has none",
    ]
    # Nobody knows what it would be held against.
    assert "does not set A" in passed_env.unlike(["A"], {}, {"A": "0"})[0]


def test_findings_say_what_is_kept_and_fail_for_what_is_not() -> None:
    assert preflight.check_passed_on({}, []) == []
    [kept] = preflight.check_passed_on({"A": "0", "B": ""}, [])
    assert (kept.level, kept.check) == ("ok", "arguments") and kept.message.endswith("sets: A=0, B=")
    found = preflight.check_passed_on({"A": "0"}, ["p", "q"])
    assert [(one.level, one.message) for one in found[:2]] == [("fail", "p"), ("fail", "q")]
