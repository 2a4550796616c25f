# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that describe a model, whole, damaged and hostile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import model, model_files
from ansible_collections.tokforge.sglang.plugins.module_utils.model import ModelError


def put(directory: Path, name: str, content: str = "") -> None:
    (directory / name).write_text(content)


def test_models_files_are_read(tmp_path: Path) -> None:
    put(tmp_path, "config.json", content='\ufeff{"a": 1}')
    assert model_files.read(str(tmp_path)) == ({"a": 1}, None)
    put(tmp_path, "hf_quant_config.json", content='{"b": 2}')
    assert model_files.read(str(tmp_path)) == ({"a": 1}, {"b": 2})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "it is no valid JSON; copy it again"),
        ("[" * 100_000, "it is no valid JSON"),
        ("[]", "it is no JSON object"),
        ("\x00", "it is no valid JSON"),
    ],
)
def test_damaged_model_is_refused(tmp_path: Path, content: str, said: str) -> None:
    put(tmp_path, "config.json", content=content)
    with pytest.raises(ModelError, match=said):
        model_files.read(str(tmp_path))


def test_model_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match=r"it has no config\.json; give its directory"):
        model_files.read(str(tmp_path))
    put(tmp_path, "file")
    with pytest.raises(ModelError, match=r"it has no config\.json"):
        model_files.read(str(tmp_path / "file"))
    with pytest.raises(ModelError, match="it is no path"):
        model_files.read("/a\x00b")
    with pytest.raises(ModelError, match="File name too long"):
        model_files.read("/" + "x" * 5000)
    (tmp_path / "config.json").mkdir()
    with pytest.raises(ModelError, match="it is no file"):
        model_files.read(str(tmp_path))
    (tmp_path / "config.json").rmdir()
    put(tmp_path, "config.json", content='{"a": 1}')
    monkeypatch.setattr(model_files, "LARGEST_BYTES", 3)
    with pytest.raises(ModelError, match="it has more than 3 bytes"):
        model_files.read(str(tmp_path))


@pytest.mark.parametrize("name", ["config.json", "hf_quant_config.json"])
def test_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    put(tmp_path, "config.json", content="{}")
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(ModelError, match="it is no file"):
        model_files.read(str(tmp_path))
    if name == "config.json":
        with pytest.raises(ModelError, match="it is no file"):
            model.read_config(str(tmp_path))
