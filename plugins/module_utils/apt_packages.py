# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Packages of one owner: brought by a transaction that was looked at first, noted, held, and taken away again.

What is noted, by key in previous_values: `<owner>/package/<name>`, the version before, empty for a package that was not
there; `<owner>/asked/<name>` for those that were asked for by name; `<owner>/hold/<name>` for holds that are ours.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    apt_run,
    apt_simulation,
    driver_packages,
    installed_packages,
    previous_values,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.apt_pin import Pin
from ansible_collections.tokforge.sglang.plugins.module_utils.apt_simulation import SimulationError, Transaction


def _simulated(apt: apt_run.Apt, packages: Sequence[str], check: bool) -> Transaction:
    """What apt would do, asked again with new lists when the ones that are there do not know a package.

    Images come without lists, and old ones name kernels that are gone from the archive. Check mode fetches them into a
    directory of its own.
    """
    try:
        return apt.simulate(packages)
    except SimulationError as error:
        if not error.facts.get("unlisted"):
            raise
    if not check:
        apt.refresh()
        return apt.simulate(packages)
    with tempfile.TemporaryDirectory(prefix="tokforge-apt-") as lists:
        aside = apt.with_options([f"Dir::State::lists={lists}", "Dir::Cache::pkgcache=", "Dir::Cache::srcpkgcache="])
        aside.refresh()
        return aside.simulate(packages)


@dataclass(frozen=True)
class Packages:
    """The packages of one owner.

    :param owner: name that the notes have.
    :param pin: apt's preferences while it works, and afterwards while the packages are held.
    """

    apt: apt_run.Apt
    owner: str
    record_dir: str
    pin: Pin = field(default_factory=Pin)

    def bring(
        self, packages: Sequence[str], also: Sequence[str], refuse: Iterable[str], hold: bool, check: bool
    ) -> dict[str, Any]:
        """Have the packages installed; what changed. Raises SimulationError and RecordError.

        :param also: more of them, of which those are asked for that apt can give.
        """
        asked = [apt_run.plain_name(one) for one in packages if not one.endswith("-")]
        with self.pin.tried() as pins:
            trial = self.apt.with_options(pins)
            lacking = installed_packages.unknown(also, self.apt.run)
            packages = [*packages, *(one for one in also if one not in lacking)]
            transaction = _simulated(trial, packages, check)
            apt_simulation.refuse(transaction, refuse, packages)
            unfinished = self._unfinished(transaction, asked)
            pinned = self.pin.differs(hold)
            if not check:
                self.pin.settle(hold)
                if transaction.changes or unfinished:
                    # Before it is done: a run that is killed in between must know what it brought.
                    self._note(transaction, asked)
                    transaction = self._applied(trial, packages, transaction, refuse)
                    self._settled(trial, packages)
        held = self._hold([name for name in asked if driver_packages.is_driver(name)] if hold else [], check)
        return {
            "changed": transaction.changes or bool(unfinished) or pinned or bool(held),
            "held": held,
            "kept": {},
            **transaction.as_dict(),
        }

    def take_away(self, refuse: Iterable[str], check: bool, keep_needed: bool = False) -> dict[str, Any]:
        """Purge what the notes say that `bring` brought; what changed. Raises SimulationError and RecordError.

        :param keep_needed: leave all of it when other packages need it, instead of refusing.
        """
        notes = previous_values.read(self.record_dir)
        before = self._noted(notes, "package")
        asked = self._noted(notes, "asked")
        there = self._installed(installed_packages.left)
        new = [name for name, version in sorted(before.items()) if not version and name in there]
        gone = [name for name in new if name in asked or driver_packages.is_driver(name)]
        transaction = Transaction()
        if new:
            gone, transaction = self._removal(gone, new, keep_needed)
            apt_simulation.refuse(transaction, refuse, gone)
        held = self._hold([], check)
        pinned = self.pin.differs(kept=False)
        if not check:
            if gone:
                self.apt.apply(gone, apt_run.ABSENT)
            self.pin.settle(kept=False)
        noted = [key for key in notes if key.startswith((f"{self.owner}/package/", f"{self.owner}/asked/"))]
        if not check:
            previous_values.forget(self.record_dir, noted)
        kept = {name: version for name, version in before.items() if version and name in there}
        return {
            "changed": bool(transaction.changes or pinned or held),
            "held": held,
            "kept": kept,
            **transaction.as_dict(),
        }

    def _removal(self, gone: list[str], new: list[str], keep_needed: bool) -> tuple[list[str], Transaction]:
        """What to purge, and what apt would do: with what came along as long as nobody else needs or wants it."""
        automatic = set(self.apt.run(["apt-mark", "showauto"])[1].split())
        whole = sorted({*gone, *(name for name in new if name in automatic)})
        for names in (whole, gone):
            transaction = self.apt.simulate(names, apt_run.ABSENT) if names else Transaction()
            others = [one.name for one in transaction.removes if driver_packages.bare(one.name) not in names]
            if not others:
                return names, transaction
        if keep_needed:
            return [], Transaction()
        raise SimulationError(
            f"taking away {', '.join(gone)}: {', '.join(others)} would go too, and nothing notes that they came along; "
            "remove those first, or leave the packages",
            others=others,
            **transaction.as_dict(),
        )

    def _applied(
        self, apt: apt_run.Apt, packages: Sequence[str], transaction: Transaction, refuse: Iterable[str]
    ) -> Transaction:
        """What was done: the transaction, or with new lists another one where archives have lost what old ones name."""
        try:
            apt.apply(packages)
        except SimulationError as error:
            if not error.facts.get("outdated"):
                raise
            apt.refresh()
            transaction = apt.simulate(packages)
            apt_simulation.refuse(transaction, refuse, packages)
            self._note(transaction, [apt_run.plain_name(one) for one in packages if not one.endswith("-")])
            apt.apply(packages)
        return transaction

    def _settled(self, apt: apt_run.Apt, packages: Sequence[str]) -> None:
        # apt-get answers 0 also when it was satisfied with less.
        left = apt.simulate(packages)
        if left.changes or self._unfinished(left, [apt_run.plain_name(one) for one in packages]):
            raise SimulationError(
                f"running apt for {' '.join(packages)}: afterwards it would still change something; read the end of "
                "/var/log/apt/term.log",
                **left.as_dict(),
            )

    def _unfinished(self, transaction: Transaction, asked: Iterable[str]) -> list[str]:
        """Packages of the driver, asked for or noted here, that a run was killed in the middle of, or that failed."""
        ours = {*map(driver_packages.bare, asked), *self._noted(previous_values.read(self.record_dir), "package")}
        names = [driver_packages.bare(name) for name in transaction.unfinished]
        return [name for name in names if name in ours or driver_packages.is_driver(name)]

    def _note(self, transaction: Transaction, asked: Iterable[str]) -> None:
        changes = (*transaction.installs, *transaction.upgrades)
        values: dict[str, Any] = {
            f"{self.owner}/package/{driver_packages.bare(one.name)}": one.before for one in changes
        }
        names = {driver_packages.bare(one.name) for one in changes}
        values.update({f"{self.owner}/asked/{name}": True for name in asked if driver_packages.bare(name) in names})
        previous_values.remember(self.record_dir, values)

    def _noted(self, notes: dict[str, Any], what: str) -> dict[str, Any]:
        head = f"{self.owner}/{what}/"
        return {key[len(head) :]: value for key, value in notes.items() if key.startswith(head)}

    def _installed(self, read: Callable[[str], dict[str, str]] = installed_packages.installed) -> dict[str, str]:
        status, output, errors = self.apt.run(installed_packages.QUERY)
        if status not in (0, 1):
            raise SimulationError(f"asking dpkg what is installed: {errors.strip() or status}; run dpkg --audit")
        return read(output)

    def _hold(self, names: Iterable[str], check: bool) -> list[str]:
        """Set holds on these names, and take off those of ours on others; the names whose hold changed."""
        wanted = sorted(names)
        ours = self._noted(previous_values.read(self.record_dir), "hold")
        if not wanted and not ours:
            return []
        held = set(self.apt.run(["apt-mark", "showhold"])[1].split())
        there = self._installed()
        new = [name for name in wanted if name not in held and (name in there or check)]
        old = [name for name in sorted(ours) if name not in wanted]
        if check:
            return sorted({*new, *(name for name in old if name in held)})
        if new:
            previous_values.remember(self.record_dir, {f"{self.owner}/hold/{name}": True for name in new})
            self._mark("hold", new)
        off = [name for name in old if name in held]
        if off:
            self._mark("unhold", off)
        previous_values.forget(self.record_dir, [f"{self.owner}/hold/{name}" for name in old])
        return sorted({*new, *off})

    def _mark(self, action: str, names: Sequence[str]) -> None:
        status, output, errors = self.apt.run(["apt-mark", action, *names])
        if status:
            raise SimulationError(
                f"running apt-mark {action} for {', '.join(names)}: {apt_simulation.reason(output + errors)}; run it "
                "by hand"
            )
