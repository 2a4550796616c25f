# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One probe from a release on disk to its result: what to do (probe_plan), on which GPU, done (probe_run), kept.

Every step that was asked for is in the result, also those that were not done, with the reason.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    gpu,
    gpu_look,
    model,
    model_files,
    probe_inside,
    probe_plan,
    probe_record,
    probe_run,
    readiness,
    release_store,
    service,
    startup_expect,
    startup_work,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.probe_plan import LAYER, STEPS, Plan, Start
from ansible_collections.tokforge.sglang.plugins.module_utils.probe_run import FAILED, OK, SKIPPED, Child, Step

_LARGEST_FILE = 16 << 20
# Lines of an error that a message shows; the result has more.
_SHOWN = 6
# An answer sooner than that after the limit is nothing: a step that cannot even import needs no process.
_LEAST_S = 1.0


class UnfitError(Exception):
    """There is no release to probe, or it is damaged; the text says what and what to do."""


@dataclass(frozen=True)
class Request:
    """What is asked. `release` None: the current one. `only_say`: run nothing, and say what would be run."""

    root: str
    release: int | None = None
    backend: str = ""
    steps: tuple[str, ...] = STEPS
    timeout_s: float = 1800.0
    user: str = ""
    home: str = ""
    force: bool = False
    only_say: bool = False


@dataclass(frozen=True)
class Target:
    """A release as it lies on disk. `environment` identifies what is installed, `served` says that it ran before."""

    python: str
    environment: str
    model: str
    start: Start
    served: bool


@dataclass
class Answer:
    """The result while it is made."""

    backend: str
    steps: list[Step] = field(default_factory=list)
    autotune: dict[str, Any] = field(default_factory=dict)
    jit_objects: dict[str, int] | None = None
    gpu: dict[str, Any] | None = None
    shared_cache: bool = False
    recorded: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def failed(self) -> Step | None:
        """The step that failed."""
        return next((step for step in self.steps if step.result == FAILED), None)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for a module's result."""
        return {
            "ok": self.failed is None,
            "steps": [step.as_dict() for step in self.steps],
            "autotune": self.autotune,
            "jit_objects": self.jit_objects,
            "gpu": self.gpu,
            "shared_cache": self.shared_cache,
            "backend": self.backend,
            "recorded": self.recorded,
            "notes": self.notes,
        }

    def message(self) -> str:
        """The failure in words: step, what happened, what to do, and the error's last lines."""
        step = self.failed
        if step is None:
            return ""
        where = f"GPU {self.gpu['index']} ({self.gpu['name']})" if self.gpu else "this machine"
        head = f"probing {self.backend} on {where}: step {step.name} failed: {step.detail}"
        return "\n".join([f"{head}; {step.hint}" if step.hint else head, *step.lines[-_SHOWN:]])


# --- the release -----------------------------------------------------------------------------------------------------


def read(request: Request) -> Target:
    """The release that is asked for. Raises UnfitError."""
    root = os.path.normpath(request.root)
    try:
        number = release_store.read_current(root) if request.release is None else request.release
    except release_store.StoreError as error:
        raise UnfitError(str(error)) from error
    if number is None:
        raise UnfitError(f"cannot probe below {root}: there is no current release; give the number of one")
    release = release_store.load(root, number)
    content = release.content
    if release.broken or content is None:
        raise UnfitError(f"cannot probe release {number} below {root}: {release.broken}; stage it again")
    directory = str(content.model.get("path") or "")
    try:
        config = model.read_config(directory)
        quant = model_files.read_quantization(directory)
    except model.ModelError as error:
        raise UnfitError(f"cannot probe release {number} below {root}: {error}") from error
    venv = os.path.join(root, "venvs", content.environment)
    marker, raw = _object(os.path.join(venv, "environment.json"))
    gate = marker.get("autotune_gate")
    tuned = gate.get("backends") if isinstance(gate, dict) else None
    # The last one of a name counts.
    argv = [*content.argv, *(["--moe-runner-backend", request.backend] if request.backend else [])]
    return Target(
        python=os.path.join(venv, "bin", "python"),
        environment=hashlib.sha256(raw).hexdigest(),
        model=directory,
        start=Start(
            argv=argv,
            env=content.env,
            version=content.sglang_version,
            config=config,
            quant=quant,
            tuned=frozenset(tuned) if isinstance(tuned, dict) else None,
        ),
        served=not request.backend and os.path.isfile(os.path.join(release.path, release_store.PROVEN)),
    )


def _object(path: str) -> tuple[dict[str, Any], bytes]:
    try:
        with open(path, "rb") as stream:
            raw = stream.read(_LARGEST_FILE)
        data = json.loads(raw)
    except (OSError, ValueError, RecursionError):
        return {}, b""
    return (data if isinstance(data, dict) else {}), raw


# --- the probe -------------------------------------------------------------------------------------------------------


def carry_out(request: Request, look: Callable[[], gpu.Report] | None = None) -> Answer:
    """Probe. Raises UnfitError when there is nothing to probe."""
    target = read(request)
    plan = probe_plan.make(target.start)
    answer = Answer(plan.backend, notes=list(plan.notes))
    if request.only_say:
        return _skip(answer, request.steps, "check mode runs nothing")
    if target.served and not request.force:
        answer.recorded = True
        return _skip(answer, request.steps, "this release has served already")
    user, shared = _user(request.user)
    answer.shared_cache = shared
    if not shared:
        answer.notes.append(f"there is no user {request.user} yet, so what is compiled is not kept")
    inherited = dict(os.environ)
    chosen, no_gpu, driver = None, "", ""
    if not plan.cpu and LAYER in request.steps and plan.layer:
        report = (look or gpu_look.look)()
        driver = report.driver_version
        chosen, no_gpu = probe_plan.choose_gpu(report, plan, {**inherited, **target.start.env})
        answer.gpu = _described(chosen, plan) if chosen else None
    expected = probe_plan.expectation(target.start, plan, chosen.compute_capability if chosen else None)
    answer.autotune = {"expected": expected.value, "reason": expected.reason, "started": False, "completed": False}
    key = _key(request, target, plan, chosen, driver)
    known = None if request.force else probe_record.find(request.root, key)
    if known is not None:
        answer.recorded = True
        answer.autotune.update({name: known.get(name) is True for name in ("started", "completed")})
        return _skip(answer, request.steps, f"the same probe went well on {known.get('time')}")
    with probe_run.workplace(user) as directory:
        env = _environment(request, target, inherited, directory, chosen, shared)
        child = Child(target.python, env, directory, user, _secrets(request.root))
        _run(answer, request, target, plan, child, no_gpu, expected)
    if {step.result for step in answer.steps} == {OK} or _only_unknown(answer, plan):
        _keep(answer, request.root, key)
    return answer


def _run(
    answer: Answer,
    request: Request,
    target: Target,
    plan: Plan,
    child: Child,
    no_gpu: str,
    expected: startup_expect.Expectation,
) -> None:
    deadline = time.monotonic() + request.timeout_s
    try:
        if set(request.steps) - {LAYER}:
            done = probe_run.look(child, plan, request.timeout_s)
            answer.steps += [step for step in done if step.name in request.steps]
        if LAYER not in request.steps:
            return
        why_not = plan.no_layer or no_gpu or ("a step before failed" if answer.failed else "")
        if why_not:
            answer.steps.append(Step(LAYER, SKIPPED, why_not))
            return
        kernels = startup_work.kernel_directories(child.env)
        before = startup_work.count_objects(kernels)
        path = probe_run.write_model(child.directory, target.model, plan)
        left_s = max(_LEAST_S, deadline - time.monotonic())
        layer = probe_run.run_layer(child, plan, path, expected, left_s)
    except OSError as error:
        what = f"cannot run {child.python}: {error.strerror}"
        done_already = {step.name for step in answer.steps}
        [name, *rest] = [step for step in request.steps if step not in done_already]
        answer.steps.append(Step(name, FAILED, what, hint="build the environment of this release again"))
        answer.steps += [Step(step, SKIPPED, "a step before failed") for step in rest]
        return
    answer.steps.append(layer.step)
    answer.jit_objects = {"before": before, "after": startup_work.count_objects(kernels)}
    answer.autotune.update(started=layer.autotune_started > 0, completed=layer.autotune_completed > 0)


def _skip(answer: Answer, steps: Sequence[str], why: str) -> Answer:
    answer.steps = [Step(step, SKIPPED, why) for step in steps]
    return answer


def _user(name: str) -> tuple[str, bool]:
    """Whom to run as, and whether what is compiled may stay: the server must be able to write where it lies."""
    if not name or os.geteuid() != 0:
        return "", True
    try:
        pwd.getpwnam(name)
    except KeyError:
        return "", False
    return name, True


def _environment(
    request: Request, target: Target, inherited: dict[str, str], directory: str, chosen: gpu.Gpu | None, shared: bool
) -> dict[str, str]:
    own = os.path.join(directory, "cache")
    start = target.start
    env = probe_plan.environment(start, inherited, own, chosen.uuid if chosen else "", request.home)
    if shared:
        return env
    moved = ("FLASHINFER_WORKSPACE_BASE", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME", "HOME")
    return {**env, **dict.fromkeys((*moved, *(name for name in env if name.endswith("_CACHE_DIR"))), own)}


def _secrets(root: str) -> tuple[str, ...]:
    return tuple(readiness.read_secrets(service.Paths(root)).values())


def _described(one: gpu.Gpu, plan: Plan) -> dict[str, Any]:
    capability = one.compute_capability
    return {
        "index": one.index,
        "uuid": one.uuid,
        "name": one.name,
        "compute_capability": None if capability is None else "{}.{}".format(*capability),
        "memory_free_bytes": one.memory_free_bytes,
        "need_free_bytes": plan.need_free_bytes,
    }


# --- what is kept ----------------------------------------------------------------------------------------------------


def _key(request: Request, target: Target, plan: Plan, chosen: gpu.Gpu | None, driver: str) -> str:
    return probe_record.key_of(
        {
            "steps": sorted(request.steps),
            "environment": target.environment,
            "arguments": list(plan.arguments),
            "needs": sorted(f"{need.module}.{need.symbol}" for need in plan.needs),
            "env": dict(target.start.env),
            "config": plan.layer.config if plan.layer else None,
            "quant": plan.layer.quant if plan.layer else None,
            "gpu": [chosen.name, chosen.compute_capability] if chosen else [],
            "driver": driver,
            "version": probe_inside.VERSION,
        }
    )


def _only_unknown(answer: Answer, plan: Plan) -> bool:
    """Whether all that was not done is what nobody knows how to do for this backend."""
    others: Iterable[Step] = (step for step in answer.steps if step.result != OK)
    return (
        bool(plan.no_needs)
        and all(step.result == SKIPPED and step.detail == plan.no_needs for step in others)
        and (any(step.result == OK for step in answer.steps))
    )


def _keep(answer: Answer, root: str, key: str) -> None:
    tuned = {name: answer.autotune[name] for name in ("started", "completed")}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    problem = probe_record.add(root, {"key": key, "time": now, "backend": answer.backend, **tuned})
    if problem:
        answer.notes.append(problem)
