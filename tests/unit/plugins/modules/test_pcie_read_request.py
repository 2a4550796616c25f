# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module: what it is given, what it returns, and that it runs as a program."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from module_args import patch_module_args

from ansible_collections.tokforge.sglang.plugins.modules import pcie_read_request

NIC = "0000:21:00.0"


Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run it in this process, on the tree below a folder."""
    return functools.partial(answer_of, capsys)


def answer_of(capsys: pytest.CaptureFixture[str], folder: Path, check: bool = False, **params: Any) -> dict[str, Any]:
    """The module's answer for the bus below a folder; `failed` is there when it failed."""
    given: dict[str, Any] = {"sys_pci": str(folder / "pci"), "record_dir": str(folder / "record"), **params}
    given.update(_ansible_check_mode=check, _ansible_diff=True)
    with patch_module_args(given), pytest.raises(SystemExit) as ended:
        pcie_read_request.main()
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert ended.value.code == (1 if answer.get("failed") else 0)
    return answer


@pytest.fixture
def bus(tmp_path: Path) -> Path:
    """A folder with one network adapter that asks for 512 bytes."""
    data = bytearray(256)
    data[0:8] = bytes.fromhex("b3151b1000001000")
    data[0x34] = 0x60
    data[0x60:0x70] = bytes.fromhex("10000200018000001028090000000000")
    path = tmp_path / "pci" / "devices" / NIC
    path.mkdir(parents=True)
    (path / "config").write_bytes(data)
    return tmp_path


def test_size_is_set_returned_shown_and_put_back(bus: Path, run: Run) -> None:
    config = bus / "pci" / "devices" / NIC / "config"
    original = config.read_bytes()
    wanted = {"devices": [NIC], "bytes": 4096}
    predicted = run(bus, check=True, **wanted)
    assert config.read_bytes() == original
    done = run(bus, **wanted)
    assert {**done, "invocation": None} == {**predicted, "invocation": None}
    assert done["changed"] is True
    assert done["devices"] == [{"address": NIC, "before": 512, "after": 4096, "wanted": 4096, "status": "set"}]
    header = f"Max_Read_Request_Size in {bus}/pci/devices"
    assert done["diff"] == {
        "before_header": header,
        "after_header": header,
        "before": f"{NIC}: 512 bytes\n",
        "after": f"{NIC}: 4096 bytes\n",
    }
    assert config.read_bytes() == original[:0x69] + b"\x58" + original[0x6A:]
    assert run(bus, **wanted)["changed"] is False
    back = run(bus, state="absent")
    assert (back["changed"], back["devices"][0]["status"]) == (True, "restored")
    assert config.read_bytes() == original


def test_failures_return_their_facts(bus: Path, run: Run) -> None:
    answer = run(bus, devices=[NIC, "0000:99:00.0"], bytes=4096)
    assert answer["failed"] and answer["device"] == "0000:99:00.0"
    assert "there is no such device" in answer["msg"]
    assert (
        "value of bytes must be one of: 128, 256, 512, 1024, 2048, 4096, got: 3000"
        in (run(bus, devices=[NIC], bytes=3000)["msg"])
    )
    assert "all of the following are missing: devices, bytes" in run(bus)["msg"]


def test_module_runs_as_a_program(tmp_path: Path) -> None:
    (tmp_path / "pci").mkdir()
    given = {"state": "absent", "sys_pci": str(tmp_path / "pci"), "record_dir": str(tmp_path / "record")}
    done = subprocess.run(
        [sys.executable, "-m", pcie_read_request.__name__],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": given}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["changed"] is False
