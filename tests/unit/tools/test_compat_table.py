# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/compatibility.md says what the data says."""

from __future__ import annotations

from pathlib import Path

import compat_table
import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import compat_data
from ansible_collections.tokforge.sglang.plugins.module_utils.compat_data import Proof, Row

ROW = Row(
    "moe",
    ("a", "b"),
    "supported_but",
    "SGLang {sglang} runs {backend} on {capability} | `Got SM{sm}.` with FlashInfer {flashinfer}",
    (
        Proof("sglang 0.5.1", "sglang/srt/x.py", "one"),
        Proof("sglang 0.5.1", "sglang/srt/x.py", "two"),
        Proof("sglang 0.5.2", "sglang/srt/x.py", "one"),
        Proof("sglang 0.5.1", "sglang/srt/layers/moe/z.py", "one"),
        Proof("sglang 0.5.2", "sglang/srt/layers/moe/z.py", "one"),
        Proof("sglang 0.5.2", "sglang-0.5.2.dist-info/METADATA", "one"),
        Proof("flashinfer-python 0.6.1", "flashinfer/y.py", "one"),
    ),
    source="somebody/something#1",
    sglang="0.5.1..0.5.2",
    flashinfer="0.6.1..",
    capability="10.0|10.3",
    not_quantization=("fp8",),
    parallel="ep == 1",
    a2a=("none",),
    args=(("kv_cache_dtype", ("auto",)),),
    unless_args=(("x", ("y",)),),
)


def test_row_becomes_a_line_with_its_conditions_and_places() -> None:
    *_head, line, end = compat_table.part_section("moe", [ROW])
    assert end == ""
    assert line == (
        "| `a`, `b` | 10.0\\|10.3 | any but `fp8` | 0.5.1..0.5.2 | ep == 1; moe_a2a_backend `none`; "
        "kv_cache_dtype `auto`; x none of `y`; FlashInfer 0.6.1.. | yes, but | "
        "SGLang runs it on others \\| `Got SM....` with FlashInfer | "
        "sglang 0.5.1, 0.5.2 `x.py`, `moe/z.py`; 0.5.2 `METADATA`; flashinfer-python 0.6.1 `y.py`; "
        "somebody/something#1 |"
    )


def test_empty_conditions_are_any() -> None:
    line = compat_table.part_section("moe", [Row("moe", (), "unsupported", "no", source="s")])[-2]
    assert line == "| any | any | any | all |  | no | no | s |"


def backends_cell(*backends: str, part: str = "moe") -> str:
    return compat_table.part_section(part, [Row(part, backends, "unsupported", "no", source="s")])[-2].split(" | ")[0]


def test_most_moe_backends_are_told_by_the_others() -> None:
    known = compat_data.MOE_BACKENDS
    assert backends_cell(*known[2:]) == f"| any but `{known[0]}`, `{known[1]}`"
    assert backends_cell(*known) == "| any"
    half = len(known) // 2
    assert backends_cell(*known[:half]) == "| " + ", ".join(f"`{name}`" for name in known[:half])
    # The list is one of MoE backends: of other parts nothing can be left out.
    assert "any but" not in backends_cell(*known, part="a2a")


def test_document_can_be_read_by_a_person() -> None:
    text = compat_table.document()
    assert len(text.encode()) < 120_000
    cells = [cell for line in text.splitlines() if line.startswith("|") for cell in line.split(" | ")]
    assert max(map(len, cells)) < 300
    assert all(len(line) <= 120 for line in text.splitlines() if not line.startswith("|"))


def test_document_has_every_row_every_part_and_no_figure_left() -> None:
    text = compat_table.document()
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert sum(line.count(" | ") == 7 for line in lines) >= len(compat_data.ROWS)
    assert all(f"## {title}" in text for title in compat_table.TITLES.values())
    assert "{" not in text
    assert "| `marlin` | 0.5.12.. |" in text
    assert "| 0.6.12 | 0.5.13, 0.5.13.post1, 0.5.14, 0.5.15, 0.5.15.post1 |" in text


def test_document_is_written_once_and_stale_after_a_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "compatibility.md"
    assert compat_table.main(["--check"], path) == 1
    assert not path.exists()
    assert compat_table.main([], path) == 0
    assert compat_table.main(["--check"], path) == 0
    monkeypatch.setattr(compat_data, "ROWS", compat_data.ROWS[1:])
    capsys.readouterr()
    assert compat_table.main(["--check"], path) == 1
    assert "is not current; run make docs" in capsys.readouterr().err


def test_document_in_the_tree_is_current() -> None:
    assert compat_table.main(["--check"]) == 0
