# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which device nodes GPUs need in a container, what the host has of them, and the configuration that passes them on.

A major number that the kernel hands out differs between kernels and starts. Which old one was NVIDIA's cannot be read
from a configuration, so `_old_majors` states when a rule is taken for one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import lxc_config
from ansible_collections.tokforge.sglang.plugins.module_utils.lxc_config import Allow, Config, Mount

DEV = "dev"
RAW = "raw"

NVIDIA = "nvidia"
UVM = "nvidia-uvm"
CAPS = "nvidia-caps"
#: Names in /proc/devices. Before driver 550 the main one was nvidia-frontend (release notes of 550.40).
_NAMES = {NVIDIA: (NVIDIA, "nvidiactl", "nvidia-modeset", "nvidia-frontend"), UVM: (UVM,), CAPS: (CAPS,)}
#: Linux Documentation/admin-guide/devices.txt: NVIDIA's own, and those that are handed out.
_STATIC_MAJOR = 195
_DYNAMIC = (range(234, 255), range(384, 512))
#: Nodes that people mount often and whose numbers are fixed there, so that no rule for a dynamic number is theirs.
_FIXED = re.compile(r"/dev/(?:net/tun|fuse|kvm|dri|snd|input|bus/usb|tty(?:S|ACM|USB)\d+)(?:/.*)?")

CAPS_DIR = "/dev/nvidia-caps"
#: Nodes beside those of the GPUs, with their driver and the mode in a container. Those of nvidia-caps are only read.
SHARED = {
    "/dev/nvidiactl": (NVIDIA, "0666"),
    "/dev/nvidia-uvm": (UVM, "0666"),
    "/dev/nvidia-uvm-tools": (UVM, "0666"),
    "/dev/nvidia-modeset": (NVIDIA, "0666"),
    f"{CAPS_DIR}/nvidia-cap1": (CAPS, "0444"),
    f"{CAPS_DIR}/nvidia-cap2": (CAPS, "0444"),
}
_CAP_NODES = tuple(path for path, (driver, _mode) in SHARED.items() if driver == CAPS)
_GPU_NODE = re.compile(r"/dev/nvidia(0|[1-9]\d{0,3})", re.ASCII)
_CHARACTER = re.compile(r"\s*(\d{1,9})\s+(\S.*?)\s*", re.ASCII)


class DeviceError(Exception):
    """What is asked for cannot be passed on; the text says what to do."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


@dataclass(frozen=True)
class Host:
    """What the host has: drivers by major number, GPU and shared nodes that are there, nodes with a strange major."""

    drivers: Mapping[int, tuple[str, ...]]
    gpus: tuple[int, ...]
    shared: frozenset[str]
    dev_root: str = "/dev"
    proc_devices: str = "/proc/devices"
    node_majors: Mapping[str, int] = field(default_factory=dict)
    absent_sources: frozenset[str] = frozenset()

    def majors(self) -> dict[str, int]:
        """Major numbers of NVIDIA's drivers by their names here."""
        found = {}
        for driver, names in _NAMES.items():
            for name in names:
                numbers = [number for number, have in self.drivers.items() if name in have]
                if numbers and driver not in found:
                    found[driver] = min(numbers)
        return found


@dataclass(frozen=True)
class Request:
    """What is asked: state, GPUs by the number of their node (None: all), form, version of Proxmox VE."""

    state: str = "present"
    gpus: tuple[int, ...] | None = None
    form: str = "auto"
    pve_version: str | None = None


@dataclass
class Draft:
    """The edit as it grows: lines replaced or removed, lines added, and what is to be said about it."""

    form: str
    replaced: dict[int, str | None] = field(default_factory=dict)
    added: list[tuple[str, str]] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    kept: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read_drivers(text: str, path: str = "/proc/devices") -> dict[int, tuple[str, ...]]:
    """Names of character drivers by major number (man page proc(5)). Raises DeviceError for another kind of text."""
    drivers: dict[int, tuple[str, ...]] = {}
    lines = iter(text.splitlines())
    if not any(line.strip() == "Character devices:" for line in lines):
        raise DeviceError(
            f"reading the drivers in {path}: it has no list of character devices; give the host's /proc/devices",
            proc_devices=path,
        )
    for line in lines:
        match = _CHARACTER.fullmatch(line)
        if line.strip() and not match:
            break
        if match:
            number = int(match[1])
            drivers[number] = (*drivers.get(number, ()), match[2])
    return drivers


def look(dev_root: str, proc_devices: str, sources: Iterable[str] = ()) -> Host:
    """What the host has. `sources` are paths below /dev of which to say whether they are there. Raises DeviceError."""
    path = proc_devices
    try:
        with open(proc_devices, encoding="utf-8", errors="replace") as stream:
            drivers = read_drivers(stream.read(lxc_config.MAX_BYTES), proc_devices)
        path = dev_root
        names = os.listdir(dev_root)
    except OSError as error:
        raise DeviceError(
            f"looking for GPUs in {path}: {error.strerror}; run this on the host of the container", path=path
        ) from error
    gpus = tuple(sorted(int(match[1]) for match in (_GPU_NODE.fullmatch(f"/dev/{name}") for name in names) if match))
    paths = [gpu_path(index) for index in gpus] + [node for node in SHARED if os.path.exists(_at(dev_root, node))]
    numbers = {node: _char_major(_at(dev_root, node)) for node in paths}
    return Host(
        drivers,
        gpus,
        frozenset(paths) & frozenset(SHARED),
        dev_root,
        proc_devices,
        {node: number for node, number in numbers.items() if number is not None},
        frozenset(one for one in sources if not os.path.exists(_at(dev_root, one))),
    )


def _at(dev_root: str, path: str) -> str:
    return os.path.join(dev_root, os.path.relpath(path, "/dev"))


def _char_major(path: str) -> int | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    # Copies of /dev in tests and images have plain files, whose number says nothing.
    return os.major(status.st_rdev) if (status.st_mode & 0o170000) == 0o020000 else None


def gpu_path(index: int) -> str:
    """The node of a GPU. The number is the node's, which nvidia-smi calls the minor number."""
    return f"/dev/nvidia{index}"


def gpu_of(path: str) -> int | None:
    """The number of the GPU that a node belongs to, None for another node."""
    match = _GPU_NODE.fullmatch(path)
    return int(match[1]) if match else None


def driver_of(path: str) -> str | None:
    """The driver of a node that this collection passes on, None for any other."""
    if gpu_of(path) is not None:
        return NVIDIA
    if path == CAPS_DIR:
        return CAPS
    return SHARED[path][0] if path in SHARED else None


def choose_form(config: Config, request: Request) -> str:
    """The form to write. Raises DeviceError for one that the container's host does not understand.

    devN came to Proxmox VE with an update between 8.1 and 8.2, so with 8.1 and with an unknown version it is certain
    only where the file has such an entry. Raw lines work everywhere.
    """
    version = pve_version(request.pve_version)
    if request.form == DEV and (config.format == lxc_config.PLAIN or (version and version < (8, 1))):
        why = "it is a configuration of plain LXC" if not version or config.format == lxc_config.PLAIN else ""
        why = why or f"Proxmox VE {request.pve_version} does not know them"
        raise DeviceError(
            f"writing devN entries to {config.path}: {why}; set form to raw or auto", path=config.path, form=DEV
        )
    if request.form != "auto":
        return request.form
    if config.format == lxc_config.PLAIN or (version and version < (8, 1)):
        return RAW
    return DEV if (version and version >= (8, 2)) or lxc_config.devices(config) else RAW


def pve_version(text: str | None) -> tuple[int, int] | None:
    """The first two numbers of a version, also out of what `pveversion` prints. Raises DeviceError for none."""
    if not text:
        return None
    match = re.match(r"(?:pve-manager/)?(\d{1,4})\.(\d{1,4})(?![\d])", text.strip(), re.ASCII)
    if not match:
        raise DeviceError(
            f"reading pve_version {text!r}: it is no version; give it as in 8.2.4, or what pveversion prints",
            pve_version=text,
        )
    return int(match[1]), int(match[2])


def wanted(host: Host, gpus: Sequence[int]) -> tuple[list[str], dict[str, str]]:
    """The nodes to pass on for GPUs, and the others that they could use with why not. Raises DeviceError for a GPU."""
    majors = host.majors()
    absent = [index for index in gpus if index not in host.gpus]
    facts = {"found_gpus": list(host.gpus), "dev_root": host.dev_root}
    if absent or not gpus:
        names = ", ".join(gpu_path(index) for index in absent) or "any /dev/nvidiaN"
        raise DeviceError(
            f"looking for GPUs in {host.dev_root}: {names} is not there; load the driver (nvidia-modprobe -u -c 0, for "
            "each GPU), or ask for GPUs that are there",
            missing_gpus=absent,
            **facts,
        )
    if NVIDIA not in majors:
        raise DeviceError(
            f"looking for the driver in {host.proc_devices}: there is no character device {NVIDIA}; load the driver",
            **facts,
        )
    nodes = [gpu_path(index) for index in gpus]
    missing = {}
    for path, (driver, _mode) in SHARED.items():
        if path not in host.shared:
            missing[path] = f"it is not in {host.dev_root}"
        elif driver not in majors:
            missing[path] = f"{host.proc_devices} has no driver {driver}"
        else:
            nodes.append(path)
    return nodes, missing


def reach(config: Config, host: Host) -> frozenset[str]:
    """The nodes that a container with this configuration can use, once it is started."""
    majors = host.majors()
    allowed = {rule.major for rule in lxc_config.allows(config) if rule.version == 2}
    paths = {one.path for one in lxc_config.devices(config)}
    for one in lxc_config.mounts(config):
        driver = driver_of(one.source)
        if driver and majors.get(driver) in (None, *allowed):
            paths.update(_CAP_NODES if one.source == CAPS_DIR else [one.source])
    return frozenset(path for path in paths if driver_of(path))


def configured_gpus(config: Config) -> set[int]:
    """GPUs that the configuration passes on, in either form."""
    paths = [one.path for one in lxc_config.devices(config)] + [one.source for one in lxc_config.mounts(config)]
    return {index for index in map(gpu_of, paths) if index is not None}


def raw_target(path: str) -> str:
    """What a raw entry mounts for a node: nvidia-caps goes as a directory, since its nodes come and go."""
    return CAPS_DIR if path in _CAP_NODES else path


def nvidia_rules(rules: Sequence[Allow], host: Host) -> list[Allow]:
    """The rules for major numbers that are NVIDIA's now; its static one also while the driver is not loaded."""
    numbers = set(host.majors().values())
    if _STATIC_MAJOR not in host.drivers:
        numbers.add(_STATIC_MAJOR)
    return [rule for rule in rules if rule.major in numbers]


def old_candidates(rules: Sequence[Allow], host: Host) -> list[Allow]:
    """Rules that may be NVIDIA's of an earlier kernel: of our shape, for a number that is handed out, to nobody now."""
    return [
        rule
        for rule in rules
        if rule.version == 2
        and (rule.minor, rule.access) == ("*", "rwm")
        and is_dynamic(rule.major)
        and rule.major not in host.drivers
    ]


def is_dynamic(major: int) -> bool:
    """Whether the kernel hands the number out."""
    return any(major in numbers for numbers in _DYNAMIC)


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
    lock = config.value("lock") if config.format == lxc_config.PROXMOX else None
    if data != before and lock:
        raise lxc_config.ConfigError(
            f"editing the container's configuration {config.path}: the container is locked ({lock}); wait for that to "
            "end, or run `pct unlock` when nothing is at work on it",
            path=config.path,
            lock=lock,
        )
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
        known = key in targets or key in draft.missing or (key == CAPS_DIR and set(_CAP_NODES) <= set(draft.missing))
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
    return stay | (set(_CAP_NODES) if CAPS_DIR in stay else set())


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
        if rule.version == 1 and rule.major in (majors | {_STATIC_MAJOR}):
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
