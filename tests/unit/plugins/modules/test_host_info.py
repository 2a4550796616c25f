# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module host_info: arguments in, one look out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from module_args import patch_module_args

from ansible_collections.tokforge.sglang.plugins.modules import host_info


def look(capsys: pytest.CaptureFixture[str], **params: Any) -> dict[str, Any]:
    with patch_module_args(params), pytest.raises(SystemExit) as ended:
        host_info.main()
    assert ended.value.code == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert answer["changed"] is False
    host: dict[str, Any] = answer["host"]
    return host


def program(folder: Path, text: str) -> None:
    folder.mkdir()
    at = folder / "pveversion"
    at.write_text(f"#!/bin/sh\n{text}\n")
    at.chmod(0o755)


def test_proxmox_is_asked_for_its_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin", "echo 'pve-manager/8.2.4/faa83925c9641325 (running kernel: 6.8.12-1-pve)'")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    found = look(capsys, kind="machine", root=str(tmp_path))
    assert (found["proxmox"], found["kind"], found["kernel"]) == ("8.2.4", "machine", os.uname().release)


def test_proxmox_that_fails_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin", "echo pve-manager/8.2.4/x; exit 2")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert look(capsys, root=str(tmp_path))["proxmox"] == ""


def test_driver_is_read_where_it_is_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release\n")
    found = look(capsys, proc_driver=str(tmp_path))
    assert found["driver"]["loaded_version"] == "580.95.05" and found["proxmox"] == ""
