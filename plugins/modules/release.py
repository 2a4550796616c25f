#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: release
short_description: Write, switch and remove releases of an SGLang server
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - A release is a numbered directory below C(ROOT/releases) with a link to its environment, the rendered launch
    arguments (C(launch.json)) and a manifest. It never changes once it has its number, and numbers are never given
    twice.
  - The link C(ROOT/current) names the release that serves. It is switched by one rename.
  - A run that was killed at any moment leaves an old or a new state. The next run clears away what was half written.
  - The server itself is not touched. Restarting it is up to M(tokforge.sglang.server_service).
extends_documentation_fragment:
  - tokforge.sglang.attributes
  - tokforge.sglang.rollout_token
attributes:
  check_mode:
    support: full
    details:
      - The environment and the release may still be missing, since a real run would have made them before.
  diff_mode:
    support: full
    details:
      - O(state=staged) compares the launch arguments and the environment with those of the current release,
        O(state=current) shows the link.
options:
  root:
    description:
      - Directory that holds everything a rollout makes on the target.
      - However it is spelled, with a slash at its end or through a link, the release is the same.
    type: path
    required: true
  state:
    description:
      - V(staged) writes a release with the asked content, or finds the one that has it already, also an older one.
        C(current) stays.
      - V(current) points C(current) to O(release), or removes the link when O(release) is left out.
      - V(proven) notes that O(release), the current one, serves, so that V(restored) comes back to it.
      - V(restored) points C(current) to the release that was noted last as V(proven), or removes the link when there is
        none. When it is the current one, or when another one than O(release) is current, nothing changes.
      - V(absent) removes O(release). The current release is refused.
      - V(pruned) removes all releases but the newest O(keep), the current one, the one that was current before it, and
        the one that served last. It also removes the directories below C(ROOT/cache/jit) in which FlashInfer compiled
        kernels for a pair of FlashInfer and CUDA that no release has any more. None goes when a release cannot be
        read, or when C(ROOT/cache) leads out of the root.
    type: str
    choices: [staged, current, proven, restored, absent, pruned]
    default: staged
  release:
    description:
      - Number of a release, for O(state=current), O(state=proven) and O(state=absent).
      - For O(state=restored) the release to go back from. When another one is current, it belongs to another rollout
        and stays.
    type: int
  fallback:
    description:
      - Release to which O(state=restored) goes back when C(state/releases.json) was damaged or lost and no release is
        marked as proven. Without it that is an error and C(current) stays.
    type: int
  keep:
    description: How many of the newest releases O(state=pruned) keeps, 0 or more.
    type: int
    default: 10
  facts_dir:
    description:
      - Directory of the fact file. The release with the most output tok/s in it, of the runs that can be compared with
        the newest one, is kept by O(state=pruned) too.
    type: path
  environment:
    description:
      - Name of the environment below C(ROOT/venvs), as M(tokforge.sglang.environment) returns it. Needed for
        O(state=staged).
    type: str
  sglang_version:
    description:
      - SGLang release in the environment. Its own launch arguments are what O(args) is held against. Needed for
        O(state=staged).
    type: str
  lane:
    description: Set of packages in the environment. V(cpu) makes the server run on the CPU.
    type: str
    choices: [cpu, cuda12, cuda13]
    default: cuda13
  backend:
    description: MoE runner backend, one of the release's own choices. V(auto) leaves the choice to SGLang.
    type: str
    default: auto
  host:
    description: Address the server binds to.
    type: str
    default: 127.0.0.1
  port:
    description: Port the server binds to.
    type: int
    default: 30000
  metrics:
    description: Whether the server offers Prometheus metrics.
    type: bool
    default: true
  model:
    description: What is served, as M(tokforge.sglang.model) returns it. Needed for O(state=staged).
    type: dict
    suboptions:
      path:
        description: Directory of the model.
        type: path
        required: true
      served_name:
        description: Name under which the server offers it.
        type: str
        required: true
      random_weights:
        description: Whether the server makes random weights (C(--load-format dummy)).
        type: bool
        default: false
      revision:
        description: What exactly the directory holds, None when nobody knows.
        type: str
  args:
    description:
      - Launch arguments beside those above, by the names that C(launch_server) has, without the dashes in front.
      - V(true) gives the bare flag, V(false) and nothing leave it out, a list gives several values, a mapping gives
        JSON.
      - An argument that another option decides, one that the release does not have, and a value that it does not take
        are refused.
    type: dict
    default: {}
  env:
    description:
      - Environment variables of the server. Secrets are refused, since every user of the target can read
        C(launch.json).
    type: dict
    default: {}
  env_pass_on:
    description:
      - Names of environment variables that the target sets and that the server keeps. Their values are read from the
        environment of the module and are a part of the release, so that another value is another release.
      - The target has to set each of them, to an empty text at least. What O(env) sets or would refuse is refused.
    type: list
    elements: str
    default: []
  flashinfer:
    description:
      - Version of FlashInfer in the environment. Left out where there is none.
      - With O(cuda) it names the directory below C(ROOT/cache/jit) in which FlashInfer compiles its kernels, so that
        releases with the same pair share them and others never do. Without one of them that is C(ROOT/cache).
        C(FLASHINFER_WORKSPACE_BASE) in O(env) is used instead and not removed
        while a release names it. Versions have at most 64 characters.
    type: str
  cuda:
    description: CUDA version that torch in the environment was built for. Left out for a build without CUDA.
    type: str
  autotune_cache_policy:
    description:
      - What the launcher does before a start with tuning results of FlashInfer that not all ranks have, or that another
        environment left. V(consistent) clears them, V(keep) only says so in the log.
    type: str
    choices: [consistent, keep]
    default: consistent
  nodes:
    description:
      - Launch arguments that follow from the hosts that make the server together; filter
        P(tokforge.sglang.server_nodes#filter) gives them.
    type: dict
    default: {}
  autotune_fallback:
    description:
      - When the newest recorded start of the asked content (M(tokforge.sglang.startup_record)) failed inside FlashInfer
        autotune, stage the same content with autotune disabled instead.
    type: bool
    default: false
seealso:
  - module: tokforge.sglang.autotune_cache
  - module: tokforge.sglang.environment
  - module: tokforge.sglang.model
  - module: tokforge.sglang.server_service
"""

EXAMPLES = r"""
- name: Write a release
  tokforge.sglang.release:
    root: /opt/sglang
    environment: 0123456789ab
    sglang_version: 0.5.23
    backend: flashinfer_cutlass
    model:
      path: /data/models/GLM-5-NVFP4
      served_name: glm-5-nvfp4
    args:
      tp-size: 8
      mem-fraction-static: 0.9
  register: staged

- name: Switch to it
  tokforge.sglang.release:
    root: /opt/sglang
    state: current
    release: "{{ staged.release }}"
  register: switched

- name: Note that it serves, once that is known
  tokforge.sglang.release:
    root: /opt/sglang
    state: proven
    release: "{{ staged.release }}"

- name: Go back to the release that served last
  tokforge.sglang.release:
    root: /opt/sglang
    state: restored
    release: "{{ staged.release }}"

- name: Keep the five newest
  tokforge.sglang.release:
    root: /opt/sglang
    state: pruned
    keep: 5
"""

RETURN = r"""
release:
  description: Number of the release that has the asked content. In check mode the number that it would get.
  returned: state is staged
  type: int
  sample: 3
path:
  description: Its directory.
  returned: state is staged
  type: str
  sample: /opt/sglang/releases/3
content_id:
  description: 16 hexadecimal digits that are equal exactly when two releases start the same server.
  returned: state is staged
  type: str
  sample: 7c41d2f09a3b55e1
reused:
  description: Whether a release with this content was there already.
  returned: state is staged
  type: bool
env:
  description: Environment that was given for the server, O(env_pass_on) included, without secrets.
  returned: state is staged
  type: dict
argv:
  description: Command line of the server behind the interpreter.
  returned: state is staged
  type: list
  elements: str
  sample: ["-m", "sglang.launch_server", "--model-path", "/data/models/GLM-5-NVFP4"]
args:
  description: All launch arguments by name, those that other options decide included.
  returned: state is staged, or restored (then those of the release that is current)
  type: dict
  sample: {"port": 30000, "tp-size": 8}
broken:
  description: Releases that are damaged and were passed over.
  returned: state is staged
  type: list
  elements: dict
  contains:
    release:
      description: Its number.
      type: int
    reason:
      description: What is wrong with it.
      type: str
previous:
  description: What C(current) pointed to before. None when there was no link.
  returned: state is current or restored
  type: int
  sample: 2
current:
  description: What C(current) points to. None when there is no link.
  returned: state is staged, current or restored
  type: int
  sample: 3
proven:
  description: The release that served last.
  returned: state is proven
  type: int
  sample: 3
removed:
  description: Releases that were removed.
  returned: state is absent or pruned
  type: list
  elements: int
unused_environments:
  description: Environments that no release uses any more. They are kept, since a later release may ask for one again.
  returned: state is pruned
  type: list
  elements: str
removed_jit_caches:
  description: Directories with compiled kernels that were removed, since no release would load them any more.
  returned: state is pruned
  type: list
  elements: str
  sample: [/opt/sglang/cache/jit/flashinfer-0.6.11-cuda12.9]
"""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    launch_plan,
    passed_env,
    record_selection,
    release_store,
    releases,
    result_store,
    rollout_lock,
    start_history,
)


def stage(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Write or find the release with the asked content. Raises PlanError, StoreError, ReleaseError."""
    root = params["root"]
    real = os.path.realpath(root)
    model = {**params["model"], "path": _below(real, root, params["model"]["path"])}
    request = launch_plan.Request(
        root=real,
        sglang_version=params["sglang_version"],
        lane=params["lane"],
        backend=params["backend"],
        host=params["host"],
        port=params["port"],
        metrics=params["metrics"],
        model_path=model["path"],
        served_name=model["served_name"],
        random_weights=model["random_weights"],
        args=params["args"],
        env=passed_env.merged(params["env_pass_on"], os.environ, params["env"]),
        flashinfer=params["flashinfer"],
        cuda=params["cuda"],
        autotune_cache_policy=params["autotune_cache_policy"],
        nodes=params["nodes"],
    )
    content = _content(params, request, model, real)
    fallback = False
    if params["autotune_fallback"]:
        args = {**params["args"], "disable-flashinfer-autotune": True}
        without = _content(params, replace(request, args=args), model, real)
        fallback = _falls_back(root, content.content_id(), without.content_id())
        content = without if fallback else content
    staged = release_store.stage(root, content, datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), check_mode)
    return {
        "changed": not staged.reused,
        "release": staged.release,
        "path": staged.path,
        "content_id": staged.content_id,
        "reused": staged.reused,
        "current": staged.current,
        "broken": staged.broken,
        "warnings": staged.warnings,
        "argv": list(content.argv),
        "env": launch_plan.given_environment(content.env, root),
        "args": dict(content.args),
        "autotune_fallback": fallback,
        "diff": _launch_diff(root, staged, content),
    }


def _falls_back(root: str, asked: str, without: str) -> bool:
    """Whether the release without autotune takes the place of the asked one: that one failed inside autotune, or nobody
    knows of it any more and the one without is the one that is current.
    """
    starts = start_history.read(root)
    if start_history.knows(starts, asked):
        return start_history.failed_in_autotune(starts, asked)
    current = release_store.read_current(root)
    content = None if current is None else release_store.load(root, current).content
    return content is not None and asked != without and content.content_id() == without


def _content(
    params: dict[str, Any], request: launch_plan.Request, model: dict[str, Any], cwd: str
) -> release_store.Content:
    return release_store.Content(
        environment=params["environment"],
        sglang_version=params["sglang_version"],
        backend=params["backend"],
        argv=launch_plan.argv(request),
        env=launch_plan.environment(request),
        cwd=cwd,
        model=model,
        args=launch_plan.arguments(request),
    )


def _below(real: str, root: str, path: str) -> str:
    """The path with the root in it spelled as `real`. Links further down stay, since they are there to be followed."""
    path = os.path.normpath(path)
    return os.path.join(real, os.path.relpath(path, root)) if path.startswith(f"{root}{os.sep}") else path


def _launch_diff(root: str, staged: release_store.Staged, content: release_store.Content) -> dict[str, str]:
    serving = release_store.load(root, staged.current).content if staged.current is not None else None
    return {
        "before_header": f"releases/{staged.current}/launch.json" if serving else "no release",
        "before": _pretty(serving.launch()) if serving else "",
        "after_header": f"releases/{staged.release}/launch.json",
        "after": _pretty(content.launch()),
    }


def _pretty(launch: dict[str, Any]) -> str:
    return json.dumps(launch, indent=2, sort_keys=True) + "\n"


def switch(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Point current to a release, or remove it. Raises StoreError."""
    return _switched(release_store.switch(params["root"], params["release"], check_mode))


def restore(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Point current to the release that served last. Raises StoreError."""
    root = params["root"]
    result = _switched(release_store.restore(root, params["release"], params["fallback"], check_mode))
    # Where the release that is current again listens, which need not be where the failed one was to listen.
    content = None if result["current"] is None else release_store.load(root, result["current"]).content
    return {
        **result,
        "args": dict(content.args) if content else {},
        "content_id": content.content_id() if content else "",
    }


def _switched(switched: release_store.Switched) -> dict[str, Any]:
    return {
        "changed": switched.changed,
        "previous": switched.previous,
        "current": switched.current,
        "diff": {
            "before_header": "current",
            "before": _link_line(switched.previous),
            "after_header": "current",
            "after": _link_line(switched.current),
        },
    }


def _link_line(number: int | None) -> str:
    return "" if number is None else f"current -> releases/{number}\n"


def prove(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Note that the current release serves. Raises StoreError."""
    proved = release_store.prove(params["root"], params["release"], check_mode)
    lines = [f"proven: {number}\n" for number in (proved.before, proved.proven)]
    return {"changed": proved.changed, "proven": proved.proven, "diff": {"before": lines[0], "after": lines[1]}}


def remove(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Remove one release. Raises StoreError."""
    removed = release_store.remove(params["root"], params["release"], check_mode)
    return _removal([params["release"]] if removed else [])


def prune(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Remove old releases. Raises StoreError."""
    fastest, warnings = None, []
    if params["facts_dir"]:
        try:
            document = result_store.read(params["facts_dir"])
            fastest = record_selection.fastest_content(document) if document else None
        except result_store.StoreError as error:
            warnings = [f"which release was the fastest is not known, so it is not kept for that: {error}"]
    pruned = release_store.prune(params["root"], params["keep"], check_mode, fastest)
    return {
        "warnings": warnings,
        **_removal(pruned.removed, pruned.removed_jit_caches),
        "unused_environments": pruned.unused_environments,
        "removed_jit_caches": pruned.removed_jit_caches,
    }


def _removal(removed: list[int], jit_caches: Sequence[str] = ()) -> dict[str, Any]:
    lines = "".join(f"releases/{number}\n" for number in removed)
    lines += "".join(f"cache/jit/{os.path.basename(path)}\n" for path in jit_caches)
    return {"changed": bool(removed or jit_caches), "removed": removed, "diff": {"before": lines, "after": ""}}


ACTIONS = {
    "staged": stage,
    "current": switch,
    "proven": prove,
    "restored": restore,
    "absent": remove,
    "pruned": prune,
}


def main() -> None:
    model_spec = {
        "path": {"type": "path", "required": True},
        "served_name": {"type": "str", "required": True},
        "random_weights": {"type": "bool", "default": False},
        "revision": {"type": "str"},
    }
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "state": {"type": "str", "choices": list(ACTIONS), "default": "staged"},
            "release": {"type": "int"},
            "fallback": {"type": "int"},
            "keep": {"type": "int", "default": 10},
            "facts_dir": {"type": "path"},
            "environment": {"type": "str"},
            "sglang_version": {"type": "str"},
            "lane": {"type": "str", "choices": ["cpu", "cuda12", "cuda13"], "default": "cuda13"},
            "backend": {"type": "str", "default": "auto"},
            "host": {"type": "str", "default": "127.0.0.1"},
            "port": {"type": "int", "default": 30000},
            "metrics": {"type": "bool", "default": True},
            "model": {"type": "dict", "options": model_spec},
            "args": {"type": "dict", "default": {}},
            "env": {"type": "dict", "default": {}},
            "env_pass_on": {"type": "list", "elements": "str", "default": [], "no_log": False},
            "flashinfer": {"type": "str"},
            "cuda": {"type": "str"},
            "autotune_cache_policy": {
                "type": "str",
                "choices": list(launch_plan.AUTOTUNE_CACHE_POLICIES),
                "default": "consistent",
            },
            "nodes": {"type": "dict", "default": {}},
            "autotune_fallback": {"type": "bool", "default": False},
            "rollout": {"type": "str"},
        },
        required_if=[
            ("state", "staged", ["environment", "sglang_version", "model"]),
            ("state", "absent", ["release"]),
            ("state", "proven", ["release"]),
        ],
        supports_check_mode=True,
    )
    params = {**module.params, "root": os.path.normpath(module.params["root"])}
    try:
        with rollout_lock.at_work(params["root"], None if module.check_mode else params["rollout"]):
            result = ACTIONS[params["state"]](params, module.check_mode)
    except (
        launch_plan.PlanError,
        release_store.StoreError,
        releases.ReleaseError,
        rollout_lock.LockError,
    ) as error:
        module.fail_json(msg=str(error), **error.facts)
    for warning in result.pop("warnings", []):
        module.warn(warning)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
