# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""pct, pveversion and pvesh as their man pages pct(1), pveversion(1) and pvesh(1) of Proxmox VE 8 and 9 have them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence

import grammar
import simulated
from grammar import BOOLEAN, INTEGER, STRING

#: Commands that are modelled: options by kind. All take a container's number.
_COMMANDS = {
    "config": {"current": BOOLEAN, "snapshot": STRING},
    "reboot": {"timeout": INTEGER},
    "shutdown": {"forceStop": BOOLEAN, "timeout": INTEGER},
    "start": {"debug": BOOLEAN, "skiplock": BOOLEAN},
    "status": {"verbose": BOOLEAN},
    "stop": {"overrule-shutdown": BOOLEAN, "skiplock": BOOLEAN},
}
_PCT = "USAGE: pct <COMMAND> [ARGS] [OPTIONS]\n       pct list\n" + "".join(
    f"       pct {one} <vmid> [OPTIONS]\n" for one in _COMMANDS
)
#: man page pvesh(1), FORMAT_OPTIONS.
_FORMAT = {
    "human-readable": BOOLEAN,
    "noborder": BOOLEAN,
    "noheader": BOOLEAN,
    "output-format": STRING,
    "quiet": BOOLEAN,
}


def pct(given: Sequence[str]) -> None:
    """Container toolkit."""
    if not given:
        grammar.give_up(f"ERROR: no command specified\n{_PCT}")
    command = given[0]
    if command == "list" and len(given) == 1:
        _list()
        return
    if command not in _COMMANDS:
        grammar.give_up(f"ERROR: unknown command 'pct {command}'\n{_PCT}")
    usage = f"pct {command} <vmid> [OPTIONS]"
    call = grammar.read(usage, ["vmid"], _COMMANDS[command], given[1:])
    name = call.arguments["vmid"]
    if not re.fullmatch(r"[1-9]\d{2,8}", name, re.ASCII):
        grammar.give_up(f"400 Parameter verification failed.\nvmid: invalid format - got '{name}'\n{usage}")
    if not simulated.config_of(name).exists():
        grammar.give_up(f"Configuration file 'nodes/pve-1/lxc/{name}.conf' does not exist", 2)
    running = bool(simulated.pid(name))
    if command == "status":
        sys.stdout.write(f"status: {'running' if running else 'stopped'}\n")
    elif command == "config":
        sys.stdout.write(simulated.config_of(name).read_text().partition("\n[")[0] + "\n")
    elif command == "start":
        if running:
            grammar.give_up(f"CT {name} already running")
        simulated.start(name)
    elif not running:
        grammar.give_up(f"{'VM' if command == 'reboot' else 'CT'} {name} not running")
    else:
        simulated.stop(name)
        if command == "reboot":
            simulated.start(name)


def _list() -> None:
    sys.stdout.write("VMID       Status     Lock         Name\n")
    for path in sorted((grammar.state() / "pve" / "lxc").glob("*.conf")):
        status = "running" if simulated.pid(path.stem) else "stopped"
        sys.stdout.write(f"{path.stem:<10} {status:<10} {'':<12} CT{path.stem}\n")


def pveversion(given: Sequence[str]) -> None:
    """Version of Proxmox VE; with --verbose that of its packages, of which only the first lines are modelled."""
    call = grammar.read("pveversion [OPTIONS]", [], {"verbose": BOOLEAN, "v": BOOLEAN}, given)
    text = (grammar.state() / "pveversion").read_text()
    match = re.fullmatch(r"pve-manager/(\S+)/(\S+) \(running kernel: (\S+)\)\n", text)
    if not match:
        grammar.give_up(f"the recorded output is none of pveversion: {text}")
    if "1" in (call.options.get("verbose"), call.options.get("v")):
        text = (
            f"proxmox-ve: {match[1]} (running kernel: {match[3]})\n"
            f"pve-manager: {match[1]} (running version: {match[1]}/{match[2]})\n"
        )
    sys.stdout.write(text)


def pvesh(given: Sequence[str]) -> None:
    """API shell: only `get` of a path that is recorded."""
    usage = "USAGE: pvesh <COMMAND> [ARGS] [OPTIONS]\n       pvesh get <api_path> [OPTIONS] [FORMAT_OPTIONS]"
    if not given:
        grammar.give_up(f"ERROR: no command specified\n{usage}")
    if given[0] != "get":
        grammar.give_up(f"ERROR: unknown command 'pvesh {given[0]}'\n{usage}")
    call = grammar.read(usage, ["api_path"], {"noproxy": BOOLEAN, **_FORMAT}, given[1:])
    form = call.options.get("output-format", "text")
    if form not in ("json", "json-pretty", "text", "yaml"):
        grammar.give_up(
            f"400 Parameter verification failed.\noutput-format: value '{form}' does not have a value in the "
            f"enumeration 'text, json, json-pretty, yaml'\n{usage}"
        )
    answers = json.loads((grammar.state() / "api.json").read_text())
    path = "/" + call.arguments["api_path"].strip("/")
    if path not in answers:
        grammar.give_up(f"No '{given[0]}' handler defined for '{path}'", 1)
    if form not in ("json", "json-pretty"):
        grammar.give_up(f"the stand-in knows no output format {form}", 1)
    sys.stdout.write(json.dumps(answers[path], indent=3 if form == "json-pretty" else None) + "\n")
