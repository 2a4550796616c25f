# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The look at a server that tests/verify judges by."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

PROBE = Path(__file__).resolve().parents[2] / "verify" / "probe.py"


@pytest.fixture(scope="module")
def probe() -> ModuleType:
    spec = importlib.util.spec_from_file_location("verify_probe", PROBE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


@pytest.mark.skipif(sys.byteorder != "little", reason="the rows are as a little-endian machine writes them")
def test_only_listening_rows_of_the_port_count(probe: ModuleType, tmp_path: Path) -> None:
    v4, v6 = tmp_path / "tcp", tmp_path / "tcp6"
    v4.write_text(
        HEADER
        + "   0: 0100007F:7530 00000000:0000 0A 0 0 0 0 0 1\n"
        + "   1: 0100007F:7530 0100007F:9C40 01 0 0 0 0 0 2\n"  # a connection, not a listener
        + "   2: 00000000:7531 00000000:0000 0A 0 0 0 0 0 3\n",
        encoding="ascii",
    )
    v6.write_text(HEADER + f"   0: {'0' * 24}01000000:7530 {'0' * 32}:0000 0A 0 0 0 0 0 4\n", encoding="ascii")
    tables = (str(v4), str(v6), str(tmp_path / "absent"))
    assert probe.listening(30000, tables) == ["127.0.0.1", "::1"]
    assert probe.listening(30001, tables) == ["0.0.0.0"]
    assert probe.listening(30002, tables) == []


def test_own_listener_is_seen_on_its_address_only(probe: ModuleType) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert probe.listening(server.getsockname()[1]) == ["127.0.0.1"]


def test_process_is_found_by_the_release_in_its_environment(probe: ModuleType, tmp_path: Path) -> None:
    release = str(tmp_path / "releases" / "3")
    env = os.environ | {"TOKFORGE_RELEASE": release}
    with subprocess.Popen([sys.executable, "-c", "input()"], env=env, stdin=subprocess.PIPE) as child:
        deadline = time.monotonic() + 10
        while not (found := probe.processes(str(tmp_path))) and time.monotonic() < deadline:
            time.sleep(0.05)  # between fork and exec the child still has our environment
        assert found == [{"pid": child.pid, "release": release}]
        assert probe.processes(str(tmp_path / "other")) == []
        child.communicate()
    assert probe.processes(str(tmp_path)) == []


def test_keys_come_from_the_secrets_file(probe: ModuleType, tmp_path: Path) -> None:
    assert probe.secrets(str(tmp_path)) == {}
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "secrets.env").write_text("OTHER=x\nTOKFORGE_API_KEY=a=b\n", encoding="utf-8")
    assert probe.secrets(str(tmp_path))["TOKFORGE_API_KEY"] == "a=b"


def test_keys_that_cannot_be_read_are_not_taken_for_none(probe: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "state" / "secrets.env").mkdir(parents=True)  # unreadable for root, too
    assert probe.secrets(str(tmp_path)) is None
    assert probe.access("http://127.0.0.1:1", None)["keys"] is None
    assert probe.access("http://127.0.0.1:1", {"A": "b"})["keys"] == {"client": False, "admin": False}


def test_endpoint_of_nobody_has_no_status(probe: ModuleType) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert probe.status(f"http://127.0.0.1:{port}", "GET /v1/models") == 0


def test_unreachable_server_is_told_not_raised(probe: ModuleType) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert "refused" in probe.ask(f"http://127.0.0.1:{port}/v1/models", None)["error"]


def test_damaged_json_is_told_with_its_path(probe: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{", encoding="utf-8")
    assert "manifest.json" in probe.read_json(str(tmp_path / "manifest.json"))["error"]
