# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arguments that a server says it runs with, from logs of all kinds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.tokforge.sglang.plugins.module_utils import server_args_log
from ansible_collections.tokforge.sglang.plugins.module_utils.server_args_log import Start

LOGS = Path(__file__).parent / "fixtures" / "server_args"
HEAD = "[2026-11-29 16:24:36] "


def test_arguments_of_a_real_0_5_12_log_are_read_from_the_object_form() -> None:
    found = server_args_log.parse_log((LOGS / "log-0.5.12.post1.txt").read_text().splitlines())
    assert found is not None
    assert (found["tp_size"], found["model_path"], found["load_format"]) == (2, "tiny_moe", "dummy")
    assert found["api_key"] is None
    assert found["enable_metrics"] is False or found["enable_metrics"] is True
    assert len(found) > 300


def test_arguments_of_a_real_0_5_23_log_are_read_from_the_mapping_form() -> None:
    found = server_args_log.parse_log((LOGS / "log-0.5.23.txt").read_text().splitlines())
    assert found is not None
    assert (found["device"], found["max_total_tokens"], found["mem_fraction_static"]) == ("cpu", 8192, 0.716)
    assert found["uvicorn_access_log_exclude_prefixes"] == []
    assert found["admin_api_key"] is None
    assert len(found) > 400


def test_nested_values_and_quotes_and_commas_inside_text_survive() -> None:
    line = (
        HEAD + """server_args=ServerArgs(a={'x': [1, {'y': 'p,q)'}]}, b="it's, c=3", c='\\\\', d=(1, 2), e=-1.5e-3)"""
    )
    assert server_args_log.parse_log_line(line) == {
        "a": {"x": [1, {"y": "p,q)"}]}, "b": "it's, c=3", "c": "\\", "d": (1, 2), "e": -1.5e-3,
    }  # fmt: skip


def test_value_that_is_no_literal_stays_text() -> None:
    line = HEAD + (
        "server_args=ServerArgs(hook=<function f at 0x7f, g>, lora=[LoRARef(name='a', path='b')], kind=<K.X: 'x'>, n=1)"
    )
    assert server_args_log.parse_log_line(line) == {
        "hook": "<function f at 0x7f, g>",
        "lora": "[LoRARef(name='a', path='b')]",
        "kind": "<K.X: 'x'>",
        "n": 1,
    }


def test_values_that_json_cannot_hold_stay_text() -> None:
    line = HEAD + "server_args={'s': {1, 2}, 'b': b'x', 'm': {1: 2}}"
    assert server_args_log.parse_log_line(line) == {"s": "{1, 2}", "b": "b'x'", "m": "{1: 2}"}


def test_what_follows_the_arguments_on_the_same_line_is_not_part_of_them() -> None:
    assert server_args_log.parse_log_line(HEAD + "server_args={'a': 1} Loading: 3%, 'b': 2}") == {"a": 1}


@pytest.mark.parametrize(
    "line",
    [
        "server_args=ServerArgs(a=1)",
        "print('server_args=', ServerArgs(a=1))",
        HEAD + "Receive: obj=GenerateReqInput(text='server_args=ServerArgs(a=1)')",
        HEAD + f"Receive: obj=GenerateReqInput(text='{HEAD}server_args=ServerArgs(a=1)')",
        HEAD + f"Receive: text=\"{HEAD}server_args={{'a': 1}}\"",
        "[2026-11-29 16:24:36 TP0] server_args=ServerArgs(a=1)",
        "[2026-11-29 16:24:36 DP1 TP3 EP3] server_args={'a': 1}",
        HEAD + "the server_args=ServerArgs(a=1)",
        HEAD + "server_args=None",
        "",
    ],
)
def test_only_the_main_processs_own_record_counts(line: str) -> None:
    assert server_args_log.parse_log_line(line) is None


@pytest.mark.parametrize(
    "before", ["", "Fetching:  67%|###   | 6/9 [00:07<00:02]", "bar 1\rbar 2\r", "[2026-11-29 16:24:35 TP0] x\r"]
)
def test_a_progress_bar_before_the_record_does_not_hide_it(before: str) -> None:
    assert server_args_log.parse_log_line(f"{before}{HEAD}server_args={{'a': 1}}") == {"a": 1}


def test_milliseconds_in_the_time_are_fine() -> None:
    assert server_args_log.parse_log_line("[2026-11-29 16:24:36.123] server_args={'a': 1}") == {"a": 1}


def test_last_start_in_a_log_wins_over_earlier_ones() -> None:
    lines = [HEAD + "server_args={'a': 1}", HEAD + "server_args={'a': 2}", HEAD + "Receive: 'server_args={'"]
    assert server_args_log.parse_log(lines) == {"a": 2}


def test_log_without_a_start_has_no_arguments() -> None:
    assert server_args_log.parse_log([HEAD + "Init parallel begin."]) is None


def test_secrets_in_a_log_are_hidden() -> None:
    line = HEAD + "server_args=ServerArgs(api_key='hunter2', admin_api_key=None, ssl_keyfile_password='p', port=1)"
    assert server_args_log.parse_log_line(line) == {
        "api_key": "(hidden)", "admin_api_key": None, "ssl_keyfile_password": "(hidden)", "port": 1,
    }  # fmt: skip


PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=5,
)
NAMES = st.from_regex(r"[a-z]+_x", fullmatch=True)


@given(st.dictionaries(NAMES, PLAIN, min_size=1, max_size=6))
def test_whatever_python_writes_in_either_form_is_read_back(values: dict[str, Any]) -> None:
    object_form = ", ".join(f"{name}={value!r}" for name, value in values.items())
    assert server_args_log.parse_log_line(f"{HEAD}server_args=ServerArgs({object_form})") == values
    assert server_args_log.parse_log_line(f"{HEAD}server_args={values!r}") == values


@given(st.text())
def test_no_text_makes_the_reader_fail(text: str) -> None:
    found = server_args_log.parse_log_line(f"{HEAD}server_args=ServerArgs({text}")
    assert found is None or isinstance(json.dumps(found), str)


# --- objects ---------------------------------------------------------------------------------------------------------


def test_object_of_named_fields_is_a_mapping_as_newer_releases_write_it() -> None:
    graphs = "CudaGraphConfig(decode=PhaseConfig(backend='full', bs=[1, 2]), prefill=PhaseConfig(backend='disabled'))"
    old = server_args_log.parse_log_line(f"{HEAD}server_args=ServerArgs(g={graphs}, n=1)")
    new = server_args_log.parse_log_line(
        f"{HEAD}server_args={{'g': {{'decode': {{'backend': 'full', 'bs': [1, 2]}}, 'prefill': "
        "{'backend': 'disabled'}}, 'n': 1}"
    )
    assert old == new == {
        "g": {"decode": {"backend": "full", "bs": [1, 2]}, "prefill": {"backend": "disabled"}}, "n": 1,
    }  # fmt: skip


@pytest.mark.parametrize("text", ["F(a=1) + G(b=2)", "F(a=1)x", "F(1)", "F()", "f(a=1)", "<F(a=1)>"])
def test_text_that_is_not_wholly_an_object_stays_text(text: str) -> None:
    found = server_args_log.parse_log_line(f"{HEAD}server_args=ServerArgs(g={text}, n=1)")
    assert found == {"g": text, "n": 1}


def test_objects_in_objects_are_read_to_a_depth_and_stay_text_below() -> None:
    text = "X(a=" * 40 + "Y(b=1)" + ")" * 40
    found: Any = server_args_log.parse_log_line(f"{HEAD}server_args=ServerArgs(g={text})")
    depth = 0
    while isinstance(found, dict):
        found = next(iter(found.values()))
        depth += 1
    assert depth == 9 and found.startswith("X(a=") and found.endswith("Y(b=1)" + ")" * 32)


# --- several starts --------------------------------------------------------------------------------------------------

THREE = [
    f"{HEAD}server_args=ServerArgs(n=1)\n",
    f"{HEAD}x\n",
    f"{HEAD.replace('36', '37')}server_args={{'n': 2}}\n",
    f"{HEAD}server_args={{'n': 3}}\n",
]


def test_every_start_comes_with_its_line_and_time() -> None:
    assert server_args_log.starts(THREE) == [
        Start({"n": 1}, True, 1, "2026-11-29 16:24:36"),
        Start({"n": 2}, True, 3, "2026-11-29 16:24:37"),
        Start({"n": 3}, True, 4, "2026-11-29 16:24:36"),
    ]


@pytest.mark.parametrize(
    ("which", "number"),
    [
        ("last", 3),
        ("first", 1),
        (1, 1),
        (2, 2),
        (3, 3),
        (-1, 3),
        (-3, 1),
        (4, None),
        (-4, None),
        (0, None),
        ("x", None),
    ],
)
def test_start_is_chosen_by_word_or_number(which: str | int, number: int | None) -> None:
    found = server_args_log.chosen(server_args_log.starts(THREE), which)
    assert (found.args["n"] if found else None) == number


# --- cut lines -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    ["server_args=ServerArgs(a=1, b='x, y', c=[1, 2], d=123", "server_args={'a': 1, 'b': 'x, y', 'c': [1, 2], 'd': 12"],
)
def test_of_a_cut_line_the_whole_arguments_are_read_and_it_is_said_to_be_cut(form: str) -> None:
    [start] = server_args_log.starts([HEAD + form])
    assert start.args == {"a": 1, "b": "x, y", "c": [1, 2]} and start.complete is False


def test_cut_line_goes_on_in_the_next_ones_that_belong_to_no_record() -> None:
    lines = [f"{HEAD}server_args={{'a': 'on\n", "e', 'b': [1,\n", " 2]}\n", f"{HEAD}ready\n"]
    assert server_args_log.starts(lines) == [Start({"a": "one", "b": [1, 2]}, True, 1, "2026-11-29 16:24:36")]


def test_cut_line_does_not_go_on_behind_another_record() -> None:
    lines = [f"{HEAD}server_args={{'a': 1, 'b': 'on\n", f"{HEAD}Load weight begin.\n", "e'}\n"]
    assert server_args_log.starts(lines) == [Start({"a": 1}, False, 1, "2026-11-29 16:24:36")]


def test_record_of_another_process_in_the_middle_cuts_the_line_there() -> None:
    line = f"{HEAD}server_args=ServerArgs(a=1, b='x[2026-11-29 16:24:36 TP0] Load weight begin.\n"
    assert server_args_log.starts([line]) == [Start({"a": 1}, False, 1, "2026-11-29 16:24:36")]


def test_start_without_end_does_not_wait_for_ever() -> None:
    lines = [f"{HEAD}server_args={{'a': 1, 'b': [", *["x"] * 100, f"{HEAD}server_args={{'a': 2}}"]
    found = server_args_log.starts(lines)
    assert [(start.args, start.complete, start.line) for start in found] == [
        ({"a": 1}, False, 1),
        ({"a": 2}, True, 102),
    ]


# --- log drivers -----------------------------------------------------------------------------------------------------

ARGUMENTS = f"{HEAD}server_args={{'a': 1, 'b': 'x'}}"


@pytest.mark.parametrize(
    "lines",
    [
        [{"log": f"{ARGUMENTS}\n", "stream": "stderr", "time": "t"}],
        [{"log": ARGUMENTS[:40], "stream": "stderr"}, {"log": ARGUMENTS[40:] + "\n", "stream": "stderr"}],
        [{"log": ARGUMENTS}],
        [{"MESSAGE": ARGUMENTS, "_PID": "1"}],
        [{"MESSAGE": "x"}, {"message": ARGUMENTS}],
    ],
)
def test_arguments_are_found_in_the_objects_of_a_log_driver(lines: list[dict[str, str]]) -> None:
    assert server_args_log.parse_log([json.dumps(line) + "\n" for line in lines]) == {"a": 1, "b": "x"}


def test_object_in_an_ordinary_log_is_what_somebody_sent() -> None:
    sent = json.dumps({"log": f"{ARGUMENTS}\n"})
    assert server_args_log.parse_log([f"{HEAD}server_args={{'a': 2}}\n", sent]) == {"a": 2}
    assert server_args_log.parse_log(["\n", f"{HEAD}x\n", sent]) is None


@pytest.mark.parametrize("line", ["{", "{}", "[1]", '{"log": 1}', '{"other": "x"}', "{" * 100_000, "null"])
def test_object_that_is_no_log_drivers_is_an_ordinary_line(line: str) -> None:
    assert server_args_log.parse_log([line, ARGUMENTS]) == {"a": 1, "b": "x"}


def test_journal_in_short_form_is_read() -> None:
    assert server_args_log.parse_log([f"Nov 29 16:24:36 box sglang[7]: {ARGUMENTS}"]) == {"a": 1, "b": "x"}
