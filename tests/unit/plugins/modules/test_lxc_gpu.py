# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module on a host that is a directory: its own /dev, /proc/devices and configurations."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from module_args import patch_module_args

from ansible_collections.tokforge.sglang.plugins.module_utils import atomic_file
from ansible_collections.tokforge.sglang.plugins.modules import lxc_gpu

FIXTURES = Path(__file__).resolve().parents[1] / "module_utils" / "fixtures" / "lxc"
Run = Callable[..., dict[str, Any]]


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """A configuration as Proxmox VE has it, on a host with two GPUs."""
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps/nvidia-cap2"):
        (tmp_path / "dev" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dev" / name).touch()
    (tmp_path / "lxc").mkdir()
    path = tmp_path / "lxc" / "101.conf"
    shutil.copyfile(FIXTURES / "pve9.conf", path)
    path.chmod(0o640)
    return path


@pytest.fixture
def run(conf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    # Where a test has loaded the controller's display, warnings go there, and each of them once only.
    told: list[str] = []
    monkeypatch.setattr(lxc_gpu.AnsibleModule, "warn", lambda _module, text: told.append(text))

    def once(check: bool = False, diff: bool = False, **params: Any) -> dict[str, Any]:
        """The module's answer; `failed` is there when it failed, what it warned of is `warned`."""
        given = {
            "path": str(conf),
            "dev_root": str(tmp_path / "dev"),
            "proc_devices": str(FIXTURES / "proc-devices-uvm511"),
            "lock_dir": str(tmp_path / "locks"),
            **params,
        }
        with (
            patch_module_args({**given, "_ansible_check_mode": check, "_ansible_diff": diff}),
            pytest.raises(SystemExit) as ended,
        ):
            lxc_gpu.main()
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert ended.value.code == (1 if answer.get("failed") else 0)
        answer["warned"] = json.dumps(told)
        told.clear()
        return answer

    return once


def test_second_run_changes_nothing_and_leaves_the_file_alone(run: Run, conf: Path) -> None:
    first = run(pve_version="9.0.3")
    assert (first["changed"], first["form"], first["gpus"], first["restart_needed"]) == (True, "dev", [0, 1], True)
    assert [(one["path"], one["index"]) for one in first["entries"]][:2] == [("/dev/nvidia0", 1), ("/dev/nvidia1", 2)]
    assert first["missing"] == ["/dev/nvidia-modeset", "/dev/nvidia-caps/nvidia-cap1"]
    assert "/dev/nvidia-modeset is not passed on now" in first["warned"]
    before = os.stat(conf)
    second = run(pve_version="9.0.3")
    assert (second["changed"], second["restart_needed"], second["entries"]) == (False, False, first["entries"])
    assert os.stat(conf) == before and stat.S_IMODE(before.st_mode) == 0o640


def test_snapshots_and_pending_changes_stay_byte_for_byte(run: Run, conf: Path) -> None:
    tail = conf.read_bytes().partition(b"\n\n[pve:pending]")[2]
    assert run(form="raw", gpus=[1])["changed"]
    assert conf.read_bytes().partition(b"\n\n[pve:pending]")[2] == tail


@pytest.mark.parametrize("params", [{"form": "dev"}, {"form": "raw", "gpus": "1"}])
def test_check_mode_tells_the_same_and_writes_nothing(run: Run, conf: Path, params: dict[str, Any]) -> None:
    before = conf.read_bytes()
    told = run(check=True, diff=True, **params)
    assert conf.read_bytes() == before and sorted(os.listdir(conf.parent)) == ["101.conf"]
    assert told["diff"]["before"].encode() == before
    done = run(diff=True, **params)
    assert {**told, "invocation": 0} == {**done, "invocation": 0}
    assert conf.read_text() == done["diff"]["after"] and done["changed"]
    assert done["diff"]["after_header"] == str(conf)
    assert "diff" not in run(check=True, **params)


def test_absent_brings_the_bytes_back(run: Run, conf: Path) -> None:
    before = conf.read_bytes()
    run(form="dev")
    assert run(state="absent", gpus=[0])["gpus"] == [1]
    last = run(state="absent")
    assert (last["changed"], last["gpus"], conf.read_bytes()) == (True, [], before)
    assert not run(state="absent")["changed"]


def test_new_major_is_reported_as_changed_once(run: Run, conf: Path) -> None:
    run(form="raw")
    proc = str(FIXTURES / "proc-devices-uvm506")
    swapped = run(form="raw", proc_devices=proc)
    assert (swapped["changed"], swapped["restart_needed"], swapped["majors"]["nvidia-uvm"]) == (True, True, 506)
    main = conf.read_text().partition("\n[")[0]
    assert "c 506:* rwm" in main and "c 511:* rwm" not in main
    assert not run(form="raw", proc_devices=proc)["changed"]


def test_plain_lxc_gets_its_own_syntax(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "config"
    shutil.copyfile(FIXTURES / "plain.config", path)
    assert run(path=str(path), pve_version="9.0")["form"] == "raw"
    assert "\nlxc.mount.entry = /dev/nvidia1 dev/nvidia1 none bind,optional,create=file\n" in path.read_text()


def test_missing_gpu_is_named(run: Run, conf: Path) -> None:
    before = conf.read_bytes()
    answer = run(gpus=[0, 4])
    assert "/dev/nvidia4 is not there" in answer["msg"]
    assert (answer["missing_gpus"], answer["found_gpus"], conf.read_bytes()) == ([4], [0, 1], before)


@pytest.mark.parametrize("gpus", [[], "", ["all", "0"], [-1], ["01"], ["0-3"], ["nvidia0"], [99999]])
def test_gpus_that_are_no_numbers_are_refused(run: Run, gpus: Any) -> None:
    assert run(gpus=gpus)["msg"].startswith("reading gpus [")


def test_file_that_is_not_there_has_no_entries_but_cannot_get_some(run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "lxc" / "102.conf")
    gone = run(path=path, state="absent")
    assert (gone["changed"], gone["entries"], gone["restart_needed"]) == (False, [], False)
    assert run(path=path)["msg"] == (
        f"reading the container's configuration {path}: No such file or directory; make the container first"
    )
    assert not os.path.exists(path)


def test_directory_and_strange_file_are_refused(run: Run, tmp_path: Path) -> None:
    assert "Is a directory" in run(path=str(tmp_path))["msg"]
    (tmp_path / "x.yml").write_text("name: x\n")
    assert "it has key name and no rootfs" in run(path=str(tmp_path / "x.yml"))["msg"]
    assert (tmp_path / "x.yml").read_text() == "name: x\n"


def test_link_to_the_file_stays_a_link(run: Run, conf: Path, tmp_path: Path) -> None:
    link = tmp_path / "101.conf"
    link.symlink_to(conf)
    assert run(path=str(link))["changed"]
    assert link.is_symlink() and "/dev/nvidia1" in conf.read_text()


def test_file_stays_whole_when_it_cannot_be_replaced(run: Run, conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = conf.read_bytes()

    def refuse(*_paths: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(atomic_file.os, "replace", refuse)
    answer = run()
    monkeypatch.undo()
    assert answer["msg"].startswith(f"writing the container's configuration {conf}: Permission denied; run as root")
    assert conf.read_bytes() == before and os.listdir(conf.parent) == ["101.conf"]


def test_change_by_another_hand_is_not_overwritten(run: Run, conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = lxc_gpu.lxc_plan.plan

    def slow(*given: Any) -> Any:
        found = plan(*given)
        conf.write_text("rootfs: x\n")
        return found

    monkeypatch.setattr(lxc_gpu.lxc_plan, "plan", slow)
    assert "somebody else changed it meanwhile; run again" in run()["msg"]
    assert conf.read_text() == "rootfs: x\n"


def test_lock_of_proxmox_is_waited_for(run: Run, conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lxc_gpu.lxc_file, "LOCK_WAIT_S", 0.06)
    before = conf.read_bytes()
    (tmp_path / "locks").mkdir()
    with open(tmp_path / "locks" / "pve-config-101.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        answer = run()
        assert answer["msg"].startswith(f"locking the container's configuration {conf}: ")
        assert conf.read_bytes() == before
        assert run(check=True)["changed"]
    assert run()["changed"]


def test_documentation_names_every_value_that_is_returned(run: Run) -> None:
    answer = run(check=True)
    returned = yaml.safe_load(lxc_gpu.RETURN)
    assert set(returned) == set(answer) - {"changed", "invocation", "warned"}
    assert set(returned["entries"]["contains"]) == set(answer["entries"][0])
    options = yaml.safe_load(lxc_gpu.DOCUMENTATION)["options"]
    assert set(options) == set(answer["invocation"]["module_args"])
    assert all(
        answer["invocation"]["module_args"][name] == options[name]["default"] for name in ("gpus", "form", "state")
    )
    gone = run(path="/nowhere/101.conf", state="absent")
    assert set(gone) - {"changed", "invocation", "warned"} == set(returned)
