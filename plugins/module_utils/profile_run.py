# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Profiling some decode steps of a server that runs: load, start, wait for the traces, read them.

Read in SGLang 0.5.10.post1, 0.5.12.post1 and 0.5.23: POST /start_profile begins at once and ends by itself when
`num_steps` more forward passes (one less in the older two) have been run. Each rank then writes
`<id>-TP-<n>[-DP-<n>][-PP-<n>][-EP-<n>].trace.json.gz` into `output_dir`, a directory of the server's machine. No pass
is run without requests, so a load must last longer than the profile.

`profile_by_stage` is not used: up to 0.5.23 it starts the profiler once more at the next prefill. Instead all requests
of the load are decoding before the profile begins. The scheduler writes the trace itself: no answer comes while it
does, and when it cannot write, the server dies. So the directory is tried before. A profile that somebody else began is
not seen at the start: SGLang answers 200, and the traces go to the other directory.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import decode_profile, releases, roofline, served_shape
from ansible_collections.tokforge.sglang.plugins.module_utils.decode_profile import ProfileError, RankProfile
from ansible_collections.tokforge.sglang.plugins.module_utils.model import ModelError
from ansible_collections.tokforge.sglang.plugins.module_utils.model_matrices import Layout
from ansible_collections.tokforge.sglang.plugins.module_utils.profile_server import (
    Keys,
    Load,
    ProfileRunError,
    Server,
    Shape,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.roofline import Roofline
from ansible_collections.tokforge.sglang.plugins.module_utils.trace_events import TraceError

#: Directories of traces that are kept, this one included.
KEPT = 3
MOST_STEPS = 256
MOST_BATCH = 4096
#: A trace is up to some hundred MB; a full disk ends the server.
FREE_BYTES = 2 << 30
#: Tokens that an answer has beyond the profile's steps: made while the profiler starts.
MARGIN_TOKENS = 2048

#: What is kept of the server's answer about itself, which also holds its keys.
SERVER_KEYS = (
    "version",
    "model_path",
    "device",
    "tp_size",
    "pp_size",
    "ep_size",
    "dp_size",
    "enable_dp_attention",
    "enable_dp_lm_head",
    "kv_cache_dtype",
    "attention_backend",
    "moe_runner_backend",
    "speculative_algorithm",
)

_NAME = re.compile(r"profile-\d{8}T\d{6}Z-[0-9a-f]{6}")
_SUFFIXES = (".trace.json.gz", ".trace.json")
_POLL_S = 0.25
_STEADY_S = 1.0


@dataclass(frozen=True)
class Request:
    """What to profile.

    url: `http://127.0.0.1:30000`, of a server on this machine. root: the deployment's; traces go to `<root>/bench`.
    steps: forward passes to profile. batch: requests at once. input_len: tokens of each prompt.
    timeout_s: for the whole; ranks are waited for so long. keep_traces: False removes this profile's files when read.
    """

    url: str
    root: str
    steps: int = 32
    batch: int = 8
    input_len: int = 128
    timeout_s: float = 300.0
    api_key: str | None = None
    admin_api_key: str | None = None
    keep_traces: bool = True


@dataclass(frozen=True)
class Outcome:
    """The profiles by rank, where their traces are (None when removed), and what the server said of itself.

    context: tokens behind each request in the middle of the profile, for the roofline; about right, since the tokens
    made while the profiler started are not known exactly. server: those of SERVER_KEYS that the server told.
    """

    profiles: tuple[RankProfile, ...]
    directory: str | None
    trace_bytes: int
    context: int
    batch: int
    device: str
    server: Mapping[str, Any]
    elapsed_s: float
    notes: tuple[str, ...] = ()


def run(request: Request) -> Outcome:
    """Profile. Raises ProfileRunError, and leaves no profiler running in the server."""
    _check(request)
    began = time.monotonic()
    server = Server(request.url, Keys(request.api_key, request.admin_api_key))
    about = server.about()
    output_tokens = _output_tokens(request, about)
    ranks = _ranks(about)
    directory = new_directory(request.root, time.time())
    load = Load(server, Shape(request.batch, request.input_len, output_tokens), request.timeout_s)
    notes: list[str] = []
    try:
        load.start()
        load.wait_until_decoding(began + request.timeout_s)
        seen = load.tokens
        device = "cpu" if about.get("device") == "cpu" else "gpu"
        server.start_profile(directory, request.steps, ["CPU"] if device == "cpu" else ["CPU", "GPU"])
        try:
            profiles = _wait(server, request, load, directory, ranks, began + request.timeout_s, notes)
        except BaseException:
            server.stop_profile()
            raise
    except BaseException:
        # Nothing in it that could be read.
        shutil.rmtree(directory, ignore_errors=True)
        raise
    finally:
        load.end()
    if device == "gpu" and any(profile.device == decode_profile.CPU for profile in profiles):
        raise ProfileRunError(
            f"profile of {request.url}: there are no kernels in the trace; the driver may refuse profiling to the "
            "server's user, or another profiler is attached to the GPU; see the server's log",
            directory=directory,
        )
    size = sum(entry.stat().st_size for entry in os.scandir(directory))
    if not request.keep_traces:
        shutil.rmtree(directory, ignore_errors=True)
    prune(request.root)
    return Outcome(
        profiles=tuple(profiles),
        directory=directory if request.keep_traces else None,
        trace_bytes=size,
        context=request.input_len + seen // request.batch + request.steps // 2,
        batch=request.batch,
        device=device,
        server={name: about[name] for name in SERVER_KEYS if name in about},
        elapsed_s=time.monotonic() - began,
        notes=tuple(notes),
    )


def floor(outcome: Outcome, bandwidth_bytes_s: float | None) -> Roofline | None:
    """The least time of the steps that were profiled; None when the model's files or the memory's speed are not known.

    With speculation a step checks several tokens of each request, which is not in it.
    """
    path = outcome.server.get("model_path")
    if not isinstance(path, str) or not bandwidth_bytes_s:
        return None
    tp, pp, ep, dp = (_whole(outcome.server, f"{name}_size") or 1 for name in ("tp", "pp", "ep", "dp"))
    try:
        layout = Layout(
            tp=tp,
            pp=pp,
            ep=ep,
            dp=dp,
            dp_attention=outcome.server.get("enable_dp_attention") is True,
            head_by_attention=outcome.server.get("enable_dp_lm_head") is True,
        )
        args = {releases.canonical(str(name)): value for name, value in outcome.server.items()}
        shape = served_shape.of_directory(path, args).shape
        return roofline.roofline(
            shape,
            layout,
            bandwidth_bytes_s,
            outcome.context,
            outcome.batch,
            str(outcome.server.get("kv_cache_dtype") or "auto"),
        )
    # A layout that cannot be, a directory without a model, a model of an unknown kind.
    except (ValueError, ModelError):
        return None


def _check(request: Request) -> None:
    for name, least, most in (("steps", 4, MOST_STEPS), ("batch", 1, MOST_BATCH), ("input_len", 1, 1 << 20)):
        value = getattr(request, name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ProfileRunError(f"{name} is {value!r}; give a whole number from {least} to {most}")
    if not 0 < request.timeout_s <= 86400:
        raise ProfileRunError(f"timeout_s is {request.timeout_s!r}; give seconds, at most 86400")


def _whole(about: Mapping[str, Any], name: str) -> int | None:
    value = about.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _output_tokens(request: Request, about: Mapping[str, Any]) -> int:
    """Tokens of each answer: enough to outlast the profile, as far as the server has room for them."""
    wanted = 2 * request.steps + MARGIN_TOKENS
    room = []
    cache = _whole(about, "max_total_num_tokens")
    if cache is not None:
        # Some tokens of the cache are never given out.
        room.append((cache - 64) // request.batch - request.input_len)
    longest = _whole(about, "max_req_input_len") or _whole(about, "context_length")
    if longest is not None:
        room.append(longest - request.input_len - 8)
    found = min([wanted, *room])
    if found < request.steps + 8:
        raise ProfileRunError(
            f"profile of {request.url}: {request.batch} requests with {request.input_len} tokens leave room for "
            f"{max(0, found)} tokens each, and {request.steps} steps need {request.steps + 8}; "
            "lower batch, input_len or steps"
        )
    running = _whole(about, "max_running_requests")
    if running is not None and request.batch > running:
        raise ProfileRunError(
            f"profile of {request.url}: the server runs at most {running} requests at once, and batch is "
            f"{request.batch}; lower batch"
        )
    return found


def _ranks(about: Mapping[str, Any]) -> int:
    """How many ranks write a trace. With attention that is shared out, the replicas are among the tensor ranks."""
    ranks = (_whole(about, "tp_size") or 1) * (_whole(about, "pp_size") or 1)
    replicas = 1 if about.get("enable_dp_attention") else _whole(about, "dp_size") or 1
    nodes = _whole(about, "nnodes") or 1
    return max(1, ranks * replicas // nodes)


def new_directory(root: str, now_s: float) -> str:
    """Make `<root>/bench/profile-<UTC time>-<6 hex digits>`, where the owner of `root`, who runs the server, writes."""
    bench = os.path.join(root, "bench")
    path = os.path.join(bench, f"profile-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now_s))}-{secrets.token_hex(3)}")
    try:
        os.makedirs(bench, mode=0o755, exist_ok=True)
        os.mkdir(path, 0o700)
        owner = os.stat(root)
        if os.geteuid() == 0:
            os.chown(path, owner.st_uid, owner.st_gid)
        free = shutil.disk_usage(path).free
    except OSError as error:
        raise ProfileRunError(f"directory for traces {path}: {error.strerror}; make {root} writable") from error
    if free < FREE_BYTES:
        with contextlib.suppress(OSError):
            os.rmdir(path)
        raise ProfileRunError(
            f"directory for traces {path}: {free >> 20} MiB are free, and the server dies when a trace does not fit; "
            f"make {FREE_BYTES >> 20} MiB free"
        )
    return path


def prune(root: str, keep: int = KEPT) -> list[str]:
    """Remove the oldest directories of traces beyond `keep`; returns those that are left, oldest first."""
    bench = os.path.join(root, "bench")
    try:
        found = sorted(entry for entry in os.listdir(bench) if _NAME.fullmatch(entry))
    except OSError:
        return []
    for old in found[: max(0, len(found) - keep)]:
        shutil.rmtree(os.path.join(bench, old), ignore_errors=True)
    return found[-keep:] if keep else []


def _traces(directory: str) -> dict[str, tuple[int, int]]:
    """Sizes and times of the traces that are there."""
    found = {}
    for entry in os.scandir(directory):
        if entry.name.endswith(_SUFFIXES):
            state = entry.stat()
            found[entry.path] = (state.st_size, state.st_mtime_ns)
    return found


def _wait(
    server: Server,
    request: Request,
    load: Load,
    directory: str,
    ranks: int,
    deadline: float,
    notes: list[str],
) -> list[RankProfile]:
    """The profiles, when all ranks have written their trace."""
    before: dict[str, tuple[int, int]] = {}
    steady_since = time.monotonic()
    stopped = False
    while True:
        now = time.monotonic()
        found = _traces(directory)
        if found != before:
            before, steady_since = found, now
        late = now > deadline
        if len(found) >= ranks and (now - steady_since >= _STEADY_S or late):
            profiles = _read(sorted(found), request.steps, may_be_cut=not late)
            if profiles is not None:
                return profiles
        if stopped and len(found) < ranks and now - steady_since > 2 * _STEADY_S:
            # The answer to /stop_profile comes when the traces are written.
            raise ProfileRunError(
                f"profile of {request.url}: the server was done and {len(found)} of {ranks} ranks wrote a trace into "
                f"{directory}; another profile was running, whose traces went elsewhere, or the server cannot write "
                "there; profile again, and see the server's log",
                traces=sorted(os.path.basename(path) for path in found),
            )
        if late:
            raise ProfileRunError(
                f"profile of {request.url}: {len(found)} of {ranks} ranks wrote a trace in {request.timeout_s:g} s; "
                "raise timeout, lower steps, or see the server's log",
                traces=sorted(os.path.basename(path) for path in found),
            )
        if not load.running and not stopped and now - steady_since > 2 * _STEADY_S:
            # Without requests no step is run, and the profile would last for ever.
            notes.append("the load ended before the profile did; it was ended early and holds fewer steps")
            server.stop_profile()
            stopped, steady_since = True, time.monotonic()
        time.sleep(_POLL_S)


def _read(paths: list[str], steps: int, may_be_cut: bool) -> list[RankProfile] | None:
    """The profiles; None when a file is still being written."""
    try:
        return [decode_profile.read(path, steps) for path in paths]
    except TraceError as error:
        if error.cut and may_be_cut:
            return None
        raise ProfileRunError(str(error)) from error
    except ProfileError as error:
        raise ProfileRunError(str(error)) from error
