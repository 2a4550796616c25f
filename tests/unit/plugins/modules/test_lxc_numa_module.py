# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module on a host that is a directory: what it writes, notes, puts back and returns."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from module_args import patch_module_args

from ansible_collections.tokforge.sglang.plugins.module_utils import previous_values
from ansible_collections.tokforge.sglang.plugins.modules import lxc_numa

FIXTURES = Path(__file__).resolve().parents[1] / "module_utils" / "fixtures" / "lxc"
Run = Callable[..., dict[str, Any]]
GPU = {"address": "0000:01:00.0", "numa_node": 1, "cpus": "8-15", "driver": "nvidia"}
CPUS, MEMS = "lxc.cgroup2.cpuset.cpus: 8-15\n", "lxc.cgroup2.cpuset.mems: 1\n"


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    for name, text in {"cpu/online": "0-15", "node/node0/cpulist": "0-7", "node/node1/cpulist": "8-15"}.items():
        path = tmp_path / "sys/devices/system" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    config = tmp_path / "101.conf"
    config.write_bytes((FIXTURES / "pve9.conf").read_bytes())
    config.chmod(0o640)
    return config


@pytest.fixture
def run(conf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    told: list[str] = []
    monkeypatch.setattr(lxc_numa.AnsibleModule, "warn", lambda _module, text: told.append(text))

    def once(check: bool = False, diff: bool = False, **params: Any) -> dict[str, Any]:
        given = {
            "path": str(conf),
            "host_gpus": [GPU],
            "record_dir": str(tmp_path / "record"),
            "root": str(tmp_path),
            "lock_dir": str(tmp_path / "locks"),
            **params,
        }
        with (
            patch_module_args({**given, "_ansible_check_mode": check, "_ansible_diff": diff}),
            pytest.raises(SystemExit),
        ):
            lxc_numa.main()
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        answer["warned"] = json.dumps(told)
        told.clear()
        return answer

    return once


def test_binding_is_written_once_and_put_back_byte_for_byte(run: Run, conf: Path, tmp_path: Path) -> None:
    before = conf.read_bytes()
    first = run()
    assert (first["changed"], first["restart_needed"], first["cpus"], first["mems"]) == (True, True, "8-15", "1")
    assert CPUS + MEMS in conf.read_text().partition("\n[")[0]
    assert stat.S_IMODE(conf.stat().st_mode) == 0o640
    assert "cores: 32 has no effect" in first["warned"]
    again = run()
    assert (again["changed"], again["restart_needed"], again["cpus"]) == (False, False, "8-15")
    back = run(state="absent")
    assert (back["changed"], back["cpus"], conf.read_bytes()) == (True, "", before)
    assert previous_values.read(str(tmp_path / "record")) == {}
    assert not run(numa="none")["changed"]


def test_first_line_is_what_comes_back_after_several_bindings(run: Run, conf: Path) -> None:
    own = conf.read_text().replace("swap: 0\n", "swap: 0\nlxc.cgroup2.cpuset.cpus: 3\n", 1)
    conf.write_text(own)
    run()
    assert run(numa="0")["cpus"] == "0-7"
    assert run(numa="none")["changed"]
    assert conf.read_text() == own


@pytest.mark.parametrize("params", [{}, {"numa": "none"}])
def test_check_mode_tells_the_same_and_writes_nothing(
    run: Run, conf: Path, tmp_path: Path, params: dict[str, Any]
) -> None:
    if params:
        run()
    before, noted = conf.read_bytes(), previous_values.read(str(tmp_path / "record"))
    told = run(check=True, diff=True, **params)
    assert (conf.read_bytes(), previous_values.read(str(tmp_path / "record"))) == (before, noted)
    done = run(diff=True, **params)
    assert {**told, "invocation": 0} == {**done, "invocation": 0}
    assert done["changed"] and (told["diff"]["before"], told["diff"]["after"]) == (before.decode(), conf.read_text())


def test_kill_between_note_and_write_is_made_good(run: Run, conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = conf.read_bytes()

    def killed(*_given: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lxc_numa.lxc_file, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            run()
    assert conf.read_bytes() == before
    assert run()["changed"] and run(state="absent")["changed"]
    assert conf.read_bytes() == before


def test_file_that_is_not_there_has_no_binding_but_cannot_get_one(run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "102.conf")
    notes = {lxc_numa.lxc_numa.note_key(path, "lxc.cgroup2.cpuset.cpus"): "of a container that is gone"}
    previous_values.remember(str(tmp_path / "record"), {**notes, "other": 1})
    assert not run(path=path, state="absent", check=True)["changed"]
    assert len(previous_values.read(str(tmp_path / "record"))) == 2
    assert not run(path=path, state="absent")["changed"]
    assert previous_values.read(str(tmp_path / "record")) == {"other": 1}
    assert run(path=path)["msg"].endswith("No such file or directory; make the container first")


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"numa": "7"}, "reading numa '7'"),
        ({"gpus": ["3"]}, "of /dev/nvidia3"),
        ({"gpus": ["x"]}, "reading gpus ['x']"),
        ({"host_gpus": []}, "there is no GPU on the PCI bus"),
    ],
)
def test_what_cannot_be_bound_fails_also_in_check_mode(run: Run, conf: Path, params: dict[str, Any], why: str) -> None:
    before = conf.read_bytes()
    for check in (True, False):
        assert why in run(check=check, **params)["msg"]
    assert conf.read_bytes() == before


def test_damaged_notes_stop_it_before_it_writes(run: Run, conf: Path, tmp_path: Path) -> None:
    before = conf.read_bytes()
    (tmp_path / "record").mkdir()
    (tmp_path / "record/previous.json").write_text("{")
    assert "not JSON" in run()["msg"]
    assert conf.read_bytes() == before


def test_lock_of_proxmox_is_waited_for(run: Run, conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lxc_numa.lxc_file, "LOCK_WAIT_S", 0.06)
    (tmp_path / "locks").mkdir()
    with open(tmp_path / "locks/pve-config-101.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run()["msg"].startswith(f"locking the container's configuration {conf}: ")
    assert run()["changed"] and os.path.exists(conf)


def test_documentation_names_every_value_and_option(run: Run) -> None:
    answer = run(check=True)
    assert set(yaml.safe_load(lxc_numa.RETURN)) == set(answer) - {"changed", "invocation", "warned"}
    options = yaml.safe_load(lxc_numa.DOCUMENTATION)["options"]
    given = answer["invocation"]["module_args"]
    assert set(options) == set(given)
    defaults = ("numa", "gpus", "state")
    assert [given[name] for name in defaults] == [options[name]["default"] for name in defaults]
