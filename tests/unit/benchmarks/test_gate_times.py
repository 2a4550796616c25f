# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The measurement of the autotune gate: what counts as right, and what the page says."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "gate_times.py"


@pytest.fixture(scope="module")
def gate_times() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("gate_times", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    path = list(sys.path)
    sys.modules["gate_times"] = module
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = path


def test_outcome_that_is_right_and_honest_is_not_emphasized(gate_times: ModuleType) -> None:
    outcome = gate_times.Outcome(b"# a\n", b"a\n", b"a\n", (True, False))
    assert outcome.text() == "right; says changed, then not changed"
    assert gate_times.Outcome(b"a\n", b"a\n", b"a\n", (False, False)).text().startswith("right; says not changed, ")


@pytest.mark.parametrize(
    ("after", "said", "text"),
    [
        (b"# a\r\nb\r\n", (False, False), "**not opened**; says not changed, then not changed"),
        (b"# a\r\nb\r\n", (True, False), "**not opened**; **says** changed, then not changed"),
        (b"a\nb\r\n", (True, False), "**1 line(s) not as meant**; says changed, then not changed"),
        (b"b\r\n", (True, False), "**1 line(s) not as meant**; says changed, then not changed"),
        (b"a\r\nb\r\n", (True, True), "right; **says** changed, then changed"),
        (b"a\r\nb\r\n", (False, False), "right; **says** not changed, then not changed"),
    ],
)
def test_outcome_names_what_is_wrong(gate_times: ModuleType, after: bytes, said: tuple[bool, bool], text: str) -> None:
    assert gate_times.Outcome(b"# a\r\nb\r\n", b"a\r\nb\r\n", after, said).text() == text


def numbered(count: int, crlf: bool = False) -> bytes:
    return b"".join(b"%d%s" % (number, b"\r\n" if crlf else b"\n") for number in range(1, count + 1))


def test_what_is_meant_comes_from_the_known_lines_alone(gate_times: ModuleType) -> None:
    case = gate_times.Case("x", "0.5.7", crlf=True)
    data = numbered(1700, crlf=True)
    assert gate_times.meant(data, case) == data.replace(b"\n1691\r\n", b'\n            "flashinfer_cutlass",\r\n')
    case = gate_times.Case("x", "0.5.7", "deep_gemm")
    data = numbered(1700)
    assert gate_times.meant(data, case) == data.replace(b"\n1689\n", b'\n1689\n            "deep_gemm",\n')
    assert gate_times.meant(b"x", gate_times.Case("x", "0.5.13")) == b"x"


def test_sed_opens_the_gate_of_one_function_only(gate_times: ModuleType, tmp_path: Path) -> None:
    other = 'x = [\n    # "flashinfer_cutlass",\n]\n'
    gate = 'def _should_run_flashinfer_autotune(self):\n    # "flashinfer_cutlass",\n    return True\n'
    path = tmp_path / "model_runner.py"
    path.write_text(other + gate + other)
    subprocess.run(gate_times.sed(path, "flashinfer_cutlass"), check=True)
    assert path.read_text() == other + gate.replace("# ", "") + other


def test_seconds_and_changed_are_read_from_the_json_callback(gate_times: ModuleType) -> None:
    def one(start: str, end: str, changed: bool) -> dict[str, object]:
        return {"task": {"duration": {"start": start, "end": end}}, "hosts": {"localhost": {"changed": changed}}}

    tasks = [
        one("2026-11-29T21:00:00.250000Z", "2026-11-29T21:00:01.000000Z", True),
        one("2026-11-29T21:00:01.000000Z", "2026-11-29T21:01:01.500000Z", False),
    ]
    output = "[WARNING]: something\n" + json.dumps({"plays": [{"tasks": tasks}]})
    assert gate_times.results(output) == [(0.75, True), (60.5, False)]


def test_each_way_comes_first_in_turn(gate_times: ModuleType) -> None:
    assert [gate_times.turned(("a", "b", "c"), number)[0] for number in range(4)] == ["a", "b", "c", "a"]
    assert gate_times.turned(("a", "b", "c"), 1) == ("b", "c", "a")


def test_section_has_medians_quartiles_and_every_case(gate_times: ModuleType) -> None:
    def took(base: float) -> dict[str, tuple[float, float]]:
        ways = (*gate_times.TASKS, *gate_times.PROCESSES)
        return {way: (base + at, base / 2) for at, way in enumerate(ways)}

    right = gate_times.Outcome(b"", b"a", b"a", (True, False))
    outcomes = {"0.5.7": dict.fromkeys(gate_times.TASKS, right)}
    section = gate_times.report([took(0.1), took(0.2), took(0.3), took(0.4), took(9.0)], outcomes, {"processor": "P"})
    assert "| task `tokforge.sglang.autotune_gate`, opens | 5 | 300.0 | 200.0 to 400.0 |" in section
    assert "| task `tokforge.sglang.autotune_gate`, again | 5 | 150.0 | 100.0 to 200.0 |" in section
    assert "| `sed -i` by itself, opens | 5 | 4300.0 | 4200.0 to 4400.0 |" in section
    assert "**2000 ms less** than `lineinfile`" in section
    assert "| processor | P |" in section
    assert section.count("right; says changed, then not changed") == 3


def test_section_takes_the_place_of_an_older_one_only(gate_times: ModuleType) -> None:
    title = gate_times.TITLE
    page = gate_times.with_section("# Page\n\nText.\n", f"{title}\n\nold\n")
    assert page == f"# Page\n\nText.\n\n{title}\n\nold\n"
    page = gate_times.with_section(page + "\n## Other\n\nkept\n", f"{title}\n\nnew\n")
    assert page == f"# Page\n\nText.\n\n## Other\n\nkept\n\n{title}\n\nnew\n"
    assert gate_times.with_section("", f"{title}\n") == f"{title}\n"
