# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two sides of an A/B run."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import ab_sides, experiment_settings
from ansible_collections.tokforge.sglang.plugins.module_utils.experiment_settings import ExperimentError

OWNED = ab_sides.launch_plan.OWNERS


def base(version: str | None = "0.5.23", **more: Any) -> dict[str, Any]:
    """Settings to start from."""
    return experiment_settings.base({"sglang_version": version, **more})


@pytest.mark.parametrize("told", [None, "upstream"])
def test_gate_that_the_release_opens_itself_is_switched_by_its_flag(told: str | None) -> None:
    a, b, why = ab_sides.sides(base(), "autotune_gate", None, told)
    assert (a.label, b.label) == ("autotune off", "autotune on")
    assert a.settings == {**base(), "args": {"disable-flashinfer-autotune": True}}
    assert b.settings == base() and "tunes flashinfer_cutlass by itself" in why


def test_autotune_that_the_base_has_off_is_on_in_b() -> None:
    off = base(args={"disable_flashinfer_autotune": True})
    a, b, _why = ab_sides.sides(off, "autotune-gate")
    assert (a.settings, b.settings) == (off, base())


@pytest.mark.parametrize("told", [None, "none", "patch"])
def test_gate_that_the_release_has_closed_is_opened_in_b(told: str | None) -> None:
    before = base("0.5.12.post1", args={"disable-flashinfer-autotune": True})
    a, b, why = ab_sides.sides(before, "autotune_gate", None, told)
    assert a.settings == base("0.5.12.post1") and a.label == "gate closed"
    assert b.settings == {**base("0.5.12.post1"), "autotune_gate": "open", "autotune_backend": "flashinfer_cutlass"}
    assert why == (
        "SGLang 0.5.12.post1 leaves flashinfer_cutlass out of autotune; A has the gate closed, B has it open"
    )


def test_gate_is_that_of_the_backend_that_serves() -> None:
    # flashinfer_trtllm was tuned long before flashinfer_cutlass.
    a, _b, why = ab_sides.sides(base("0.5.12.post1", backend="flashinfer_trtllm"), "autotune_gate")
    assert a.settings["args"] == {"disable-flashinfer-autotune": True} and "flashinfer_trtllm" in why


@pytest.mark.parametrize(
    ("version", "told", "message"),
    [
        ("0.5.5", None, "has no autotune gate"),
        ("0.5.6.post1", "upstream", "has no autotune gate"),
        ("0.9.0", None, "nothing is known"),
        (None, None, "nothing is known"),
        ("0.5.23", "me", "'me' is none of upstream, patch, none"),
    ],
)
def test_gate_of_which_nothing_is_known(version: str | None, told: str | None, message: str) -> None:
    with pytest.raises(ExperimentError, match=message):
        ab_sides.sides(base(version), "autotune_gate", None, told)


def test_newer_release_is_taken_to_have_the_flag_still() -> None:
    a, _b, _why = ab_sides.sides(base("0.9.0"), "autotune_gate", None, "upstream")
    assert a.settings["args"] == {"disable-flashinfer-autotune": True}


def test_release_that_cannot_switch_autotune_off_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ab_sides.flag_names, "spans", lambda name: (("0.5.7", "0.5.9"), ("0.5.30", "0.5.31")))
    with pytest.raises(ExperimentError, match="cannot be switched off"):
        ab_sides.sides(base(), "autotune_gate", None, "upstream")


@pytest.mark.parametrize("about", ["max_running_requests", "--max-running-requests"])
def test_argument_with_two_values(about: str) -> None:
    a, b, why = ab_sides.sides(base(args={"max-running-requests": 64}), about, ["1", 64])
    assert (a.settings["args"], b.settings["args"]) == ({"max-running-requests": "1"}, {"max-running-requests": 64})
    assert (a.label, b.label) == ("max-running-requests=1", "max-running-requests=64")
    assert why == "A is max-running-requests=1, B is max-running-requests=64"


def test_one_value_is_held_against_what_is_there_or_its_absence() -> None:
    a, b, _why = ab_sides.sides(base(), "disable-radix-cache", [True])
    assert (a.settings, b.settings["args"]) == (base(), {"disable-radix-cache": True})
    assert (a.label, b.label) == ("no disable-radix-cache", "disable-radix-cache")
    a, b, _why = ab_sides.sides(base(args={"page-size": 1}), "page-size", [None])
    assert (a.label, b.label) == ("page-size=1", "no page-size")


@pytest.mark.parametrize("values", [None, []])
@pytest.mark.parametrize("version", ["0.5.23", "0.9.0", None])
def test_switch_needs_no_values(values: Any, version: str | None) -> None:
    a, b, why = ab_sides.sides(base(version), "disable_cuda_graph", values)
    assert (a.settings, b.settings) == (base(version), base(version, args={"disable-cuda-graph": True}))
    assert (a.label, b.label) == ("no disable-cuda-graph", "disable-cuda-graph")
    assert why == "A is no disable-cuda-graph, B is disable-cuda-graph"


def test_switch_that_the_base_has_on_is_off_in_a() -> None:
    on = base(args={"disable-cuda-graph": True, "page-size": 16})
    a, b, _why = ab_sides.sides(on, "--disable-cuda-graph")
    assert (a.settings, b.settings) == (base(args={"page-size": 16}), on)


def test_values_of_a_switch_count_when_they_are_given() -> None:
    a, b, _why = ab_sides.sides(base(), "disable-cuda-graph", [True, False])
    assert (a.settings["args"], b.settings["args"]) == ({"disable-cuda-graph": True}, {"disable-cuda-graph": False})
    assert (a.label, b.label) == ("disable-cuda-graph", "no disable-cuda-graph")


def test_switch_with_a_negative_form_is_off_by_that() -> None:
    # Left out, it is what the release has by default.
    known = ab_sides.releases.get("0.5.23").flags.values()
    name = next(flag.name for flag in known if flag.negatable and not flag.takes_value and flag.name not in OWNED)
    a, b, _why = ab_sides.sides(base(), name)
    assert (a.settings["args"], b.settings["args"]) == ({name: False}, {name: True})


@pytest.mark.parametrize(
    ("about", "values", "key", "found"),
    [
        ("backend", ["triton", "auto"], "backend", ("triton", "auto")),
        ("moe-runner-backend", ["triton"], "backend", ("auto", "triton")),
        ("sglang_version", ["0.5.22", "0.5.23"], "sglang_version", ("0.5.22", "0.5.23")),
        ("env.NCCL_P2P_LEVEL", ["SYS"], "env", ({}, {"NCCL_P2P_LEVEL": "SYS"})),
    ],
)
def test_other_things_with_two_values(about: str, values: list[Any], key: str, found: tuple[Any, Any]) -> None:
    a, b, _why = ab_sides.sides(base(), about, values)
    assert (a.settings[key], b.settings[key]) == found


@pytest.mark.parametrize(
    ("about", "values", "message"),
    [
        (None, [1], "names nothing"),
        ("  ", [1], "names nothing"),
        (["x"], [1], "names nothing"),
        ("page-size", None, "needs one or two values"),
        ("page-size", [], "takes a value, so it needs one or two values"),
        ("env.NCCL_P2P_LEVEL", None, "needs one or two values"),
        ("backend", [], "needs one or two values"),
        ("page-size", [1, 2, 3], "needs one or two values"),
        ("page-size", "12", "needs one or two values"),
        ("page-size", [8, "8"], "both sides have the same page-size"),
        ("disable-radix-cache", [False], "both sides have the same"),
        ("autotune_gate", [1], "leave ab_values out"),
        ("port", [1, 2], "decided by sglang_port"),
        ("<b>", [1, 2], "no launch argument"),
        ("env.", [1], "no environment variable"),
        ("max_runing_requests", [1], "did you mean max-running-requests"),
        ("tp", [2], "has no launch argument 'tp'; did you mean"),
        ("sglang_version", ["auto"], "give the number of a release"),
    ],
)
def test_what_cannot_be_compared_is_one_clear_error(about: Any, values: Any, message: str) -> None:
    with pytest.raises(ExperimentError, match=message):
        ab_sides.sides(base(), about, values)
