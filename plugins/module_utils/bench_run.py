# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Running a benchmark: ask the server first, start bench_serving, end it in every case, bring its files back.

What is run and what its output means is in benchmark.py.
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import bench_driver, benchmark
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic
from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import BenchmarkError, Parameters, Target

RUNS_KEPT = 20
# A raw output is some 20 bytes an output token. Above this the machine's memory is at stake when it is parsed.
MOST_OUTPUT_BYTES = 1 << 30
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
class Collected:
    """The judged points of a run, and why a point that should be there cannot be read (None: all readable)."""

    points: list[dict[str, Any]]
    failure: str | None


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
    runs = sorted(entry for entry in os.listdir(bench) if _RUN_NAME.fullmatch(entry))
    for old in runs[:-RUNS_KEPT]:
        shutil.rmtree(os.path.join(bench, old), ignore_errors=True)
    return path


def check_server(target: Target, api_key: str | None) -> None:
    """Raise BenchmarkError unless the server answers and serves the asked model.

    Bench_serving would measure whatever is there.
    """
    url = f"{target.url}/v1/models"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {api_key}"} if api_key else {})
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
    """Environment of bench_serving.

    What is inherited without what would distort it, then `extra`, then the key (never in argv).
    """
    env = {name: value for name, value in inherited.items() if name not in _NOT_INHERITED}
    # The tokenizer is a local directory, so no request to a hub is needed; a proxy must not see requests to the server.
    env.update(HF_HUB_OFFLINE="1", PYTHONUNBUFFERED="1", NO_PROXY="*", no_proxy="*")
    env.update(extra)
    if api_key:
        env["OPENAI_API_KEY"] = api_key
    return env


def output_file(run_dir: str, concurrency: int) -> str:
    """File of one point; new in a new run directory, so its last line is this run's."""
    return os.path.join(run_dir, f"concurrency-{concurrency}.jsonl")


def run_points(
    python: str, arguments: Sequence[Sequence[str]], run_dir: str, env: Mapping[str, str], timeout_s: float
) -> Ended:
    """Run bench_serving once for each argument list, in one process of `python`, for at most `timeout_s` seconds.

    The process has a session of its own, so that it and all it starts can be ended at once, and Linux kills it when
    this process ends, however that happens. Raises BenchmarkError when `python` cannot be started.
    """
    plan = os.path.join(run_dir, "plan.json")
    log = os.path.join(run_dir, "bench.log")
    content = {"module": benchmark.ENGINE, "parent": os.getpid(), "points": [list(point) for point in arguments]}
    write_atomic(plan, json.dumps(content, indent=1).encode(), 0o600)
    started = time.monotonic()
    with open(log, "wb", opener=_private) as output:
        try:
            process = subprocess.Popen(
                [python, "-", plan],
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
        failure = _wait(process, inspect.getsource(bench_driver).encode(), timeout_s)
    return Ended(failure, tail(log), time.monotonic() - started)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _wait(process: subprocess.Popen[bytes], source: bytes, timeout_s: float) -> str | None:
    try:
        process.communicate(source, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        end_group(process)
        return f"bench_serving did not end within {timeout_s:g} s"
    except BaseException:
        end_group(process)
        raise
    if process.returncode == 0:
        return None
    if process.returncode < 0:
        return f"bench_serving was ended by signal {-process.returncode} ({signal.Signals(-process.returncode).name})"
    return f"bench_serving failed at point {process.returncode} of this run"


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


def tail(path: str) -> str:
    """The last lines of a log, however long it is."""
    with open(path, "rb") as handle:
        handle.seek(max(0, os.path.getsize(path) - _TAIL_BYTES))
        return "\n".join(handle.read().decode(errors="replace").splitlines()[-_TAIL_LINES:])


def collect(run_dir: str, parameters: Parameters, random_weights: bool, hidden: Sequence[str]) -> Collected:
    """Read, redact and judge what the run wrote. `hidden` are secrets that must not stay in the files."""
    points: list[dict[str, Any]] = []
    failures: list[str] = []
    for concurrency in parameters.concurrency:
        path = output_file(run_dir, concurrency)
        try:
            result = _read_output(path)
            clean = benchmark.redact(result, hidden)
        except FileNotFoundError:
            # The process' own failure says why; a point that is not there is named by judge_run.
            continue
        except BenchmarkError as error:
            _hide(path, hidden)
            failures.append(f"concurrency {concurrency}: {error}")
            continue
        write_atomic(path, clean)
        points.append(benchmark.judge_point(result, parameters, concurrency, random_weights))
    return Collected(points, "; ".join(failures) or None)


def _hide(path: str, hidden: Sequence[str]) -> None:
    """Take the secrets out of an output that cannot be read as JSON; it stays as evidence, unless it is too large."""
    if os.path.getsize(path) > MOST_OUTPUT_BYTES:
        os.unlink(path)
        return
    with open(path, "rb") as handle:
        data = handle.read()
    write_atomic(path, benchmark.hide(data, hidden))


def _read_output(path: str) -> dict[str, Any]:
    size = os.path.getsize(path)
    if size > MOST_OUTPUT_BYTES:
        raise BenchmarkError(f"benchmark output in {path}: {size} bytes are too many to judge; use fewer prompts")
    with open(path, "rb") as handle:
        return benchmark.parse_output(handle.read(), path)
