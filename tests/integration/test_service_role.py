# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Roles sglang_server and sglang_ready through ansible-playbook, with a small real HTTP process as the server, and the
unit that the first one writes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from full_only import IN_FULL
from jinja2.nativetypes import NativeEnvironment

from ansible_collections.tokforge.sglang.plugins.module_utils import managers, proc, service, start_history

ROOT = Path(__file__).resolve().parents[2]
ROLE = ROOT / "roles/sglang_server"
FAKE = Path(__file__).with_name("fake_server.py")
SUPERVISORD = Path(sys.executable).with_name("supervisord")
KEY = "canary-api-key-0123456789"
TOKEN = "canary-token-0123456789"

PLAY = """
- name: Server
  hosts: localhost
  gather_facts: true
  gather_subset: ["!all", "!min", "python", "platform", "service_mgr", "user"]
  tasks:
    - name: The role
      ansible.builtin.include_role:
        name: tokforge.sglang.sglang_server
        tasks_from: "{{ entry }}"
        public: true
    - name: The wait
      ansible.builtin.include_role:
        name: tokforge.sglang.sglang_ready
        public: true
      when: entry == 'main'
"""


class Target:
    def __init__(self, directory: Path) -> None:
        self.root = directory / "r"
        self.play = directory / "play.yml"
        self.play.write_text(PLAY)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.variables: dict[str, Any] = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "sglang_root": str(self.root),
            "sglang_port": self.port,
            "sglang_service_manager": "supervisor",
            "sglang_supervisord": str(SUPERVISORD),
            "sglang_server_api_key": KEY,
            "sglang_server_secrets": {"HF_TOKEN": TOKEN},
            "sglang_model_info": {"served_name": "tiny", "random_weights": True},
        }

    def release(self, number: int, *arguments: str) -> None:
        release = self.root / f"releases/{number}"
        (release / "venv/bin").mkdir(parents=True)
        (release / "venv/bin/python").symlink_to(sys.executable)
        argv = [str(FAKE), "--port", str(self.port), *arguments]
        (release / "launch.json").write_text(json.dumps({"schema_version": 1, "argv": argv}))
        (self.root / "current").unlink(missing_ok=True)
        (self.root / "current").symlink_to(f"releases/{number}")

    def starts(self) -> list[dict[str, Any]]:
        return start_history.read(str(self.root))

    def run(self, *options: str, entry: str = "main", **variables: Any) -> tuple[int, str]:
        extra = json.dumps({**self.variables, "entry": entry, **variables})
        command = [
            sys.executable,
            "-m",
            "ansible",
            "playbook",
            "-i",
            "localhost,",
            "-e",
            extra,
            *options,
            str(self.play),
        ]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    if not SUPERVISORD.exists():
        pytest.skip(f"supervisord is not beside {sys.executable}")
    made = Target(tmp_path)
    yield made
    paths = service.Paths(str(made.root))
    manager = managers.make_manager("supervisor", paths, "sglang")
    service.carry_out(service.Service(paths, manager, "sglang", "127.0.0.1", made.port, 1), "absent", False, True)


def recap(output: str) -> str:
    return re.sub(r"\s+", " ", output[output.rindex("localhost ") :])


def test_whole_life(target: Target) -> None:
    code, output = target.run("--check", "--diff")
    assert code == 0, output
    assert not target.root.exists()
    assert "+        running: true" in output and "ready after" not in output

    target.release(1)
    code, output = target.run("--diff", "-vv")
    assert code == 0, output
    assert "[localhost] ready after" in output
    [start] = target.starts()
    assert (start["state"], start["release"], start["failure"], start["cold"]) == ("ready", "1", None, True)
    assert start["output_check"]["passed"] is True and 0 <= start["ready_s"] < 60
    assert "+stopasgroup = true" in output  # templates show their diff
    assert "canary" not in output  # secrets do not
    for path in target.root.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.name != "secrets.env":
            assert b"canary" not in path.read_bytes(), path
    assert (target.root / "state/secrets.env").stat().st_mode & 0o777 == 0o600
    pid = service.read_record(service.Paths(str(target.root))).pid  # type: ignore[union-attr]

    code, output = target.run("--diff")
    assert code == 0 and "changed=0" in recap(output), output
    # The server whose start is on record is asked whether it serves, and nothing more.
    assert "ready after" in output and target.starts() == [start]
    code, output = target.run("--check", "--diff", sglang_server_api_key="canary-another-key-0123")
    assert code == 0 and "canary" not in output, output
    assert "changed=2" in recap(output)  # the file, and the restart that its content brings
    assert "the secrets will change" not in output  # a reason is a result, not a message
    code, output = target.run("--check", "--diff")
    assert code == 0 and "changed=0" in recap(output), output
    assert proc.environ(pid)

    code, output = target.run(entry="stop", sglang_server_remove=True)
    assert code == 0 and not (target.root / "state/supervisor.sock").exists(), output
    code, output = target.run(entry="stop", sglang_server_remove=True)
    assert code == 0 and "changed=0" in recap(output), output


ENTRIES = """
- name: Server
  hosts: localhost
  gather_facts: true
  gather_subset: ["!all", "!min", "python", "platform", "service_mgr", "user"]
  tasks:
    - name: The role
      ansible.builtin.include_role:
        name: tokforge.sglang.sglang_server
        tasks_from: "{{ item }}"
      loop: "{{ entries }}"
"""


# molecule lxc has the same.
@IN_FULL
def test_drained_server_is_started_by_whoever_comes_next_and_stays_noted_until_it_serves(target: Target) -> None:
    target.play.write_text(ENTRIES)
    target.release(1)
    note = target.root / "state/drained"

    def seen_after(*entries: str, check: bool = False) -> tuple[bool, int]:
        """Whether it is noted, and the process that runs, 0 when none does."""
        code, output = target.run(*(["--check"] if check else []), entries=entries)
        assert code == 0, output
        record = service.read_record(service.Paths(str(target.root)))
        return note.exists(), record.pid if record and proc.environ(record.pid) else 0

    _noted, first = seen_after("main")
    assert first
    assert seen_after("drain", check=True) == (False, first)
    # One that is drained already is no other case: the play before failed.
    assert seen_after("drain", "drain") == (True, 0)
    noted, again = seen_after("resume")
    assert noted and again not in (0, first)
    assert seen_after("resumed", "resume") == (False, again)
    # Stopping it is a decision against that, and one that does not run is not drained.
    assert seen_after("drain", "stop", "resume") == (False, 0)
    assert seen_after("drain", "resume") == (False, 0)
    noted, last = seen_after("main", "drain", "main")
    assert not noted and last


def test_what_the_release_records_stands_in_for_the_rollouts_request(target: Target) -> None:
    # So it is after going back: the rollout's model is not the one that serves.
    target.release(1, "--text", "!!!!!!!!", "--name", "recorded")
    manifest = target.root / "releases/1/manifest.json"
    manifest.write_text(json.dumps({"model": {"served_name": "recorded", "random_weights": True}}))
    code, output = target.run("-v", sglang_model_info={})
    assert code == 0 and "mechanics only: random weights" in output, output
    assert "only the mechanics were judged" in output  # output_check.reason

    manifest.write_text(json.dumps({"model": {"served_name": "recorded", "random_weights": False}}))
    code, output = target.run(sglang_model_info={})
    assert code == 2 and "one character repeated" in output, output
    manifest.write_text(json.dumps({"model": {"served_name": "another", "random_weights": True}}))
    code, output = target.run(sglang_model_info={})
    assert code == 2 and "it serves recorded, asked was another" in output, output


@pytest.mark.parametrize(
    ("variables", "handed"),
    [
        ({}, {}),
        ({"sglang_ready_info": {"skipped": True}}, {}),
        ({"sglang_ready_info": {"output_check": None}}, {}),
        (
            {"sglang_ready_info": {"output_check": {"passed": True, "reason": "x"}}},
            {"passed": True, "reason": "x"},
        ),
    ],
)
def test_verdict_on_the_text_is_handed_to_the_benchmark(variables: dict[str, Any], handed: dict[str, Any]) -> None:
    defaults = yaml.safe_load((ROOT / "roles/sglang_benchmark/defaults/main.yml").read_text())
    rendered: Any = NativeEnvironment().from_string(defaults["sglang_benchmark_output_check"]).render(variables)
    assert rendered == handed


def test_server_that_ends_before_it_is_ready_fails_the_play_at_once_with_its_log(target: Target) -> None:
    target.release(1, "--exit-code", "0", "--exit-after-s", "1")
    code, output = target.run(sglang_ready_timeout_s=300)
    assert code == 2, output
    flat = re.sub(r"\s+", " ", output)
    assert "exception in main: RuntimeError: this is why it ended (the server exited with code 0) (stage boot)" in flat
    assert "Scheduler hit an exception: Traceback (most recent call last):" in flat and "log_tail" not in flat
    assert "reason: failed" in flat and "reason: exception" in flat
    assert f"{target.root}/log/server.log" in flat.replace(" ", "")
    assert "canary" not in output


def test_output_that_is_not_usable_fails_the_play_and_the_start_is_not_on_record(target: Target) -> None:
    # Two generations are enough for the look; what comes later is what the output check is for.
    target.release(1, "--degenerate-after", "4")
    code, output = target.run(sglang_model_info={"served_name": "tiny", "random_weights": False})
    flat = re.sub(r"\s+", " ", output)
    assert code == 2 and "[localhost] ready after" in flat, output
    assert "The server on localhost is up, and what it writes is not usable: " in flat
    assert "sglang_ready_output_check set to false accepts it" in flat and "canary" not in output
    assert target.starts() == []  # so that the next rollout checks it again


def test_time_out_is_told_from_failure(target: Target) -> None:
    target.release(1, "--healthy-after-s", "600")
    code, output = target.run(sglang_ready_timeout_s=4)
    flat = re.sub(r"\s+", " ", output)
    assert code == 2 and "was not ready within 4 s" in flat and "sglang_ready_timeout_s" in flat


@pytest.mark.parametrize(
    "changes",
    [
        {"sglang_server_api_key": "short-canary"},
        {"sglang_server_secrets": {"A-B": "canary-value"}},
        {"sglang_server_secrets": {"A": "canary\nTOKFORGE_API_KEY=x"}},
    ],
)
def test_unusable_secrets_are_refused_without_showing_them(target: Target, changes: dict[str, Any]) -> None:
    code, output = target.run(**changes)
    assert code == 2 and "cannot be used" in output, output
    assert "canary" not in output
    assert not target.root.exists()


# --- the unit

SYSTEMD_ANALYZE = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")


def unit(root: str = "/opt/sglang", **changes: Any) -> str:
    variables = {
        **yaml.safe_load((ROLE / "defaults/main.yml").read_text()),
        "ansible_managed": "managed",
        "__sglang_server_python": "/usr/bin/python3",
        "sglang_root": root,
        **changes,
    }
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True)  # noqa: S701 (not HTML)
    return environment.from_string((ROLE / "templates/sglang.service.j2").read_text()).render(variables)


def settings(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))


def test_unit_ends_the_whole_group_and_leaves_cuda_and_jit_alone() -> None:
    found = settings(unit(sglang_stop_timeout_s=77))
    assert found["Type"] == "exec" and found["KillMode"] == "control-group" and found["TimeoutStopSec"] == "77"
    assert found["LimitMEMLOCK"] == "infinity" and found["NoNewPrivileges"] == "yes" and found["User"] == "sglang"
    forbidden = {
        "PrivateDevices",
        "DevicePolicy",
        "DeviceAllow",
        "MemoryDenyWriteExecute",
        "NoExecPaths",
        "ProtectClock",
        "ProcSubset",
        "PrivateIPC",
        "PrivateNetwork",
        "PrivateUsers",
        "IPAddressDeny",
    }
    assert not forbidden & set(found)
    assert {"AF_UNIX", "AF_NETLINK", "AF_INET"} <= set(found["RestrictAddressFamilies"].split())
    # Ranks hand each other GPU memory with pidfd_getfd, NUMA binding is in @resources, and copying files chowns them.
    assert found["SystemCallFilter"].startswith("~")
    assert not {"@debug", "@resources", "@privileged", "@process", "@ipc"} & set(found["SystemCallFilter"][1:].split())


@SYSTEMD_ANALYZE
@pytest.mark.parametrize("name", ["r", "with space", "per%cent"])
def test_unit_passes_systemd_analyze_verify(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    (root / "bin").mkdir(parents=True)
    path = tmp_path / "sglang.service"
    path.write_text(unit(str(root), sglang_user="root", sglang_group="root"))
    done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


SECURITY = ROOT / "docs/security.md"


def router_unit() -> str:
    """The router's, which needs no GPU."""
    role = ROOT / "roles/sglang_router"
    variables = {
        **yaml.safe_load((role / "defaults/main.yml").read_text()),
        "ansible_managed": "managed",
        "__sglang_router_python": "/usr/bin/python3",
    }
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True)  # noqa: S701 (not HTML)
    return environment.from_string((role / "templates/router.service.j2").read_text()).render(variables)


def judged(path: Path, *options: str) -> str:
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", *options, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unrecognized option" in done.stderr:
        pytest.skip("systemd-analyze judges no unit that is not loaded before systemd 250")
    return done.stdout


@SYSTEMD_ANALYZE
@pytest.mark.parametrize(("name", "text", "limit"), [("sglang", unit(), 2.4), ("router", router_unit(), 2.0)])
def test_exposure_is_no_more_than_what_is_recorded(tmp_path: Path, name: str, text: str, limit: float) -> None:
    """The limit is what docs/security.md records, by systemd 252; 0 is best, 10 worst."""
    path = tmp_path / f"{name}.service"
    path.write_text(text)
    said = judged(path)
    found = re.search(rf"Overall exposure level for {name}.service: ([\d.]+) (\w+)", said)
    assert found, said
    assert float(found[1]) <= limit and found[2] in ("SAFE", "OK")
    assert f"**{limit}** (OK)" in SECURITY.read_text()


@SYSTEMD_ANALYZE
def test_every_confinement_that_is_left_out_has_its_reason_on_record(tmp_path: Path) -> None:
    path = tmp_path / "sglang.service"
    path.write_text(unit())
    left_out = [one["name"] for one in json.loads(judged(path, "--json=short")) if not one["set"]]
    # The first column: `PrivateDevices`, or `SystemCallFilter=~@debug` where only a part is left out.
    rows = re.findall(r"^\| ([^|]*) \| [^|]{20,}\|$", SECURITY.read_text(), re.MULTILINE)
    named = set(re.findall(r"`([^`]+)`", " ".join(rows)))
    missing = [name for name in left_out if not {name, name.split("=")[0], name.split("=/")[0]} & named]
    assert left_out and missing == []


@pytest.mark.skipif(not shutil.which("logrotate"), reason="logrotate is not installed")
def test_log_rotation_is_what_logrotate_reads(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir(mode=0o755)
    log = tmp_path / "log/server.log"
    log.write_text("x" * 2000)
    variables = {
        "ansible_managed": "m",
        "sglang_root": str(tmp_path),
        "sglang_log_max_bytes": 1000,
        "sglang_log_backups": 2,
    }
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True)  # noqa: S701 (not HTML)
    text = environment.from_string((ROLE / "templates/logrotate.j2").read_text()).render(variables)
    (tmp_path / "conf").write_text(text)
    os.chmod(tmp_path / "conf", 0o644)
    inode = log.stat().st_ino
    done = subprocess.run(
        ["logrotate", "--state", str(tmp_path / "state"), str(tmp_path / "conf")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (log.stat().st_ino, log.stat().st_size) == (inode, 0)
    assert (tmp_path / "log/server.log.1").stat().st_size == 2000
