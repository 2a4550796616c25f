# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No variable is read by a shell, and everything that is fetched is the one that was named: in all that this repository
runs.

Each list is exact, so that a new place needs its reason here.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
#: Where tasks are, and where programs are that run on a target or on the controller.
PLAYS = ("roles", "playbooks", "molecule")
PROGRAMS = ("plugins", "roles", "playbooks", "tokforge_rollout", "tools", "molecule", "tests/verify")

INSIDE = ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks", "handlers")


class Tolerant(yaml.SafeLoader):
    """Takes tags of others, such as vault's, for nothing."""


Tolerant.add_multi_constructor("!", lambda *_arguments: None)


def walk(node: Any) -> Iterator[dict[str, Any]]:
    """Every mapping that is a task, a block or a play."""
    if isinstance(node, list):
        for one in node:
            yield from walk(one)
    elif isinstance(node, dict):
        yield node
        for key in INSIDE:
            yield from walk(node.get(key))


@functools.cache
def tasks() -> list[tuple[str, dict[str, Any]]]:
    """Every task: where it is, and itself."""
    # Variables have no tasks, but may have a module's name.
    files = [path for folder in PLAYS for path in sorted((ROOT / folder).rglob("*.yml"))]
    paths = [path for path in files if not {"group_vars", "vars", "defaults", "meta"} & {*path.parts}]
    paths += sorted(ROOT.glob("*.yml"))
    documents = [(path, document) for path in paths for document in yaml.load_all(path.read_text(), Tolerant)]
    return [(str(path.relative_to(ROOT)), task) for path, document in documents for task in walk(document)]


def calls(*modules: str) -> list[tuple[str, str, Any]]:
    """Calls of these modules: (where, module, arguments), by whatever collection's name."""
    return [
        (f"{where}: {task.get('name')}", key.rsplit(".", 1)[-1], value)
        for where, task in tasks()
        for key, value in task.items()
        if key.rsplit(".", 1)[-1] in modules and ("." in key or key in modules)
    ]


def test_walk_finds_tasks_in_blocks() -> None:
    nested = [{"tasks": [{"block": [{"ansible.builtin.shell": "a"}], "rescue": [{"block": [{"raw": "b"}]}]}]}]
    assert [task for task in walk(nested) if "ansible.builtin.shell" in task or "raw" in task] == [
        {"ansible.builtin.shell": "a"},
        {"raw": "b"},
    ]
    assert len(calls("command")) > 50


# --- shells ----------------------------------------------------------------------------------------------------------

#: Modules whose text a shell reads. `script` hands its arguments through one.
BY_SHELL = {
    "molecule/lxc/tasks/tree.yml: Look at all that provisioning could change": "a constant path of the scenario",
    "molecule/vm/create.yml: See what it is like before": "no variable",
}
#: A shell that is started by name: its text is constant, and what varies comes to it as arguments.
NAMED_SHELL = {
    "molecule/lxc/tasks/start.yml: Start it": "mounts a file system for itself and becomes lxc-start",
    "molecule/systemd/tasks/start.yml: Start it": "the same",
}
SHELLS = ("sh", "bash", "dash", "zsh", "ash")


def test_tasks_that_go_through_a_shell_are_these() -> None:
    assert {where for where, _module, _value in calls("shell", "raw", "script", "expect", "win_shell")} == set(BY_SHELL)
    assert [where for where, module, _value in calls("shell", "raw", "expect") if where.startswith("roles/")] == []


def test_commands_are_lists_of_words() -> None:
    # A text would be split at blanks, and a variable in it could add words.
    assert [where for where, _module, value in calls("command") if not isinstance(value, dict)] == []
    assert [
        where for where, _module, value in calls("command") if isinstance(value, dict) and "argv" not in value
    ] == []


def test_shells_that_are_started_by_name_get_constant_text() -> None:
    found = {}
    for where, _module, value in calls("command"):
        words = value["argv"] if isinstance(value["argv"], list) else [value["argv"]]
        position = next((at for at, word in enumerate(words) if str(word).rsplit("/", 1)[-1] in SHELLS), None)
        if position is not None:
            found[where] = str(words[position + 2])
        elif not isinstance(value["argv"], list):
            # A list that an expression makes.
            assert not re.search(r"'(?:/\S*/)?(?:ba|da|z|a)?sh'", str(value["argv"])), where
    assert set(found) == set(NAMED_SHELL)
    assert [where for where, text in found.items() if "{{" in text] == []


def test_templates_are_no_programs_and_quote_what_is_split_into_words() -> None:
    paths = [path for folder in PLAYS for path in (ROOT / folder).rglob("*.j2")]
    assert len(paths) > 5
    for path in paths:
        text = path.read_text()
        assert not text.startswith("#!"), path
        for line in text.splitlines():
            # supervisord splits this one as a shell does.
            if line.startswith("command ="):
                assert all("| quote" in part for part in re.findall(r"{{(.*?)}}", line)), f"{path}: {line}"
            assert not re.match(r"Exec\w+=.*\b(?:ba|da)?sh -", line), f"{path}: {line}"


def python_files() -> list[Path]:
    return [path for folder in PROGRAMS for path in sorted((ROOT / folder).rglob("*.py"))]


def shell_calls(source: str) -> list[str]:
    """What in a program lets a shell read a text."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in ("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "pty.spawn"):
                found.append(name)
            for keyword in node.keywords:
                if keyword.arg in ("shell", "use_unsafe_shell") and ast.unparse(keyword.value) != "False":
                    found.append(f"{name}({keyword.arg}=)")
        if isinstance(node, (ast.List, ast.Tuple)) and len(node.elts) > 1:
            first = [one.value if isinstance(one, ast.Constant) else None for one in node.elts[:2]]
            if str(first[0]).rsplit("/", 1)[-1] in SHELLS and str(first[1]).startswith("-"):
                found.append(str(first))
    return found


def test_programs_start_no_shell() -> None:
    assert shell_calls("import os\nos.system('x')\nrun(['/bin/sh', '-c', x])\nrun(x, shell=True)") == [
        "os.system",
        "run(shell=)",
        "['/bin/sh', '-c']",
    ]
    assert [(str(path), found) for path in python_files() if (found := shell_calls(path.read_text()))] == []


# --- what is fetched -------------------------------------------------------------------------------------------------

#: Tasks that bring something from elsewhere, and what makes it the thing that was named.
FETCHED = {
    "roles/gpu_driver/tasks/runfile.yml: Get the file": "sha256 of the request, compared again before it is run",
    "roles/sglang_install/tasks/checkout.yml: Check the commit out": "a commit of 40 digits, asserted above",
    "roles/sglang_install/tasks/main.yml: Provide SGLang": "lock with hashes",
    "roles/sglang_install/tasks/tools.yml: Provide uv and supervisor": "lock with hashes",
    "roles/sglang_router/tasks/install.yml: Provide uv and supervisor": "lock with hashes",
    "roles/sglang_router/tasks/install.yml: Provide the router": "lock with hashes",
    "roles/sglang_model/tasks/main.yml: Provide the model": "a commit of 40 digits; the hub's sizes and digests",
    "roles/nvidia_repository/tasks/main.yml: Have the repository, or take it away": "the key's fingerprint",
    "roles/cuda_toolkit/tasks/main.yml: Provide the toolkit for the server": "lock of wheels with hashes",
    "roles/cuda_toolkit/tasks/main.yml: Take the toolkit away": "nothing comes",
    "roles/cuda_toolkit/tasks/packages.yml: Note what is there before packages come": "nothing comes",
    # apt: versions where the role names one, and in any case the signatures of the distribution's or NVIDIA's archive.
    "roles/cuda_toolkit/tasks/packages.yml: Install the packages": "signed archive",
    "roles/cuda_toolkit/tasks/packages.yml: Remove the packages": "nothing comes",
    "roles/gpu_driver/tasks/absent.yml: Take the packages away": "nothing comes",
    "roles/gpu_driver/tasks/absent.yml: Take the kernel's headers away": "nothing comes",
    "roles/gpu_driver/tasks/packages.yml: Install the driver": "signed archive, exact version",
    "roles/gpu_driver/tasks/present.yml: Install the kernel's headers": "signed archive",
    "roles/gpu_driver/tasks/runfile.yml: Install what builds kernel modules": "signed archive",
    "roles/host_tuning/tasks/kernel_package.yml: Install the kernel": "signed archive, held",
    "roles/host_tuning/tasks/tuned.yml: Install TuneD": "signed archive",
    "roles/host_tuning/tasks/tuned_restore.yml: Remove TuneD, which was not there before": "nothing comes",
    "roles/nvidia_repository/tasks/certificates.yml: Install them": "signed archive",
    "roles/nvidia_repository/tasks/main.yml: Take away certificates that this role brought": "nothing comes",
    # A question to a server of ours, and no download.
    "roles/sglang_router/tasks/check.yml: Wait until it answers": "the router itself",
    # The scenarios of the tests.
    "molecule/lxc/tasks/programs.yml: Install those that are missing": "signed archive",
    "molecule/systemd/tasks/programs.yml: Install those that are missing": "signed archive",
    "molecule/vm/tasks/programs.yml: Install those that are missing": "signed archive",
    "molecule/systemd/tasks/rootfs.yml: Unpack it": "what mmdebstrap made of a signed archive",
    "molecule/systemd/tasks/secrets.yml: Ask the server without the key": "the server itself",
    "molecule/systemd/tasks/served.yml: Ask until the server answers": "the server itself",
}
FETCHING = (
    "get_url", "uri", "pip", "git", "subversion", "unarchive", "apt", "dnf", "yum", "package", "apt_key", "rpm_key",
    "apt_repository", "deb822_repository", "galaxy", "npm", "docker_image", "podman_image",
    # ours
    "apt_transaction", "nvidia_repository", "cuda_toolkit", "environment", "model",
)  # fmt: skip


def fetching() -> list[tuple[str, str, Any]]:
    # `environment` is also a keyword of every task.
    names = {f"tokforge.sglang.{name}" for name in FETCHING} | {f"ansible.builtin.{name}" for name in FETCHING}
    names |= set(FETCHING) - {"environment"}
    return [
        (f"{where}: {task.get('name')}", key.rsplit(".", 1)[-1], value)
        for where, task in tasks()
        for key, value in task.items()
        if key in names and not (key in ("package", "pip", "git") and not isinstance(value, (dict, str)))
    ]


def test_tasks_that_fetch_are_these() -> None:
    assert {where for where, _module, _value in fetching()} == set(FETCHED)


def test_what_tasks_fetch_by_address_has_a_checksum_or_a_commit() -> None:
    for where, module, value in fetching():
        if module == "get_url":
            assert str(value["checksum"]).startswith("sha256:"), where
        if module == "git":
            assert value["version"] == "{{ sglang_install_source.commit }}", where
        if module in ("apt", "apt_transaction"):
            assert not value.get("allow_unauthenticated") and not value.get("force"), where
            assert "deb" not in value, where


#: Programs that open connections to elsewhere than a server of ours, or start what does.
REACHING = {
    "plugins/module_utils/apt_run.py": "apt: signed archives",
    "plugins/module_utils/apt_source.py": "apt: signed archives",
    "plugins/module_utils/environment_build.py": "pip and uv: locks with hashes; a source tree: a commit",
    "plugins/module_utils/hub_fetch.py": "the hub: a commit; sizes and digests are compared",
    "plugins/module_utils/toolkit_wheels.py": "pip: --require-hashes",
    "plugins/modules/nvidia_repository.py": "a key, held against its fingerprint",
    "tools/artifact.py": "our own build, --offline",
    "tools/lock.py": "makes the locks, by hand",
    "tools/make_venv.py": "pip and uv: --require-hashes",
}
_WORDS = ("install", "download", "clone", "update")


def reaches(source: str) -> bool:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = getattr(node, "module", None) or ""
            names = [f"{module}.{alias.name}" for alias in node.names]
            if any(re.search(r"huggingface_hub|\brequests\b|module_utils\.urls|urlretrieve", name) for name in names):
                return True
        if isinstance(node, ast.List):
            words = [one.value for one in node.elts if isinstance(one, ast.Constant)]
            if set(words) & set(_WORDS):
                return True
    return False


def test_programs_that_reach_elsewhere_are_these() -> None:
    assert {str(path.relative_to(ROOT)) for path in python_files() if reaches(path.read_text())} == set(REACHING)


def test_pip_and_uv_are_told_to_require_hashes() -> None:
    for name in ("toolkit_wheels", "environment_build"):
        assert "--require-hashes" in (ROOT / f"plugins/module_utils/{name}.py").read_text()
    assert (ROOT / "tools/make_venv.py").read_text().count("--require-hashes") == 2


LOCKS = [*sorted(ROOT.glob("roles/*/files/locks/*.txt")), *sorted(ROOT.glob("requirements/*.txt"))]


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_every_package_of_a_lock_has_a_version_and_hashes(path: Path) -> None:
    text = path.read_text().replace("\\\n", " ")
    pins = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert pins
    bare = [line.split()[0] for line in pins if not re.match(r"\S+==\S+ .*--hash=sha256:[0-9a-f]{64}", line)]
    # The CPU build of torch has another hash wherever it was built: hash_exempt in locks.toml.
    assert [pin for pin in bare if not (path.name.startswith("cpu-") and pin.startswith("torch=="))] == []
