# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Running a benchmark: ask the server first, one at a time, start the engine, end it in every case.

What is run is in the engine's file, what came out of it is read in bench_collect.py.
"""

from __future__ import annotations

import contextlib
import http.client
import inspect
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import bench_driver, bench_progress, file_lock, proc
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic
from ansible_collections.tokforge.sglang.plugins.module_utils.bench_engines import Engine
from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import BenchmarkError, Parameters, Target

RUNS_KEPT = 20
_ASK_TIMEOUT_S = 10.0
_TERM_GRACE_S = 5.0
_TAIL_BYTES = 8192
_TAIL_LINES = 30
_RUN_NAME = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{6}")
# Inherited settings that would change what is measured or whom bench_serving speaks for.
_NOT_INHERITED = ("OPENAI_API_KEY", "API_KEY", "SGLANG_IS_IN_CI", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP")


@dataclass(frozen=True)
class Ended:
    """How the benchmark process ended. `failure` is None when it ended well."""

    failure: str | None
    log_tail: str
    elapsed_s: float


@dataclass(frozen=True)
class Wanted:
    """One repetition (counted from 0) that is to be run, the directory it writes to, and its arguments."""

    concurrency: int
    repetition: int
    directory: str
    arguments: list[str]


def new_run_directory(root: str, now_s: float) -> str:
    """Make `<root>/bench/<UTC time>-<6 hex digits>`, readable by its owner only.

    Removes the oldest ones beyond `RUNS_KEPT`.
    """
    bench = os.path.join(root, "bench")
    name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now_s))}-{secrets.token_hex(3)}"
    path = os.path.join(bench, name)
    try:
        os.makedirs(bench, mode=0o755, exist_ok=True)
        # Before redaction the raw output can hold the server's API key.
        os.mkdir(path, 0o700)
    except OSError as error:
        raise BenchmarkError(
            f"directory for the benchmark's raw output {path}: {error.strerror}; make {root} writable"
        ) from error
    # The new one is not among them: with a clock that went back it would be the oldest.
    others = sorted(entry for entry in os.listdir(bench) if _RUN_NAME.fullmatch(entry) and entry != name)
    for old in others[: -(RUNS_KEPT - 1)]:
        shutil.rmtree(os.path.join(bench, old), ignore_errors=True)
    return path


def check_server(target: Target, api_key: str | None) -> None:
    """Raise BenchmarkError unless the server answers and serves the asked model.

    Bench_serving would measure whatever is there.
    """
    url = f"{target.url}/v1/models"
    if api_key and not (api_key.isascii() and api_key.isprintable()):
        raise BenchmarkError(
            f"benchmark of {url}: the server's api_key holds a character that no request can carry; correct api_key"
        )
    try:
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {api_key}"} if api_key else {})
    except ValueError as error:
        raise BenchmarkError(f"benchmark of {url}: no address ({error}); correct host and port") from error
    # No proxy: a proxy of the machine does not know this machine's loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_ASK_TIMEOUT_S) as answer:
            listed = json.load(answer)["data"]
            served = [str(model["id"]) for model in listed]
    except urllib.error.HTTPError as error:
        hint = "give the server's api_key" if error.code in (401, 403) else "look at the server's log"
        raise BenchmarkError(
            f"benchmark of {url}: the server answers HTTP {error.code}; {hint}", http_status=error.code
        ) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise BenchmarkError(
            f"benchmark of {url}: no answer ({reason}); start the server or correct host and port"
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BenchmarkError(
            f"benchmark of {url}: the answer is not a list of models; another program may hold the port"
        ) from error
    if target.served_name not in served:
        raise BenchmarkError(
            f"benchmark of {url}: the server serves {', '.join(served) or 'nothing'}, "
            f"asked was {target.served_name}; correct served_name",
            served=served,
        )


def environment(inherited: Mapping[str, str], extra: Mapping[str, str], api_key: str | None) -> dict[str, str]:
    """Environment of the engine.

    What is inherited without what would distort it, then `extra`, then the key (never in argv).
    """
    env = {name: value for name, value in inherited.items() if name not in _NOT_INHERITED}
    # The tokenizer is a local directory, so no request to a hub is needed; a proxy must not see requests to the server.
    env.update(HF_HUB_OFFLINE="1", PYTHONUNBUFFERED="1", NO_PROXY="*", no_proxy="*")
    env.update(extra)
    if api_key:
        env["OPENAI_API_KEY"] = api_key
    return env


def wanted(engine: Engine, parameters: Parameters, target: Target, run_dir: str) -> list[Wanted]:
    """All that is to be run, in order. Makes the directories: a new one each, so what is in it is this run's."""
    found = []
    for concurrency in parameters.concurrency:
        for repetition in range(parameters.repetitions):
            directory = os.path.join(run_dir, f"concurrency-{concurrency}", f"repetition-{repetition + 1}")
            try:
                os.makedirs(directory, mode=0o700)
                for path, text in engine.files(directory).items():
                    write_atomic(path, text.encode(), 0o600)
            except OSError as error:
                raise BenchmarkError(
                    f"directory for the benchmark's raw output {directory}: {error.strerror}; give the disk room"
                ) from error
            arguments = engine.render(parameters, target, concurrency, repetition, directory)
            found.append(Wanted(concurrency, repetition, directory, arguments))
    return found


def plan(
    engine: Engine, parameters: Parameters, target: Target, python: str, runs: Sequence[Wanted], run_dir: str
) -> dict[str, Any]:
    """What bench_driver.py is to do."""
    # An engine that cannot empty the prefix cache has it done before each run.
    flush = {"flush": f"{target.url}/flush_cache", "key_variable": engine.key_variable}
    added = flush if parameters.flush_cache and not engine.flushes else {}
    prompts = [parameters.prompts_at(value) for value in parameters.concurrency]
    return {
        "parent": os.getpid(),
        "progress": os.path.join(run_dir, bench_progress.FILE_NAME),
        "steps": bench_progress.plan(parameters.concurrency, parameters.repetitions, prompts),
        "runs": [{**engine.entry(python, one.arguments), **added} for one in runs],
    }


@contextlib.contextmanager
def alone(root: str, timeout_s: float, sleep: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """Hold the root's lock on measuring: two at once would measure each other. Waits for the one that holds it."""
    path = os.path.join(root, "bench", ".lock")
    with contextlib.ExitStack() as stack:
        try:
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            # The engine never inherits it.
            stack.enter_context(file_lock.held(path, timeout_s, sleep, 0.5))
        except TimeoutError as error:
            raise BenchmarkError(
                f"benchmark below {root}: another one is running for more than {timeout_s:g} s; "
                "wait for it to end, or end the play that runs it"
            ) from error
        except OSError as error:
            raise BenchmarkError(f"lock of the benchmark {path}: {error.strerror}; make {root} writable") from error
        # What a run left that was killed: it would be shown as the progress of this one.
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(root, "bench", bench_progress.FILE_NAME))
        yield


@contextlib.contextmanager
def shown_progress(root: str, run_dir: str) -> Iterator[None]:
    """Meanwhile `<root>/bench/progress.jsonl` is this run's, so that it can be followed by whoever knows the root."""
    link = os.path.join(root, "bench", bench_progress.FILE_NAME)
    fresh = f"{link}.{os.path.basename(run_dir)}"
    # A convenience: a measurement does not fail for want of it.
    with contextlib.suppress(OSError):
        os.symlink(os.path.join(os.path.basename(run_dir), bench_progress.FILE_NAME), fresh)
        os.replace(fresh, link)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(link)


def run_all(
    python: str, content: Mapping[str, Any], run_dir: str, env: Mapping[str, str], timeout_s: float, engine: str
) -> Ended:
    """Run what the plan says, in one process of `python`, for at most `timeout_s` seconds.

    The process has a session of its own, so that it and all it starts can be ended at once, and Linux kills it when
    this process ends, however that happens. Raises BenchmarkError when `python` cannot be started.
    """
    path = os.path.join(run_dir, "plan.json")
    log = os.path.join(run_dir, "bench.log")
    write_atomic(path, json.dumps(content, indent=1).encode(), 0o600)
    started = time.monotonic()
    with open(log, "wb", opener=_private) as output:
        try:
            process = subprocess.Popen(
                [python, "-", path],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=run_dir,
                env=dict(env),
                start_new_session=True,
            )
        except OSError as error:
            raise BenchmarkError(
                f"start of the benchmark with {python}: {error.strerror}; install the environment first"
            ) from error
        failure = _wait(process, inspect.getsource(bench_driver).encode(), timeout_s, engine)
    return Ended(failure, tail(log), time.monotonic() - started)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _wait(process: subprocess.Popen[bytes], source: bytes, timeout_s: float, engine: str) -> str | None:
    try:
        process.communicate(source, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        end_group(process)
        return f"{engine} did not end within {timeout_s:g} s"
    except BaseException:
        end_group(process)
        raise
    if process.returncode == 0:
        return None
    if process.returncode < 0:
        return f"{engine} {proc.killed(-process.returncode)}"
    return f"{engine} failed at repetition {process.returncode} of this run, all points counted"


def end_group(process: subprocess.Popen[bytes], grace_s: float = _TERM_GRACE_S) -> None:
    """End a process that leads its own group, and the group: SIGTERM, then SIGKILL for what is left."""
    _signal_group(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace_s)
    # Also when the leader has ended: what it started may ignore SIGTERM.
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def content(path: str) -> bytes:
    """The bytes of a file, none when it was never written."""
    try:
        with open(path, "rb") as handle:
            return handle.read()
    except FileNotFoundError:
        return b""


def tail(path: str) -> str:
    """The last lines of a log, however long it is."""
    with open(path, "rb") as handle:
        handle.seek(max(0, os.path.getsize(path) - _TAIL_BYTES))
        return "\n".join(handle.read().decode(errors="replace").splitlines()[-_TAIL_LINES:])
