# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Preflight's looks at a target: real directories, real sockets, real processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    base_packages,
    host_checks,
    interpreters,
    releases,
    service,
    systemd_manager,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError


def levels(findings: list[host_checks.Finding]) -> list[str]:
    return [finding.level for finding in findings]


def test_root_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    [finding] = host_checks.root(str(tmp_path / "file" / "x"))
    assert finding.level == "fail"
    assert f"{tmp_path / 'file'} is not a directory" in finding.message


def test_root_in_a_writable_directory_passes(tmp_path: Path) -> None:
    assert levels(host_checks.root(str(tmp_path / "new"))) == ["ok"]


@pytest.mark.parametrize("marker", ["", "{", '{"versions": []}', '{"versions": {"sglang": "0.5.9"}}', "[]"])
def test_damaged_or_other_environment_does_not_lower_the_need(tmp_path: Path, marker: str) -> None:
    venv = tmp_path / "venvs" / "abc"
    venv.mkdir(parents=True)
    (venv / "environment.json").write_text(marker)
    assert levels(host_checks.space(str(tmp_path), "0.5.23", 10**18)) == ["fail"]


def test_complete_environment_of_this_release_lowers_the_need(tmp_path: Path) -> None:
    venv = tmp_path / "venvs" / "abc"
    venv.mkdir(parents=True)
    (venv / "environment.json").write_text(json.dumps({"versions": {"sglang": "0.5.23"}}))
    [finding] = host_checks.space(str(tmp_path), "0.5.23", 10**18)
    assert finding.level == "ok"
    assert "0.2 GB needed" in finding.message


def listening(env: dict[str, str]) -> tuple[subprocess.Popen[bytes], int]:
    program = (
        "import socket, sys\n"
        "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n"
        "print(s.getsockname()[1], flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **env}
    )
    assert child.stdout
    return child, int(child.stdout.readline())


def test_foreign_listener_is_named_and_our_own_passes(tmp_path: Path) -> None:
    mine = str(tmp_path / "releases" / "1")
    for env, level in (
        ({}, "fail"),
        ({service.ENV_RELEASE: mine}, "ok"),
        ({service.ENV_RELEASE: "/else/releases/1"}, "fail"),
    ):
        child, port = listening(env)
        try:
            [finding] = host_checks.port(str(tmp_path), "127.0.0.1", port)
        finally:
            child.communicate()
        assert finding.level == level
        assert f"pid {child.pid} (" in finding.message


def test_our_own_server_is_known_by_every_name_of_the_root(tmp_path: Path) -> None:
    (tmp_path / "real" / "releases" / "1").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    for started, asked in (("real", "link"), ("link", "real"), ("link", "link")):
        child, port = listening({service.ENV_RELEASE: str(tmp_path / started / "releases" / "1")})
        try:
            [finding] = host_checks.port(str(tmp_path / asked), "127.0.0.1", port)
        finally:
            child.communicate()
        assert finding.level == "ok"


@pytest.mark.parametrize("host", ["..", "a" * 64])
def test_host_that_no_name_can_be_is_told(host: str) -> None:
    [finding] = host_checks.port("/r", host, 1)
    assert finding.message == f"sglang_host {host!r} is neither an address nor a host name"


def test_user_id_without_an_account_has_a_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4000000001)
    assert host_checks.own_name() == "uid 4000000001"
    [finding] = host_checks.root(str(tmp_path / "new"))
    assert finding.message.endswith("is writable for uid 4000000001")


def test_root_is_one_by_every_spelling_of_it(tmp_path: Path) -> None:
    for text in (f"{tmp_path}/", f"/{tmp_path}", f"{tmp_path}/a/..", f"{tmp_path}/./"):
        assert host_checks.plain(text) == str(tmp_path)


@pytest.mark.parametrize("path", ["/proc/f", "/sys/f", "/proc/1/x"])
def test_directory_on_a_file_system_that_keeps_no_files_is_refused(path: str) -> None:
    [finding] = host_checks.directory("sglang_facts_dir", path)
    assert (finding.level, finding.check) == ("fail", "directory")


def test_fact_file_of_a_newer_schema_is_refused_and_a_damaged_one_is_a_warning(tmp_path: Path) -> None:
    assert host_checks.facts(str(tmp_path)) == []
    (tmp_path / "sglang.fact").write_text('{"schema_version": 99}')
    assert levels(host_checks.facts(str(tmp_path))) == ["fail"]
    (tmp_path / "sglang.fact").write_text("{")
    assert levels(host_checks.facts(str(tmp_path))) == ["warn"]
    (tmp_path / "sglang.fact").unlink()
    (tmp_path / "sglang.fact").mkdir()
    assert levels(host_checks.facts(str(tmp_path))) == ["fail"]


def test_wheelhouse_and_checkout_must_be_there(tmp_path: Path) -> None:
    root, place = str(tmp_path / "root"), tmp_path / "place"
    place.mkdir()
    for kind in ("wheelhouse", "checkout"):
        for path in (str(place), str(tmp_path / "nowhere")):
            [finding] = host_checks.source(root, {"type": kind, "path": path})
            assert (finding.level, finding.check) == ("fail", "source")
    (place / "a.whl").touch()
    (place / "pyproject.toml").touch()
    for kind in ("wheelhouse", "checkout"):
        assert host_checks.source(root, {"type": kind, "path": str(place)}) == []
    assert levels(host_checks.source(root, {"type": "checkout", "url": "u", "path": str(place)})) == ["ok"]


def test_free_port_passes_and_listener_on_all_addresses_counts(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        assert levels(host_checks.port(str(tmp_path), "127.0.0.1", port)) == ["ok"]
        holder.listen()
        assert levels(host_checks.port(str(tmp_path), "0.0.0.0", port)) == ["fail"]
        assert levels(host_checks.port(str(tmp_path), "127.0.0.2", port)) == ["ok"]


def test_address_that_does_not_resolve_is_told(tmp_path: Path) -> None:
    [finding] = host_checks.port(str(tmp_path), "no such host", 30000)
    assert (finding.level, finding.check) == ("fail", "port")


def test_long_root_is_refused_for_supervisor(tmp_path: Path) -> None:
    [finding] = host_checks.manager("/" + "x" * 200, "supervisor")
    assert finding.level == "fail"
    assert "socket path" in finding.message
    assert levels(host_checks.manager("/opt/sglang", "supervisor")) == ["ok"]


@pytest.mark.parametrize(
    ("pid1", "uid", "level", "part"),
    [
        (False, 0, "fail", "systemd is not PID 1 here"),
        (True, 1000, "fail", "systemd units need root"),
        (True, 0, "ok", "systemd runs the server"),
    ],
)
def test_systemd_is_taken_only_where_it_can_work(
    monkeypatch: pytest.MonkeyPatch, pid1: bool, uid: int, level: str, part: str
) -> None:
    monkeypatch.setattr(systemd_manager, "systemd_is_pid_1", lambda: pid1)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    [finding] = host_checks.manager("/opt/sglang", "systemd")
    assert (finding.level, part in finding.message) == (level, True)


def test_model_directory_without_config_is_refused_and_builtin_passes(tmp_path: Path) -> None:
    [finding] = host_checks.model_source(str(tmp_path))
    assert finding.level == "fail"
    assert "no config.json" in finding.message
    (tmp_path / "config.json").write_text("{}")
    [weightless] = host_checks.model_source(str(tmp_path))
    assert (weightless.level, "it has no weights" in weightless.message) == ("fail", True)
    assert levels(host_checks.model_source(str(tmp_path), random_weights=True)) == ["ok"]
    assert levels(host_checks.model_source("builtin:tiny-moe")) == ["ok"]
    assert levels(host_checks.model_source("nonsense")) == ["fail"]


def test_interpreter_too_old_for_the_release_is_told(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 3\n")
    old.chmod(0o755)
    [finding] = host_checks.python(str(old), "0.5.23")
    assert (finding.level, finding.check) == ("fail", "python")
    assert ">=3.11" in finding.message
    assert levels(host_checks.python(sys.executable, "0.5.23")) == ["ok"]


def test_everything_tells_all_failures_at_once(tmp_path: Path) -> None:
    params = {
        "root": str(tmp_path),
        "lane": "cpu",
        "version": "0.5.23",
        "backend": "auto",
        "min_free_bytes": 10**18,
        "manager": "supervisor",
        "python": "/nowhere/python",
        "host": "127.0.0.1",
        "port": 1,
        "model": str(tmp_path),
    }
    failed = [finding.check for finding in host_checks.everything(params).findings if finding.level == "fail"]
    assert failed == ["disk", "python", "model"]
    unusable = host_checks.everything({**params, "root": "relative", "version": "9.9"}).findings
    assert [finding.check for finding in unusable if finding.level == "fail"] == ["root", "model"]


def test_address_of_no_interface_is_refused_and_every_address_passes() -> None:
    # 192.0.2.0/24 is for documentation (RFC 5737): no machine has it.
    [finding] = host_checks.port("/r", "192.0.2.1", 1)
    assert (finding.level, finding.message) == ("fail", "sglang_host 192.0.2.1 is no address of this machine")
    assert host_checks.bindable("127.0.0.1")
    assert host_checks.bindable("0.0.0.0")


def test_the_python_of_a_base_is_judged_where_none_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ansible's own need not fit then, and the base's need not be able to make the tools environment."""
    ours = interpreters.probe(sys.executable)
    assert isinstance(ours, interpreters.Interpreter)
    bases = replace(ours, path="/opt/torch/bin/python", has_venv=False)
    fits = releases.requires_python("0.5.23")

    def choose(asked: str, requires: str = "", needs_venv: bool = False) -> interpreters.Interpreter:
        if asked == "auto" and requires == fits:
            raise InstallError("none fits")
        if asked == bases.path and needs_venv:
            raise InstallError("lacks the venv module")
        return bases if asked == bases.path else ours

    monkeypatch.setattr(interpreters, "choose", choose)
    monkeypatch.setattr(
        base_packages, "look", lambda base: base_packages.Found(replace(bases, path=base.python), (), {})
    )
    base = {"python": bases.path}

    assert levels(host_checks.python("auto", "0.5.23")) == ["fail"]
    [finding] = host_checks.python("auto", "0.5.23", base)
    assert (finding.level, finding.message) == ("ok", f"/opt/torch/bin/python is Python {ours.version}")
    bases = replace(bases, version="3.99.1")
    [finding] = host_checks.python(sys.executable, "0.5.23", base)
    assert finding.level == "fail"
    assert "leave sglang_python out, or give a base of the same Python" in finding.message
