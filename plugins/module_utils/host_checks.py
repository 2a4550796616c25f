# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The looks at a target that preflight judges: directory, disk, port, interpreter, service manager, model.

Reading only. Each function turns what it sees into findings of preflight.py, or passes on the message of the piece
that would refuse later in the rollout, so that both say the same.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    base_packages,
    checkout,
    environment,
    environment_request,
    environment_root,
    install_error,
    interpreters,
    managers,
    model,
    preflight,
    proc,
    releases,
    result_store,
    server_fit,
    service,
    supervisor_manager,
    systemd_manager,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.findings import FAIL, OK, WARN, Finding, failures

#: Room in bytes that a rollout needs when its environment is there already: release files, logs, bench output.
SMALL_NEED_BYTES = 200_000_000


def root(path: str) -> list[Finding]:
    """Can everything below the root be made?"""
    place = preflight.check_root_place(plain(path), os.path.realpath(path), homes()) if path.startswith("/") else []
    return place or directory("sglang_root", path, runs=True)


def plain(path: str) -> str:
    """An absolute path without double or trailing slashes and dots: the same directory always has the same name."""
    return "/" + os.path.normpath(path).lstrip("/")


def homes() -> list[str]:
    """The home directories of the user who does this, and root's."""
    found = [os.environ.get("HOME", "")]
    for uid in sorted({0, os.geteuid()}):
        try:
            found.append(pwd.getpwuid(uid).pw_dir)
        except KeyError:
            # A container may run as a number that no account has.
            continue
    return [os.path.realpath(home) for home in found if home.startswith("/")]


def own_name() -> str:
    """The user who does this, `uid N` when the number has no account."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"


def directory(name: str, path: str, runs: bool = False) -> list[Finding]:
    """Can entries be made in the directory that the variable names? It or the nearest one above it must be there."""
    existing = environment.nearest_existing(path) if path.startswith("/") else path
    writable = os.access(existing, os.W_OK | os.X_OK) if "\0" not in existing else False
    findings = preflight.check_writable(path, existing, os.path.isdir(existing), writable, own_name(), name)
    if failures(findings):
        return findings
    status = os.statvfs(existing)
    return preflight.check_file_system(name, path, existing, status.f_blocks, status.f_flag, runs) or findings


def facts(facts_dir: str) -> list[Finding]:
    """Can results be added to the fact file that is there?"""
    try:
        result_store.read(facts_dir)
    except result_store.CorruptError as error:
        return [Finding(WARN, "facts", str(error), "it will be set aside and a new one begun")]
    except result_store.StoreError as error:
        return [Finding(FAIL, "facts", str(error))]
    return []


def source(path: str, given: Mapping[str, Any]) -> list[Finding]:
    """Is what SGLang is installed from there? What the variable must say is judged before, on the controller."""
    kind, place = given.get("type") or "index", given.get("path")
    if not place or not str(place).startswith("/"):
        return []
    try:
        if kind == "wheelhouse":
            wanted = environment_request.Source("wheelhouse", place)
            environment.check_place(environment_request.Request(path, "sglang", "", source=wanted))
        elif kind == "checkout" and not given.get("url"):
            checkout.state_of(place, given.get("commit"))
        elif kind == "checkout":
            return directory("sglang_install_source.path", place)
    except install_error.InstallError as error:
        return [Finding(FAIL, "source", f"sglang_install_source: {error}")]
    except OSError as error:
        return [Finding(FAIL, "source", f"sglang_install_source: cannot read {place}: {error.strerror}")]
    return []


def space(path: str, version: str, need_bytes: int) -> list[Finding]:
    """Is there room for the environment, or, when a complete one of this release is there, for the rest?"""
    existing = environment.nearest_existing(path)
    need = SMALL_NEED_BYTES if environment_root.find(path, version) else need_bytes
    return preflight.check_space(existing, shutil.disk_usage(existing).free, need)


def port(path: str, host: str, number: int) -> list[Finding]:
    """Who listens where the server would?"""
    try:
        holders = service.port_holders(host, number)
    except service.ServiceError as error:
        return [Finding(FAIL, "port", str(error))]
    except ValueError:
        # The idna encoding refuses it: an empty label, one of more than 63 characters, or a NUL.
        remedy = "set sglang_host to an address of this host"
        return [Finding(FAIL, "port", f"sglang_host {host!r} is neither an address nor a host name", remedy)]
    if not bindable(host):
        # SGLang's scheduler tries again for ten minutes before it gives up on such an address.
        remedy = "set sglang_host to 127.0.0.1, 0.0.0.0 or an address of the machine"
        return [Finding(FAIL, "port", f"sglang_host {host} is no address of this machine", remedy)]
    # A server that was started through another name of the same root is ours as well.
    releases = os.path.join(os.path.realpath(path), "releases") + os.sep
    for holder in holders:
        foreign = [
            pid
            for pid in holder.pids
            if not os.path.realpath(proc.environ(pid).get(service.ENV_RELEASE, "/")).startswith(releases)
        ]
        words = ", ".join(f"pid {pid} ({proc.cmdline(pid)})" for pid in foreign or holder.pids)
        if foreign or not holder.pids:
            return preflight.check_port(host, number, words or f"a process of user id {holder.uid}", ours=False)
        return preflight.check_port(host, number, words, ours=True)
    return preflight.check_port(host, number, None, ours=False)


def bindable(host: str) -> bool:
    """Whether a socket of this machine can have the address; any free port does for the question."""
    family, kind, protocol, _name, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as trial:
        try:
            trial.bind(address)
        except OSError:
            return False
    return True


def manager(path: str, asked: str) -> list[Finding]:
    """Can the chosen service manager work here?"""
    chosen = managers.choose_manager(asked, systemd_manager.systemd_is_pid_1(), os.geteuid())
    if chosen == "systemd":
        if not systemd_manager.systemd_is_pid_1():
            return [
                Finding(
                    FAIL, "service", "systemd is not PID 1 here", "set sglang_service_manager to supervisor or auto"
                )
            ]
        if os.geteuid() != 0:
            return [
                Finding(
                    FAIL,
                    "service",
                    f"systemd units need root and this is {own_name()}",
                    "run with become, or set sglang_service_manager to supervisor",
                )
            ]
        return [Finding(OK, "service", "systemd runs the server")]
    try:
        supervisor_manager.check_supervisor_root(service.Paths(path))
    except service.ServiceError as error:
        return [Finding(FAIL, "service", str(error))]
    return [Finding(OK, "service", "supervisor runs the server")]


def model_source(text: str, random_weights: bool = False) -> list[Finding]:
    """Is the model's text of a known form, and, for a directory, is a model there?"""
    try:
        source = model.parse(text)
        if source.kind == "directory":
            model.inspect_directory(source.name, random_weights)
    except model.ModelError as error:
        return preflight.check_model_directory(text, str(error))
    return [Finding(OK, "model", f"{text} can be provided")]


def python(asked: str, version: str, base: Mapping[str, Any] | None = None) -> list[Finding]:
    """Is there an interpreter that the release runs on, and one that can make the tools environment?

    :param base: sglang_install_base, whose Python the environment is made with unless another is asked for.
    """
    try:
        under = base_packages.look(base_packages.Base(str(base.get("python")))) if base else None
        own = under.interpreter.path if under and asked == interpreters.AUTO else asked
        chosen = interpreters.choose(own, releases.requires_python(version))
        if under:
            base_packages.check_python(chosen, under)
        interpreters.choose(asked, needs_venv=True)
    except install_error.InstallError as error:
        return [Finding(FAIL, "python", str(error))]
    return [Finding(OK, "python", f"{chosen.path} is Python {chosen.version}")]


def asked_of_server(params: Mapping[str, Any], path: str) -> server_fit.Asked:
    """What the request asks of the server, from the module's parameters."""
    source = params.get("install_source") or {}
    return server_fit.Asked(
        root=path,
        lane=params["lane"],
        version=params["version"],
        backend=params["backend"],
        model=params["model"],
        random_weights=bool(params.get("random_weights")),
        args=params.get("args") or {},
        env={str(name): str(value) for name, value in (params.get("env") or {}).items()},
        models_dir=params.get("models_dir") or os.path.join(path, "models"),
        hub_endpoint=params.get("hub_endpoint") or "",
        manager=managers.choose_manager(params["manager"], systemd_manager.systemd_is_pid_1(), os.geteuid()),
        controller_s=params.get("controller_s"),
        force=bool(params.get("force_backend")),
        checkout=source.get("type") == "checkout",
        concurrency=max(params.get("concurrency") or [1]),
    )


def everything(params: Mapping[str, Any]) -> server_fit.Fit:
    """All looks, for the module, which has the keys as its parameters."""
    path = plain(params["root"]) if params["root"].startswith("/") else params["root"]
    findings = root(path)
    usable = not failures(findings)
    found = server_fit.fit(asked_of_server(params, path))
    # With nothing chosen, what an environment needs is not known.
    version = found.choice.version if found.choice else None
    # Without a usable root, room and socket below it would be told about a directory that nobody will use.
    if usable:
        findings += space(path, version, params["min_free_bytes"]) if version else []
        findings += manager(path, params["manager"])
        findings += source(path, params.get("install_source") or {})
    others = [(name, params[name]) for name in ("facts_dir", "models_dir", "uv_cache") if params.get(name)]
    for name, other in others:
        findings += directory(f"sglang_{name}", other)
    # In a place that is refused above, the fact file would only be a second message about the same.
    if not any(finding.check in ("root", "directory") for finding in failures(findings)):
        findings += facts(params.get("facts_dir") or os.path.join(path, "facts"))
    if version in releases.known():
        # An unknown release is told by the controller; what it needs is not known here.
        findings += python(params["python"], version, params.get("install_base"))
    findings += [
        *port(path, params["host"], params["port"]),
        *model_source(params["model"], bool(params.get("random_weights"))),
    ]
    return replace(found, findings=(*findings, *found.findings))
