# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be asked of tokforge-rollout: its commands and options."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

PLAYBOOKS = {
    "provision": "driver, tuning, GPUs in containers and CUDA on every host",
    "preflight": "check every host for a rollout; changes nothing",
    "deploy": "install, start, check and measure SGLang",
    "rollback": "let the release that served before serve again",
    "verify": "prove from outside that what was asked for serves; changes nothing",
    "benchmark": "measure the running server",
    "sweep": "try a grid of configurations and let the best one serve",
    "explain": "say which of several differences makes how much",
    "report": "write what was measured on all hosts as pages",
    "destroy": "stop the server and remove what rollouts made",
}
OUTCOME = "outcome"


@dataclass(frozen=True)
class Request:
    """A command line that was understood."""

    command: str
    artifacts: Path
    inventory: tuple[str, ...] = ()
    extra_vars: tuple[str, ...] = ()
    limit: str | None = None
    check: bool = False
    diff: bool = False
    verbose: int = 0
    private_key: Path | None = None
    vault_password_file: Path | None = None
    timeout_s: float | None = None
    grace_s: float = 30.0
    report: bool = False


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    common = argparse.ArgumentParser(add_help=False)
    add = common.add_argument
    add(
        "-i",
        "--inventory",
        action="append",
        required=True,
        help="inventory file or directory, or a list of hosts; again for more",
    )
    add(
        "-e",
        "--extra-vars",
        action="append",
        default=[],
        help="name=value, JSON or @FILE; nothing secret but in a file",
    )
    add("-l", "--limit", help="only these hosts")
    add("--check", action="store_true", help="say what would be done")
    add("--diff", action="store_true", help="show differences in files")
    add("-v", "--verbose", action="count", default=0, help="more of Ansible's output; again for more")
    add("--private-key", type=Path, metavar="FILE", help="key for ssh")
    add("--vault-password-file", type=Path, metavar="FILE", help="password of Ansible Vault")
    add("--timeout", type=_seconds, metavar="SECONDS", help="stop Ansible after so long")
    add(
        "--grace",
        type=_seconds,
        default=30.0,
        metavar="SECONDS",
        help="between asking Ansible to stop and killing it (default 30)",
    )
    add("--report", action="store_true", help="write the pages of report.yml, too, when the play is through")
    artifacts = argparse.ArgumentParser(add_help=False)
    artifacts.add_argument(
        "--artifacts",
        type=Path,
        default=Path("rollout-artifacts"),
        metavar="DIR",
        help="where to (default rollout-artifacts)",
    )
    result = argparse.ArgumentParser(
        prog="tokforge-rollout",
        description="Run a playbook of tokforge.sglang and say what became of it. docs/ci.md has it all.",
    )
    commands = result.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in PLAYBOOKS.items():
        commands.add_parser(name, help=text, description=text, parents=[common, artifacts])
    text = "say what became of a run, also of one whose command was killed; starts nothing"
    commands.add_parser(OUTCOME, help=text, description=text, parents=[artifacts])
    return result


def parse(arguments: list[str] | None = None) -> Request:
    """Read a command line; argparse ends the process with 2 when it is wrong."""
    given = parser().parse_args(arguments)
    if given.command == OUTCOME:
        return Request(OUTCOME, given.artifacts.absolute())
    return Request(
        command=given.command,
        artifacts=given.artifacts.absolute(),
        inventory=tuple(given.inventory),
        extra_vars=tuple(given.extra_vars),
        limit=given.limit,
        check=given.check,
        diff=given.diff,
        verbose=given.verbose,
        private_key=given.private_key,
        vault_password_file=given.vault_password_file,
        timeout_s=given.timeout,
        grace_s=given.grace,
        report=given.report,
    )


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e9:
        raise ValueError(text)
    return value
