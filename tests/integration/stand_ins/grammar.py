# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the stand-ins for Proxmox VE's programs share: strict arguments, state in a directory, a log of every call.

They are for hosts without Proxmox VE. Each takes what its man page documents and ends with a usage text and a code that
is not zero for anything else, so that a caller that is wrong fails here as it would there. What they do is a model of
what the role needs, not of Proxmox VE.

The directory is the value of STAND_IN_STATE:
  calls             one JSON list a line, program and arguments of each call
  pveversion        what `pveversion` prints
  pve/lxc/ID.conf   configurations of Proxmox VE
  lxc/NAME/config   configurations of plain LXC
  run/ID            number of the first process of a container that runs
  broken/ID         nodes, one a line, that a start of the container does not bring
  stuck/ID          the container does not start
  dev, proc         what stands for the host's; a start makes proc/PID with the container's root and status
  kernels.json      {"manual": [], "automatic": [], "pinned": "", "next": ""}, where proxmox-boot-tool is in use
  api.json          answers of `pvesh get` by path
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

#: Kinds of values: a boolean may stand without one.
BOOLEAN, INTEGER, STRING = "boolean", "integer", "string"


def state() -> Path:
    """The directory of the state."""
    return Path(os.environ["STAND_IN_STATE"])


def note_call(program: str, arguments: Sequence[str]) -> None:
    """Add a call to the log."""
    with (state() / "calls").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps([program, *arguments]) + "\n")


def give_up(message: str, code: int = 255) -> NoReturn:
    """End as a program that failed."""
    sys.stderr.write(message.rstrip("\n") + "\n")
    sys.exit(code)


@dataclass(frozen=True)
class Call:
    """Arguments by their names, and options that were given."""

    arguments: Mapping[str, str]
    options: Mapping[str, str]


def read(usage: str, names: Sequence[str], options: Mapping[str, str], given: Sequence[str]) -> Call:
    """Read a command line as Proxmox VE's programs do (PVE::JSONSchema, get_options).

    :param names: of the arguments, all of them needed.
    :param options: kinds by name.
    """
    found: dict[str, str] = {}
    plain = []
    rest = list(given)
    while rest:
        one = rest.pop(0)
        match = re.fullmatch(r"--?([a-zA-Z][\w-]*)(?:=(.*))?", one)
        if not match:
            plain.append(one)
            continue
        name, value = match[1], match[2]
        if name not in options:
            give_up(f"Unknown option: {name}\n400 unable to parse option\n{usage}")
        if value is None and options[name] == BOOLEAN:
            value = rest.pop(0) if rest and rest[0] in ("0", "1") else "1"
        if value is None:
            if not rest:
                give_up(f"Option {name} requires an argument\n400 unable to parse option\n{usage}")
            value = rest.pop(0)
        pattern = {BOOLEAN: "[01]", INTEGER: r"\d+", STRING: ".+"}[options[name]]
        if not re.fullmatch(pattern, value, re.ASCII):
            give_up(
                f"400 Parameter verification failed.\n{name}: type check ('{options[name]}') failed - got "
                f"'{value}'\n{usage}"
            )
        found[name] = value
    if len(plain) < len(names):
        give_up(f"400 not enough arguments\n{usage}")
    if len(plain) > len(names):
        give_up(f"400 too many arguments\n{usage}")
    return Call(dict(zip(names, plain)), found)
