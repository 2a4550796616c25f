# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""lxc-info, lxc-start and lxc-stop as their man pages of LXC 5 and 6 have them, for containers of the stand-ins."""

from __future__ import annotations

import getopt
import sys
from collections.abc import Sequence
from pathlib import Path

import grammar
import simulated

#: Short options that are modelled, and what they are called in full.
_COMMON = {"n:": "name=", "P:": "lxcpath="}
_OWN = {
    "lxc-info": {"s": "state", "p": "pid", "H": "no-humanize"},
    "lxc-start": {"d": "daemon"},
    "lxc-stop": {"t:": "timeout=", "k": "kill", "": "nokill"},
}


def _read(program: str, given: Sequence[str]) -> dict[str, str]:
    known = {**_COMMON, **_OWN[program]}
    try:
        options, rest = getopt.gnu_getopt(list(given), "".join(known), list(known.values()))
    except getopt.GetoptError as error:
        grammar.give_up(f"{program}: {error}\nUsage: {program} --name=NAME", 1)
    short = {f"-{one[0]}": long.rstrip("=") for one, long in known.items() if one}
    found = {short.get(name, name.lstrip("-")): value for name, value in options}
    if rest:
        grammar.give_up(f"{program}: unexpected arguments {rest}\nUsage: {program} --name=NAME", 1)
    if not found.get("name"):
        grammar.give_up(f"{program}: missing container name, use --name option", 1)
    if "timeout" in found and not found["timeout"].isdigit():
        grammar.give_up(f"{program}: invalid timeout {found['timeout']}", 1)
    path = found.get("lxcpath")
    if path and Path(path) != grammar.state() / "lxc":
        grammar.give_up(f"{found['name']} doesn't exist", 1)
    if not simulated.config_of(found["name"]).exists():
        grammar.give_up(f"{found['name']} doesn't exist", 1)
    return found


def info(given: Sequence[str]) -> None:
    """State and first process."""
    found = _read("lxc-info", given)
    pid = simulated.pid(found["name"])
    raw = "no-humanize" in found
    if "state" in found:
        word = "RUNNING" if pid else "STOPPED"
        sys.stdout.write(f"{word}\n" if raw else f"State:          {word}\n")
    if "pid" in found and pid:
        sys.stdout.write(f"{pid}\n" if raw else f"PID:            {pid}\n")


def start(given: Sequence[str]) -> None:
    """Start a container."""
    name = _read("lxc-start", given)["name"]
    if simulated.pid(name):
        grammar.give_up(f"lxc-start: {name}: Container is already running", 1)
    simulated.start(name)


def stop(given: Sequence[str]) -> None:
    """Stop a container."""
    name = _read("lxc-stop", given)["name"]
    if not simulated.pid(name):
        grammar.give_up(f"lxc-stop: {name}: is not running", 2)
    simulated.stop(name)
