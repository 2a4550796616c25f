#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: environment
short_description: Make a Python environment that is named after what is in it
version_added: 0.1.0
description:
  - Makes C(<root>/venvs/<id>) from a lock with hashes and holds what was installed against what was asked.
  - The id is derived from the request and the interpreter, so the same request changes nothing and another request
    is another directory. An environment that is complete is never changed again.
  - An environment is complete when its C(environment.json) is there, which is written last. A directory without it
    is the rest of an install that was stopped; it is removed and built again. Two runs at once build an environment
    once.
  - The file C(.tokforge-sglang) in O(root) is written before everything else and says that the directory is ours. A
    root without it that holds something with a name of ours (C(venvs), C(bin), C(src) and so on) is refused.
author:
  - tokforge.sglang contributors (@tokforge)
extends_documentation_fragment:
  - tokforge.sglang.attributes
  - tokforge.sglang.rollout_token
attributes:
  check_mode:
    support: full
    details:
      - Says which environment would be built. The request, the interpreter, the place and a checkout are checked as
        in a real run, packages
        are not looked up.
  diff_mode:
    support: full
    details:
      - Shows the path and whether the environment is there, before and after.
  action:
    description: Has an action plugin of the same name that reads the lock and the overlay on the controller and
      shows a sign of life.
    support: full
options:
  root:
    description: Directory of the rollout. Environments are in C(venvs) below it.
    type: path
    required: true
  kind:
    description:
      - What the environment is for. V(tools) holds the installer and the process supervisor, V(sglang) the server,
        V(router) its router.
    type: str
    choices: [tools, sglang, router]
    required: true
  lock:
    description:
      - Requirements file of exact pins with hashes, on the controller. A relative path is looked for like C(src) of
        M(ansible.builtin.copy).
    type: path
    required: true
  lock_no_deps:
    description: A second such file, which is installed afterwards and without the requirements of what it names.
    type: path
  hash_exempt:
    description:
      - Distributions that may differ from the lock's hashes, for example a build of torch for this machine.
      - The file that the pin resolves to on the target is taken, its sha256 is verified while installing and
        recorded.
      - Needs O(installer=uv).
    type: list
    elements: str
    default: []
  python:
    description:
      - Interpreter for the environment, a path or a name on the target's PATH.
      - V(auto) takes the interpreter Ansible runs with when it fits O(requires_python), otherwise the newest
        C(python3.X) on PATH that does.
    type: str
    default: auto
  requires_python:
    description:
      - Which Python versions fit, for example V(>=3.11).
      - Left out, it is what the SGLang release in O(expect) asks for when this collection knows that release,
        otherwise any
        Python fits.
    type: str
  installer:
    description: What installs. V(pip) is for the environment that brings uv.
    type: str
    choices: [pip, uv]
    default: uv
  uv:
    description: Path of the uv program. Needed for O(installer=uv) when something has to be built.
    type: path
  uv_cache:
    description:
      - Directory of uv's cache. On the file system of O(root), files are hard links into it and a second environment
        costs little space.
      - Left out, C(cache/uv) below O(root).
    type: path
  source:
    description: Where SGLang and its requirements come from.
    type: dict
    default: {type: index}
    suboptions:
      type:
        description:
          - V(index) takes packages from the indexes of O(index).
          - V(wheelhouse) takes them from the wheels in one directory of the target and uses no network.
          - V(checkout) installs the lock from the indexes and then a source tree of the target in place, without its
            requirements.
        type: str
        choices: [index, wheelhouse, checkout]
        default: index
      path:
        description: The wheelhouse or the source tree. C(python) below it is used when the project is there, as in
          SGLang's repository.
        type: path
      commit:
        description:
          - Commit, 40 hexadecimal digits, that the checkout must be at, without changes.
          - Left out, the tree is taken as it is, and its state is part of the id.
        type: str
      version:
        description: Release that the tree is. Needed where its git tags are missing, since SGLang takes its version
          from them.
        type: str
  index:
    description:
      - Where packages come from. Not part of the id, because hashes decide what is installed.
      - C(PIP_*) and C(UV_*) variables of the login shell never reach the installer except through
        O(index.inherit_pip).
    type: dict
    default: {}
    suboptions:
      inherit_pip:
        description: Whether to take over the settings of the target's pip (indexes, wheel directories, certificate,
          proxy).
        type: bool
        default: true
      index_url:
        description: Package index that replaces the default one.
        type: str
      extra_index_urls:
        description: More package indexes. The best version of all of them is taken.
        type: list
        elements: str
        default: []
      find_links:
        description: Directories of wheels on the target, or pages that link to them.
        type: list
        elements: str
        default: []
  base:
    description:
      - A Python of the target whose installed packages are used, for example that of a machine's image with its own
        build of torch. Its compiled modules are shared, so the environment is made with the same Python.
      - Distributions of the lock that it has are taken from it in whatever version they are there, apart from C(torch),
        which must be the locked version. C(sglang) and C(flashinfer-python) are always installed.
      - What is taken and its versions are part of the id and are recorded in C(environment.json).
      - Needs O(installer=uv).
    type: dict
    suboptions:
      python:
        description: The interpreter, a path or a name on the target's PATH.
        type: str
        required: true
      reinstall:
        description: Distributions of the lock that are installed in the locked version although the base has them.
        type: list
        elements: str
        default: []
      leave_out:
        description: Distributions of the lock that are not installed, for what neither the base nor the source has.
        type: list
        elements: str
        default: []
  overlay:
    description:
      - Directory on the controller whose files are laid over site-packages after the install.
      - A file that is there already is replaced by a new one, so other environments that share it through uv's cache
        keep theirs.
    type: path
  autotune_backend:
    description:
      - MoE runner backend that SGLang's autotune gate is to be open for, see M(tokforge.sglang.autotune_gate).
      - Where the release does not tune it by itself, its source is edited while the environment is built, and the edit
        is part of the id.
      - A O(source) of type V(checkout) is not edited, since it is used in place. It must be open for the backend
        already.
      - Left out, the gate stays as the release has it.
    type: str
  jit_artifacts:
    description:
      - Kernels of FlashInfer that were built elsewhere, so that the server need not compile them at its first start.
      - Each is put into the environment and is part of its id. A build for another FlashInfer or CUDA, or with code
        for no GPU of this machine, is refused. One with code for some of its GPUs is warned of.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description:
          - Where it is on the target. A directory or an archive (C(.tar), C(.tar.gz), C(.tar.xz)) with
            C(NAME/NAME.so) at any depth, such as FlashInfer's own cache, or one library C(NAME.so), also with C(.gz) or
            C(.xz).
        type: path
        required: true
      flashinfer:
        description: Release of FlashInfer that it was built for, since the files do not say.
        type: str
        required: true
      sha256:
        description:
          - What it must be, of the file as it is there. With it, an environment that is there needs no file any more.
          - Of a directory, the sha256 of what C(LC_ALL=C sha256sum */*.so) prints in it.
        type: str
  expect:
    description: Distributions and the versions that must be installed in the end.
    type: dict
    default: {}
  torch_build:
    description: Which build of torch must be installed in the end, read from its own C(torch/version.py).
    type: str
    choices: [any, cpu, cuda12, cuda13]
    default: any
  min_free_bytes:
    description: Room in bytes that must be free below O(root) before something is built.
    type: int
    default: 0
seealso:
  - module: ansible.builtin.pip
"""

EXAMPLES = r"""
- name: Make the environment that brings uv and supervisor
  tokforge.sglang.environment:
    root: /opt/sglang
    kind: tools
    installer: pip
    lock: locks/tools.txt
  register: tools

- name: Install SGLang from an offline directory of wheels
  tokforge.sglang.environment:
    root: /opt/sglang
    kind: sglang
    lock: locks/cuda13-0.5.23.txt
    uv: "{{ tools.path }}/bin/uv"
    source:
      type: wheelhouse
      path: /srv/wheels
    expect:
      sglang: 0.5.23
    torch_build: cuda13

- name: Use the build of torch that the machine's image brings, without network
  tokforge.sglang.environment:
    root: /opt/sglang
    kind: sglang
    lock: locks/cuda13-0.5.12.post1.txt
    uv: "{{ tools.path }}/bin/uv"
    source:
      type: wheelhouse
      path: /srv/wheels
    base:
      python: /opt/torch/bin/python
      reinstall: [tokenizers, transformers]
      leave_out: [outlines]
    jit_artifacts:
      - path: /srv/kernels/fused_moe_90.so.xz
        flashinfer: 0.6.11.post1

- name: The same, with FlashInfer's autotune for a backend that the release does not tune by itself
  tokforge.sglang.environment:
    root: /opt/sglang
    kind: sglang
    lock: locks/cuda13-0.5.12.post1.txt
    uv: "{{ tools.path }}/bin/uv"
    expect:
      sglang: 0.5.12.post1
    autotune_backend: flashinfer_cutlass
"""

RETURN = r"""
id:
  description: Name of the environment, 12 hexadecimal digits.
  returned: success
  type: str
  sample: 4f1c09aa31de
path:
  description: Directory of the environment.
  returned: success
  type: str
  sample: /opt/sglang/venvs/4f1c09aa31de
python:
  description: Interpreter of the environment.
  returned: success
  type: str
  sample: /opt/sglang/venvs/4f1c09aa31de/bin/python
complete:
  description: Whether the environment is there. False only in check mode, when it would be built.
  returned: success
  type: bool
reason:
  description: Why it was built, or why not.
  returned: success
  type: str
  sample: "built: an earlier install was interrupted"
versions:
  description: Version of every installed distribution. Empty while there is no environment.
  returned: success
  type: dict
  sample: {sglang: 0.5.23, torch: 2.14.1}
torch:
  description:
    - The build of torch. C(cuda) is null for a CPU build. C(sha256) is that of the wheel when torch is in
      O(hash_exempt), otherwise null, because the lock
      has it. Null when there is no torch.
  returned: success
  type: dict
  sample: {version: 2.13.0+cpu, cuda: null, sha256: 6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b}
autotune_gate:
  description:
    - The autotune gate of SGLang in this environment. Null while there is no environment, and where SGLang has no gate.
  returned: success
  type: dict
  contains:
    backend:
      description: Backend that was asked for. Null when none was.
      type: str
    gate:
      description: What the gate is for it, in the words of M(tokforge.sglang.autotune_gate). Null without a backend.
      type: str
    enabled_by:
      description: Who opened it, C(patch), C(upstream) or C(foreign_patch). Null when it is not open.
      type: str
    backends:
      description: All backends that are tuned.
      type: list
      elements: str
    file:
      description: File that holds it. When it was changed after the environment was built, that is an error.
      type: str
hash_exempt:
  description: For each distribution in O(hash_exempt), the C(file) it came from and its C(sha256), or null and
    C(why) that cannot be said.
  returned: success
  type: dict
unlocked:
  description: What was installed beside the lock, for example requirements of another build of torch.
  returned: success
  type: dict
install_s:
  description: Seconds the build took when it was made. Null while there is no environment.
  returned: success
  type: float
found:
  description: Interpreters that were looked at, and their version or why they do not run.
  returned: when no interpreter fits
  type: dict
problems:
  description: What is installed otherwise than asked.
  returned: when the installed versions are not the asked ones
  type: list
  elements: str
log:
  description: Everything the installer said.
  returned: when an installer failed
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import environment, releases, rollout_lock, site_packages
from ansible_collections.tokforge.sglang.plugins.module_utils.base_packages import Base
from ansible_collections.tokforge.sglang.plugins.module_utils.environment_request import Request, Source
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError
from ansible_collections.tokforge.sglang.plugins.module_utils.jit_artifacts import ArtifactRequest

ARGUMENTS: dict[str, Any] = {
    "root": {"type": "path", "required": True},
    "rollout": {"type": "str"},
    "kind": {"type": "str", "choices": ["tools", "sglang", "router"], "required": True},
    "lock": {"type": "path", "required": True},
    "lock_no_deps": {"type": "path"},
    "hash_exempt": {"type": "list", "elements": "str", "default": []},
    "python": {"type": "str", "default": "auto"},
    "requires_python": {"type": "str"},
    "installer": {"type": "str", "choices": ["pip", "uv"], "default": "uv"},
    "uv": {"type": "path"},
    "uv_cache": {"type": "path"},
    "source": {
        "type": "dict",
        "default": {"type": "index"},
        "options": {
            "type": {"type": "str", "choices": ["index", "wheelhouse", "checkout"], "default": "index"},
            "path": {"type": "path"},
            "commit": {"type": "str"},
            "version": {"type": "str"},
        },
        "required_if": [("type", "wheelhouse", ["path"]), ("type", "checkout", ["path"])],
    },
    "index": {
        "type": "dict",
        "default": {},
        "options": {
            "inherit_pip": {"type": "bool", "default": True},
            # Addresses may hold passwords.
            "index_url": {"type": "str", "no_log": True},
            "extra_index_urls": {"type": "list", "elements": "str", "default": [], "no_log": True},
            "find_links": {"type": "list", "elements": "str", "default": []},
        },
        "apply_defaults": True,
    },
    "base": {
        "type": "dict",
        "options": {
            "python": {"type": "str", "required": True},
            "reinstall": {"type": "list", "elements": "str", "default": []},
            "leave_out": {"type": "list", "elements": "str", "default": []},
        },
    },
    "overlay": {"type": "path"},
    "autotune_backend": {"type": "str"},
    "jit_artifacts": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "path": {"type": "path", "required": True},
            "flashinfer": {"type": "str", "required": True},
            "sha256": {"type": "str"},
        },
    },
    "expect": {"type": "dict", "default": {}},
    "torch_build": {"type": "str", "choices": ["any", "cpu", "cuda12", "cuda13"], "default": "any"},
    "min_free_bytes": {"type": "int", "default": 0},
}


def request_of(params: dict[str, Any]) -> Request:
    """The module's parameters as a request. Reads the lock files and the overlay; raises InstallError."""
    index, base = params["index"], params["base"]
    return Request(
        root=params["root"],
        kind=params["kind"],
        python=params["python"],
        installer=params["installer"],
        uv=params["uv"],
        torch_build=params["torch_build"],
        min_free_bytes=params["min_free_bytes"],
        hash_exempt=tuple(params["hash_exempt"]),
        autotune_backend=params["autotune_backend"],
        jit_artifacts=tuple(ArtifactRequest(**artifact) for artifact in params["jit_artifacts"]),
        lock=read_text(params["lock"]),
        lock_no_deps=read_text(params["lock_no_deps"]) if params["lock_no_deps"] else None,
        requires_python=requires_python(params),
        uv_cache=params["uv_cache"] or f"{params['root']}/cache/uv",
        source=Source(**params["source"]),
        inherit_pip=index["inherit_pip"],
        index_url=index["index_url"],
        extra_index_urls=tuple(index["extra_index_urls"]),
        find_links=tuple(index["find_links"]),
        base=Base(base["python"], tuple(base["reinstall"]), tuple(base["leave_out"])) if base else None,
        overlay=site_packages.read_overlay(params["overlay"]) if params["overlay"] else {},
        expect={name: str(version) for name, version in params["expect"].items()},
    )


def read_text(path: str) -> str:
    """The text of a lock file."""
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except (OSError, ValueError) as error:
        raise InstallError(f"reading the lock {path}: {error}; give a readable requirements file", path=path) from error


def requires_python(params: dict[str, Any]) -> str:
    """The asked range of Python versions, or that of the expected SGLang release when this collection knows it."""
    version = str(params["expect"].get("sglang", ""))
    if params["requires_python"] is None and version in releases.known():
        return releases.requires_python(version)
    return params["requires_python"] or ""


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, required_if=[("installer", "uv", ["uv"])], supports_check_mode=True)
    rollout = None if module.check_mode else module.params["rollout"]
    try:
        with rollout_lock.at_work(module.params["root"], rollout):
            outcome = environment.ensure(request_of(module.params), module.check_mode)
    except (InstallError, rollout_lock.LockError) as error:
        module.fail_json(msg=str(error), **error.facts)
    for warning in outcome.warnings:
        module.warn(warning)
    module.exit_json(**environment.as_result(outcome))


if __name__ == "__main__":
    main()
