# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The configuration that passes device nodes on to a container, planned as an edit of the one that is there.

A major number that the kernel hands out differs between kernels and starts. Which old one was NVIDIA's cannot be read
from a configuration, so `_old_majors` states when a rule is taken for one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import lxc_config
from ansible_collections.tokforge.sglang.plugins.module_utils.lxc_config import Allow, Config, Mount
from ansible_collections.tokforge.sglang.plugins.module_utils.lxc_devices import (
    CAP_NODES,
    CAPS,
    CAPS_DIR,
    DEV,
    NVIDIA,
    RAW,
    SHARED,
    STATIC_MAJOR,
    UVM,
    DeviceError,
    Host,
    Request,
    choose_form,
    configured_gpus,
    driver_of,
    gpu_of,
    is_dynamic,
    nvidia_rules,
    old_candidates,
    raw_target,
    reach,
    wanted,
)

#: Nodes that people mount often and whose numbers are fixed there, so that no rule for a dynamic number is theirs.
_FIXED = re.compile(r"/dev/(?:net/tun|fuse|kvm|dri|snd|input|bus/usb|tty(?:S|ACM|USB)\d+)(?:/.*)?")


@dataclass
class Draft:
    """The edit as it grows: lines replaced or removed, lines added, and what is to be said about it."""

    form: str
    replaced: dict[int, str | None] = field(default_factory=dict)
    added: list[tuple[str, str]] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    kept: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """The new file, and what is in it; `restart_needed` is about a container that runs with the old one."""

    data: bytes
    changed: bool
    form: str
    gpus: tuple[int, ...]
    entries: tuple[dict[str, Any], ...]
    majors: dict[str, int]
    missing: tuple[str, ...]
    kept: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...]
    restart_needed: bool

    def as_dict(self) -> dict[str, Any]:
        """What a module returns: all but the bytes and the warnings, as JSON has it."""
        return {
            "changed": self.changed,
            "form": self.form,
            "gpus": list(self.gpus),
            "entries": list(self.entries),
            "majors": self.majors,
            "missing": list(self.missing),
            "kept": list(self.kept),
            "restart_needed": self.restart_needed,
        }


def plan(config: Config, host: Host, request: Request) -> Plan:
    """What the file becomes. Raises DeviceError and ConfigError; nothing is written here."""
    draft = _draft(config, host, request)
    before = lxc_config.edited(config, {}, ())
    data = lxc_config.edited(config, draft.replaced, draft.added)
    if data != before:
        lxc_config.refuse_locked(config)
    after = lxc_config.parse(data, config.path)
    again = _draft(after, host, request)
    if lxc_config.edited(after, again.replaced, again.added) != data:
        raise lxc_config.ConfigError(
            f"editing the container's configuration {config.path}: the result would be edited again; nothing was "
            "written, please report it with this file",
            path=config.path,
        )
    return Plan(
        data,
        data != before,
        draft.form,
        tuple(sorted(configured_gpus(after))),
        _entries(after),
        host.majors(),
        tuple(draft.missing),
        (*draft.kept, *_kept_rules(config, after, host)),
        (*draft.warnings, *_pending_warnings(after)),
        reach(config, host) != reach(after, host),
    )


def _draft(config: Config, host: Host, request: Request) -> Draft:
    if request.state == "absent":
        return _without(config, host, request)
    draft = Draft(choose_form(config, request))
    gpus = host.gpus if request.gpus is None else tuple(sorted(set(request.gpus)))
    nodes, draft.missing = wanted(host, gpus)
    _refuse_odd_mounts(config, nodes)
    if draft.form == DEV:
        stay = _write_devices(config, nodes, draft)
        _remove(draft, (one.line for one in _own_mounts(config)))
        _drop_rules(config, host, draft)
    else:
        stay = _write_mounts(config, nodes, draft)
        _remove(draft, (one.line for one in lxc_config.devices(config) if driver_of(one.path)))
        drivers = dict.fromkeys(driver_of(node) for node in nodes)
        majors = host.majors()
        _renew_rules(config, host, [majors[one] for one in drivers if one in majors], draft)
    for path, why in draft.missing.items():
        entry = ""
        if path in stay:
            entry = "; its entry stays" + (", and the container does not start without it" * (draft.form == DEV))
        draft.warnings.append(f"{path} is not passed on now: {why}{entry}; load its driver before the container starts")
    for node in nodes:
        number, major = host.node_majors.get(node), host.majors()[driver_of(node) or NVIDIA]
        if number not in (None, major):
            draft.warnings.append(
                f"{node} has major number {number}, and its driver has {major}; remove the node and make it anew with "
                "nvidia-modprobe"
            )
    return draft


def _without(config: Config, host: Host, request: Request) -> Draft:
    configured = configured_gpus(config)
    gone = configured if request.gpus is None else set(request.gpus)
    left = configured - gone
    own = [(one.line, one.path) for one in lxc_config.devices(config) if driver_of(one.path)]
    draft = Draft(DEV if own else RAW)
    for one in _own_mounts(config):
        if _in_place(one):
            own.append((one.line, one.source))
        else:
            draft.kept.append(_kept(config, one.line, f"it mounts {one.source} at another place"))
    _remove(draft, (line for line, path in own if not left or gpu_of(path) in gone))
    if not left:
        _drop_rules(config, host, draft)
    return draft


def _remove(draft: Draft, lines: Iterable[int]) -> None:
    draft.replaced.update(dict.fromkeys(lines))


def _own_mounts(config: Config) -> list[Mount]:
    return [one for one in lxc_config.mounts(config) if driver_of(one.source)]


def _in_place(one: Mount) -> bool:
    # The target may also be written with the path of the container's root in front.
    return one.target.endswith(one.source)


def _refuse_odd_mounts(config: Config, nodes: Sequence[str]) -> None:
    for one in lxc_config.mounts(config):
        odd = driver_of(one.source) is not None and not _in_place(one)
        if odd or (one.target in (*nodes, CAPS_DIR) and one.source != one.target):
            raise DeviceError(
                f"reading the container's configuration {config.path}: line {one.line + 1} mounts {one.source} at "
                f"{one.target}; remove it, since that node could only be passed on twice",
                path=config.path,
                line=one.line + 1,
            )


def _write_devices(config: Config, nodes: Sequence[str], draft: Draft) -> set[str]:
    """Keep the devN entries of nodes, remove those of others, add what lacks. Returns the nodes that had one."""
    stay: set[str] = set()
    sets, deletes = lxc_config.pending(config)
    # A pending change would take the place of an entry with its number, or remove it.
    used = {*sets, *deletes}
    for one in lxc_config.devices(config):
        known = one.path in nodes or one.path in draft.missing
        if driver_of(one.path) and (not known or one.path in stay):
            draft.replaced[one.line] = None
            continue
        used.add(one.number)
        stay.add(one.path)
    free = [number for number in range(lxc_config.MAX_DEVICES) if number not in used]
    new = [node for node in nodes if node not in stay]
    if len(new) > len(free):
        raise DeviceError(
            f"adding devN entries to {config.path}: {len(new)} are needed and {len(free)} of dev0 to "
            f"dev{lxc_config.MAX_DEVICES - 1} are free; remove others",
            path=config.path,
        )
    for node, number in zip(new, free):
        mode = SHARED[node][1] if node in SHARED else "0666"
        draft.added.append((lxc_config.DEVICE, lxc_config.entry(config, f"dev{number}", f"{node},mode={mode}")))
    return stay


def _write_mounts(config: Config, nodes: Sequence[str], draft: Draft) -> set[str]:
    """Keep and complete the mount entries of nodes, remove those of others, add what lacks."""
    targets = list(dict.fromkeys(map(raw_target, nodes)))
    stay: set[str] = set()
    for one in _own_mounts(config):
        target = raw_target(one.source)
        key = target if target in targets else one.source
        known = key in targets or key in draft.missing or (key == CAPS_DIR and set(CAP_NODES) <= set(draft.missing))
        text: str | None = None
        if known and key not in stay:
            stay.add(key)
            text = config.lines[one.line].text
            if key in targets:
                own = one.source == key
                text = lxc_config.completed_mount(config, one, key == CAPS_DIR) if own else _mount(config, key)
        if text != config.lines[one.line].text:
            draft.replaced[one.line] = text
    new = [(lxc_config.MOUNT, _mount(config, target)) for target in targets if target not in stay]
    draft.added.extend(new)
    return stay | (set(CAP_NODES) if CAPS_DIR in stay else set())


def _mount(config: Config, path: str) -> str:
    return lxc_config.mount_text(config, path, path == CAPS_DIR)


def _renew_rules(config: Config, host: Host, majors: Sequence[int], draft: Draft) -> None:
    """Have one rule for each major number; one that a driver had before is changed to its new one."""
    rules = [rule for rule in lxc_config.allows(config) if rule.version == 2]
    have = {rule.major for rule in rules if rule.minor == "*" and {"r", "w"} <= set(rule.access)}
    new = [major for major in majors if major not in have]
    places = [major for major in new if is_dynamic(major)]
    old = _old_majors(config, rules, host, len(places))
    for major, lines in zip(places, old.values()):
        draft.replaced[lines[0]] = lxc_config.allow_text(config, major)
        _remove(draft, lines[1:])
    taken = places[: len(old)]
    rules_first = [(lxc_config.ALLOW, lxc_config.allow_text(config, one)) for one in new if one not in taken]
    draft.added[:0] = rules_first
    mine = {*old, *host.majors().values()}
    doubtful = sorted({one.major for one in rules if is_dynamic(one.major) and one.major not in mine})
    if places and doubtful and _own_mounts(config):
        draft.warnings.append(
            f"the rules for the major numbers {', '.join(map(str, doubtful))} stay, since they may be for another "
            "driver; remove by hand those that are old ones of NVIDIA's drivers"
        )


def _drop_rules(config: Config, host: Host, draft: Draft) -> None:
    """Remove the rules for NVIDIA's major numbers, when no mount entry needs them any more."""
    others = [
        one
        for one in lxc_config.mounts(config)
        if one.source.startswith("/dev/nvidia") and draft.replaced.get(one.line, "stays") is not None
    ]
    rules = [rule for rule in lxc_config.allows(config) if rule.version == 2]
    now = nvidia_rules(rules, host)
    if others:
        draft.kept.extend(_kept(config, rule.line, f"{others[0].source} is mounted") for rule in now)
        return
    _remove(draft, (rule.line for rule in now))
    have = {rule.major for rule in now}
    places = sum(host.majors().get(driver) not in have for driver in (UVM, CAPS))
    for lines in _old_majors(config, rules, host, places).values():
        _remove(draft, lines)


def _old_majors(config: Config, rules: Sequence[Allow], host: Host, places: int) -> dict[int, list[int]]:
    """Lines by major numbers that NVIDIA's drivers had under an earlier kernel; empty when that is not certain enough.

    A rule counts as one when all of this is so: the file mounts NVIDIA's nodes; the rule is `c MAJOR:* rwm`, as raw
    entries for NVIDIA have it; the number is in the ranges that the kernel hands out; no driver has it now, so nothing
    that works stops; no other node is mounted that is not there and could have had it; and there are not more such
    numbers than drivers (nvidia-uvm, nvidia-caps) whose rule is not there.
    """
    found: dict[int, list[int]] = {}
    for rule in old_candidates(rules, host):
        found.setdefault(rule.major, []).append(rule.line)
    foreign = any(
        one.source in host.absent_sources
        and not one.source.startswith("/dev/nvidia")
        and not _FIXED.fullmatch(one.source)
        for one in lxc_config.mounts(config)
    )
    return found if _own_mounts(config) and not foreign and len(found) <= places else {}


def _entries(config: Config) -> tuple[dict[str, Any], ...]:
    found = [
        {"path": one.path, "form": DEV, "index": one.number, "line": config.lines[one.line].text}
        for one in lxc_config.devices(config)
        if driver_of(one.path)
    ]
    found += [
        {"path": one.source, "form": RAW, "index": None, "line": config.lines[one.line].text}
        for one in _own_mounts(config)
        if _in_place(one)
    ]
    return tuple(found)


def _kept(config: Config, line: int, reason: str) -> dict[str, Any]:
    return {"line": config.lines[line].text, "reason": reason}


def _kept_rules(before: Config, after: Config, host: Host) -> Iterable[dict[str, Any]]:
    """Rules that look like NVIDIA's and stay."""
    majors = set(host.majors().values())
    mounted = bool(_own_mounts(before))
    for rule in lxc_config.allows(after):
        owner = ", ".join(host.drivers.get(rule.major, ()))
        if rule.version == 1 and rule.major in (majors | {STATIC_MAJOR}):
            yield _kept(after, rule.line, "it is for cgroup v1")
        elif rule.version == 2 and mounted and is_dynamic(rule.major) and rule.major not in majors:
            why = f"major number {rule.major} is that of {owner} now" if owner else "it may be for another driver"
            yield _kept(after, rule.line, why)


def _pending_warnings(config: Config) -> Iterable[str]:
    sets, deletes = lxc_config.pending(config)
    own = {one.number: one.path for one in lxc_config.devices(config) if driver_of(one.path)}
    for number in sorted({*sets, *deletes}):
        path = own.get(number) or sets.get(number, "")
        if driver_of(path):
            yield f"a pending change to dev{number} ({path}) is applied at the next start; revert it (pct set --revert)"
