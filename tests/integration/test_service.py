# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of a server under a real supervisord: the launcher, server_service and readiness_info, and what goes
wrong.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    log_follow,
    managers,
    proc,
    readiness,
    server_log,
    service,
    supervisor_manager,
)

ROOT = Path(__file__).resolve().parents[2]
ROLE = ROOT / "roles/sglang_server"
FAKE = Path(__file__).with_name("fake_server.py")
SUPERVISORD = Path(sys.executable).with_name("supervisord")
KEY = "canary-api-key-0123456789"

pytestmark = pytest.mark.skipif(not SUPERVISORD.exists(), reason=f"supervisord is not beside {sys.executable}")


def free_port() -> int:
    """A port of this file's range that nobody listens on."""
    for port in range(31201, 31300):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("every port of the range is taken")


class Host:
    """One root directory with a supervisor, releases and the calls a playbook makes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.port = free_port()
        self.paths = service.Paths(str(root))
        for name in ("bin", "state", "log", "releases"):
            (root / name).mkdir(parents=True)
        (root / "bin/launch.py").write_bytes((ROLE / "files/launch.py").read_bytes())
        core = ROOT / "plugins/module_utils/autotune_cache.py"
        (root / "bin/autotune_cache.py").write_bytes(core.read_bytes())
        self.configure()

    def configure(self, **changes: Any) -> None:
        variables = {
            "ansible_managed": "managed",
            "ansible_facts": {"user_uid": os.geteuid()},
            "sglang_root": str(self.root),
            "sglang_service_name": "sglang",
            "sglang_supervisor_start_s": 600,
            "sglang_stop_timeout_s": 60,
            "sglang_log_max_bytes": 10_000_000,
            "sglang_log_backups": 2,
            "__sglang_server_python": sys.executable,
            **changes,
        }
        environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True)  # noqa: S701 (not HTML)
        environment.filters["quote"] = __import__("shlex").quote
        text = environment.from_string((ROLE / "templates/supervisord.conf.j2").read_text()).render(variables)
        (self.root / "state/supervisord.conf").write_text(text)

    def release(self, number: int, *arguments: str, current: bool = True) -> Path:
        release = self.root / f"releases/{number}"
        (release / "venv/bin").mkdir(parents=True, exist_ok=True)
        link = release / "venv/bin/python"
        if not link.exists():
            link.symlink_to(sys.executable)
        argv = [str(FAKE), "--port", str(self.port), *arguments]
        (release / "launch.json").write_text(json.dumps({"schema_version": 1, "argv": argv, "env": {"FROM": "launch"}}))
        if current:
            (self.root / "current").unlink(missing_ok=True)
            (self.root / "current").symlink_to(f"releases/{number}")
        return release

    def secrets(self, text: str) -> None:
        path = self.root / "state/secrets.env"
        path.touch(0o600)
        path.write_text(text)

    def manager(self) -> service.Manager:
        return managers.make_manager("supervisor", self.paths, "sglang", str(SUPERVISORD))

    def service(self, state: str = "started", check_mode: bool = False, stop_timeout_s: float = 10, **more: Any) -> Any:
        one = service.Service(self.paths, self.manager(), "sglang", "127.0.0.1", self.port, stop_timeout_s)
        more = {"start_if": True, **more}
        return service.carry_out(one, state, check_mode, **more)

    def look(self, **more: Any) -> readiness.Look:
        target = readiness.Target("127.0.0.1", self.port, **{"served_name": "tiny", "timeout_s": 2.0, **more})
        return readiness.look(
            self.paths, self.manager(), target, readiness.read_secrets(self.paths).get("TOKFORGE_API_KEY", "")
        )

    def wait(self, *states: str, timeout_s: float = 15, **more: Any) -> readiness.Look:
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.look(**more)
            if found.state in states or time.monotonic() > deadline:
                return found
            time.sleep(0.1)

    def tail(self) -> list[str]:
        position, secrets = readiness.default_position(self.paths), readiness.read_secrets(self.paths)
        return list(server_log.excerpt(position, secrets.values()).lines)

    def log(self) -> str:
        return (self.root / "log/server.log").read_text()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path / "r")
    yield made
    made.service("absent", stop_timeout_s=1)
    assert service.own_processes(made.paths, 0, [], service.read_record(made.paths)) == []


def alive(pid: int) -> bool:
    found = proc.read_process(pid)
    return found is not None and found.alive


def group_of(pid: int) -> set[int]:
    return {process.pid for process in proc.processes() if process.pgrp == pid}


def test_start_serve_and_leave_alone(host: Host) -> None:
    release = host.release(1)
    started = host.service()
    assert (started["action"], started["changed"]) == ("started", True)
    assert host.wait("ready", "failed").state == "ready"
    expected = hashlib.sha256((release / "launch.json").read_bytes()).hexdigest()[:16]
    environment = proc.environ(started["pid"])
    assert environment["TOKFORGE_LAUNCH_ID"] == started["launch_id"] == expected
    assert environment["TOKFORGE_RELEASE"] == started["release"] == str(release)
    assert environment["FROM"] == "launch"
    assert os.readlink(f"/proc/{started['pid']}/cwd") == str(host.root)

    again = host.service()
    assert (again["action"], again["changed"], again["pid"]) == ("none", False, started["pid"])
    assert again["log_position"] == started["log_position"]


def test_login_environment_does_not_reach_the_server(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "leak")
    monkeypatch.setenv("PYTHONPATH", "leak")
    host.release(1)
    environment = proc.environ(host.service()["pid"])
    assert not {"PIP_INDEX_URL", "PYTHONPATH"} & set(environment)


def test_another_release_restarts_and_going_back_restarts_again(host: Host) -> None:
    host.release(1)
    first = host.service()
    assert host.wait("ready").state == "ready"
    host.release(2, "--name", "other")
    second = host.service()
    assert second["action"] == "restarted"
    assert "release 1" in second["reason"] and "release 2" in second["reason"]
    assert second["pid"] != first["pid"] and group_of(first["pid"]) == set()
    assert host.wait("ready", "failed", served_name="other").state == "ready"
    host.release(1)
    assert host.service()["action"] == "restarted"


def test_node_that_is_not_the_first_is_ready_with_its_health_alone(host: Host) -> None:
    release = host.release(1, "--name", "other")
    (release / "manifest.json").write_text('{"args": {"nnodes": 2, "node-rank": 1}}')
    host.service()
    found = host.wait("ready", "failed")
    assert (found.state, found.stage, found.generation) == ("ready", "health", None), host.tail()
    assert found.detail == "/health is 200; this is node 1 of 2, which the first node serves with"
    (release / "manifest.json").write_text('{"args": {"nnodes": 2, "node-rank": 0}}')
    assert host.look().state == "failed"  # of another name


def test_release_of_another_rollout_is_neither_started_nor_taken_for_ours(host: Host) -> None:
    host.release(1)
    first = host.service(release=1)
    assert host.wait("ready", release=1).release == str(host.root / "releases/1")
    host.release(2)
    with pytest.raises(service.ServiceError, match="another rollout switched to release 2 in the meantime; run again"):
        host.service(release=1)
    assert alive(first["pid"])
    assert host.service(check_mode=True, release=1)["action"] == "restarted"
    assert host.service(release=2)["action"] == "restarted"
    seen = host.look(release=1)
    assert (seen.state, seen.stage, seen.release) == ("failed", "process", str(host.root / "releases/2"))
    assert "runs release 2, not release 1: another rollout is at work" in seen.detail
    assert host.wait("ready", "failed", release=2).state == "ready"


def test_changed_arguments_or_secrets_restart(host: Host) -> None:
    host.release(1)
    host.service()
    host.release(1, "--text", "Lyon, perhaps.")
    assert host.service()["action"] == "restarted"
    host.secrets("HF_TOKEN=hf_0123456789\n")
    third = host.service()
    assert third["action"] == "restarted" and "secrets" in third["reason"]
    assert host.service()["action"] == "none"


def test_check_mode_predicts_and_touches_nothing(host: Host) -> None:
    assert host.service(check_mode=True)["action"] == "started"  # no release yet: says what would happen
    host.release(1)
    predicted = host.service(check_mode=True)
    assert predicted["changed"] and predicted["pid"] == 0
    assert not (host.root / "state/supervisor.sock").exists() and not (host.root / "state/server.json").exists()
    running = host.service()
    host.release(2)
    predicted = host.service(check_mode=True)
    assert predicted["action"] == "restarted" and predicted["release"].endswith("/2")
    assert alive(running["pid"])
    assert host.service("stopped", check_mode=True)["action"] == "stopped"
    assert proc.environ(running["pid"])["TOKFORGE_RELEASE"].endswith("/1")


def test_check_mode_predicts_the_restart_that_changed_secrets_bring(host: Host) -> None:
    now, later = "HF_TOKEN=hf_0123456789\n", "HF_TOKEN=hf_9876543210\n"
    digest = {text: hashlib.sha256(text.encode()).hexdigest() for text in (now, later)}
    host.release(1)
    started = host.service()
    # There is no file yet, and its first content changes what the server gets.
    assert host.service(check_mode=True, secrets_sha256=digest[now])["action"] == "restarted"
    host.secrets(now)
    started = host.service(secrets_sha256=digest[now])
    assert started["action"] == "restarted"
    assert host.service(check_mode=True, secrets_sha256=digest[now])["action"] == "none"
    predicted = host.service(check_mode=True, secrets_sha256=digest[later])
    assert (predicted["action"], predicted["reason"]) == ("restarted", "the secrets will change")
    assert predicted["launch_id"] == "" and predicted["pid"] == started["pid"]
    # When it runs for real the file is what counts.
    assert host.service(secrets_sha256=digest[later])["action"] == "none"


def test_check_mode_predicts_the_restart_that_another_release_brings(host: Host) -> None:
    host.release(1)
    pid = host.service(release=1)["pid"]
    assert host.service(check_mode=True, release=1)["action"] == "none"
    predicted = host.service(check_mode=True, release=2)
    assert (predicted["action"], predicted["reason"], predicted["pid"]) == (
        "restarted",
        "the release will change",
        pid,
    )
    assert alive(pid)


def test_record_that_cannot_be_written_is_named(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object, **_options: object) -> None:
        raise OSError(28, "No space left on device")

    host.release(1)
    host.service()
    monkeypatch.setattr(service, "write_atomic", full)
    with pytest.raises(service.ServiceError, match=r"server\.json: No space left on device; free space"):
        host.service("stopped")


def test_without_a_release_the_start_says_so(host: Host) -> None:
    with pytest.raises(service.ServiceError, match="no current release"):
        host.service()


def test_start_if_false_starts_nothing(host: Host) -> None:
    host.release(1)
    assert host.service(start_if=False)["action"] == "none"
    assert host.look().state == "stopped"


@pytest.mark.parametrize("code", [0, 1])
def test_server_that_ends_at_once_is_failed_and_not_started_again(host: Host, code: int) -> None:
    host.release(1, "--exit-code", str(code))
    host.service()
    found = host.wait("failed", timeout_s=5)
    assert (found.state, found.stage) == ("failed", "process")
    assert f"exited with code {code}" in found.detail
    assert "RuntimeError: this is why it ended" in host.tail()[-1]
    time.sleep(1.5)
    assert host.log().count("RuntimeError: this is why it ended") == 1


def test_server_that_dies_before_it_is_ready_is_failed(host: Host) -> None:
    host.release(1, "--exit-code", "0", "--exit-after-s", "1.5")
    host.service()
    assert host.look().state == "starting"
    found = host.wait("failed", timeout_s=5)
    assert "exited with code 0" in found.detail


def test_kill_9_is_seen_by_the_next_look(host: Host) -> None:
    host.release(1, "--children", "2")
    pid = host.service()["pid"]
    assert host.wait("ready").state == "ready"
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.2)
    began = time.monotonic()
    found = host.look()
    assert found.state == "failed" and time.monotonic() - began < 1
    assert found.ended == "was killed by signal 9 (SIGKILL)"
    # Its children ignore SIGTERM and are still in the group: the next start ends them first.
    left = group_of(pid)
    assert len(left) == 2
    assert host.service(stop_timeout_s=1)["action"] == "restarted"
    assert not left & {process.pid for process in proc.processes()}
    assert host.wait("ready").state == "ready"


def test_death_long_after_the_start_is_restarted_by_supervisor_and_seen_by_a_wait(host: Host) -> None:
    host.configure(sglang_supervisor_start_s=1)
    host.release(1)
    pid = host.service()["pid"]
    time.sleep(2.5)
    os.kill(pid, signal.SIGKILL)
    found = host.wait("failed", timeout_s=5)
    assert found.state == "failed"
    assert proc.wait_until(lambda: host.manager().seen().pid not in (0, pid), timeout_s=10)
    found = host.look()
    assert found.pid not in (0, pid) and "started it again" in found.detail
    # An operator who runs the role again accepts what runs now.
    assert host.service()["action"] == "none"
    assert host.wait("ready").state == "ready"


def test_server_that_the_manager_starts_again_is_not_restarted_while_its_launcher_still_works(host: Host) -> None:
    host.configure(sglang_supervisor_start_s=1)
    launcher = host.root / "bin/launch.py"
    text = launcher.read_text()
    host.release(1)
    pid = host.service()["pid"]
    time.sleep(2.5)
    # A busy machine: the launcher takes its time to become the server.
    launcher.write_text(
        text.replace(
            "from __future__ import annotations", "from __future__ import annotations\nimport time\ntime.sleep(3)"
        )
    )
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while host.manager().seen().pid in (0, pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    again = host.manager().seen().pid
    assert "TOKFORGE_LAUNCH_ID" not in proc.environ(again)
    assert host.service(check_mode=True)["action"] == "none"
    assert (host.service()["action"], host.manager().seen().pid) == ("none", again)
    assert proc.environ(again)["TOKFORGE_LAUNCH_ID"]


def test_stop_ends_children_in_the_group_and_out_of_it(host: Host) -> None:
    host.release(1, "--children", "3", "--escaped-child")
    pid = host.service()["pid"]
    assert host.wait("ready").state == "ready"
    family = {pid} | {process.pid for process in proc.descendants(pid, proc.processes())}
    assert len(family) == 5
    began = time.monotonic()
    stopped = host.service("stopped", stop_timeout_s=1)
    assert stopped["action"] == "stopped" and 1 <= time.monotonic() - began < 5
    assert not family & {process.pid for process in proc.processes()}
    assert host.look().state == "stopped"
    assert host.service("stopped")["changed"] is False


def test_stop_of_a_polite_server_does_not_wait(host: Host) -> None:
    host.release(1)
    host.service()
    host.wait("ready")
    began = time.monotonic()
    host.service("stopped", stop_timeout_s=60)
    assert time.monotonic() - began < 3


def test_server_that_ignores_sigterm_is_killed_after_the_timeout(host: Host) -> None:
    host.release(1, "--ignore-sigterm")
    pid = host.service()["pid"]
    host.wait("ready")
    assert host.service("stopped", stop_timeout_s=1)["stop_s"] >= 1
    assert not alive(pid)


def test_late_binding_is_starting_then_ready(host: Host) -> None:
    host.release(1, "--bind-after-s", "1.5")
    host.service()
    found = host.look()
    assert (found.state, found.stage) == ("starting", "listening")
    assert host.wait("ready", "failed").state == "ready"


def test_health_503_is_starting(host: Host) -> None:
    host.release(1, "--healthy-after-s", "60")
    host.service()
    time.sleep(0.5)
    found = host.look()
    assert (found.state, found.stage) == ("starting", "health") and "503" in found.detail


def test_healthy_server_that_hangs_on_generate_is_not_ready(host: Host) -> None:
    host.release(1, "--hang")
    host.service()
    time.sleep(0.5)
    began = time.monotonic()
    found = host.look(timeout_s=1)
    assert (found.state, found.stage) == ("starting", "generation")
    assert time.monotonic() - began < 2
    assert host.look(probe=False).state == "ready"


def test_wrong_model_name_fails(host: Host) -> None:
    host.release(1, "--name", "somebody-else")
    host.service()
    found = host.wait("ready", "failed")
    assert (found.state, found.stage) == ("failed", "model")
    assert "somebody-else" in found.detail and "tiny" in found.detail


def test_garbage_fails_for_real_weights_and_passes_for_random_ones(host: Host) -> None:
    host.release(1, "--text", "!!!!!!!!")
    host.service()
    found = host.wait("ready", "failed")
    assert found.state == "failed" and found.generation and found.generation.verdict == "degenerate"
    random = host.look(random_weights=True)
    assert random.state == "ready" and random.generation and random.generation.verdict == "mechanics_only"


def test_answers_that_disagree_fail_for_real_weights_only(host: Host) -> None:
    host.release(1, "--changing")
    host.service()
    found = host.wait("ready", "failed")
    assert found.state == "failed" and found.generation and found.generation.verdict == "unstable"
    assert host.look(random_weights=True).state == "ready"


def test_log_probabilities_are_judged_when_asked_for(host: Host) -> None:
    host.release(1, "--nan")
    host.service()
    assert host.wait("ready", "failed").state == "ready"
    found = host.look(logprobs=True, random_weights=True)
    assert found.state == "failed" and "not a number" in found.detail


def test_cause_shows_through_noise_before_and_after_it(host: Host) -> None:
    host.release(1, "--exit-code", "1", "--noise", "200")
    host.service()
    host.wait("failed", timeout_s=5)
    position = readiness.default_position(host.paths)
    found = server_log.excerpt(position)
    assert "RuntimeError: this is why it ended" in found.lines and len(found.lines) <= 50
    assert (found.benign, found.lines[-1], found.newest) == (200, "shutdown noise 199", "shutdown noise 199")


def test_wrong_token_count_fails(host: Host) -> None:
    host.release(1, "--tokens", "3")
    host.service()
    found = host.wait("ready", "failed")
    assert found.state == "failed" and found.generation and found.generation.tokens == 3


def test_port_of_a_foreign_process_is_an_error_before_anything_is_stopped(host: Host) -> None:
    host.release(1)
    running = host.service()
    host.wait("ready")
    # The next release wants another port, and that one is taken.
    ours, host.port = host.port, free_port()
    foreign = subprocess.Popen([sys.executable, str(FAKE), "--port", str(host.port), "--api-key", "do-not-show-this"])
    try:
        assert proc.wait_until(lambda: bool(proc.listeners(host.port)), 5)
        host.release(2)
        with pytest.raises(service.ServiceError) as raised:
            host.service()
        assert f"process {foreign.pid}" in str(raised.value) and "fake_server.py" in str(raised.value)
        assert "do-not-show-this" not in str(raised.value)
        assert raised.value.facts["holder_pids"] == [foreign.pid]
        assert alive(running["pid"])
        assert foreign.poll() is None
    finally:
        foreign.kill()
        foreign.wait()
        host.port = ours


def test_foreign_answer_on_the_port_is_not_ready(host: Host) -> None:
    host.release(1, "--bind-after-s", "60")
    host.service()
    foreign = subprocess.Popen([sys.executable, str(FAKE), "--port", str(host.port)])
    try:
        assert proc.wait_until(lambda: bool(proc.listeners(host.port)), 5)
        found = host.look()
        assert (found.state, found.stage) == ("failed", "listening") and str(foreign.pid) in found.detail
    finally:
        foreign.kill()
        foreign.wait()


def test_killed_supervisord_is_recovered_from(host: Host) -> None:
    host.release(1)
    pid = host.service()["pid"]
    host.wait("ready")
    daemon = int((host.root / "state/supervisord.pid").read_text())
    os.kill(daemon, signal.SIGKILL)
    assert proc.wait_until(lambda: not alive(daemon), 5)
    assert (host.root / "state/supervisor.sock").exists()  # stale, and so is the pid file
    found = host.look()
    assert found.state == "failed" and str(pid) in found.detail
    again = host.service()
    assert again["action"] == "restarted" and again["pid"] != pid
    assert not alive(pid)
    assert host.wait("ready").state == "ready"


def test_supervisord_whose_socket_was_removed_is_replaced_and_not_joined(host: Host) -> None:
    host.release(1)
    pid = host.service()["pid"]
    host.wait("ready")
    daemon = int((host.root / "state/supervisord.pid").read_text())
    (host.root / "state/supervisor.sock").unlink()
    again = host.service()
    assert again["action"] == "restarted" and again["pid"] != pid
    assert not alive(pid) and not alive(daemon)
    assert host.wait("ready").state == "ready"
    daemon = int((host.root / "state/supervisord.pid").read_text())
    (host.root / "state/supervisor.sock").unlink()
    assert host.service("absent")["changed"]
    assert not alive(daemon) and not alive(again["pid"])


def test_killed_supervisord_and_server_leave_a_stop_that_works(host: Host) -> None:
    host.release(1)
    pid = host.service()["pid"]
    os.kill(int((host.root / "state/supervisord.pid").read_text()), signal.SIGKILL)
    assert host.service("absent")["changed"]
    assert not alive(pid)
    assert not (host.root / "state/supervisor.sock").exists() and not (host.root / "state/supervisord.pid").exists()
    assert host.service("absent")["changed"] is False


def test_lost_record_still_finds_the_orphans(host: Host) -> None:
    host.release(1)
    pid = host.service()["pid"]
    os.kill(int((host.root / "state/supervisord.pid").read_text()), signal.SIGKILL)
    (host.root / "state/server.json").write_text("{torn")
    assert host.service("stopped")["action"] == "stopped"
    assert not alive(pid)


def test_changed_supervisor_configuration_is_used_by_the_next_start_only(host: Host) -> None:
    host.release(1)
    host.service()
    daemon = (host.root / "state/supervisord.pid").read_text()
    host.configure(sglang_stop_timeout_s=5)
    assert host.service()["action"] == "none"
    assert (host.root / "state/supervisord.pid").read_text() == daemon
    host.release(2)
    host.service()
    assert (host.root / "state/supervisord.pid").read_text() != daemon


def test_too_long_socket_path_says_how_much(tmp_path: Path) -> None:
    root = tmp_path / ("x" * (100 - len(str(tmp_path))))
    with pytest.raises(service.ServiceError, match=r"socket path .* bytes and at most 99 fit"):
        supervisor_manager.check_supervisor_root(service.Paths(str(root)))


@pytest.mark.parametrize("root", ["/srv/100%", "/srv/a\nb"])
def test_root_that_supervisord_misreads_is_refused(root: str) -> None:
    with pytest.raises(service.ServiceError, match="sglang_root without them"):
        supervisor_manager.check_supervisor_root(service.Paths(root))


def test_longest_allowed_socket_path_works(tmp_path: Path) -> None:
    room = 99 - len(str(tmp_path)) - len("/" + "/state/supervisor.sock")
    if room < 1:
        pytest.skip(f"{tmp_path} itself is too long")
    made = Host(tmp_path / ("x" * room))
    made.release(1)
    try:
        assert made.service()["pid"]
    finally:
        made.service("absent")


@pytest.mark.parametrize("name", ["with space", "quote'd"])
def test_root_with_unusual_characters(name: str) -> None:
    # A short path, since a socket's must be: pytest's own says the test's name and the worker's.
    with tempfile.TemporaryDirectory(prefix="root-") as short:
        made = Host(Path(short) / name)
        made.release(1)
        try:
            made.service()
            assert made.wait("ready", "failed").state == "ready", made.tail()
        finally:
            made.service("absent")


def without_supervisord(host: Host) -> service.Service:
    """What a play has that does not know the tools environment, as one that starts again what is there."""
    manager = managers.make_manager("supervisor", host.paths, "sglang", "/nowhere/supervisord")
    return service.Service(host.paths, manager, "sglang", "127.0.0.1", host.port, 10)


def test_supervisord_of_the_environment_that_runs_the_launcher_is_found(host: Host) -> None:
    host.release(1)
    assert service.carry_out(without_supervisord(host), "started", False, True)["changed"]
    assert host.wait("ready", "failed").state == "ready", host.tail()


def test_missing_supervisord_names_the_role(host: Host, tmp_path: Path) -> None:
    host.release(1)
    host.configure(__sglang_server_python=str(tmp_path / "removed/bin/python"))
    with pytest.raises(service.ServiceError, match="sglang_install"):
        service.carry_out(without_supervisord(host), "started", False, True)


def test_broken_supervisor_configuration_is_quoted(host: Host) -> None:
    host.release(1)
    (host.root / "state/supervisord.conf").write_text("[supervisord]\nlogfile_maxbytes = many\n")
    with pytest.raises(service.ServiceError, match="many"):
        host.service()


def test_yesterdays_log_is_not_this_start(host: Host) -> None:
    (host.root / "log/server.log").write_text("yesterday: ready to roll!\n" * 3)
    host.release(1, "--exit-code", "1")
    host.service()
    host.wait("failed")
    tail = host.tail()
    assert "this is why it ended" in tail[-1]
    assert not any("yesterday" in line for line in tail)


@pytest.mark.parametrize("how", ["rename", "copytruncate"])
def test_log_rotated_between_two_looks(host: Host, how: str) -> None:
    host.release(1, "--healthy-after-s", "60")
    host.service()
    host.wait("ready", timeout_s=1)
    log = host.root / "log/server.log"
    assert any("ready to roll" in line for line in host.tail())
    if how == "rename":
        log.rename(host.root / "log/server.log.1")
        log.write_text("after the rotation\n")
        tail = host.tail()
        assert any("ready to roll" in line for line in tail) and tail[-1] == "after the rotation"
    else:
        position = log_follow.LogPosition(str(log), log.stat().st_ino, log.stat().st_size)
        os.truncate(log, 0)
        with log.open("a") as stream:
            stream.write("new\n")
        assert server_log.excerpt(position).lines == ("new",)


def test_api_key_works_and_shows_nowhere(host: Host) -> None:
    release = host.release(1)
    host.secrets(f"# comment\nTOKFORGE_API_KEY={KEY}\nHF_TOKEN=hf_canary0123456789\n")
    pid = host.service()["pid"]
    assert host.wait("ready", "failed").state == "ready"
    host.secrets("TOKFORGE_API_KEY=another-key-0123456789\n")
    assert host.look().state == "failed"  # the key is really asked for
    assert "<redacted>" in host.log()
    texts = [host.log(), (release / "launch.json").read_text(), (host.root / "state/server.json").read_text()]
    texts.append((host.root / "state/supervisord.conf").read_text())
    texts.extend(Path(f"/proc/{one}/cmdline").read_text() for one in group_of(pid))
    assert all("canary" not in text for text in texts)


def test_readable_secrets_are_refused(host: Host) -> None:
    host.release(1)
    host.secrets("HF_TOKEN=x\n")
    (host.root / "state/secrets.env").chmod(0o644)
    host.service()
    found = host.wait("failed")
    assert "exited with code 78" in found.detail
    assert "0644" in host.tail()[-1] and "0600" in host.tail()[-1]


@pytest.mark.parametrize(
    ("text", "why"),
    [("{", "not JSON"), ('{"schema_version": 2, "argv": []}', "schema_version 1"), ('{"schema_version": 1}', "argv")],
)
def test_unusable_launch_file_is_named(host: Host, text: str, why: str) -> None:
    (host.release(1) / "launch.json").write_text(text)
    host.service()
    host.wait("failed")
    assert why in host.tail()[-1]
