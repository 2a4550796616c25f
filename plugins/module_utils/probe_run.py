# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the steps of a probe in an environment's own Python, each in a process group of its own, and judge them.

A step that takes too long, writes too much or whose module is ended leaves no process and no directory behind. The
module ends the group itself; when it is killed, the watcher of probe_inside.py does it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    probe_inside,
    probe_plan,
    proc,
    redact,
    startup_expect,
    startup_failure,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole
from ansible_collections.tokforge.sglang.plugins.module_utils.probe_needs import Need
from ansible_collections.tokforge.sglang.plugins.module_utils.probe_plan import IMPORT, LAYER, SYMBOL, Plan
from ansible_collections.tokforge.sglang.plugins.module_utils.startup_expect import Expectation
from ansible_collections.tokforge.sglang.plugins.module_utils.startup_log import Report, StartupLog

OK, FAILED, SKIPPED = "ok", "failed", "skipped"
#: A reason of the probe's own, beside those of a start.
TIMEOUT = "timeout"
NOT_FINITE = "not_finite"
MISSING_SYMBOL = "missing_symbol"
IMPORT_ERROR = "import_error"

HINTS = {
    TIMEOUT: "give it more time (sglang_probe_timeout_s); what it compiled is kept for the next probe",
    NOT_FINITE: "the kernels compute NaN or infinity here: choose another backend (sglang_backend)",
    MISSING_SYMBOL: "the installed version does not fit this SGLang: install what its lock says, or choose another"
    " backend (sglang_backend)",
    IMPORT_ERROR: "install what is missing into the environment, or choose another backend (sglang_backend)",
}

#: More output than this ends a step: it would fill the disk.
MOST_OUTPUT_BYTES = 64 << 20
LINES, LINE_CHARACTERS = 20, 400
_LARGEST_RESULT = 1 << 20
_POLL_S = 0.1


@dataclass(frozen=True)
class Step:
    """How a step went. `lines` are the last ones of an error, `reason` and `hint` as for a start that failed."""

    name: str
    result: str
    detail: str
    elapsed_s: float = 0.0
    reason: str = ""
    hint: str = ""
    lines: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain data for a module's result."""
        return {**asdict(self), "lines": list(self.lines)}


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code (negative: a signal), or what ended it from outside."""

    code: int
    elapsed_s: float
    output: bytes
    found: Mapping[str, Any] = field(default_factory=dict)
    timed_out: bool = False
    too_much: bool = False


@dataclass(frozen=True)
class Child:
    """What every step has in common. `user`: whom the processes run as, empty for the caller.

    `directory` is removed by the watcher when the caller is killed.
    """

    python: str
    env: Mapping[str, str]
    directory: str
    user: str = ""
    secrets: tuple[str, ...] = ()


@contextlib.contextmanager
def workplace(user: str = "") -> Iterator[str]:
    """A directory for one probe that the user may write, gone at the end, also when the module gets SIGTERM."""
    directory = os.path.realpath(tempfile.mkdtemp(prefix="tokforge-probe-"))
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}

    def end(number: int, _frame: Any) -> None:
        raise SystemExit(128 + number)

    try:
        for number in before:
            with contextlib.suppress(ValueError):  # not in the main thread
                signal.signal(number, end)
        if user:
            account = pwd.getpwnam(user)
            os.chown(directory, account.pw_uid, account.pw_gid)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        for number, handler in before.items():
            with contextlib.suppress(ValueError):
                signal.signal(number, handler)


def write_model(directory: str, source: str, plan: Plan) -> str:
    """Make the cut model below the work directory: its own config, links to everything but weights and configs."""
    path = os.path.join(directory, "model")
    os.mkdir(path)
    _give(path, directory)
    layer = plan.layer
    texts = {"config.json": layer.config if layer else {}}
    if layer and layer.quant is not None:
        texts["hf_quant_config.json"] = layer.quant
    for name, value in texts.items():
        with open(os.path.join(path, name), "w", encoding="utf-8") as stream:
            json.dump(value, stream, indent=1)
        _give(os.path.join(path, name), directory)
    for name in sorted(os.listdir(source)):
        if name not in texts and not _is_weights(name):
            os.symlink(os.path.join(os.path.realpath(source), name), os.path.join(path, name))
    return path


def _give(path: str, directory: str) -> None:
    """Let whom the work directory belongs to own this too: the caller's umask may keep others from reading it."""
    owner = os.stat(directory)
    if owner.st_uid != os.geteuid():
        os.chown(path, owner.st_uid, owner.st_gid)


def _is_weights(name: str) -> bool:
    return name.endswith((".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json")) or name.startswith(".")


# --- one child -------------------------------------------------------------------------------------------------------


def run_inside(child: Child, step: str, request: Mapping[str, Any], timeout_s: float) -> Ended:
    """Run probe_inside.py with one step. Raises OSError when the environment's Python cannot be run."""
    script = os.path.join(child.directory, "inside.py")
    if not os.path.exists(script):
        with open(script, "w", encoding="utf-8") as stream:
            stream.write(_source())
        _give(script, child.directory)
    result, output = (os.path.join(child.directory, f"{step}.{kind}") for kind in ("json", "log"))
    began = time.monotonic()
    with open(output, "w+b") as stream:
        process = subprocess.Popen(
            [child.python, script, step, result],
            stdin=subprocess.PIPE,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**child.env, probe_inside.MARK: child.directory},
            cwd=child.directory,
            start_new_session=True,
            **_account(child.user),
        )
        timed_out = too_much = False
        try:
            line = json.dumps({**request, "directory": child.directory}).encode() + b"\n"
            with contextlib.suppress(OSError):  # it may have ended already
                process.stdin.write(line)  # type: ignore[union-attr]
                process.stdin.flush()  # type: ignore[union-attr]
            while process.poll() is None and not (timed_out or too_much):
                time.sleep(_POLL_S)
                timed_out = time.monotonic() - began > timeout_s
                too_much = os.fstat(stream.fileno()).st_size > MOST_OUTPUT_BYTES
        finally:
            _end(process, child.directory)
        elapsed_s = round(time.monotonic() - began, 1)
        stream.seek(0)
        text = stream.read(MOST_OUTPUT_BYTES)
    return Ended(process.returncode, elapsed_s, text, _read(result), timed_out, too_much)


def _account(user: str) -> dict[str, Any]:
    """Popen's arguments to become another user, with that user's groups."""
    if not user or os.geteuid() != 0:
        return {}
    account = pwd.getpwnam(user)
    groups = os.getgrouplist(user, account.pw_gid)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": groups, "umask": 0o027}


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    """End the step's process group and what left it, then let the watcher go."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin:
        with contextlib.suppress(OSError):
            os.write(process.stdin.fileno(), probe_inside.DONE)
        with contextlib.suppress(OSError):
            process.stdin.close()
    proc.kill_all(lambda: _marked(mark), timeout_s=0)


def _marked(mark: str) -> list[proc.Process]:
    return [one for one in proc.processes() if proc.environ(one.pid).get(probe_inside.MARK) == mark]


def _source() -> str:
    """The text of probe_inside.py. On a target it lies in the zip that Ansible sent, so only its loader can read it."""
    loader: Any = probe_inside.__spec__.loader if probe_inside.__spec__ else None
    source: str = loader.get_source(probe_inside.__name__)
    return source


def _read(path: str) -> dict[str, Any]:
    """What the step wrote; empty when it wrote nothing, or something else than we do."""
    try:
        with open(path, "rb") as stream:
            found = json.loads(stream.read(_LARGEST_RESULT))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# --- import and symbol -----------------------------------------------------------------------------------------------


def look(child: Child, plan: Plan, timeout_s: float, run: Callable[..., Ended] = run_inside) -> list[Step]:
    """The steps import and symbol."""
    if plan.no_needs:
        return [Step(name, SKIPPED, plan.no_needs) for name in (IMPORT, SYMBOL)]
    request = {"needs": [[need.module, need.symbol] for need in plan.needs]}
    ended = run(child, "look", request, timeout_s)
    return judge_look(plan.needs, ended, child.secrets)


def judge_look(needs: Sequence[Need], ended: Ended, secrets: Sequence[str] = ()) -> list[Step]:
    """What the answer of the step `look` says about imports and symbols."""
    listed = ended.found.get("needs")
    found = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    modules = ", ".join(dict.fromkeys(need.module for need in needs))
    symbols = ", ".join(f"{need.module}.{need.symbol}" for need in needs)
    broken = next((one for one in found if one.get("imported") is not True), None)
    if broken is not None or len(found) < len(needs) or ended.timed_out or ended.too_much:
        error = str(broken.get("error") or "") if broken else ""
        what = broken.get("module") if broken else modules
        step = _failed(IMPORT, f"importing {what}", ended, error, IMPORT_ERROR, secrets)
        return [step, Step(SYMBOL, SKIPPED, "the import failed")]
    took_s = sum(one["seconds"] for one in found if isinstance(one.get("seconds"), float))
    versions = {str(one.get("version")) for one in found if one.get("version")}
    imported = f"{modules} {', '.join(sorted(versions))}".strip()
    steps = [Step(IMPORT, OK, f"{imported} imports", round(took_s, 1))]
    missing = next((one for one in found if one.get("has") is not True), None)
    if missing is None:
        return [*steps, Step(SYMBOL, OK, f"{symbols} is there")]
    name = f"{missing.get('module')}.{missing.get('symbol')}"
    lines = last_lines(str(missing.get("error") or ""), secrets)
    detail = f"{missing.get('module')} {missing.get('version') or 'of unknown version'} has no {missing.get('symbol')},"
    detail += " which SGLang imports for this backend" + (f" ({name}: {lines[-1]})" if lines else "")
    return [*steps, Step(SYMBOL, FAILED, detail, 0.0, MISSING_SYMBOL, HINTS[MISSING_SYMBOL], lines)]


# --- the layer -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LayerResult:
    """The step `layer`, and how many ranks (0 or 1) began and completed autotune."""

    step: Step
    autotune_started: int = 0
    autotune_completed: int = 0


def run_layer(
    child: Child,
    plan: Plan,
    model: str,
    expected: Expectation,
    timeout_s: float,
    run: Callable[..., Ended] = run_inside,
) -> LayerResult:
    """Run the layer and judge it."""
    arguments = [model if word == probe_plan.MODEL else word for word in plan.arguments]
    ended = run(child, "layer", {"arguments": arguments}, timeout_s)
    return judge_layer(plan, ended, expected, child.secrets)


def judge_layer(plan: Plan, ended: Ended, expected: Expectation, secrets: Sequence[str] = ()) -> LayerResult:
    """What the output of the one-batch runner, its exit code and what was seen inside it say."""
    log = StartupLog()
    log.feed(ended.output + b"\n")
    report = log.report()
    started = sum(1 for rank in report.ranks.values() if rank.started)
    completed = sum(1 for rank in report.ranks.values() if rank.completed >= max(1, rank.started))
    step = _judge(plan, ended, report, completed, started, expected, secrets)
    return LayerResult(replace(step, elapsed_s=ended.elapsed_s), started, completed)


def _judge(
    plan: Plan,
    ended: Ended,
    report: Report,
    completed: int,
    started: int,
    expected: Expectation,
    secrets: Sequence[str],
) -> Step:
    at = "autotune" if started > completed else "running the layer"
    if ended.code != 0 or ended.timed_out or ended.too_much:
        return _failed_layer(at, ended, report, secrets)
    forwards, not_finite = (_count(ended.found, name) for name in ("forwards", "not_finite"))
    unchecked = str(ended.found.get("unchecked") or "")
    if not forwards and not unchecked:
        return _failed(LAYER, "running the layer: nothing was computed", ended, "", "", secrets)
    quantization = plan.quantization
    if not_finite and not quantization:
        detail = f"{not_finite} of {forwards} forward passes gave NaN or infinity"
        return Step(LAYER, FAILED, detail, 0.0, NOT_FINITE, HINTS[NOT_FINITE], last_lines(ended.output, secrets))
    if expected.value == startup_expect.EXPECTED and not completed:
        reason = startup_failure.AUTOTUNE_SKIPPED
        detail = f"the layer ran without autotune, though {expected.reason}"
        lines = last_lines(ended.output, secrets)
        return Step(LAYER, FAILED, detail, 0.0, reason, startup_failure.HINTS[reason], lines)
    tuned = ", tuned" if completed else ""
    if unchecked:
        return Step(LAYER, OK, f"the layer ran{tuned}; whether its output is finite was not checked ({unchecked})")
    if not_finite:
        # Scales are random too, and some of them zero.
        return Step(
            LAYER,
            OK,
            f"{forwards} forward passes{tuned}; with random {quantization} weights some output is not"
            " finite, which says nothing",
        )
    return Step(LAYER, OK, f"{forwards} forward passes{tuned}, with finite output")


def _failed_layer(at: str, ended: Ended, report: Report, secrets: Sequence[str]) -> Step:
    failure = report.failure or report.suspect
    text = "\n".join(failure.excerpt) if failure else ""
    step = _failed(LAYER, at, ended, text, failure.reason if failure else "", secrets)
    busy = report.progress
    if ended.timed_out and busy is not None:
        return replace(step, detail=f"{step.detail} (last at {busy.op}: {busy.done} of {busy.total})")
    return step


def _count(found: Mapping[str, Any], name: str) -> int:
    value = found.get(name)
    return value if is_whole(value) else 0


# --- failures --------------------------------------------------------------------------------------------------------


def _failed(name: str, doing: str, ended: Ended, error: str, reason: str, secrets: Sequence[str]) -> Step:
    """A step that failed. What the text tells, or how the process ended, comes before `reason`."""
    lines = last_lines(error or ended.output, secrets)
    if ended.timed_out:
        detail, reason = f"{doing} took longer than the time that was left ({ended.elapsed_s:.0f} s)", TIMEOUT
    elif ended.too_much:
        detail, reason = f"{doing} wrote more than {MOST_OUTPUT_BYTES >> 20} MiB", startup_failure.EXCEPTION
    else:
        # A signal says more than the text before it; a text says more than exit code 1.
        told = startup_failure.reason_of(error or _tail(ended.output), "")
        reason = told or _OF_SIGNAL.get(-ended.code, "") or reason or startup_failure.PROCESS_EXIT
        how = proc.killed(-ended.code) if ended.code < 0 else proc.exited(ended.code)
        said = _last_words(lines)
        detail = f"{doing}: {said}" if said and ended.code >= 0 else f"{doing}: the process {how}"
    hint = HINTS.get(reason) or startup_failure.HINTS.get(reason, "")
    return Step(name, FAILED, detail, ended.elapsed_s, reason, hint, lines)


_OF_SIGNAL = {
    int(signal.SIGKILL): startup_failure.OOM_HOST,
    int(signal.SIGILL): startup_failure.ILLEGAL_INSTRUCTION,
}


def _tail(output: bytes, count: int = 64 * 1024) -> str:
    return output[-count:].decode("utf-8", "replace")


def last_lines(output: bytes | str, secrets: Sequence[str] = ()) -> tuple[str, ...]:
    """The last lines that say something, bounded, without secrets and control characters."""
    text = _tail(output) if isinstance(output, bytes) else output[-64 * 1024 :]
    hidden: str = redact.hide_values(redact.hide_told(text), secrets)
    lines = ("".join(sign for sign in line if sign.isprintable() or sign == "\t") for line in hidden.splitlines())
    said = (line.rstrip()[:LINE_CHARACTERS] for line in lines if line.strip(" ^~\t") and "<frozen " not in line)
    return tuple(said)[-LINES:]


def _last_words(lines: Sequence[str]) -> str:
    """The line that names the error: the last one, without the rank that torch writes before it."""
    last = lines[-1] if lines else ""
    head, mark, rest = last.partition("]: ")
    return rest.strip() if mark and head.startswith("[rank") else last.strip()
