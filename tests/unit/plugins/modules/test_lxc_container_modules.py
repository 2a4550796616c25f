# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules lxc_container_info and lxc_container_restart, on containers of the stand-ins' kind made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from module_args import patch_module_args

from ansible_collections.tokforge.sglang.plugins.module_utils import lxc_container, lxc_inside, previous_values
from ansible_collections.tokforge.sglang.plugins.module_utils.lxc_container import State
from ansible_collections.tokforge.sglang.plugins.modules import lxc_container_info, lxc_container_restart

FIXTURES = Path(__file__).resolve().parents[1] / "module_utils" / "fixtures" / "lxc"
Run = Callable[..., dict[str, Any]]
RUNNING = State("running", 7)


@pytest.fixture
def call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a module on a host with two GPUs."""
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
        (tmp_path / "dev").mkdir(exist_ok=True)
        (tmp_path / "dev" / name).touch()
    (tmp_path / "proc/7/root").mkdir(parents=True)
    (tmp_path / "proc/7/status").write_text("Cpus_allowed_list:\t0-3\nMems_allowed_list:\t0\n")
    (tmp_path / "proc/devices").write_bytes((FIXTURES / "proc-devices-uvm511").read_bytes())

    def once(module: ModuleType, check: bool = False, **params: Any) -> dict[str, Any]:
        given = {"id": "101", "tool": "pct", "record_dir": str(tmp_path / "record"), **params}
        if module is lxc_container_info:
            given = {"root": str(tmp_path), **given}
        with patch_module_args({**given, "_ansible_check_mode": check}), pytest.raises(SystemExit):
            module.main()
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    return once


def seen(monkeypatch: pytest.MonkeyPatch, state: State) -> None:
    monkeypatch.setattr(lxc_container, "look", lambda _one: state)


def test_running_container_is_compared_with_what_it_should_have(
    call: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen(monkeypatch, RUNNING)
    answer = call(lxc_container_info, gpus=[1], cpus="0-3", mems="1", config=str(tmp_path / "proc/devices"))
    assert (answer["looked"], answer["why"], answer["running"], answer["state"]) == (True, "", True, "running")
    assert (answer["cpus"], answer["mems"], answer["exists"], answer["config"]) == (
        "0-3",
        "0",
        True,
        str(tmp_path / "proc/devices"),
    )
    assert answer["nodes"] == dict.fromkeys(f"/dev/nvidia{one}" for one in ("1", "ctl", "-uvm", "-uvm-tools"))
    assert answer["differences"][0] == "/dev/nvidia1 is not in it"
    assert answer["differences"][-1] == "it may use memory nodes 0, and is bound to 1"
    assert not any("nvidia0" in one for one in answer["differences"])


def test_container_that_should_have_none_lacks_none(call: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen(monkeypatch, RUNNING)
    answer = call(lxc_container_info, gpus=[])
    assert (answer["looked"], answer["differences"], answer["nodes"]) == (True, [], {})


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (State("stopped"), "it does not run"),
        (State(why="lxc-info is not installed"), "lxc-info is not installed"),
        (State("running"), "lxc-info does not tell its first process"),
        (State("running", 8), "its process 8 cannot be looked at: No such file or directory"),
    ],
)
def test_container_that_cannot_be_looked_at_is_no_failure(
    call: Run, monkeypatch: pytest.MonkeyPatch, state: State, why: str
) -> None:
    seen(monkeypatch, state)
    answer = call(lxc_container_info, gpus=["all"])
    assert (answer["looked"], answer["why"], answer["differences"], answer["exists"]) == (False, why, [], False)
    assert answer["config"] == "/etc/pve/lxc/101.conf"


def test_nothing_is_looked_for_when_nothing_is_asked(call: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen(monkeypatch, RUNNING)
    monkeypatch.setattr(lxc_inside, "look", lambda *_given: pytest.fail("looked"))
    answer = call(lxc_container_info)
    assert (answer["looked"], answer["running"], answer["nodes"]) == (False, True, {})


def test_gpu_that_the_host_lacks_and_bad_id_are_failures(call: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen(monkeypatch, RUNNING)
    assert "/dev/nvidia4 is not there" in call(lxc_container_info, gpus=[4])["msg"]
    assert "reading the container's id 'x'" in call(lxc_container_info, id="x")["msg"]
    assert "reading the container's id 'x'" in call(lxc_container_restart, id="x")["msg"]


@pytest.mark.parametrize("check", [True, False])
def test_only_what_runs_is_restarted(call: Run, monkeypatch: pytest.MonkeyPatch, check: bool) -> None:
    done: list[Any] = []

    def restart(*given: Any) -> State:
        done.append(given)
        return RUNNING

    monkeypatch.setattr(lxc_container, "restart", restart)
    seen(monkeypatch, State("stopped"))
    left = call(lxc_container_restart, check=check)
    assert (left["changed"], left["before"], left["state"], done) == (False, "stopped", "stopped", [])
    seen(monkeypatch, RUNNING)
    again = call(lxc_container_restart, check=check, timeout_s=9)
    assert (again["changed"], again["before"], again["state"]) == (True, "running", "running")
    assert [given[2] for given in done] == ([] if check else [9])


def test_restart_that_was_interrupted_is_finished(call: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    previous_values.remember(str(tmp_path / "record"), {"lxc_restart/pct/101": True})
    seen(monkeypatch, State("stopped"))
    assert call(lxc_container_info)["interrupted"]
    told = call(lxc_container_restart, check=True)
    assert (told["changed"], told["before"], told["state"]) == (True, "stopped", "running")
    assert call(lxc_container_info, id="102")["interrupted"] is False


def test_unknown_container_and_no_time_are_failures(call: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen(monkeypatch, State(why="pct status says: x"))
    assert call(lxc_container_restart)["msg"].startswith("restarting container 101: pct status says: x; give the id")
    assert "give at least 1 second" in call(lxc_container_restart, timeout_s=0)["msg"]


@pytest.mark.parametrize("module", [lxc_container_info, lxc_container_restart])
def test_documentation_names_every_value_and_option(
    call: Run, monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> None:
    seen(monkeypatch, State("stopped"))
    answer = call(module)
    assert set(yaml.safe_load(module.RETURN)) == set(answer) - {"changed", "invocation"}
    options = yaml.safe_load(module.DOCUMENTATION)["options"]
    given = answer["invocation"]["module_args"]
    assert set(options) == set(given)
    same = {name for name, option in options.items() if "default" in option} - {"tool", "record_dir", "root"}
    assert {name: given[name] for name in same} == {name: options[name]["default"] for name in same}
