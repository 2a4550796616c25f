# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the catalog takes of a release's flags: all or nothing. How they are read is in test_flag_reader.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from server_flags import ExtractionError, read_flags

BACKEND = 'parser.add_argument("--moe-runner-backend", choices=["auto", "x"])'


def package(root: Path, *calls: str) -> Path:
    """A `sglang` package whose server has these flags."""
    folder = root / "sglang" / "srt"
    folder.mkdir(parents=True)
    body = "\n        ".join(calls)
    (folder / "server_args.py").write_text(f"class ServerArgs:\n    def add_cli_args(parser):\n        {body}\n")
    return root


def test_flags_come_by_name(tmp_path: Path) -> None:
    found = read_flags(package(tmp_path, BACKEND, 'parser.add_argument("--a", type=int)'))
    assert {name: flag.type for name, flag in found.items()} == {"moe-runner-backend": "text", "a": "int"}


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        (("pass",), "no choices found for --moe-runner-backend"),
        (('parser.add_argument("--moe-runner-backend", type=str)',), "no choices found for --moe-runner-backend"),
        (('parser.add_argument("--moe-runner-backend", choices=[])',), "no choices found for --moe-runner-backend"),
        ((BACKEND, 'parser.add_argument("--a", choices=torch.names())'), "cannot tell `torch.names()`; teach"),
        ((BACKEND, BACKEND), "is there twice"),
    ],
)
def test_catalog_takes_nothing_that_is_not_wholly_read(tmp_path: Path, calls: tuple[str, ...], message: str) -> None:
    with pytest.raises(ExtractionError) as raised:
        read_flags(package(tmp_path, *calls))
    assert message in str(raised.value)


def test_wheel_without_the_known_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ExtractionError, match="its layout changed"):
        read_flags(tmp_path)
