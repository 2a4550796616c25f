# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a probe of a release does before the release is switched to: what is imported, and how one layer is run.

The layer runs in SGLang's own one-batch runner, with the arguments and the environment of the release as far as they
decide which kernels run. What a rank alone cannot have (communication, other ranks, a draft model) is left out, and
told. Compiled kernels go where the server looks for them. Tuning results do not: one rank's would be a part of a set.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    autotune_cache,
    gpu,
    probe_model,
    probe_needs,
    ranks,
    releases,
    startup_expect,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.probe_model import OneLayer, ProbeError
from ansible_collections.tokforge.sglang.plugins.module_utils.probe_needs import Need
from ansible_collections.tokforge.sglang.plugins.module_utils.ranks import World

IMPORT, SYMBOL, LAYER = "import", "symbol", "layer"
STEPS = (IMPORT, SYMBOL, LAYER)

#: Stands for the directory of the cut model in the arguments.
MODEL = "{model}"
#: Tokens and requests of the trial: small, and more than one of each.
BATCH, INPUT, OUTPUT = 8, 128, 4
TOTAL_TOKENS = 8192
CONTEXT = 8192
#: What a process takes beside the layer: CUDA's own, workspaces of attention and of tuning, captured graphs.
BESIDE_BYTES = 8 << 30

# Launch arguments that decide which kernels run, and on which shapes they are tuned (read in 0.5.6 to 0.5.23).
_KEPT = re.compile(
    r"device|dtype|quantization|kv-cache-dtype|trust-remote-code|page-size|model-impl|modelopt-quant|torchao-config"
    r"|rl-quant-profile|(?:prefill-|decode-|mm-)?attention-backend|(?:nsa|dsa|dsv4)-[a-z0-9-]+|qsa-indexer-dtype"
    r"|moe-runner-backend|(?:fp4|fp8|bf16)-gemm(?:-runner)?-backend|sampling-backend"
    r"|linear-attn(?:-(?:decode|prefill))?-backend|mamba-backend|mamba-ssm-dtype|triton-attention-[a-z0-9-]+"
    r"|flashinfer-(?:mxfp4-moe-precision|mla-disable-ragged|autotune-skip-ops)|disable-flashinfer-autotune"
    r"|(?:disable|enforce)-shared-experts-fusion|disable-(?:(?:decode|prefill|piecewise)-)?cuda-graph"
    r"|cuda-graph-backend-(?:decode|prefill)|enable-deterministic-inference|enable-fp32-lm-head|enable-tf32-matmul"
    r"|max-running-requests|chunked-prefill-size|max-prefill-tokens|disable-chunked-prefix-cache"
)
# Arguments of which a person should know that the probe does without them.
_TOLD = re.compile(r"moe-a2a-backend|speculative-algorithm|enable-torch-compile|enable-lora|enable-.*allreduce-fusion")
# Merged into the config, since it would bring the layers back.
_OVERRIDE = "json-model-override-args"
# Below SGLANG_CACHE_DIR from 0.5.18 on unless they are set; both that directory and these hold compiled kernels only.
_BELOW_CACHE: Mapping[str, str] = {
    "SGLANG_DG_CACHE_DIR": "deep_gemm",
    "SGLANG_CUTE_AOT_CACHE_DIR": "cute_aot",
    "CUDA_CACHE_PATH": "nv",
    "TILELANG_CACHE_DIR": "tilelang",
}
_BELOW_CACHE_SINCE = "0.5.18"


@dataclass(frozen=True)
class Start:
    """How the release starts its server, and what is known of its environment.

    `tuned`: backends in the gate of the installed SGLang, None when nobody read them.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    version: str
    config: Mapping[str, Any]
    quant: Mapping[str, Any] | None = None
    tuned: frozenset[str] | None = None


@dataclass(frozen=True)
class Plan:
    """What to do. `arguments` are the one-batch runner's, with MODEL in them; empty when `no_layer` says why not.

    `needs` is empty when `no_needs` says why. `need_free_bytes` of GPU memory, 0 on a CPU.
    """

    backend: str
    quantization: str
    world: World
    cpu: bool
    needs: tuple[Need, ...] = ()
    no_needs: str = ""
    layer: OneLayer | None = None
    no_layer: str = ""
    arguments: tuple[str, ...] = ()
    need_free_bytes: int = 0
    notes: tuple[str, ...] = ()
    flags: Mapping[str, Any] = field(default_factory=dict)


def make(start: Start) -> Plan:
    """The plan for a release. Never raises: what cannot be done says so in the plan."""
    flags = _flags(start)
    world = ranks.world_from_args({name: (values[0] if values else True) for name, values in flags.items()})
    backend = (flags.get("moe-runner-backend") or ["auto"])[0]
    cpu = flags.get("device") == ["cpu"]
    try:
        layer: OneLayer | None = _cut(start, flags, world)
        no_layer = ""
    except ProbeError as error:
        layer, no_layer = None, str(error)
    quantization = (flags.get("quantization") or [layer.shape.quantization if layer else ""])[0]
    needs = probe_needs.of(backend, start.version, quantization)
    no_needs = ""
    if backend == "auto":
        no_needs = "SGLang chooses the MoE backend by itself, which only the layer shows"
    elif not needs:
        with_it = f" with {quantization}" if quantization else ""
        no_needs = f"it is not known what {backend}{with_it} takes from other packages in SGLang {start.version}"
    return Plan(
        backend=backend,
        quantization=quantization,
        world=world,
        cpu=cpu,
        needs=needs,
        no_needs=no_needs,
        layer=layer,
        no_layer=no_layer,
        arguments=_arguments(start, flags, layer) if layer else (),
        need_free_bytes=0 if cpu or layer is None else needed_bytes(layer),
        notes=_notes(flags, layer),
        flags=flags,
    )


def _flags(start: Start) -> dict[str, list[str]]:
    """The launch arguments by their canonical names."""
    try:
        release = releases.get(start.version)
    except releases.ReleaseError:
        release = None
    found: dict[str, list[str]] = {}
    for name, values in autotune_cache.read_flags(start.argv).items():
        flag = release.flag(name) if release else None
        found[releases.canonical(flag.name if flag else name)] = values
    return found


def _cut(start: Start, flags: Mapping[str, list[str]], world: World) -> OneLayer:
    config = dict(start.config)
    try:
        ranks.check(world)
        override = json.loads((flags.get(_OVERRIDE) or ["{}"])[0])
    except ranks.RanksError as error:
        raise ProbeError(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise ProbeError(f"{_OVERRIDE} is not JSON: {error}") from error
    if not isinstance(override, dict):
        raise ProbeError(f"{_OVERRIDE} is no JSON object")
    config.update(override)
    return probe_model.cut(config, start.quant, world)


def _arguments(start: Start, flags: Mapping[str, list[str]], layer: OneLayer) -> tuple[str, ...]:
    words = ["--model-path", MODEL, "--load-format", "dummy", "--max-total-tokens", str(TOTAL_TOKENS)]
    if flags.get("device") != ["cpu"]:
        words += ["--mem-fraction-static", "0.7"]
    if layer.shape.max_context > CONTEXT:
        # The server's own would take gigabytes for the table of a million tokens of each request.
        words += ["--context-length", str(CONTEXT)]
    for name, values in flags.items():
        if _KEPT.fullmatch(name):
            words += [f"--{name}", *values]
    batch = BATCH
    most = (flags.get("max-running-requests") or [""])[0]
    if most.isdigit() and 0 < int(most) < batch:
        batch = int(most)
    words += ["--batch-size", str(batch), "--input-len", str(INPUT), "--output-len", str(OUTPUT)]
    return (*words, "--result-filename", "")


def _notes(flags: Mapping[str, list[str]], layer: OneLayer | None) -> tuple[str, ...]:
    notes = [f"{name} is not a part of the probe" for name in flags if _TOLD.fullmatch(name)]
    if layer and len(layer.layers) > 1:
        notes.append(f"layers {', '.join(map(str, layer.layers))} of the model, one of each kind")
    return tuple(notes)


def needed_bytes(layer: OneLayer) -> int:
    """GPU memory that must be free: the layer twice, since its weights are rearranged after they were made."""
    shape = layer.shape
    bits = shape.weight_bits
    experts = shape.moe_layers * shape.experts * shape.mlp_matrices * shape.hidden_size * shape.moe_intermediate_size
    shared = shape.moe_layers * shape.mlp_matrices * shape.hidden_size * shape.shared_intermediate_size
    attention = 4 * shape.layers * shape.hidden_size * max(shape.hidden_size, shape.heads * shape.head_dim)
    vocabulary = 2 * probe_model.VOCABULARY * shape.hidden_size
    weights = (
        experts * bits.get("experts", 16) + shared * bits.get("shared_experts", 16) + 16 * (attention + vocabulary)
    )
    return int(2 * weights / 8) + BESIDE_BYTES


def expectation(start: Start, plan: Plan, capability: tuple[int, int] | None) -> startup_expect.Expectation:
    """Whether the layer will be tuned on a GPU of this compute capability."""
    return startup_expect.autotune(
        startup_expect.Server(args=plan.flags, version=start.version, tuned=start.tuned, compute_capability=capability)
    )


def environment(
    start: Start,
    inherited: Mapping[str, str],
    cache: str,
    uuid: str = "",
    home: str = "",
) -> dict[str, str]:
    """The environment of the trial, made as the launcher makes the server's.

    `cache` is where tuning results go, away from the server's own. `uuid` names the one GPU, empty on a CPU.
    """
    env = {name: value for name, value in inherited.items() if not name.startswith(("PYTHON", "TOKFORGE_"))}
    if home:
        env["HOME"] = home
    env.update(start.env, PYTHONUNBUFFERED="1")
    env.update(_shared_caches(start, env))
    env["SGLANG_CACHE_DIR"] = cache
    if uuid:
        env["CUDA_VISIBLE_DEVICES"] = uuid
    return env


def _shared_caches(start: Start, env: Mapping[str, str]) -> dict[str, str]:
    """Places of compiled kernels that would move with SGLANG_CACHE_DIR, where the server has them."""
    server = env.get("SGLANG_CACHE_DIR") or (os.path.join(env["HOME"], ".cache", "sglang") if env.get("HOME") else "")
    try:
        if not server or releases.sort_key(start.version) < releases.sort_key(_BELOW_CACHE_SINCE):
            return {}
    except releases.ReleaseError:
        pass  # a version that is no release is newer than all of them
    return {name: os.path.join(server, below) for name, below in _BELOW_CACHE.items() if name not in env}


# --- the GPU ---------------------------------------------------------------------------------------------------------


def choose_gpu(report: gpu.Report, plan: Plan, env: Mapping[str, str]) -> tuple[gpu.Gpu | None, str]:
    """The first GPU of the server that has enough free memory, or why there is none."""
    if report.state not in (gpu.OK, gpu.LOST) or not report.gpus:
        return None, report.message
    chosen = _of_server(report.gpus, plan, env)
    if not chosen:
        return None, "none of the GPUs that the server would use was found (CUDA_VISIBLE_DEVICES, base-gpu-id)"
    usable = [one for one in chosen if not one.problem and not one.mig and one.uuid]
    if not usable:
        return None, "the GPUs of the server are in MIG mode or do not answer"
    free = [one for one in usable if (one.memory_free_bytes or 0) >= plan.need_free_bytes]
    if not free:
        most = max(usable, key=lambda one: one.memory_free_bytes or 0)
        return None, (
            f"no GPU has {_gb(plan.need_free_bytes)} free (the most is {_gb(most.memory_free_bytes or 0)},"
            f" GPU {most.index}); what runs there is not disturbed"
        )
    return free[0], ""


def _of_server(gpus: Sequence[gpu.Gpu], plan: Plan, env: Mapping[str, str]) -> list[gpu.Gpu]:
    """The GPUs of the server's ranks on this machine, in their order."""
    seen = list(gpus)
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        seen = []
        for word in visible.split(","):
            named = [one for one in gpus if _names(word.strip(), one)]
            if len(named) != 1:  # CUDA ends the list at the first that it does not know
                break
            seen += named
    first, step = _number(plan.flags, "base-gpu-id", 0), max(1, _number(plan.flags, "gpu-id-step", 1))
    world = plan.world
    copies = 1 if world.dp_attention else world.dp
    count = max(1, world.tp * world.pp * copies // world.nnodes)
    return seen[first : first + step * count : step]


def _names(word: str, one: gpu.Gpu) -> bool:
    if word.isdigit():
        return int(word) == one.index
    return word.startswith("GPU-") and one.uuid.startswith(word)


def _number(flags: Mapping[str, Any], name: str, default: int) -> int:
    text = (flags.get(name) or [""])[0]
    return int(text) if text.isdigit() and len(text) < 6 else default


def _gb(count: int) -> str:
    return f"{count / 1e9:.0f} GB"
