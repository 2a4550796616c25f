# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command: from its arguments to its exit code."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import json
import os
import platform
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from tokforge_rollout import artifacts, command_line, junit, play, summary, variables
from tokforge_rollout.collection import Collection, find
from tokforge_rollout.command_line import Request
from tokforge_rollout.evidence import Evidence, read
from tokforge_rollout.outcome import Outcome, Verdict, judge
from tokforge_rollout.play import Play
from tokforge_rollout.redaction import Redactor
from tokforge_rollout.stopping import Stopper
from tokforge_rollout.variables import UsageError, Variables

# After these a report tells something: hosts were worked on, and nobody waits for the end.
REPORTED = (Outcome.OK, Outcome.FAILED, Outcome.ROLLED_BACK, Outcome.UNREACHABLE)


def main(arguments: list[str] | None = None) -> int:
    """Run one command line; returns the exit code of its outcome."""
    request = command_line.parse(arguments)
    try:
        outcome = again(request) if request.command == command_line.OUTCOME else rollout(request)
    except UsageError as error:
        print(f"tokforge-rollout: {error}", file=sys.stderr)
        outcome = Outcome.USAGE
    except Exception:  # whatever it is, a pipeline has to hear of it by its own code
        traceback.print_exc()
        outcome = Outcome.INTERNAL
    return outcome.exit_code


def rollout(request: Request) -> Outcome:
    """Run a playbook, and report.yml when that is asked for."""
    collection = find(os.environ)
    asked = _play(request, collection)
    stopper = Stopper(request.timeout_s, request.grace_s)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _wish(stopper))
    artifacts.prepare(request.artifacts)
    redactor = Redactor(asked.variables.secrets)
    facts = _facts(request, asked.variables, collection)
    artifacts.write_summary(request.artifacts, summary.unfinished(facts), redactor)
    begun = time.monotonic()
    evidence = _run(asked, collection, request.artifacts, artifacts.RUNNER, redactor, stopper)
    verdict = judge(evidence)
    result = summary.finished(facts, verdict, evidence, time.monotonic() - begun)
    _write(request.artifacts, result, evidence, verdict, redactor)
    wanted = request.report and request.command != "report" and not request.check
    if wanted and verdict.outcome in REPORTED and stopper.reason is None:
        page = _report(request, asked, collection)
        reported = judge(_run(page, collection, request.artifacts, artifacts.REPORT_RUNNER, redactor, stopper))
        if verdict.outcome is Outcome.OK and reported.outcome is not Outcome.OK:
            verdict = Verdict(reported.outcome, f"the report: {reported.reason}", verdict.hosts)
        result = summary.finished(facts, verdict, evidence, time.monotonic() - begun)
        result["report"] = {"outcome": reported.outcome.label, "reason": reported.reason}
        _write(request.artifacts, result, evidence, verdict, redactor)
    artifacts.clean(request.artifacts, redactor)
    _say(request.command, verdict, request.artifacts, redactor)
    return verdict.outcome


def again(request: Request) -> Outcome:
    """Judge a run whose command was killed, and write its summary and JUnit. What had its end is only told again."""
    path = request.artifacts / artifacts.SUMMARY
    try:
        old = json.loads(path.read_text(encoding="utf-8"))
        facts = summary.Facts(**{name: old[name] for name in summary.Facts.__dataclass_fields__})
        told = Verdict(next(known for known in Outcome if known.label == old["outcome"]), old["reason"], {})
        ended = old["durations"]["total_s"] is not None
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        raise UsageError(f"cannot read {path}: {error!r}; name the artifacts of a run with --artifacts") from None
    redactor = Redactor(variables.gather([], os.environ).secrets)
    if ended:
        _say(facts.playbook, told, request.artifacts, redactor)
        return told.outcome
    artifacts.clean(request.artifacts, redactor)
    evidence = read(request.artifacts / artifacts.RUNNER)
    verdict = judge(evidence)
    _write(request.artifacts, summary.finished(facts, verdict, evidence, None), evidence, verdict, redactor)
    _say(facts.playbook, verdict, request.artifacts, redactor)
    return verdict.outcome


def _play(request: Request, collection: Collection) -> Play:
    """What to run; UsageError when a part of it is not there."""
    given = variables.gather(request.extra_vars, os.environ)
    place = _PLACES.get(request.command)
    if place and place[0] not in given.values:
        given = dataclasses.replace(given, values={**given.values, place[0]: str(request.artifacts / place[1])})
    arguments = [f"--limit={request.limit}"] if request.limit else []
    arguments += ["--check"] if request.check else []
    arguments += ["--diff"] if request.diff else []
    arguments += ["-" + "v" * request.verbose] if request.verbose else []
    for option, path in (
        ("--private-key", request.private_key),
        ("--vault-password-file", request.vault_password_file),
    ):
        if path and not path.is_file():
            raise UsageError(f"cannot use {option} {path}: there is no such file; correct the path")
        arguments += [f"{option}={path.absolute()}"] if path else []
    inventory = tuple(map(_inventory, request.inventory))
    return Play(collection.playbook(request.command), inventory, given, tuple(arguments))


# Variables of playbooks that write files on the controller, and where in the artifacts those go.
_PLACES = {
    "preflight": ("sglang_preflight_json", artifacts.PREFLIGHT),
    "report": ("sglang_report_dir", artifacts.REPORT),
}


def _report(request: Request, asked: Play, collection: Collection) -> Play:
    """report.yml on the same inventory. It works on the controller, too, so a limit is left out."""
    place = {"sglang_report_dir": str(request.artifacts / artifacts.REPORT)}
    given = dataclasses.replace(asked.variables, values=asked.variables.values | place)
    arguments = tuple(argument for argument in asked.arguments if not argument.startswith("--limit="))
    return dataclasses.replace(asked, playbook=collection.playbook("report"), variables=given, arguments=arguments)


def _inventory(given: str) -> str:
    if "," in given:
        return given
    path = Path(given).expanduser().absolute()
    if not path.exists():
        raise UsageError(f"cannot use inventory {given}: there is no such file or directory; correct -i")
    return str(path)


def _run(
    asked: Play, collection: Collection, directory: Path, ident: str, redactor: Redactor, stopper: Stopper
) -> Evidence:
    """Run with a private directory, which holds the variables' values and is gone afterwards."""
    for name in play.FOREIGN:
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory(prefix="tokforge-rollout-") as private:
        return play.run(asked, collection, directory, ident, Path(private), redactor, stopper)


def _facts(request: Request, given: Variables, collection: Collection) -> summary.Facts:
    return summary.Facts(
        playbook=request.command,
        inventory=request.inventory,
        limit=request.limit,
        check_mode=request.check,
        variables=tuple(sorted(given.values)),
        started=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        versions={
            "tokforge.sglang": collection.version,
            "ansible-core": importlib.metadata.version("ansible-core"),
            "ansible-runner": importlib.metadata.version("ansible-runner"),
            "python": platform.python_version(),
        },
    )


def _write(directory: Path, result: dict[str, Any], evidence: Evidence, verdict: Verdict, redactor: Redactor) -> None:
    text = junit.render(result["playbook"], evidence, verdict)
    artifacts.write(directory / artifacts.JUNIT, redactor.text(text))
    artifacts.write_summary(directory, result, redactor)


def _say(playbook: str, verdict: Verdict, directory: Path, redactor: Redactor) -> None:
    outcome = verdict.outcome
    reason = redactor.text(verdict.reason)
    play.show(
        f"\n{playbook}: {outcome.label} (exit code {outcome.exit_code}): {reason}; {directory / artifacts.SUMMARY}"
    )


def _wish(stopper: Stopper) -> Callable[[int, FrameType | None], None]:
    def handle(_number: int, _frame: FrameType | None) -> None:
        stopper.wish()

    return handle
