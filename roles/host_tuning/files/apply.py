# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Set what the kernel forgets when the machine starts again, as the settings file says.

    apply.py SETTINGS.json

The files that know how lie beside it, the same that the collection's modules use: cpu_frequency.py, pcie_config.py,
pcie_acs.py and what they need. Each setting is tried, also after another one failed.

Standard library only; Python 3.9 or newer.
Exit code 0: all is set. 1: something could not be set, and the lines printed say what. 78 (EX_CONFIG): the settings
file cannot be used.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import types
from typing import Any

PACKAGE = "ansible_collections.tokforge.sglang.plugins.module_utils"
SCHEMA_VERSION = 1
EX_CONFIG = 78
#: udev loads the driver that sets CPU frequencies while this starts.
WAIT_S = 30.0
POLL_S = 0.2


def core(name: str) -> Any:
    """One of the files beside this one. They name each other by the collection's names, so these mean this folder."""
    parts = PACKAGE.split(".")
    for number in range(1, len(parts) + 1):
        package = ".".join(parts[:number])
        if package not in sys.modules:
            module = types.ModuleType(package)
            module.__path__ = [os.path.dirname(os.path.realpath(__file__))]
            sys.modules[package] = module
    return importlib.import_module(f"{PACKAGE}.{name}")


def say(line: str) -> None:
    """One line for the journal."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def set_cpus(asked: dict[str, Any], where: dict[str, str], wait_s: float) -> None:
    """Governor and energy preference of all CPUs."""
    frequency = core("cpu_frequency")
    deadline = time.monotonic() + wait_s
    while not frequency.look(where["sys_cpu"]) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    wanted = frequency.Settings(asked["governor"], asked.get("energy_preference"))
    outcome = frequency.present(wanted, where["sys_cpu"], where["record_dir"], False)
    if not outcome.supported:
        raise frequency.FrequencyError(outcome.reason)
    say(f"governor {asked['governor']}: {'set' if outcome.changed else 'already so'}")


def set_access_control(where: dict[str, str]) -> None:
    """Access control services of the bridges above GPUs."""
    acs = core("pcie_acs")
    outcome = acs.present(None, where["sys_pci"], where["record_dir"], False)
    for device in outcome.given:
        say(f"access control services above {device}: left, a virtual machine has it")
    for entry in outcome.entries:
        say(f"access control services of {entry.address}: {entry.status}")


def set_read_requests(asked: dict[str, Any], where: dict[str, str]) -> list[str]:
    """Largest read requests; gives what failed, since one device that is gone does not stop the others."""
    config, acs = core("pcie_config"), core("pcie_acs")
    failed = []
    devices: list[str] = []
    for device in asked["devices"]:
        devices += acs.gpus(where["sys_pci"]) if device == "gpus" else [device]
    for device in dict.fromkeys(devices):
        try:
            outcome = config.present([device], asked["bytes"], where["sys_pci"], where["record_dir"], False)
        except config.PciError as error:
            failed.append(str(error))
            continue
        say(f"read request of {device}: {outcome.entries[0].status}")
    return failed


def apply(settings: dict[str, Any], wait_s: float = WAIT_S) -> list[str]:
    """Set everything that is asked; gives what failed."""
    where = {name: str(settings[name]) for name in ("sys_cpu", "sys_pci", "record_dir")}
    errors = (core("host_error").HostError, OSError)
    failed: list[str] = []
    for name in ("cpu", "acs", "read_request"):
        if name not in settings:
            continue
        try:
            if name == "cpu":
                set_cpus(settings[name], where, wait_s)
            elif name == "acs":
                set_access_control(where)
            else:
                failed += set_read_requests(settings[name], where)
        except errors as error:
            failed.append(str(error))
    return failed


def main(arguments: list[str]) -> int:
    """Read the settings and apply them."""
    try:
        with open(arguments[0], encoding="utf-8") as stream:
            settings = json.load(stream)
        if settings["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"schema {settings['schema_version']} is not {SCHEMA_VERSION}")
        failed = apply(settings)
    except (IndexError, KeyError, OSError, TypeError, ValueError) as error:
        say(f"reading the settings {' '.join(arguments)}: {error!r}; run role host_tuning again")
        return EX_CONFIG
    for line in failed:
        say(line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
