# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deciding about the service, and whose process and whose port it is."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import log_follow, proc, service

LAUNCH = service.Launch("aaaa", "/r/releases/2")
MAIN = proc.Process(pid=41, start_ticks=7, ppid=1, pgrp=41, session=40, state="S", comm="python")


def observed(
    phase: str = "running",
    main: proc.Process | None = MAIN,
    own: tuple[proc.Process, ...] | None = None,
    launch_id: str | None = "aaaa",
    release: str | None = "/r/releases/2",
    ended: str = "",
) -> service.Observed:
    if own is None:
        own = (main,) if main else ()
    return service.Observed(service.Seen(phase, main.pid if main else 0, ended), main, own, launch_id, release, None)


@pytest.mark.parametrize(
    ("state", "seen", "present", "action"),
    [
        ("started", observed(), True, "none"),
        ("started", observed(launch_id="bbbb"), True, "restarted"),
        ("started", observed(release="/r/releases/1"), True, "restarted"),
        ("started", observed(launch_id=None, release=None), True, "restarted"),
        ("started", observed("stopped", main=None), True, "started"),
        ("started", observed("absent", main=None), False, "started"),
        ("started", observed("ended", main=None, ended="exited with code 0"), True, "started"),
        ("started", observed("restarting", main=None), True, "started"),
        ("started", observed("absent", main=None, own=(MAIN,)), False, "restarted"),
        ("started", observed("ended", main=None, own=(MAIN,)), True, "restarted"),
        ("stopped", observed(), True, "stopped"),
        ("stopped", observed("stopped", main=None), True, "none"),
        ("stopped", observed("absent", main=None, own=(MAIN,)), False, "stopped"),
        ("stopped", observed("restarting", main=None), True, "stopped"),
        ("absent", observed(), True, "removed"),
        ("absent", observed("stopped", main=None), True, "removed"),
        ("absent", observed("absent", main=None, own=(MAIN,)), False, "stopped"),
        ("absent", observed("absent", main=None), False, "none"),
    ],
)
def test_decision(state: str, seen: service.Observed, present: bool, action: str) -> None:
    plan = service.decide(state, seen, LAUNCH, present)
    assert plan.action == action
    assert plan.changed == (action != "none")


def test_running_without_a_release_yet_predicts_a_restart() -> None:
    assert service.decide("started", observed(), None).action == "restarted"


@pytest.mark.parametrize(
    ("seen", "launch", "action", "reason"),
    [
        (observed(), LAUNCH, "restarted", "the secrets will change"),
        # Another reason comes first, and what does not run is only started.
        (observed(release="/r/releases/1"), LAUNCH, "restarted", "it runs release 1, current is release 2"),
        (observed("stopped", main=None), LAUNCH, "started", "it is not running"),
    ],
)
def test_secrets_that_will_change_predict_a_restart(
    seen: service.Observed, launch: service.Launch, action: str, reason: str
) -> None:
    plan = service.decide("started", seen, launch, True, secrets_will_change=True)
    assert (plan.action, plan.reason) == (action, reason)
    assert service.decide("stopped", observed("stopped", main=None), launch, True, True).action == "none"


def test_reasons_name_what_differs() -> None:
    assert (
        service.decide("started", observed(release="/r/releases/1"), LAUNCH).reason
        == "it runs release 1, current is release 2"
    )
    assert "secrets" in service.decide("started", observed(launch_id="b"), LAUNCH).reason
    assert (
        "exited with code 3"
        in service.decide("started", observed("ended", None, ended="exited with code 3"), LAUNCH).reason
    )


def test_wanted_follows_the_link_and_covers_secrets(tmp_path: Path) -> None:
    paths = service.Paths(str(tmp_path))
    assert service.wanted(paths) is None
    release = tmp_path / "releases/3"
    release.mkdir(parents=True)
    (tmp_path / "current").symlink_to("releases/3")
    assert service.wanted(paths) is None
    (release / "launch.json").write_bytes(b"{}")
    assert service.wanted(paths) == service.Launch(hashlib.sha256(b"{}").hexdigest()[:16], str(release))
    (tmp_path / "state").mkdir()
    (tmp_path / "state/secrets.env").write_bytes(b"A=b\n")
    assert service.wanted(paths) == service.Launch(hashlib.sha256(b"{}A=b\n").hexdigest()[:16], str(release))
    # An environment that was built anew has other files than a server that started from the one before.
    (release / "venv").mkdir()
    (release / "venv/environment.json").write_text("built at noon")
    digest = hashlib.sha256(b"{}A=b\nbuilt at noon").hexdigest()[:16]
    assert service.wanted(paths) == service.Launch(digest, str(release))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema_version": 2}', '{"schema_version": 1, "pid": 4}'])
def test_unusable_record_is_no_record(tmp_path: Path, text: str) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/server.json").write_text(text)
    assert service.read_record(service.Paths(str(tmp_path))) is None


def test_record_survives_the_disk_and_is_private(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    paths = service.Paths(str(tmp_path))
    record = service.Record(
        "supervisor", "x", "b", 1, 2, 3, "id", "/r", log_follow.LogPosition("/l", 4, 5), 6.5, "c", True
    )
    service.write_record(paths, record)
    assert service.read_record(paths) == record
    assert os.stat(paths.record).st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("bound", "asked", "conflict"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.2", "127.0.0.1", False),
        ("127.0.0.2", "0.0.0.0", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("127.0.0.1", "localhost", True),
    ],
)
def test_only_an_address_in_the_way_holds_the_port(bound: str, asked: str, conflict: bool) -> None:
    with socket.socket() as server:
        server.bind((bound, 0))
        server.listen()
        port = server.getsockname()[1]
        assert bool(service.port_holders(asked, port)) == conflict
        if conflict:
            with pytest.raises(service.ServiceError, match=f"process {os.getpid()}"):
                service.check_port(asked, port, [])
        me = proc.read_process(os.getpid())
        assert me
        service.check_port(asked, port, [me])


def test_holder_that_cannot_be_named_is_reported_by_user_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc, "listeners", lambda port: [proc.Listener("127.0.0.1", port, 4242, ())])
    with pytest.raises(service.ServiceError, match="user id 4242"):
        service.check_port("127.0.0.1", 31290, [])


def test_unknown_host_is_an_error_of_ours() -> None:
    with pytest.raises(service.ServiceError, match="sglang_host"):
        service.port_holders("no such host", 1)


def own(record: service.Record | None, living: Sequence[proc.Process], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    monkeypatch.setattr(proc, "processes", lambda: list(living))
    monkeypatch.setattr(proc, "environ", lambda pid: {})
    monkeypatch.setattr(proc, "boot_id", lambda: "boot")
    return [p.pid for p in service.own_processes(service.Paths("/r"), 0, [], record)]


def process(pid: int, pgrp: int, session: int = 40, start: int = 10, ppid: int = 1) -> proc.Process:
    return proc.Process(pid, start, ppid, pgrp, session, "S", "x")


def record(boot: str = "boot") -> service.Record:
    return service.Record("supervisor", "sglang", boot, 41, 7, 40, "", "", log_follow.LogPosition("/l"), 0.0)


def test_orphans_of_the_recorded_group_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    living = [process(50, 41), process(51, 41), process(60, 60)]
    assert own(record(), living, monkeypatch) == [50, 51]


@pytest.mark.parametrize(
    "living",
    [
        [process(41, 41, start=8), process(50, 41, start=9)],  # the leader's pid is another process's by now
        [process(50, 41, session=99)],  # a group with the same number in another session
        [process(50, 41, start=6)],  # older than our leader
    ],
)
def test_reused_group_number_is_not_ours(living: list[proc.Process], monkeypatch: pytest.MonkeyPatch) -> None:
    assert own(record(), living, monkeypatch) == []


def test_record_of_another_boot_means_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own(record("before"), [process(50, 41)], monkeypatch) == []


def test_marked_process_does_not_make_its_shells_group_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    # Somebody ran the launcher from a script: the script's group leader is not a server process.
    living = [process(70, 70), process(71, 70), process(72, 70)]
    monkeypatch.setattr(proc, "processes", lambda: living)
    release = os.path.realpath("/r") + "/releases/1"
    monkeypatch.setattr(proc, "environ", lambda pid: {service.ENV_RELEASE: release} if pid == 71 else {})
    assert [p.pid for p in service.own_processes(service.Paths("/r"), 0, [], None)] == [71]


def test_marked_leader_brings_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    living = [process(70, 70), process(71, 70), process(72, 72)]
    monkeypatch.setattr(proc, "processes", lambda: living)
    release = os.path.realpath("/r") + "/releases/1"
    monkeypatch.setattr(proc, "environ", lambda pid: {service.ENV_RELEASE: release} if pid == 70 else {})
    assert [p.pid for p in service.own_processes(service.Paths("/r"), 0, [], None)] == [70, 71]


def test_another_roots_server_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc, "processes", lambda: [process(70, 70)])
    monkeypatch.setattr(proc, "environ", lambda pid: {service.ENV_RELEASE: "/r2/releases/1"})
    assert service.own_processes(service.Paths("/r"), 0, [], None) == []
