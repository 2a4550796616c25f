#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: autotune_gate
short_description: Open or close the gate that decides whether FlashInfer tunes a MoE backend
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - SGLang lets FlashInfer profile its MoE kernels at start-up only for the MoE runner backends that stand in a
    collection in its source. Opening the gate puts a backend there, closing it brings back the release's own bytes.
  - SGLang is found without importing it. The gate is read from the syntax tree, never by searching the text, and only
    its collection is edited. The function is followed, with everything but the backend undecided, to see that naming
    the backend there decides; where something else does, nothing is edited.
  - The result is read again, and must be the same program but for the one name, before it takes the file's place in one
    step. Mode and links stay, owner and attributes where the caller may keep them. A file that is hard linked into a
    package cache is replaced, and the cache keeps its own.
  - What was done is kept beside the file in C(.<name>.tokforge-gate.json), from which closing restores the original
    bytes.
  - A structure that is not known fails and is never edited.
  - An environment of M(tokforge.sglang.environment) is named after what is in it. Let that module open the gate
    while it builds one (O(tokforge.sglang.environment#module:autotune_backend)), so that going back to an older
    release undoes it.
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
    details:
      - Everything but the writing is done, so a gate that cannot be opened fails in check mode too.
  diff_mode:
    support: full
    details:
      - Shows the file before and after.
options:
  python:
    description:
      - Interpreter whose SGLang is meant, in a virtual environment, with a checkout installed in place, or anywhere
        else. It is run to find SGLang and, when the interpreter of the module is too old for the file's grammar, to
        read it.
      - Exactly one of O(python) and O(source) is needed.
    type: path
  source:
    description: Directory that holds C(sglang/srt), C(python/sglang/srt) or C(srt).
    type: path
  backend:
    description:
      - MoE runner backend, one of the choices that the release itself has for C(--moe-runner-backend).
      - V(auto) is refused, since SGLang replaces it before the gate sees it.
    type: str
    required: true
  state:
    description:
      - V(open) has the backend in the collection. One that is there already, from the release or by another hand,
        is left as it is.
      - V(closed) is the release's own state, whatever that is for the backend. All backends that were put there go,
        those of another hand only when the package's RECORD or git's HEAD proves that the original comes back. When
        O(backend) is one that another hand put there, and nothing proves what the file was, closing is refused.
    type: str
    choices: [open, closed]
    default: open
  when_unsupported:
    description:
      - Whether a release without this gate (RV(gate=unsupported_release) and RV(gate=other_gate)) is a failure.
      - RV(gate=unknown_structure) always is one.
    type: str
    choices: [fail, ok]
    default: fail
notes:
  - A server that runs has read the file already; it has to be started again (RV(restart_required)).
  - That a gate is open does not make a server faster. Measure it.
seealso:
  - module: tokforge.sglang.environment
  - module: tokforge.sglang.autotune_cache
"""

EXAMPLES = r"""
- name: Let FlashInfer tune its CUTLASS MoE kernels
  tokforge.sglang.autotune_gate:
    python: /srv/sglang/bin/python
    backend: flashinfer_cutlass
  register: gate

- name: Bring the release's own state back in a checkout
  tokforge.sglang.autotune_gate:
    source: /srv/src/sglang
    backend: flashinfer_cutlass
    state: closed

- name: Look only, on releases of any age
  tokforge.sglang.autotune_gate:
    python: /srv/sglang/bin/python
    backend: flashinfer_cutlass
    when_unsupported: ok
  check_mode: true
  register: gate
"""

RETURN = r"""
gate:
  description:
    - What the gate was before.
    - C(closed), C(open_by_patch) and C(open_upstream) tell whether the backend is in the collection and who put it
      there.
    - C(unsupported_release) has no autotune (up to 0.5.5.post3), C(other_gate) decides by the attention backend
      (0.5.6 to 0.5.6.post2), and C(unknown_structure) is everything else.
  returned: when SGLang was found
  type: str
  sample: closed
gate_after:
  description: What it is afterwards, in check mode what it would be.
  returned: when SGLang was found
  type: str
  sample: open_by_patch
file:
  description: File that holds the gate. Null when there is none.
  returned: when SGLang was found
  type: str
  sample: /srv/sglang/lib/python3.11/site-packages/sglang/srt/model_executor/model_runner.py
line:
  description: Line of the backend's name, or of the test where the name is not in the collection.
  returned: when SGLang was found
  type: int
  sample: 2539
sglang_version:
  description: Release, null when nothing says it.
  returned: when SGLang was found
  type: str
  sample: 0.5.12.post1
backends_before:
  description: Names in the collection before, in the file's order.
  returned: when SGLang was found
  type: list
  elements: str
  sample: [flashinfer_trtllm, flashinfer_mxfp4, flashinfer_cutedsl]
backends_after:
  description: Names in the collection afterwards.
  returned: when SGLang was found
  type: list
  elements: str
  sample: [flashinfer_trtllm, flashinfer_mxfp4, flashinfer_cutedsl, flashinfer_cutlass]
enabled_by:
  description:
    - Who opened the gate as it is afterwards. C(patch) is this module, C(upstream) the release, C(foreign_patch)
      another hand, null when it is not open.
  returned: when SGLang was found
  type: str
  sample: patch
restart_required:
  description: Whether a server that runs from this file has to be started again to follow it.
  returned: when SGLang was found
  type: bool
msg:
  description: What was done or found, in words.
  returned: always
  type: str
choices:
  description: The release's own backends.
  returned: when the backend is none of them
  type: list
  elements: str
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import autotune_gate, environment_root, sglang_tree
from ansible_collections.tokforge.sglang.plugins.module_utils.autotune_gate import Change, Gate, Source

#: How often to look again when somebody else changes the file meanwhile.
TRIES = 20


def tree_of(params: dict[str, Any]) -> sglang_tree.Tree:
    """The SGLang that is meant. Raises TreeError."""
    for name, find in (("source", sglang_tree.of_source), ("python", sglang_tree.of_python)):
        if params[name] is not None:
            return find(os.path.abspath(params[name]) if params[name] else "")
    raise sglang_tree.TreeError("looking for SGLang: neither python nor source is given; give one of them")


def facts(before: Gate, after: Gate) -> dict[str, Any]:
    """What the module returns about a gate before and after."""
    return {
        "gate": before.kind,
        "gate_after": after.kind,
        "file": after.file,
        "line": after.line,
        "sglang_version": after.version,
        "backends_before": list(before.backends),
        "backends_after": list(after.backends),
        "enabled_by": after.enabled_by,
    }


def diff_of(source: Source, change: Change) -> dict[str, str]:
    """The file before and after."""
    after = source.data if change.data is None else change.data
    return {
        "before_header": source.path,
        "after_header": source.path,
        "before": source.data.decode(source.encoding),
        "after": after.decode(source.encoding),
    }


def sealed(tree: sglang_tree.Tree) -> str | None:
    """The complete environment of ours that the tree lies in, or None."""
    folder = os.path.dirname(os.path.abspath(tree.srt))
    while folder != os.path.dirname(folder):
        if os.path.isfile(os.path.join(folder, environment_root.ENVIRONMENT_MARKER)):
            return folder
        folder = os.path.dirname(folder)
    return None


def run(module: AnsibleModule) -> dict[str, Any]:
    """What the module returns. Raises GateError and TreeError."""
    tree = tree_of(module.params)
    for _time in range(TRIES):
        try:
            return settle(module, tree)
        except autotune_gate.MeanwhileError as error:
            again = error
    raise again


def settle(module: AnsibleModule, tree: sglang_tree.Tree) -> dict[str, Any]:
    """Look, decide and do. Raises GateError and TreeError."""
    params = module.params
    gate, source = autotune_gate.examine(tree, params["backend"])
    known = {**facts(gate, gate), "changed": False, "restart_required": False}
    if source is None:
        if params["when_unsupported"] == "fail" or gate.kind == autotune_gate.UNKNOWN:
            raise autotune_gate.GateError(autotune_gate.refusal(gate), **known)
        return {"msg": autotune_gate.refusal(gate), **known}
    try:
        change = autotune_gate.plan(gate, source, params["state"])
        autotune_gate.apply(source, change, module.check_mode)
    except (autotune_gate.GateError, sglang_tree.TreeError) as error:
        error.facts = {**known, **error.facts}
        raise
    environment = sealed(tree) if change.changed else None
    if environment:
        module.warn(
            f"{environment} is a complete environment, and its name no longer says what is in it; better let role "
            "sglang_install make another one (sglang_autotune_gate)"
        )
    result = {**facts(gate, change.after), "changed": change.changed, "restart_required": change.changed}
    # The whole file twice, so that line numbers are true; nobody wants it in a result without --diff.
    shown = {"diff": diff_of(source, change)} if module._diff else {}
    would = "check mode, nothing was written: would have " if change.changed and module.check_mode else ""
    return {"msg": would + change.message, **result, **shown}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path"},
            "source": {"type": "path"},
            "backend": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["open", "closed"], "default": "open"},
            "when_unsupported": {"type": "str", "choices": ["fail", "ok"], "default": "fail"},
        },
        mutually_exclusive=[("python", "source")],
        required_one_of=[("python", "source")],
        supports_check_mode=True,
    )
    try:
        result = run(module)
    except (autotune_gate.GateError, sglang_tree.TreeError) as error:
        module.fail_json(msg=str(error), **error.facts)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
