# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Running apt-get: simulating a transaction, and doing exactly what was simulated."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from ansible_collections.tokforge.sglang.plugins.module_utils import apt_simulation, run_command
from ansible_collections.tokforge.sglang.plugins.module_utils.apt_simulation import SimulationError, Transaction

#: Seconds: a kernel module is compiled for each kernel while packages are configured.
TIMEOUT_S = 3600
#: Seconds that apt waits for another one that holds dpkg's lock (apt 1.9.11, DPkg::Lock::Timeout).
LOCK_WAIT_S = 300

_ENVIRONMENT = {
    "LANGUAGE": "C",
    "DEBIAN_FRONTEND": "noninteractive",
    "APT_LISTCHANGES_FRONTEND": "none",
    "NEEDRESTART_MODE": "l",
}

PRESENT = "present"
ABSENT = "absent"

# name, name=version, name=version* or name- (to be removed beside), with an architecture; nothing that apt would take
# for an option, a file or a task.
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.]*(-+[a-z0-9+.]+)*(:[a-z0-9]+)?(-|=[A-Za-z0-9.+:~-]+\*?)?")

# What apt says of packages and versions that are in none of its lists.
_UNLISTED = re.compile(
    r"^E: (Unable to locate package|Version '.*' for '.*' was not found|Package '.*' has no inst)", re.M
)

# A package that the lists name is gone from its archive: there is a newer one.
_OUTDATED = re.compile(r"^E: Unable to fetch some archives", re.M)
# apt waits for dpkg's lock, but not for those of its lists and its cache.
_LOCKED = re.compile(r"^E: Could not get lock \S*/(lists|archives)/", re.M)
_LOCK_STEP_S = 2.0
_INTERRUPTED = re.compile(r"^E: dpkg was interrupted", re.M)

# A command -> exit status, standard output, standard error.
Run = Callable[[Sequence[str]], "tuple[int, str, str]"]


@dataclass(frozen=True)
class Apt:
    """How to call apt.

    :param options: more `-o` settings, NAME=VALUE.
    """

    run: Run
    options: tuple[str, ...] = ()
    program: str = "apt-get"

    def with_options(self, more: Sequence[str]) -> Apt:
        """The same with more settings."""
        return replace(self, options=(*self.options, *more))

    def simulate(self, packages: Sequence[str], state: str = PRESENT) -> Transaction:
        """What apt would do for these packages. Raises SimulationError."""
        check_names(packages)
        status, output, errors = self.run(self._command(packages, state, simulate=True))
        if status:
            raise SimulationError(
                f"simulating apt for {' '.join(packages)}: {apt_simulation.reason(output + errors)}; see whether the "
                "package lists are new (apt-get update) and offer these versions (apt-cache madison)",
                packages=list(packages),
                output=(output + errors)[-2000:],
                unlisted=bool(_UNLISTED.search(output + errors)),
            )
        return apt_simulation.parse(output)

    def refresh(self) -> None:
        """Fetch the package lists. One source that does not answer keeps nobody from using the others."""
        patiently([self.program, "-q", *self._settings(), "update"], self.run)

    def apply(self, packages: Sequence[str], state: str = PRESENT) -> None:
        """Do it. Raises SimulationError with apt's last lines."""
        command = self._command(packages, state, simulate=False)
        status, output, errors = patiently(command, self.run)
        if status and _INTERRUPTED.search(errors):
            # dpkg was killed, perhaps by the end of a run of ours. What this cannot mend apt tells below.
            self.run(["dpkg", "--force-confdef", "--force-confold", "--configure", "-a"])
            status, output, errors = patiently(command, self.run)
        if status:
            raise SimulationError(
                f"running apt for {' '.join(packages)}: {apt_simulation.reason(output + errors)}; read the end of "
                "/var/log/apt/term.log, correct it and run again",
                packages=list(packages),
                output=(output + errors)[-4000:],
                outdated=bool(_OUTDATED.search(output + errors)),
            )

    def _command(self, packages: Sequence[str], state: str, simulate: bool) -> list[str]:
        head = [self.program, *(["-s"] if simulate else ["-y", "-q"]), *self._settings()]
        if state == ABSENT:
            # Configuration of a driver that is gone would still keep nouveau off the GPUs.
            return [*head, "--allow-change-held-packages", "purge", *packages]
        return [
            *head,
            "-o",
            "Dpkg::Options::=--force-confdef",
            "-o",
            "Dpkg::Options::=--force-confold",
            "--no-install-recommends",
            "--allow-downgrades",
            "--allow-change-held-packages",
            "install",
            *packages,
        ]

    def _settings(self) -> list[str]:
        settings = [f"DPkg::Lock::Timeout={LOCK_WAIT_S}", *self.options]
        return [word for setting in settings for word in ("-o", setting)]


def patiently(
    command: Sequence[str], run: Run, wait: Callable[[float], None] = time.sleep, limit_s: float = LOCK_WAIT_S
) -> tuple[int, str, str]:
    """Run apt-get, and again while another one (at boot that of apt-daily.service) holds the lock of lists or cache."""
    waited_s = 0.0
    while True:
        status, output, errors = run(command)
        if not status or not _LOCKED.search(errors) or waited_s >= limit_s:
            return status, output, errors
        wait(_LOCK_STEP_S)
        waited_s += _LOCK_STEP_S


def check_names(packages: Iterable[str]) -> None:
    """Raise SimulationError for what is no package's name."""
    wrong = [name for name in packages if not _PACKAGE.fullmatch(name)]
    if wrong:
        raise SimulationError(
            f"reading the packages: {', '.join(repr(name) for name in wrong)} is no package; give name, "
            "name=version or name=version*",
            packages=wrong,
        )


def plain_name(package: str) -> str:
    """The name in name=version or name-."""
    name = package.partition("=")[0]
    return name[:-1] if name.endswith("-") else name


def run_apt(command: Sequence[str], timeout_s: float = TIMEOUT_S) -> tuple[int, str, str]:
    """Run it in the locale that the parsers know; 127 when it cannot be started, with why as apt would say it."""
    status, output, errors = run_command.run_apart(command, timeout_s, _ENVIRONMENT)
    return status, output, f"E: {errors}" if status == run_command.NOT_RUN else errors
