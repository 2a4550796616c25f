# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tools read from a directory of wheels: flags for the catalog, and the history of flags."""

from __future__ import annotations

import ast
import zipfile
from pathlib import Path

import flag_history
import lock
import pytest

BACKEND = 'parser.add_argument("--moe-runner-backend", choices=["auto"])'


def wheel(folder: Path, version: str, *names: str, broken: bool = False) -> None:
    """A wheel of this release with these flags beside the one that every release has."""
    calls = "\n        ".join([BACKEND, *(f'parser.add_argument("--{name}", type=int)' for name in names)])
    text = "x = (" if broken else f"class ServerArgs:\n    def add_cli_args(parser):\n        {calls}\n"
    with zipfile.ZipFile(folder / f"sglang-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr("sglang/srt/server_args.py", text)


def generated(root: Path) -> dict[str, object]:
    """The names that the generated file assigns."""
    tree = ast.parse((root / flag_history.HISTORY).read_text())
    return {
        entry.target.id: ast.literal_eval(entry.value)
        for entry in tree.body
        if isinstance(entry, ast.AnnAssign) and isinstance(entry.target, ast.Name) and entry.value is not None
    }


def test_history_has_the_spans_of_what_some_release_lacks(tmp_path: Path) -> None:
    wheel(tmp_path, "0.5.9", "all", "went", "back")
    wheel(tmp_path, "0.5.10", "all", "went")
    wheel(tmp_path, "0.5.10.post1", "all", "back", "came")
    (tmp_path / flag_history.HISTORY).parent.mkdir(parents=True)
    assert flag_history.main([str(tmp_path), "--root", str(tmp_path)]) == 0
    assert generated(tmp_path) == {
        "RELEASES": ("0.5.9", "0.5.10", "0.5.10.post1"),
        "SPANS": {
            "back": "0.5.9..0.5.9 0.5.10.post1..0.5.10.post1",
            "came": "0.5.10.post1..0.5.10.post1",
            "went": "0.5.9..0.5.10",
        },
    }


def test_history_of_nothing_or_of_what_cannot_be_read_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert flag_history.main([str(tmp_path), "--root", str(tmp_path)]) == 1
    assert "no wheel of SGLang in" in capsys.readouterr().err
    wheel(tmp_path, "0.5.9", broken=True)
    assert flag_history.main([str(tmp_path), "--root", str(tmp_path)]) == 1
    assert "cannot parse it" in capsys.readouterr().err
    (tmp_path / "sglang-0.5.9-py3-none-any.whl").write_text("x")
    assert flag_history.main([str(tmp_path), "--root", str(tmp_path)]) == 1
    assert not (tmp_path / flag_history.HISTORY).exists()


def test_flags_are_renewed_from_wheels_and_the_locks_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    catalog = tmp_path / lock.CATALOG
    catalog.parent.mkdir(parents=True)
    entry = {"torch": "2.0", "lanes": {"cpu": {"lock": "l.txt"}}, "flags": {"gone": {"takes_value": True}}}
    catalog.write_text(lock.catalog_text({"0.5.9": entry}))
    arguments = ["--flags-from", str(tmp_path), "--root", str(tmp_path)]
    assert lock.main(arguments) == 1
    assert "no wheel of it in" in capsys.readouterr().err
    wheel(tmp_path, "0.5.9", "new")
    wheel(tmp_path, "0.5.9.post1", "other")
    assert lock.main(arguments) == 0
    assert lock.read_catalog(catalog) == {
        "0.5.9": {
            **entry,
            "flags": {
                "moe-runner-backend": {"takes_value": True, "choices": ["auto"]},
                "new": {"takes_value": True, "type": "int"},
            },
        }
    }
