# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One flag of `sglang.launch_server`: its names, its form, and how the generated catalog writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: What a flag's value must be. SIZE is a whole number that may end in a unit of counting, such as 4k or 1Mi.
TEXT = "text"
INT = "int"
FLOAT = "float"
SIZE = "size"


@dataclass(frozen=True)
class Flag:
    """One flag of a release's `sglang.launch_server`.

    `name` and `aliases` have no leading dashes. `nargs` is argparse's: None for exactly one value, `?`, `*` or `+`
    for several; it says nothing when `takes_value` is false. `choices` is None when any value goes. A `negatable`
    flag also exists as `--no-<name>` (argparse's BooleanOptionalAction). A `json` flag's one value is JSON text.
    A `hidden` flag works but is left out of `--help`. `type` is what each value must be. A `deprecated` flag still
    works; the release says that `successor` does the same, empty when it names none. A `retired` flag is known to the
    parser only to be refused. Of an `unread` flag only the names are known. `dest` is the name of its value in a log's
    `server_args=`, empty where that is the flag's own name with underscores.
    """

    name: str
    takes_value: bool = True
    nargs: str | None = None
    choices: tuple[str | int, ...] | None = None
    aliases: tuple[str, ...] = ()
    negatable: bool = False
    deprecated: bool = False
    json: bool = False
    hidden: bool = False
    type: str = TEXT
    successor: str = ""
    retired: bool = False
    unread: bool = False
    dest: str = ""

    @property
    def field(self) -> str:
        """The name of the flag's value in SGLang's ServerArgs, and so in a log."""
        return self.dest or self.name.replace("-", "_")

    def data(self) -> dict[str, Any]:
        """The catalog's form: whether it takes a value, and what differs from a flag with one free text."""
        found: dict[str, Any] = {"takes_value": self.takes_value}
        if self.nargs is not None:
            found["nargs"] = self.nargs
        if self.choices is not None:
            found["choices"] = list(self.choices)
        if self.aliases:
            found["aliases"] = list(self.aliases)
        for name in ("negatable", "deprecated", "json", "hidden"):
            if getattr(self, name):
                found[name] = True
        if self.type != TEXT:
            found["type"] = self.type
        for name in ("successor", "dest"):
            if getattr(self, name):
                found[name] = getattr(self, name)
        if self.retired:
            found["retired"] = True
        return found


def of_data(name: str, data: Mapping[str, Any]) -> Flag:
    """The flag that the catalog holds under `name`."""
    choices = data.get("choices")
    return Flag(
        name=name,
        takes_value=data["takes_value"],
        nargs=data.get("nargs"),
        choices=None if choices is None else tuple(choices),
        aliases=tuple(data.get("aliases", ())),
        negatable=data.get("negatable", False),
        deprecated=data.get("deprecated", False),
        json=data.get("json", False),
        hidden=data.get("hidden", False),
        type=data.get("type", TEXT),
        successor=data.get("successor", ""),
        retired=data.get("retired", False),
        dest=data.get("dest", ""),
    )


def canonical(name: str) -> str:
    """A flag's name as the catalog writes it: `tp_size`, `--tp-size` and `tp-size` are one."""
    return name.lstrip("-").replace("_", "-")
