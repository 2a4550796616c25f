# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command: from its arguments to its exit code."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import importlib.metadata
import io
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

# Key of summary.json, there until the private directory is gone.
PRIVATE = "private_directory"
# After these a report tells something: hosts were worked on, and nobody waits for the end.
REPORTED = (Outcome.OK, Outcome.FAILED, Outcome.ROLLED_BACK, Outcome.UNREACHABLE)


def main(arguments: list[str] | None = None) -> int:
    """Run one command line; returns the exit code of its outcome."""
    request = command_line.parse(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal of few letters must not stop Ansible
    try:
        outcome = again(request) if request.command == command_line.OUTCOME else rollout(request)
    except UsageError as error:
        with contextlib.suppress(OSError):
            print(f"tokforge-rollout: {error}", file=sys.stderr)
        outcome = Outcome.USAGE
    except Exception:  # whatever it is, a pipeline has to hear of it by its own code
        _trace()
        outcome = Outcome.INTERNAL
    return outcome.exit_code


def rollout(request: Request) -> Outcome:
    """Run a playbook, and report.yml when that is asked for, which changes nothing about the outcome."""
    collection = find(os.environ)
    asked = _play(request, collection)
    wanted = request.report and request.command != "report" and not request.check
    page = _report(request, asked, collection) if wanted else None
    stopper = Stopper(request.timeout_s, request.grace_s)
    _listen(stopper)
    redactor = Redactor(asked.variables.secrets)
    facts = _facts(request, asked.variables, collection)
    for name in play.FOREIGN:
        os.environ.pop(name, None)
    with contextlib.ExitStack() as held:
        # It holds the variables' values. Its path is in the summary as long as it is there.
        with tempfile.TemporaryDirectory(prefix=artifacts.PRIVATE_PREFIX) as private:
            noted = {PRIVATE: private}
            held.enter_context(artifacts.prepare(request.artifacts, summary.unfinished(facts) | noted, redactor))
            begun = time.monotonic()

            def go(what: Play, ident: str) -> Evidence:
                return play.run(what, collection, request.artifacts, ident, Path(private) / ident, redactor, stopper)

            evidence = go(asked, artifacts.RUNNER)
            verdict = judge(evidence)
            result = summary.finished(facts, verdict, evidence, time.monotonic() - begun)
            if page and verdict.outcome in REPORTED and stopper.reason is None:
                result["report"] = {"outcome": Outcome.UNKNOWN.label, "reason": summary.STILL_RUNNING}
                _write(request.artifacts, result | noted, evidence, verdict, redactor)
                reported, reason = _reported(lambda: go(page, artifacts.REPORT_RUNNER))
                result = summary.finished(facts, verdict, evidence, time.monotonic() - begun)
                result["report"] = {"outcome": reported.label, "reason": reason}
            _write(request.artifacts, result | noted, evidence, verdict, redactor)
        _write(request.artifacts, result, evidence, verdict, redactor)
        artifacts.clean(request.artifacts, redactor)
    _say(request.command, verdict, request.artifacts, redactor)
    return verdict.outcome


def _reported(run: Callable[[], Evidence]) -> tuple[Outcome, str]:
    """What became of the report, and why. It comes after a rollout, whose outcome must be told whatever happens."""
    try:
        verdict = judge(run())
    except Exception as error:
        _trace()
        return Outcome.INTERNAL, type(error).__name__
    return verdict.outcome, verdict.reason


def _trace() -> None:
    with contextlib.suppress(OSError):
        traceback.print_exc()


def _listen(stopper: Stopper) -> None:
    """Let signals stop Ansible. A hangup that is ignored (nohup) stays so."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _wish(stopper))


def again(request: Request) -> Outcome:
    """Judge a run whose command was killed, write its summary and JUnit and remove what it left that is private.

    What had its end is only told again, and what still runs is left alone.
    """
    with contextlib.ExitStack() as stack:
        # An ended run can be told from a directory that cannot be written.
        with contextlib.suppress(OSError):
            if (request.artifacts / artifacts.SUMMARY).is_file():
                try:
                    stack.enter_context(artifacts.lock(request.artifacts))
                except artifacts.BusyError:
                    play.show(f"{request.artifacts}: it is still running")
                    return Outcome.UNKNOWN
        return _again(request)


def _again(request: Request) -> Outcome:
    path = request.artifacts / artifacts.SUMMARY
    try:
        old = json.loads(path.read_text(encoding="utf-8"))
        facts = summary.Facts(**{name: old[name] for name in summary.Facts.__dataclass_fields__})
        told = Verdict(next(known for known in Outcome if known.label == old["outcome"]), old["reason"], {})
        ended = old["durations"]["total_s"] is not None
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        raise UsageError(f"cannot read {path}: {error!r}; name the artifacts of a run with --artifacts") from None
    redactor = Redactor(variables.gather([], os.environ).secrets)
    private = old.pop(PRIVATE, None)
    if private is not None:
        artifacts.remove_private(str(private))
    if not ended or private is not None:
        for name in (artifacts.RUNNER, artifacts.REPORT_RUNNER):
            artifacts.drop_environment(request.artifacts / name)
        artifacts.clean(request.artifacts, redactor)
    if ended:  # before its report was through, if the private directory was still there
        if private is not None:
            artifacts.write_summary(request.artifacts, old, redactor)
        _say(facts.playbook, told, request.artifacts, redactor)
        return told.outcome
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
    artifacts.write(directory / artifacts.JUNIT, text)
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
