# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One playbook through ansible-runner: what goes in, what is shown meanwhile, what comes out."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import ansible_runner

from tokforge_rollout import artifacts
from tokforge_rollout.collection import Collection
from tokforge_rollout.evidence import Evidence, read
from tokforge_rollout.redaction import Redactor
from tokforge_rollout.stopping import Stopper
from tokforge_rollout.variables import Variables

# CI systems set them for themselves; ansible-runner's callback would take them for numbers of AWX.
FOREIGN = ("JOB_ID", "AD_HOC_COMMAND_ID", "PROJECT_UPDATE_ID")
# As ansible.cfg has it.
COLLECTIONS = "~/.ansible/collections:/usr/share/ansible/collections"
SETTINGS = {
    "pexpect_timeout": 1,  # seconds between two questions whether to stop
    "suppress_output_file": True,  # play.log is the same without secrets
}


@dataclass(frozen=True)
class Play:
    """A playbook and how to run it. Paths are absolute."""

    playbook: Path
    inventory: tuple[str, ...]
    variables: Variables
    arguments: tuple[str, ...] = ()


def run(
    play: Play, collection: Collection, directory: Path, ident: str, private: Path, redactor: Redactor, stopper: Stopper
) -> Evidence:
    """Run it; its output goes to standard output and play.log, ansible-runner's artifacts to `directory`/`ident`.

    :param private: a directory that only this user can read, gone after the run: variables, facts.
    """
    _write_private(private / "env" / "extravars", play.variables.values)
    with _log(directory / artifacts.LOG) as log:
        stopper.pid = None  # of an earlier play
        stage = _Stage(log, redactor, stopper, directory / ident)
        try:
            ansible_runner.run(
                private_data_dir=str(private),
                artifact_dir=str(directory),
                ident=ident,
                project_dir=str(collection.root),
                playbook=str(play.playbook),
                inventory=list(play.inventory),
                cmdline=shlex.join([*_files(play.variables), *play.arguments]) or None,
                envvars=environment(os.environ, collection),
                settings=SETTINGS,
                fact_cache=str(private / "facts"),
                quiet=True,
                event_handler=stage.event,
                status_handler=stage.status,
                cancel_callback=stopper.must_kill,
            )
        except BaseException:
            stopper.give_up()
            raise
        finally:
            artifacts.drop_environment(directory / ident)  # Ansible may not have come to run
    artifacts.clean(directory / ident, redactor)
    return read(directory / ident, stopper.reason)


def environment(given: Mapping[str, str], collection: Collection) -> dict[str, str]:
    """What Ansible's environment needs beside the caller's, as far as the caller did not set it."""
    others = given.get("ANSIBLE_COLLECTIONS_PATH") or COLLECTIONS
    places = [str(collection.search_path), *filter(None, others.split(os.pathsep))]
    wanted = {
        "ANSIBLE_NOCOLOR": "1",
        # ansible-runner would switch it off.
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_CONFIG": str(collection.root / "ansible.cfg"),
    }
    here = Path(sys.executable).parent
    return {
        **{key: value for key, value in wanted.items() if key not in given},
        "ANSIBLE_COLLECTIONS_PATH": os.pathsep.join(dict.fromkeys(places)),
        # The Ansible of this very installation, whatever else the machine has.
        "PATH": os.pathsep.join([str(here), given.get("PATH", os.defpath)]),
    }


class _Stage:
    """What happens while Ansible runs."""

    def __init__(self, log: TextIO, redactor: Redactor, stopper: Stopper, runner_directory: Path) -> None:
        self._log = log
        self._redactor = redactor
        self._stopper = stopper
        self._runner_directory = runner_directory

    def status(self, data: Mapping[str, Any], runner_config: object) -> None:
        """ansible-runner has written its file `command` and starts Ansible now."""
        if data.get("status") == "running":
            artifacts.drop_environment(self._runner_directory)

    def event(self, event: dict[str, Any]) -> bool:
        """Show what the event shows, and let ansible-runner write it without secrets."""
        if self._stopper.pid is None and isinstance(event.get("pid"), int):
            self._stopper.pid = event["pid"]
        clean = self._redactor.tree(event)
        event.clear()
        event.update(clean)
        text = str(event.get("stdout") or "").replace("\r\n", "\n")
        if text:
            self._log.write(text + "\n")
            self._log.flush()
            show(text)
        return True


def show(text: str) -> None:
    """Print and flush. A reader, a terminal or a disk that went away is no reason to stop a rollout half way."""
    try:
        print(text, flush=True)
    except OSError:
        # For the rest of the process.
        sys.stdout = open(os.devnull, "w", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115


def _files(variables: Variables) -> Iterator[str]:
    """Arguments for files of variables. ansible-runner names its own after them, so its values win."""
    for path in variables.files:
        yield from ("-e", f"@{path}")


def _write_private(path: Path, values: Mapping[str, Any]) -> None:
    """ansible-runner hands a file of this name to Ansible by its name. Given as a value it would be an argument."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    # YAML of -e has dates, which JSON has as text.
    path.write_text(json.dumps(values, default=str), encoding="utf-8")


def _log(path: Path) -> TextIO:
    """The log, for this user only. What is no text is written escaped: Ansible must not stop for it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    return open(descriptor, "a", encoding="utf-8", errors="backslashreplace")
