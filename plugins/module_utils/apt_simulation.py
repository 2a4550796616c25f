# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What apt would do, read from what `apt-get -s` says.

The simulation's lines are written in apt's source (apt-pkg/algorithms.cc, pkgSimulate) and are the same in all locales:

    Inst name [installed version] (new version origin [architecture]) [what breaks meanwhile]
    Remv name [installed version]
    Purg name [installed version]
    Conf name (version origin [architecture])
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import driver_packages
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError

KERNEL = "kernel"
MODULE = "kernel_module"
DRIVER = "driver"
OTHER_REMOVAL = "other_removal"

#: What a transaction can be refused for.
CLASSES = (KERNEL, MODULE, DRIVER, OTHER_REMOVAL)

# An origin may have parentheses of its own.
_INST = re.compile(r"Inst (?P<name>\S+) (?:\[(?P<before>[^\]]+)\] )?\((?P<version>[^\s()]+)[ )]")
_CONF = re.compile(r"^Conf (\S+)", re.MULTILINE)
# Without a version for one of which only configuration is left.
_REMV = re.compile(r"(?:Remv|Purg) (?P<name>\S+)(?: \[(?P<before>[^\]]*)\])?(?: |$)")
_DOWNGRADED = re.compile(r"The following packages will be DOWNGRADED:\n((?:  .*\n)+)")
_COUNTS = re.compile(
    r"(\d+) upgraded, (\d+) newly installed,(?: \d+ reinstalled,)?(?: (\d+) downgraded,)? (\d+) to remove"
)
_TELLING = re.compile(r"(E: .*| [a-z0-9][a-z0-9+.:-]+ : .*| {5,}\S.*)")
_SHOWN_LINES = 12


class SimulationError(HostError):
    """apt cannot do what is asked, or what it would do is refused; the text says what to do."""


@dataclass(frozen=True)
class Change:
    """One package: `version` is what it becomes, empty when it goes; `before` what it is, empty when it is new."""

    name: str
    version: str
    before: str

    def as_dict(self) -> dict[str, str]:
        """For a module's result."""
        return {"name": self.name, "version": self.version, "before": self.before}


@dataclass(frozen=True)
class Transaction:
    """What apt would do."""

    installs: tuple[Change, ...] = ()
    upgrades: tuple[Change, ...] = ()
    removes: tuple[Change, ...] = ()
    #: Names among the upgrades that become older.
    downgraded: tuple[str, ...] = ()
    #: Names of packages that are unpacked already and would be configured: an earlier run ended in between.
    unfinished: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether it would do anything."""
        return bool(self.installs or self.upgrades or self.removes)

    def as_dict(self) -> dict[str, Any]:
        """For a module's result."""
        return {
            "installs": [one.as_dict() for one in self.installs],
            "upgrades": [one.as_dict() for one in self.upgrades],
            "removes": [one.as_dict() for one in self.removes],
            "downgrades": list(self.downgraded),
            "unfinished": list(self.unfinished),
            "changes": self.changes,
        }


def parse(output: str) -> Transaction:
    """What a simulation that went well says. Raises SimulationError when the counts in it are others than were read."""
    installs: list[Change] = []
    upgrades: list[Change] = []
    removes: list[Change] = []
    for line in output.splitlines():
        if line.startswith("Inst "):
            found = _INST.match(line)
            if found is None:
                raise _unread(line)
            change = Change(found["name"], found["version"], found["before"] or "")
            (upgrades if change.before else installs).append(change)
        elif line.startswith(("Remv ", "Purg ")):
            found = _REMV.match(line)
            if found is None:
                raise _unread(line)
            removes.append(Change(found["name"], "", found["before"] or ""))
    listed = _DOWNGRADED.search(output)
    unpacked = {one.name for one in (*installs, *upgrades)}
    transaction = Transaction(
        tuple(installs),
        tuple(upgrades),
        tuple(removes),
        tuple(listed[1].split()) if listed else (),
        tuple(name for name in dict.fromkeys(_CONF.findall(output)) if name not in unpacked),
    )
    _counted(output, transaction)
    return transaction


def _counted(output: str, transaction: Transaction) -> None:
    # A line in a form that we do not know would be a change that nobody judged.
    counts = _COUNTS.search(output)
    if counts is None:
        raise SimulationError(
            "reading apt's simulation: its line of counts is missing; run apt-get -s by hand", output=output[-2000:]
        )
    upgraded, new, downgraded, gone = (int(value or 0) for value in counts.groups())
    read = (len(transaction.upgrades), len(transaction.installs), len(transaction.removes))
    if read != (upgraded + downgraded, new, gone):
        raise SimulationError(
            f"reading apt's simulation: it counts {upgraded + downgraded} upgraded, {new} new and {gone} removed, and "
            f"its lines tell {read[0]}, {read[1]} and {read[2]}; run apt-get -s by hand",
            output=output[-2000:],
        )


def _unread(line: str) -> SimulationError:
    return SimulationError(
        f"reading apt's simulation: a line is in no known form ({line[:200]}); run apt-get -s by hand"
    )


def reason(output: str) -> str:
    """Why apt cannot do it, in its own words on one line."""
    lines = [
        line.strip()
        for line in output.splitlines()
        # apt also takes a name that it does not know for a glob and for an expression, and says so.
        if _TELLING.fullmatch(line) and "any package by" not in line
    ]
    return "; ".join(lines[-_SHOWN_LINES:]) or "apt says no reason"


def refused(transaction: Transaction, classes: Iterable[str]) -> dict[str, list[str]]:
    """What of a transaction is refused, names by class; empty when nothing is.

    KERNEL: a kernel is installed, changed or removed. MODULE: a package with kernel modules, or one that builds them,
    is installed or changed. DRIVER: a package of the driver is touched at all. OTHER_REMOVAL: something that is not of
    the driver is removed.
    """
    coming = (*transaction.installs, *transaction.upgrades)
    touched = (*coming, *transaction.removes)
    found = {
        KERNEL: [one.name for one in touched if driver_packages.is_kernel(one.name)],
        MODULE: [one.name for one in coming if driver_packages.is_module(one.name)],
        DRIVER: [one.name for one in touched if driver_packages.is_driver(one.name)],
        OTHER_REMOVAL: [one.name for one in transaction.removes if not driver_packages.is_driver(one.name)],
    }
    return {name: found[name] for name in classes if found[name]}


_SAYS = {
    KERNEL: "it would change the kernel",
    MODULE: "it would bring kernel modules",
    DRIVER: "it would touch the NVIDIA driver",
    OTHER_REMOVAL: "it would remove what is not of the driver",
}


def refuse(transaction: Transaction, classes: Iterable[str], packages: Iterable[str]) -> None:
    """Raise SimulationError when something in the transaction is refused."""
    found = refused(transaction, classes)
    if found:
        why = "; ".join(f"{_SAYS[name]} ({', '.join(names)})" for name, names in found.items())
        raise SimulationError(
            f"simulating apt for {' '.join(packages)}: {why}; nothing was changed, hold those packages back or choose "
            "another version",
            refused=found,
            **transaction.as_dict(),
        )
