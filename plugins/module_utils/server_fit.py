# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Will the server that is asked for run on this host: GPUs, backend, memory, CUDA toolkit, packages, limits.

Reading only. Each part has a file of its own that judges; this one looks, and hands each the part of the request that
it is about.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    build_tools,
    builtin_models,
    compat,
    cuda_driver,
    cuda_toolkit,
    environment_root,
    gpu_checks,
    gpu_look,
    host_cpus,
    host_limits,
    host_memory,
    hub_reach,
    memory_plan,
    model,
    model_files,
    model_shape,
    package_skew,
    proc,
    ranks,
    release_choice,
    releases,
    roofline,
    served_shape,
    service,
    visible_gpus,
    weight_index,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.compat_data import (
    SUPPORTED,
    SUPPORTED_BUT,
    UNKNOWN,
    UNSUPPORTED,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.findings import FAIL, OK, WARN, Finding
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import Report
from ansible_collections.tokforge.sglang.plugins.module_utils.layout_check import layout_of
from ansible_collections.tokforge.sglang.plugins.module_utils.model_matrices import Layout, LayoutError
from ansible_collections.tokforge.sglang.plugins.module_utils.release_choice import CPU, Choice

#: The quantizations that the data tells apart for MoE backends.
QUANTIZATIONS = (
    "none",
    "fp8",
    "modelopt_fp4",
    "modelopt_fp8",
    "modelopt_mixed",
    "compressed-tensors",
    "mxfp4",
    "mxfp8",
    "nvfp4_online",
)

_WHOLE = re.compile(r"[0-9]{1,15}")

_RUNS = (SUPPORTED, SUPPORTED_BUT)

#: What SGLang's server writes its caches below, by the variables that say where.
_CACHES = ("SGLANG_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE", "TRITON_CACHE_DIR")


@dataclass(frozen=True)
class Asked:
    """The part of a request that decides whether a server can run.

    `args` are launch arguments by any spelling, `env` is the server's environment. `models_dir` is where models of the
    hub lie. `manager` is systemd or supervisor. `controller_s` is the controller's time when it sent the task.
    `force`: what is known against the backend only warns. `checkout`: SGLang is a source tree of somebody's own.
    `concurrency` is the highest that will be measured.
    """

    root: str
    lane: str
    version: str
    backend: str = "auto"
    model: str = "builtin:tiny-moe"
    random_weights: bool = False
    args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    models_dir: str = ""
    hub_endpoint: str = ""
    manager: str = "supervisor"
    python: str = ""
    controller_s: float | None = None
    force: bool = False
    checkout: bool = False
    concurrency: int = 1


@dataclass(frozen=True)
class Backend:
    """What is known about the backend that the rollout takes; `forced`: it is taken against that."""

    name: str
    verdict: str
    reason: str
    forced: bool = False


@dataclass(frozen=True)
class Fit:
    """What was found, what was chosen (None when nothing can be), and what is known about the backend."""

    findings: tuple[Finding, ...]
    choice: Choice | None
    backend: Backend | None = None


@dataclass(frozen=True)
class _Stored:
    """Weights as they are loaded: their shape, and what their files hold."""

    shape: model_shape.ModelShape
    index: weight_index.WeightIndex | None


@dataclass(frozen=True)
class _Model:
    """The model as far as it is there: its shape, its weight files, and whether it must be downloaded yet.

    stored: the weights before the server quantizes them; None where it serves them as they are.
    """

    shape: model_shape.ModelShape | None = None
    index: weight_index.WeightIndex | None = None
    stored: _Stored | None = None
    downloaded: bool = True
    findings: tuple[Finding, ...] = ()


def fit(asked: Asked) -> Fit:
    """Everything that can be known about this request on this host, before anything is installed."""
    args = {releases.canonical(str(name)): value for name, value in asked.args.items()}
    # nvidia-smi takes up to some seconds on large machines, and so do the headers of many weight files.
    with ThreadPoolExecutor(1) as pool:
        looking = None if asked.lane == CPU else pool.submit(gpu_look.look)
        known = look_at_model(asked, args)
        report = looking.result() if looking else Report("ok", "lane cpu needs no GPU")
    findings = list(known.findings)
    try:
        world = ranks.world_from_args(args)
        ranks.check(world)
        layout = layout_of(world)
    except (ranks.RanksError, LayoutError) as error:
        findings.append(Finding(FAIL, "layout", f"sglang_server_args: {error}"))
        # Told once: the rest is judged as for one rank.
        world, layout = ranks.World(), Layout()
        args = {name: value for name, value in args.items() if not ranks.is_size(name)}
    here = max(1, layout.gpus // max(1, world.nnodes))
    taken = visible_gpus.used(report.gpus, asked.env, args, here)
    findings += taken.findings
    used = taken.numbers if taken.numbers is not None else tuple(range(here))
    query = backend_query(asked, args, report, known.shape, used)
    # Of a model that is not here yet nobody knows it; then it is enough that the backend runs with one of them.
    told = known.shape is not None or bool(args.get("quantization"))
    queries = [query] if told else [replace(query, quantization=name) for name in QUANTIZATIONS]
    try:
        choice, found = release_choice.choose(asked.version, asked.lane, report, queries)
    except compat.CompatError as error:
        choice, found = None, [Finding(FAIL, "backend", str(error))]
    findings += found
    backend = None
    if choice is not None and asked.lane != CPU:
        chosen = [release_choice.with_release(one, choice) for one in queries]
        others = releases.known(None if asked.lane == release_choice.AUTO else asked.lane)
        backend, found = judge_backend(chosen, others, asked.force)
        findings += found
    findings += hub_reach.check(
        hub_reach.Request(asked.model, asked.hub_endpoint, dict(os.environ), known.downloaded, False)
    )
    findings += _host(asked, args, here, choice, report)
    if asked.lane == CPU:
        problems = known.index.problems if known.index else ()
        findings += [Finding(FAIL, "weights", problem, "copy the model again") for problem in problems]
        findings += _host_weights(known, layout, max(1, world.nnodes))
        if asked.backend != release_choice.AUTO:
            message = f"no GPU is used in lane cpu, so nobody can tell from here whether {asked.backend} runs on one"
            findings.append(Finding(WARN, "backend", message))
        return Fit(tuple(findings), choice, backend)
    need = least_free_bytes(args, report, known, layout, used)
    if not taken.findings:
        findings += gpu_checks.check_gpus(report, here, own_processes(asked.root, report), need, used=taken.numbers)
    if known.shape is not None:
        findings += _memory(args, report, known, layout, world, used)
        findings += _roofline(asked, args, report, known.shape, layout, used)
    if choice is not None:
        findings += _cuda(asked, args, choice, report)
    return Fit(tuple(findings), choice, backend)


# --- the request's parts ----------------------------------------------------------------------------------------------


def least_free_bytes(
    args: Mapping[str, Any], report: Report, known: _Model, layout: Layout, used: Sequence[int]
) -> int | None:
    """What each GPU must have free for weights and the least useful cache; None when that is not known."""
    totals = [one.memory_total_bytes for one in report.gpus if one.index in used and one.memory_total_bytes]
    if known.shape is None or not totals:
        return None
    settings = memory_settings(args)
    held = memory_plan.stock(known.shape, known.index, settings.speculative)
    planned = memory_plan.plan(known.shape, layout, min(totals), None, settings, held)
    loading = _loading_bytes(known, layout)
    # What does not fit is told by the plan itself, for a GPU that nobody else uses.
    return int(max(planned.needed_bytes, loading)) if planned.fits and loading <= min(totals) else None


def _loading_bytes(known: _Model, layout: Layout) -> float:
    """What a GPU must have free for weights that are quantized when all are loaded; 0 where none are."""
    if known.stored is None:
        return 0.0
    held = memory_plan.stock(known.stored.shape, known.stored.index)
    return memory_plan.weights_on_rank(known.stored.shape, layout, held) + memory_plan.CONTEXT_BYTES


def own_processes(root: str, report: Report) -> frozenset[int]:
    """Processes with memory on a GPU that a rollout below this root started: they end before the new server starts."""
    ours = os.path.join(os.path.realpath(root), "releases") + os.sep
    return frozenset(
        process.pid
        for one in report.gpus
        for process in one.processes
        if os.path.realpath(proc.environ(process.pid).get(service.ENV_RELEASE, "/")).startswith(ours)
    )


def look_at_model(asked: Asked, args: Mapping[str, Any]) -> _Model:
    """The model's shape and weight files, as far as they are on this host; a wrong text is told by another check.

    :param args: launch arguments by canonical name, which can say another shape than config.json.
    """
    try:
        source = model.parse(asked.model)
    except model.ModelError:
        return _Model()
    if source.kind == "builtin":
        return _shape_of(builtin_models.CONFIGS[source.name], None, None, args)
    path = source.name if source.kind == "directory" else os.path.join(asked.models_dir, source.name)
    try:
        config = model.read_config(path)
    except model.ModelError:
        # A directory without a usable config.json is told by the check of the model itself.
        return _Model(downloaded=source.kind == "directory")
    index = None if asked.random_weights else weight_index.read(path)
    try:
        quant = model_files.read_quantization(path)
    except model.ModelError as error:
        return _Model(None, index, findings=(Finding(FAIL, "model", str(error)),))
    return _shape_of(config, quant, index, args)


def _shape_of(
    config: Mapping[str, Any],
    quant: Mapping[str, Any] | None,
    index: weight_index.WeightIndex | None,
    args: Mapping[str, Any],
) -> _Model:
    try:
        served = served_shape.read(config, quant, args)
    except model_shape.ShapeError as error:
        return _Model(findings=(Finding(FAIL, "model", f"{error} (config.json)", "copy the model again"),))
    if served.loaded is None:
        return _Model(served.shape, index)
    # What the files hold is not what serves: of that the shape tells the size.
    rest = replace(index, state=weight_index.ABSENT, total_bytes=None, tensors=()) if index is not None else None
    return _Model(served.shape, rest, _Stored(served.loaded, index))


# --- the backend ------------------------------------------------------------------------------------------------------


def backend_query(
    asked: Asked,
    args: Mapping[str, Any],
    report: Report,
    shape: model_shape.ModelShape | None,
    used: Sequence[int],
) -> compat.Query:
    """What is asked of the data: the backend with the GPUs, the model's quantization and the arguments."""
    capabilities = [one.compute_capability for one in report.gpus if one.index in used and one.compute_capability]
    least = min(capabilities, default=None)
    world = ranks.world_from_args(args)
    return compat.Query(
        backend=asked.backend,
        sglang_version=asked.version,
        compute_capability="{}.{}".format(*least) if least else None,
        quantization=str(args.get("quantization") or (shape.quantization if shape is not None else "")),
        tp=world.tp,
        ep=world.ep,
        moe_a2a_backend=str(args.get("moe-a2a-backend") or "none"),
        args=dict(args),
    )


def judge_backend(
    queries: Sequence[compat.Query], candidates: Sequence[str], force: bool
) -> tuple[Backend | None, list[Finding]]:
    """One finding about everything in the request that the data of releases and GPUs knows about.

    :param queries: one, or one for each quantization that the model may have.
    :param candidates: releases that a refusal may name instead.
    """
    query = queries[0]
    try:
        verdict = compat.judge(query, candidates)
        if len(queries) > 1:
            fitting = [one.quantization for one in queries if compat.judge(one).verdict in _RUNS]
            if fitting:
                reason = (
                    f"{query.backend} runs here with quantization {', '.join(fitting)}; that of the model is "
                    "not known yet"
                )
                return Backend(query.backend, UNKNOWN, reason), [Finding(WARN, "backend", reason)]
    except compat.CompatError as error:
        return None, [Finding(FAIL, "backend", str(error))]
    forced = force and verdict.verdict == UNSUPPORTED
    known = Backend(query.backend, verdict.verdict, verdict.reason, forced)
    if verdict.verdict == SUPPORTED:
        return known, [Finding(OK, "backend", verdict.reason)]
    if verdict.verdict != UNSUPPORTED:
        return known, [Finding(WARN, "backend", verdict.reason)]
    if forced:
        return known, [Finding(WARN, "backend", f"forced all the same: {verdict.reason}")]
    # The reason ends with a command that works here.
    return known, [Finding(FAIL, "backend", verdict.reason, "add -e force_backend=true to try it all the same")]


# --- the host ---------------------------------------------------------------------------------------------------------


def _host(asked: Asked, args: Mapping[str, Any], here: int, choice: Choice | None, report: Report) -> list[Finding]:
    cpus = host_cpus.look()
    found = host_cpus.check(cpus, host_cpus.Request(here, asked.env))
    memory = host_memory.Request(
        ranks=here, cpus=cpus.count, compiles=asked.lane != CPU, env=asked.env, args=args, automatic=True
    )
    found += host_memory.check(host_memory.look(), memory)
    caches = {name: str(asked.env.get(name) or os.path.join(asked.root, "cache")) for name in _CACHES}
    limits = host_limits.Request(here, asked.manager, asked.env, asked.controller_s, caches)
    found += host_limits.check(host_limits.look(limits), limits)
    environment = environment_root.find(asked.root, choice.version if choice else asked.version)
    packages = package_skew.look(environment) if environment else None
    if packages is not None:
        major = release_choice.LANE_CUDA.get(choice.lane if choice else asked.lane, (None,))[0]
        found += package_skew.check(packages, package_skew.Request(major, asked.env))
    return found


def _memory(
    args: Mapping[str, Any],
    report: Report,
    known: _Model,
    layout: Layout,
    world: ranks.World,
    used: Sequence[int],
) -> list[Finding]:
    if known.shape is None:
        return []
    # Memory that others hold is told with their names by the check of the GPUs: here an empty GPU is what counts.
    gpus = [(one.memory_total_bytes, one.memory_total_bytes) for one in report.gpus if one.index in used]
    found = memory_plan.check_memory(
        known.shape, layout, gpus, memory_settings(args), known.index, nodes=max(1, world.nnodes)
    )
    least, loading = min((total for total, _free in gpus if total), default=None), _loading_bytes(known, layout)
    # A model that does not fit quantized is told already.
    if least is None or loading <= least or any(finding.level == FAIL for finding in found):
        return found
    message = (
        f"the model does not fit while it loads: SGLang makes {known.shape.quantization} of it when all of it is there,"
        f" {loading / memory_plan.GIB:.2f} GiB a GPU with CUDA's context, and a GPU has"
        f" {least / memory_plan.GIB:.2f} GiB"
    )
    return [*found, Finding(FAIL, "memory", message, "use more GPUs (tensor_parallel_size), or a quantized checkpoint")]


def _host_weights(known: _Model, layout: Layout, nodes: int) -> list[Finding]:
    """In lane cpu the weights lie in the host's memory."""
    if known.shape is None:
        return []
    stored = known.stored or _Stored(known.shape, known.index)
    held = memory_plan.stock(stored.shape, stored.index)
    need = memory_plan.weights_on_rank(stored.shape, layout, held) * layout.gpus / nodes
    memory = host_memory.look()
    have = min((one for one in (memory.total_bytes, memory.limit_bytes) if one), default=None)
    if have is None or need <= have:
        return []
    message = (
        f"the model does not fit: {need / memory_plan.GIB:.2f} GiB of weights (from {held.source}) in lane cpu, and"
        f" this host has {have / memory_plan.GIB:.2f} GiB of memory"
    )
    return [Finding(FAIL, "memory", message, "choose a smaller model, or a host with more memory")]


def memory_settings(args: Mapping[str, Any]) -> memory_plan.Settings:
    """The launch arguments that take memory; what is no number is left to the check of the arguments."""
    return memory_plan.Settings(
        kv_cache_dtype=str(args.get("kv-cache-dtype") or "auto"),
        context_tokens=_whole(args.get("context-length")),
        max_total_tokens=_whole(args.get("max-total-tokens")),
        max_running_requests=_whole(args.get("max-running-requests")),
        mem_fraction_static=_fraction(args.get("mem-fraction-static")),
        chunked_prefill_tokens=_whole(args.get("chunked-prefill-size")),
        cuda_graph_max_requests=_whole(args.get("cuda-graph-max-bs", args.get("cuda-graph-max-bs-decode"))),
        cuda_graphs=args.get("disable-cuda-graph") is not True and args.get("cuda-graph-backend-decode") != "disabled",
        speculative=bool(args.get("speculative-algorithm")),
    )


def _whole(value: Any) -> int | None:
    text = str(value)
    if isinstance(value, bool) or not isinstance(value, (int, str)) or not _WHOLE.fullmatch(text):
        return None
    return int(text) or None


def _fraction(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if 0 < number <= 1 else None


def _roofline(
    asked: Asked,
    args: Mapping[str, Any],
    report: Report,
    shape: model_shape.ModelShape,
    layout: Layout,
    used: Sequence[int],
) -> list[Finding]:
    """What decoding can reach at most, so that a measurement can be held against it."""
    bandwidths = [one.memory_bandwidth_bytes_s for one in report.gpus if one.index in used]
    known = [one for one in bandwidths if one]
    if not known or len(known) < len(bandwidths):
        return []
    try:
        dtype = str(args.get("kv-cache-dtype") or "auto")
        bound = roofline.roofline(shape, layout, float(min(known)), kv_cache_dtype=dtype)
        many = roofline.roofline(
            shape, layout, float(min(known)), batch=max(1, asked.concurrency), kv_cache_dtype=dtype
        )
    except ValueError as error:
        return [Finding(WARN, "roofline", f"cannot say how fast decoding can be: {error}")]
    told = (
        f"decoding one request reads {bound.step_bytes / 1e9:.2f} GB a token on each GPU, at {min(known) / 1e9:.0f}"
        f" GB/s no faster than {1e3 * (bound.floor_s or 0):.2f} ms: at most {bound.ceiling_tok_s or 0:.0f} tok/s"
        " without speculation"
    )
    if many.batch > 1:
        experts = f", {many.experts_read:.0f} of {shape.experts} experts read" if shape.is_moe else ""
        told += f"; {many.batch} at once at most {many.ceiling_tok_s or 0:.0f} tok/s"
        told += f" ({many.step_bytes / 1e9:.2f} GB a step{experts})"
    return [Finding(OK, "roofline", told)]


def compiles_at_start(backend: str, args: Mapping[str, Any]) -> bool:
    """Whether FlashInfer's kernels are used, which a server compiles when it has none of them yet.

    FlashInfer samples and attends unless told otherwise (defaults of 0.5.10.post1 to 0.5.23 on GPUs), so it is out of
    play only where all three are named.
    """
    attention = str(args.get("attention-backend") or "flashinfer")
    sampling = str(args.get("sampling-backend") or "flashinfer")
    return "flashinfer" in (attention, sampling) or backend == "auto" or backend.startswith("flashinfer")


def _cuda(asked: Asked, args: Mapping[str, Any], choice: Choice, report: Report) -> list[Finding]:
    """The driver against the lane, and the toolkit that kernels are compiled with."""
    wanted = release_choice.LANE_CUDA.get(choice.lane)
    if wanted is None or not report.gpus:
        return []
    found = cuda_driver.check(report.driver_version, report.cuda_version, wanted)
    lane = releases.get(choice.version).lanes.get(choice.lane) if choice.version in releases.known() else None
    # The release's own environment, in which ninja is as well; its programs come first in the server's PATH.
    packages = {"ninja": "of its lock", "torch": lane.torch, "flashinfer-python": lane.flashinfer or ""} if lane else {}
    environment = environment_root.find(asked.root, choice.version)
    request = build_tools.toolkit_request(report, asked.env, packages, environment, wanted[0], asked.python)
    judged = cuda_toolkit.check(cuda_toolkit.look(request), request)
    if not compiles_at_start(asked.backend, args):
        judged = [replace(finding, level=WARN) if finding.level == FAIL else finding for finding in judged]
    return [*found, *judged]
