#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: autotune_cache
short_description: Keep FlashInfer's tuning results of a server the same for all ranks
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Every rank of a server keeps FlashInfer's tuning results in a file of its own. A rank that finds its file skips what
    it holds, a rank that does not tunes. So ranks of which only some find theirs may wait for each other until they
    give up, half an hour later, or settle on different tactics. A set that was written in another environment is
    ignored, and FlashInfer may never write over it, so that every start tunes anew.
  - This module tells which set is the server's own and in which state it is, and clears it.
  - Which directory belongs to a server depends on what is resolved inside of it only. Every name that it could have is
    tried. A directory with such a name belongs to this model and this parallel layout beyond doubt, and all others are
    left alone.
  - Only rank files and half-written files of FlashInfer are removed, and the directory when nothing else is in it.
  - A set below the architecture of another GPU belongs to another machine that shares the cache, and is left alone.
  - The launcher of role C(sglang_server) does the same before every start. This module is for looking, and for clearing
    a set by hand.
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
    details:
      - With O(root) a set that has to be cleared while the server runs is reported, not refused.
  diff_mode:
    support: full
    details:
      - Shows the files of the sets before and after.
options:
  root:
    description:
      - Root directory of a server on the target. Its model, layout, cache directory and versions are those of the
        release that is current, or of O(release).
      - A server that gets arguments from a file of C(--config) is refused, since what is in there is not known.
    type: path
  release:
    description: Number of a release of O(root), in place of the current one.
    type: int
  path:
    description:
      - Directory of one set, C(CACHE/flashinfer/autotune/VERSION/ARCH/KEY). Whether a server uses it is not known here,
        so stop the server first.
    type: path
  state:
    description:
      - V(consistent) clears a set that is partial, stale or cannot be read, and leaves a complete one alone. With
        O(root) nothing is cleared when the server reads no results, as when FlashInfer's autotune is switched off.
      - V(absent) clears every set of the server.
    type: str
    choices: [consistent, absent]
    default: consistent
  tp_size:
    description: Tensor-parallel size of the server, for O(path).
    type: int
    default: 1
  pp_size:
    description: Pipeline-parallel size of the server, for O(path).
    type: int
    default: 1
  dp_size:
    description: Data-parallel size of the server, for O(path).
    type: int
    default: 1
  dp_attention:
    description:
      - Whether O(dp_size) is the width of attention data parallelism, for O(path). Then the tensor-parallel ranks are
        shared out among that many groups. Otherwise every one of O(dp_size) replicas has all of them.
    type: bool
    default: false
  nnodes:
    description:
      - Nodes the server runs on, for O(path). Only the ranks of this node are expected, unless those of another node
        lie in the set too, since the nodes share it then.
    type: int
    default: 1
  node_rank:
    description: Number of this node, for O(path).
    type: int
    default: 0
  metadata:
    description:
      - Values that the environment has now, by the names that FlashInfer gives them in C(_metadata), for O(path). What
        is not given, or null, is only compared between the ranks.
      - With O(root) these are C(flashinfer_version), C(cuda_version), C(cudnn_frontend_version) and C(gpu), as far as
        they are known without running anything.
    type: dict
    default: {}
seealso:
  - module: tokforge.sglang.release
  - module: tokforge.sglang.server_service
"""

EXAMPLES = r"""
- name: See in which state the tuning results are, changing nothing
  tokforge.sglang.autotune_cache:
    root: /opt/sglang
  check_mode: true
  register: cache

- name: Clear them unless all ranks have theirs
  tokforge.sglang.autotune_cache:
    root: /opt/sglang

- name: Tune anew at the next start
  tokforge.sglang.autotune_cache:
    root: /opt/sglang
    state: absent

- name: Clear one set of a server with eight ranks when another CUDA wrote it
  tokforge.sglang.autotune_cache:
    path: /var/cache/sglang/flashinfer/autotune/0.7.2/sm120/0123456789abcdef
    tp_size: 8
    metadata:
      flashinfer_version: 0.7.2
      cuda_version: "13.0"
"""

RETURN = r"""
cache_state:
  description:
    - State before this run, the worst of RV(sets). V(absent) when there is no set, V(complete) when every rank has its
      file, V(partial) when some do not, V(stale) when another environment wrote a file or the ranks disagree about who
      wrote theirs, V(unreadable) when a file cannot be loaded.
  returned: success
  type: str
  sample: partial
directory:
  description: Directory of the set, or the one that would hold it when there is none.
  returned: success
  type: str
  sample: /opt/sglang/cache/sglang/flashinfer/autotune/0.7.2/sm120/0123456789abcdef
key:
  description: Name of that directory, a hash of what the server was started with. Empty when there is no set.
  returned: success
  type: str
  sample: 0123456789abcdef
ranks_expected:
  description: Ranks of the server on this node.
  returned: success
  type: list
  elements: str
  sample: [tp0_pp0_dp0, tp1_pp0_dp0]
ranks_present:
  description: Ranks that have a file.
  returned: success
  type: list
  elements: str
  sample: [tp0_pp0_dp0]
ranks_missing:
  description: Ranks that have none.
  returned: success
  type: list
  elements: str
  sample: [tp1_pp0_dp0]
stale:
  description: What another environment wrote.
  returned: success
  type: list
  elements: dict
  contains:
    rank:
      description: Rank whose file it is.
      type: str
    key:
      description: Name in C(_metadata).
      type: str
    saved:
      description: What the file says, null when it does not say it.
      type: raw
    current:
      description: What the environment has now, null when it is not known and only the ranks disagree.
      type: str
unreadable:
  description: What cannot be loaded.
  returned: success
  type: list
  elements: dict
  contains:
    path:
      description: The file.
      type: str
    why:
      description: What is wrong with it.
      type: str
sets:
  description:
    - All sets of the server, each with C(directory), C(key), C(cache_state), C(ranks_expected), C(ranks_present),
      C(ranks_missing), C(stale) and C(unreadable). A draft model has a set of its own. The values above are those of
      the worst.
  returned: success
  type: list
  elements: dict
cleared:
  description: Files that were removed (or would be, in check mode).
  returned: success
  type: list
  elements: str
msg:
  description: Why something was not looked for or not cleared, where that is so.
  returned: when there is something to say
  type: str
  sample: "nothing was cleared: --disable-flashinfer-autotune is given"
"""

import os
from typing import Any, NamedTuple

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import autotune_cache as core
from ansible_collections.tokforge.sglang.plugins.module_utils import release_store, service


class Look(NamedTuple):
    """The sets, what stands for them when there is none, the directory they must not lead out of, what has to be said
    beside them, and why the server reads none of them (empty when it may)."""

    reports: list[core.SetReport]
    nothing: core.SetReport
    within: str
    note: str = ""
    unread: str = ""


def look(params: dict[str, Any]) -> Look:
    """What lies there. Raises StoreError, AutotuneCacheError."""
    if params["path"] is not None:
        path = os.path.normpath(params["path"])
        layout = core.Layout(
            params["tp_size"],
            params["pp_size"],
            params["dp_size"],
            params["dp_attention"] and params["dp_size"] > 1,
            params["nnodes"],
            params["node_rank"],
        )
        metadata = {str(name): str(value) for name, value in params["metadata"].items() if value is not None}
        report = core.inspect_set(path, layout, core.Current(metadata))
        return Look([report], report, os.path.dirname(path))
    content, venv = read_release(os.path.realpath(params["root"]), params["release"])
    versions = core.installed_versions(venv)
    unread = core.off_because(content.argv, content.env, versions.get("sglang", ""), versions.get("flashinfer-python"))
    configuration = core.configure(content.argv, content.env, venv, content.cwd)
    nothing = core.inspect_set(configuration.folder, configuration.identity.layout, core.Current())
    findings = core.inspect(configuration)
    return Look(findings.reports, nothing, configuration.cache_dir, findings.note, unread or "")


def read_release(root: str, number: int | None) -> tuple[release_store.Content, str]:
    """How a release's server is started, and its environment. Raises StoreError."""
    if number is None:
        number = release_store.read_current(root)
    if number is None:
        raise release_store.StoreError(
            f"cannot tell the autotune cache of {root}: there is no current release; deploy one, or give a release",
            root=root,
        )
    release = release_store.load(root, number)
    if release.content is None:
        raise release_store.StoreError(
            f"cannot tell the autotune cache of release {number} below {root}: {release.broken}; give another release",
            release=number,
        )
    return release.content, os.path.join(root, "venvs", release.content.environment)


def refuse_while_serving(root: str) -> None:
    """Raises AutotuneCacheError when a process of the root's server lives: it would write the rest of a set later."""
    paths = service.Paths(os.path.realpath(root))
    alive = [one.pid for one in service.own_processes(paths, 0, (), service.read_record(paths)) if one.alive]
    if alive:
        raise core.AutotuneCacheError(
            f"cannot clear the autotune cache of {root}: its server runs (process {alive[0]}); stop it first"
            " (server_service with state stopped). Nothing was changed",
            pids=alive,
        )


def carry_out(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Look, clear what has to go (not in check mode), and say what there was. Raises AutotuneCacheError, StoreError."""
    reports, nothing, within, note, unread = look(params)
    if params["state"] == "absent":
        going = [one for one in reports if one.clearable or one.closed]
    else:
        going = [] if unread else [one for one in reports if not one.consistent]
    for report in going:
        core.check_clearable(report, within)
    notes = [f"nothing was cleared: {unread}"] if unread and params["state"] != "absent" else []
    notes += [note] if note else []
    chief = max(reports, key=lambda report: core.STATES.index(report.state), default=nothing)
    cleared = [path for report in going for path in report.clearable]
    before = [path for report in reports for path in report.clearable]
    after = [path for path in before if path not in set(cleared)]
    # All that is said is made before anything is removed: a fault in it changes nothing.
    result: dict[str, Any] = plain(
        {
            **(chief.result() if reports else {**chief.result(), "cache_state": "absent", "key": ""}),
            "sets": [report.result() for report in reports],
            "cleared": cleared,
            "changed": bool(cleared),
            **({"msg": core.one_line("; ".join(notes))} if notes else {}),
            "diff": {
                "before_header": "files of the autotune cache",
                "before": "".join(f"{path}\n" for path in before),
                "after_header": "files of the autotune cache",
                "after": "".join(f"{path}\n" for path in after),
            },
        }
    )
    if going and not check_mode:
        if params["root"] is not None:
            refuse_while_serving(params["root"])
        cleared = [path for report in going for path in core.clear_set(report.path, within)]
        result.update({"cleared": plain(cleared), "changed": bool(cleared)})
    return result


def plain(value: Any) -> Any:
    """The same with lone surrogates, which no JSON reader takes, escaped in every text."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {plain(name): plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path"},
            "release": {"type": "int"},
            "path": {"type": "path"},
            "state": {"type": "str", "choices": ["consistent", "absent"], "default": "consistent"},
            "tp_size": {"type": "int", "default": 1},
            "pp_size": {"type": "int", "default": 1},
            "dp_size": {"type": "int", "default": 1},
            "dp_attention": {"type": "bool", "default": False},
            "nnodes": {"type": "int", "default": 1},
            "node_rank": {"type": "int", "default": 0},
            "metadata": {"type": "dict", "default": {}},
        },
        mutually_exclusive=[("root", "path"), ("release", "path")],
        required_one_of=[("root", "path")],
        supports_check_mode=True,
    )
    try:
        result = carry_out(module.params, module.check_mode)
    except (core.AutotuneCacheError, release_store.StoreError) as error:
        # Ansible adds the mode and the owner of a `path` to a result.
        facts = {"directory" if name == "path" else name: fact for name, fact in error.facts.items()}
        module.fail_json(msg=core.one_line(str(error)), **plain(facts))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
