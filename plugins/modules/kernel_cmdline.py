#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_cmdline
short_description: Set tokens of the kernel command line, and put back what they were
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Sets single tokens of the command line that the kernel is started with, in the configuration of GRUB or in
    C(/etc/kernel/cmdline), and has the boot loader take it over. Never reboots.
  - A token takes the place of one with the same name and another value. A new one comes at the end. Nothing else in the
    file changes. Names with V(-) and V(_) are the same, as for the kernel.
  - These names may be there several times with different values, and a token of them is added beside the others -
    C(acpi_osi), C(cgroup_disable), C(console) (once for each device), C(crashkernel) (once for each of C(,high),
    C(,low) and neither), C(dyndbg), C(initcall_blacklist), C(ip), C(memmap), C(modprobe.blacklist), C(nameserver),
    C(pci), C(rd.driver.blacklist), C(rd.driver.pre), C(rd.luks.name), C(rd.luks.uuid), C(rd.lvm.lv), C(rd.lvm.vg),
    C(rd.md.uuid), C(reserve_mem), C(systemd.mask), C(systemd.setenv), C(systemd.wants), C(video) and
    C(virtio_mmio.device).
  - C(hugepagesz) and the C(hugepages) after it are one setting, once for each size. C(hugepages) without a size before
    it is of the default size.
  - Of GRUB's files, C(/etc/default/grub) and then C(/etc/default/grub.d/*.cfg) in the order of their names, the last
    plain assignment is the one that counts, and it is edited in the file where it stands. Lines that add to it
    (C(X="$X more")) stay as they are. An assignment that only a shell can tell is an error that names its line.
  - What the tokens were is noted in O(record_dir) before the first change of each name. A run that was killed is
    finished by the next one, the refresh included.
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
    details:
      - Everything but writing and refreshing is done, so what cannot be edited fails in check mode too.
  diff_mode:
    support: full
    details:
      - Shows the file before and after.
options:
  tokens:
    description:
      - Tokens, each C(name) or C(name=value). Double quotes go around a value with spaces.
      - With O(state=absent) a bare C(name) means all tokens of that name.
    type: list
    elements: str
    required: true
  state:
    description:
      - V(present) has the tokens on the command line.
      - V(absent) puts back what was there for each name before the first V(present). Of a name that may be there
        several times, only the tokens given are put back. A name that this module never changed is left alone.
    type: str
    choices: [present, absent]
    default: present
  boot_loader:
    description:
      - V(grub) edits the configuration of GRUB, also where C(proxmox-boot-tool) manages it.
      - V(kernel_cmdline_file) edits O(cmdline_file), which systemd-boot takes its command line from.
      - V(auto) takes the loader that this host was started by, as the EFI variable C(LoaderInfo) tells it. Hosts
        without EFI are started by GRUB. When it cannot be told the module fails.
    type: str
    choices: [auto, grub, kernel_cmdline_file]
    default: auto
  variable:
    description:
      - Variable of GRUB's configuration. V(GRUB_CMDLINE_LINUX) is used for recovery entries too.
      - A token that another variable or a later line has already is not added again. One with another value there is an
        error.
    type: str
    choices: [GRUB_CMDLINE_LINUX_DEFAULT, GRUB_CMDLINE_LINUX]
    default: GRUB_CMDLINE_LINUX_DEFAULT
  refresh:
    description:
      - Whether to run C(proxmox-boot-tool refresh) where it manages ESPs, otherwise C(update-grub), after a change or
        when an earlier change was not taken over yet.
      - When it fails, the file is put back as it was.
      - With V(false) it is left to the next run with V(true).
    type: bool
    default: true
  refresh_command:
    description: Command and arguments to run in place of those.
    type: list
    elements: str
  record_dir:
    description: Directory for the notes of what was there before.
    type: path
    default: /var/lib/tokforge/host
  grub_default:
    description: GRUB's configuration. This option and those below are for tests and images.
    type: path
    default: /etc/default/grub
  grub_directory:
    description: Directory with more of GRUB's configuration.
    type: path
    default: /etc/default/grub.d
  cmdline_file:
    description: File that holds the command line and nothing else.
    type: path
    default: /etc/kernel/cmdline
  boot_uuids:
    description: File that lists the ESPs that C(proxmox-boot-tool) manages.
    type: path
    default: /etc/kernel/proxmox-boot-uuids
  efi:
    description: Directory that is there on hosts that were started by EFI, with its variables in C(efivars).
    type: path
    default: /sys/firmware/efi
  proc_cmdline:
    description: Command line of the running kernel.
    type: path
    default: /proc/cmdline
  container_marks:
    description: Files any of which says that this is a container.
    type: list
    elements: path
    default: [/run/systemd/container, /run/.containerenv, /.dockerenv]
  pid1_environ:
    description: Environment of the first process, which names the container it is in.
    type: path
    default: /proc/1/environ
"""

EXAMPLES = r"""
- name: Have the IOMMU pass through what the host itself does
  tokforge.sglang.kernel_cmdline:
    tokens:
      - amd_iommu=on
      - iommu=pt
  register: cmdline

- name: Say that a reboot is due
  ansible.builtin.debug:
    msg: "The running kernel lacks {{ cmdline.missing_in_running | join(' ') }}"
  when: cmdline.reboot_required

- name: Reserve pages of two sizes
  tokforge.sglang.kernel_cmdline:
    tokens:
      - hugepagesz=1G
      - hugepages=16
      - hugepagesz=2M
      - hugepages=512

- name: Put back what was there
  tokforge.sglang.kernel_cmdline:
    tokens:
      - amd_iommu
      - iommu
    state: absent
"""

RETURN = r"""
boot_loader:
  description: Whose configuration is edited, V(grub) or V(kernel_cmdline_file).
  returned: success
  type: str
  sample: grub
file:
  description: File that is edited.
  returned: success
  type: str
  sample: /etc/default/grub
before:
  description: The variable's value before, or the line of the file.
  returned: success
  type: str
  sample: quiet
after:
  description: The same after the change.
  returned: success
  type: str
  sample: quiet iommu=pt
missing_in_running:
  description:
    - Tokens that are asked for and that the running kernel does not follow. With O(state=absent) those that it still
      follows.
  returned: success
  type: list
  elements: str
  sample: [iommu=pt]
reboot_required:
  description: Whether the running kernel differs from what is asked.
  returned: success
  type: bool
  sample: true
refreshed:
  description: Whether the boot loader took the configuration over, in check mode whether it would.
  returned: success
  type: bool
  sample: true
refresh_due:
  description: Whether there is a change that the boot loader has not taken over, because of O(refresh).
  returned: success
  type: bool
  sample: false
restored:
  description: Names whose tokens were put back.
  returned: success
  type: list
  elements: str
  sample: []
not_ours:
  description: Names that O(state=absent) is asked for and that this module has no note of.
  returned: success
  type: list
  elements: str
  sample: []
container:
  description: Whether it failed because this is a container.
  returned: when it is one
  type: bool
  sample: true
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    boot_loader,
    kernel_cmdline,
    previous_values,
    run_command,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic
from ansible_collections.tokforge.sglang.plugins.module_utils.boot_loader import BootLoaderError, Choice, Place
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError
from ansible_collections.tokforge.sglang.plugins.module_utils.kernel_cmdline import Unit

SHOWN_LINES = 15

# A command -> exit status, what it wrote.
Run = Callable[[Sequence[str]], tuple[int, str]]


@dataclass(frozen=True)
class Plan:
    """What is to be done: the file's new bytes, what to note before and to forget after, whether to refresh."""

    choice: Choice
    place: Place
    value: str
    data: bytes
    notes: dict[str, Any]
    done: tuple[str, ...]
    known: frozenset[str]
    refresh: tuple[str, ...]
    result: dict[str, Any]

    @property
    def writes(self) -> bool:
        return self.data != self.place.data


def key_of(place: Place, family: str) -> str:
    """Key of the note of a name. The variable for which there is no option to set has no part in it."""
    variable = f"#{place.variable}" if place.variable not in ("", boot_loader.VARIABLES[0]) else ""
    return f"kernel_cmdline/{place.file}{variable}/{family}"


def pending_key(choice: Choice) -> str:
    """Key of the note that the boot loader has not taken a change over yet."""
    return f"kernel_cmdline_refresh/{choice.boot_loader}"


def value_key(place: Place) -> str:
    """Key of the note of a whole command line in which something stands several times, before the first change."""
    return f"kernel_cmdline_value/{place.file}/{place.variable}"


def line_key(place: Place) -> str:
    """Key of the note that the line with the variable is ours; its value is what was put in front of it."""
    return f"kernel_cmdline_line/{place.file}/{place.variable}"


def paths_of(params: dict[str, Any]) -> boot_loader.Paths:
    return boot_loader.Paths(
        grub_default=params["grub_default"],
        grub_directory=params["grub_directory"],
        cmdline_file=params["cmdline_file"],
        boot_uuids=params["boot_uuids"],
        efi=params["efi"],
        container_marks=tuple(params["container_marks"]),
        first_environment=params["pid1_environ"],
    )


def decide(params: dict[str, Any], look: boot_loader.Look) -> Plan:
    """Look and decide; changes nothing. Raises BootLoaderError, CmdlineError and RecordError."""
    asked = kernel_cmdline.wanted(params["tokens"])
    paths = paths_of(params)
    choice = boot_loader.choose(params["boot_loader"], paths, look)
    place = boot_loader.find(choice, params["variable"], paths, look)
    known = previous_values.read(params["record_dir"])
    running = (look.read(params["proc_cmdline"]) or b"").decode("utf-8", "surrogateescape")
    if not running.strip():
        raise BootLoaderError(
            f"reading the running kernel's command line {params['proc_cmdline']}: it is not there or empty; set "
            "proc_cmdline to the real one"
        )
    if params["state"] == "present":
        value, notes, done, result = adding(place, asked, running)
        data = boot_loader.rendered(place, value)
    else:
        value, notes, done, result = removing(place, asked, running, known)
        line = known.get(line_key(place)) if done else None
        data = boot_loader.rendered(place, value, line if isinstance(line, str) else None)
        if line is not None and not value.strip():
            done = (*done, line_key(place))
    due = data != place.data or pending_key(choice) in known
    refresh = tuple(params["refresh_command"] or choice.refresh) if due and params["refresh"] else ()
    if due and params["refresh"] and not refresh:
        raise BootLoaderError(
            f"refreshing {choice.boot_loader} after a change of {place.file}: neither update-grub nor "
            "proxmox-boot-tool with ESPs is there; set refresh_command, or set refresh to false and do it by hand"
        )
    result.update(refreshed=bool(refresh), refresh_due=due and not refresh)
    return Plan(choice, place, value, data, notes, done, frozenset(known), refresh, result)


Part = tuple[str, dict[str, Any], tuple[str, ...], dict[str, Any]]


def adding(place: Place, asked: Sequence[Unit], running: str) -> Part:
    """The text with what is asked, what to note, nothing to forget, and what is returned about it."""
    wanted = boot_loader.already(place, asked)
    value = kernel_cmdline.merge(place.value, wanted, place.syntax)
    kernel_cmdline.check_length([value, *(part.text for part in place.elsewhere)])
    notes: dict[str, Any] = {}
    for family in {unit.family for unit in wanted}:
        before = kernel_cmdline.noted(place.value, family, place.syntax)
        if before != kernel_cmdline.noted(value, family, place.syntax):
            notes[key_of(place, family)] = before
    if notes and kernel_cmdline.repeated(place.value, place.syntax):
        notes[value_key(place)] = place.value
    if notes and place.variable and place.assignment is None:
        notes[line_key(place)] = place.lead
    missing = kernel_cmdline.missing(asked, running)
    return (
        value,
        notes,
        (),
        {"missing_in_running": missing, "reboot_required": bool(missing), "restored": [], "not_ours": []},
    )


def removing(place: Place, asked: Sequence[Unit], running: str, known: dict[str, Any]) -> Part:
    """The text with what was there, nothing to note, what to forget, and what is returned about it."""
    syntax = place.syntax
    before: dict[str, list[str]] = {}
    not_ours: list[str] = []
    others: list[str] = []
    for unit in asked:
        noted = known.get(key_of(place, unit.family))
        if isinstance(noted, list) and all(isinstance(word, str) for word in noted):
            before[unit.family] = noted
        elif noted is not None:
            raise previous_values.RecordError(
                f"restoring {unit.family} in {place.file}: what is noted of it is no list of texts; put a backup of "
                "the notes back, or set the value by hand"
            )
        elif unit.words[0].token.name not in not_ours:
            not_ours.append(unit.words[0].token.name)
            others += [key for key in known if re.fullmatch(rf"kernel_cmdline/.*/{re.escape(unit.family)}", key)]
    value = kernel_cmdline.restore(place.value, asked, before, syntax)
    families = sorted(before)
    done = [key_of(place, name) for name in families if kernel_cmdline.is_as_noted(value, name, before[name], syntax)]
    first = known.get(value_key(place))
    if first is not None and {key for key in known if key.startswith(key_of(place, ""))} <= set(done):
        done.append(value_key(place))
        value = kernel_cmdline.as_before(value, first, syntax) if isinstance(first, str) else value
    restored = [
        name
        for name in families
        if kernel_cmdline.noted(value, name, syntax) != kernel_cmdline.noted(place.value, name, syntax)
    ]
    next_start = [(value, syntax), *((part.text, syntax) for part in place.elsewhere)]
    still = kernel_cmdline.left_over(asked, next_start, running)
    back = [
        each
        for unit in asked
        if unit.family in before
        for each in kernel_cmdline.of_place(value, unit.family, kernel_cmdline.slot_of(unit), syntax)
        if each.meaning is not None
    ]
    return (
        value,
        {},
        tuple(done),
        {
            "missing_in_running": still,
            "reboot_required": bool(still or kernel_cmdline.missing(back, running)),
            "restored": restored,
            "not_ours": not_ours,
            "warnings": [
                f"{key} is noted, which is not {place.file} {place.variable}; set boot_loader or variable to have it "
                "put back"
                for key in others
            ],
        },
    )


def apply(plan: Plan, record_dir: str, paths: boot_loader.Paths, look: boot_loader.Look, run: Run) -> None:
    """Note, write, read back, refresh, forget. Raises BootLoaderError and RecordError.

    That a refresh is due is noted before the file is written and forgotten after the refresh, so whatever a kill leaves
    is finished by the next run.
    """
    pending = pending_key(plan.choice)
    fresh = [key for key in plan.notes if key not in plan.known]
    if plan.writes:
        previous_values.remember(record_dir, {**plan.notes, pending: True})
        try:
            write(plan, paths, look)
        except BootLoaderError:
            previous_values.forget(record_dir, [*fresh, *([] if pending in plan.known else [pending])])
            raise
    if plan.refresh:
        status, output = run(plan.refresh)
        if status:
            put_back(plan, record_dir, fresh, status, output)
    previous_values.forget(record_dir, [*plan.done, *([pending] if plan.refresh else [])])


def write(plan: Plan, paths: boot_loader.Paths, look: boot_loader.Look) -> None:
    """Replace the file and read it back. Raises BootLoaderError, with the file as it was."""
    place = plan.place
    if look.read(place.file) != place.data:
        raise BootLoaderError(f"editing {place.file}: somebody else changes it just now; run again", file=place.file)
    try:
        write_atomic(place.file, plan.data)
    except OSError as error:
        raise BootLoaderError(
            f"writing {place.file}: {error.strerror}; it is as it was, make it writable", file=place.file
        ) from error
    try:
        reads = repr(boot_loader.find(plan.choice, place.variable, paths, look).value)
    except BootLoaderError as error:
        reads = f"({error})"
    if reads != repr(plan.value):
        write_atomic(place.file, place.data)
        raise BootLoaderError(
            f"editing {place.file}: after it was written it reads as {reads} and not as {plan.value!r}, so it was put "
            "back; edit it by hand",
            file=place.file,
        )


def put_back(plan: Plan, record_dir: str, fresh: Sequence[str], status: int, output: str) -> None:
    """Undo the change after a refresh that failed, and say so.

    The note that a refresh is due stays: of several ESPs some may have the change.
    """
    file = plan.place.file
    state = f"{file} was not changed by this run"
    if plan.writes:
        try:
            write_atomic(file, plan.place.data)
        except OSError as error:
            state = f"{file} could not be put back ({error.strerror})"
        else:
            previous_values.forget(record_dir, fresh)
            state = f"{file} was put back as it was"
    last = "\n".join(output.strip().splitlines()[-SHOWN_LINES:])
    raise BootLoaderError(
        f"refreshing the boot loader with `{' '.join(plan.refresh)}`: exit status {status}; {state}, correct what it "
        f"says and run again:\n{last}",
        rc=status,
        output=last,
        file=file,
    )


def shown(plan: Plan) -> dict[str, str]:
    """The file before and after."""
    return {
        "before_header": plan.place.file,
        "after_header": plan.place.file,
        "before": plan.place.data.decode("utf-8", "replace"),
        "after": plan.data.decode("utf-8", "replace"),
    }


def settle(params: dict[str, Any], check: bool, look: boot_loader.Look, run: Run) -> tuple[Plan, dict[str, Any]]:
    """Look, decide and do; what the module returns. Raises BootLoaderError, CmdlineError and RecordError."""
    made = decide(params, look)
    if not check:
        apply(made, params["record_dir"], paths_of(params), look, run)
    return made, {
        "changed": made.writes or bool(made.refresh),
        "boot_loader": made.choice.boot_loader,
        "file": made.place.file,
        "before": made.place.value,
        "after": made.value,
        **made.result,
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "tokens": {"type": "list", "elements": "str", "required": True, "no_log": False},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "boot_loader": {"type": "str", "choices": ["auto", "grub", "kernel_cmdline_file"], "default": "auto"},
            "variable": {
                "type": "str",
                "choices": ["GRUB_CMDLINE_LINUX_DEFAULT", "GRUB_CMDLINE_LINUX"],
                "default": "GRUB_CMDLINE_LINUX_DEFAULT",
            },
            "refresh": {"type": "bool", "default": True},
            "refresh_command": {"type": "list", "elements": "str"},
            "record_dir": {"type": "path", "default": "/var/lib/tokforge/host"},
            "grub_default": {"type": "path", "default": "/etc/default/grub"},
            "grub_directory": {"type": "path", "default": "/etc/default/grub.d"},
            "cmdline_file": {"type": "path", "default": "/etc/kernel/cmdline"},
            "boot_uuids": {"type": "path", "default": "/etc/kernel/proxmox-boot-uuids"},
            "efi": {"type": "path", "default": "/sys/firmware/efi"},
            "proc_cmdline": {"type": "path", "default": "/proc/cmdline"},
            "container_marks": {
                "type": "list",
                "elements": "path",
                "default": ["/run/systemd/container", "/run/.containerenv", "/.dockerenv"],
            },
            "pid1_environ": {"type": "path", "default": "/proc/1/environ"},
        },
        supports_check_mode=True,
    )
    try:
        made, result = settle(module.params, module.check_mode, boot_loader.Disk(), run_command.run)
    except HostError as error:
        module.fail_json(msg=str(error), **error.facts)
    for warning in result.pop("warnings", []):
        module.warn(warning)
    module.exit_json(**result, **({"diff": shown(made)} if module._diff else {}))


if __name__ == "__main__":
    main()
