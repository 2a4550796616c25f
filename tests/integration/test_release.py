# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `release` as Ansible runs it, and the roles `sglang_model` and `sglang_release` in plays of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Union

import pytest
import yaml
from module_args import patch_module_args

from ansible_collections.tokforge.sglang.plugins.module_utils import releases, start_history
from ansible_collections.tokforge.sglang.plugins.modules import release

ENVIRONMENT = "0123456789ab"
NEWEST = releases.newest("cpu")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with one complete environment, whose Python is the one that runs the tests."""
    environment = tmp_path / "root" / "venvs" / ENVIRONMENT
    (environment / "bin").mkdir(parents=True)
    # Not a link: a virtual environment's Python finds its packages only under its own path.
    (environment / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (environment / "bin" / "python").chmod(0o755)
    (environment / "environment.json").write_text("{}")
    return tmp_path / "root"


def run(
    capsys: pytest.CaptureFixture[str], root: Path | str, check_mode: bool = False, **params: Any
) -> dict[str, Any]:
    """Run the module in this process and give its result."""
    with patch_module_args({"root": str(root), **params, "_ansible_check_mode": check_mode}), pytest.raises(SystemExit):
        release.main()
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def staging(**more: Any) -> dict[str, Any]:
    """Parameters that stage a CPU release."""
    return {
        "environment": ENVIRONMENT,
        "sglang_version": NEWEST,
        "lane": "cpu",
        "model": {
            "path": "/models/tiny-moe",
            "served_name": "tiny-moe",
            "random_weights": True,
            "revision": "recipe-1",
        },
        **more,
    }


# --- the module -------------------------------------------------------------------------------------------------------


def test_staged_release_starts_the_asked_server(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    result = run(capsys, root, **staging(port=31400, args={"max-total-tokens": 8192}, env={"OMP_NUM_THREADS": 2}))
    assert (result["changed"], result["release"], result["reused"], result["current"]) == (True, 1, False, None)
    launch = json.loads((root / "releases" / "1" / "launch.json").read_text())
    assert launch["argv"] == result["argv"]
    assert launch["argv"][:2] == ["-m", "sglang.launch_server"]
    pairs = dict(zip(launch["argv"], launch["argv"][1:]))
    assert pairs["--model-path"] == "/models/tiny-moe"
    assert pairs["--load-format"] == "dummy"
    assert pairs["--port"] == "31400"
    assert pairs["--max-total-tokens"] == "8192"
    assert launch["env"]["OMP_NUM_THREADS"] == "2"
    assert launch["cwd"] == str(root)
    manifest = json.loads((root / "releases" / "1" / "manifest.json").read_text())
    assert manifest["model"]["served_name"] == "tiny-moe"
    assert manifest["args"]["max-total-tokens"] == 8192
    assert manifest["content_id"] == result["content_id"]


def test_numbers_from_a_templated_inventory_are_the_same_release(
    capsys: pytest.CaptureFixture[str], root: Path
) -> None:
    run(capsys, root, **staging(args={"max-total-tokens": 8192}))
    again = run(capsys, root, **staging(args={"max_total_tokens": "8192"}))
    assert (again["changed"], again["release"]) == (False, 1)


def test_refused_arguments_are_named_all_at_once_and_nothing_is_written(
    capsys: pytest.CaptureFixture[str], root: Path
) -> None:
    failed = run(capsys, root, **staging(args={"port": 1, "max-total-tokenz": 1}))
    assert failed["failed"] is True
    assert "port is decided by sglang_port" in failed["msg"]
    assert "max-total-tokens" in failed["msg"]
    assert len(failed["problems"]) == 2
    assert not (root / "releases").exists()


def test_staging_needs_its_parameters(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    failed = run(capsys, root)
    assert failed["failed"] is True
    assert "environment, sglang_version, model" in failed["msg"]


def test_what_the_machine_sets_is_a_part_of_the_release(
    capsys: pytest.CaptureFixture[str], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["NCCL_NVLS_ENABLE", "NVSHMEM_DISABLE_NVLS"]
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    monkeypatch.setenv("NVSHMEM_DISABLE_NVLS", "")
    asked = staging(env={"OMP_NUM_THREADS": 2}, env_pass_on=names)
    told = run(capsys, root, check_mode=True, **asked)
    done = run(capsys, root, **asked)
    for result in (told, done):
        assert (result["changed"], result["release"]) == (True, 1)
        assert result["env"] == {"OMP_NUM_THREADS": "2", "NCCL_NVLS_ENABLE": "0", "NVSHMEM_DISABLE_NVLS": ""}
        assert '"NCCL_NVLS_ENABLE": "0"' in result["diff"]["after"]
    assert told["content_id"] == done["content_id"]
    launch = json.loads((root / "releases" / "1" / "launch.json").read_text())
    assert {name: launch["env"][name] for name in names} == {"NCCL_NVLS_ENABLE": "0", "NVSHMEM_DISABLE_NVLS": ""}
    assert run(capsys, root, **asked)["changed"] is False
    # Given by hand it is the same server, so the same release.
    by_hand = staging(env={"OMP_NUM_THREADS": 2, "NCCL_NVLS_ENABLE": 0, "NVSHMEM_DISABLE_NVLS": ""})
    assert run(capsys, root, **by_hand)["release"] == 1
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "1")
    told = run(capsys, root, check_mode=True, **asked)
    assert (told["changed"], told["release"]) == (True, 2) and not (root / "releases" / "2").exists()
    assert run(capsys, root, **asked)["release"] == 2
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    assert (run(capsys, root, **asked)["changed"], run(capsys, root, **asked)["release"]) == (False, 1)
    monkeypatch.delenv("NVSHMEM_DISABLE_NVLS")
    for check_mode in (True, False):
        failed = run(capsys, root, check_mode=check_mode, **{**asked, "port": 1})
        assert failed["failed"] is True and "does not set NVSHMEM_DISABLE_NVLS, which" in failed["msg"]
        assert len(failed["problems"]) == 1
    assert sorted(os.listdir(root / "releases")) == ["1", "2"]


def test_root_however_it_is_spelled_is_the_same_release(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    alias = root.parent / "alias"
    alias.symlink_to(root)
    told = []
    for spelled in (str(root), f"{root}/", f"{root}/./", f"{root.parent}//{root.name}", str(alias), f"{alias}/"):
        parameters = staging()
        parameters["model"]["path"] = f"{spelled.rstrip('/')}/models/tiny-moe/"
        found = run(capsys, spelled, **parameters)
        told.append((found["release"], found["content_id"], found["reused"]))
    assert told == [(1, told[0][1], False)] + [(1, told[0][1], True)] * 5
    launch = json.loads((root / "releases" / "1" / "launch.json").read_text())
    assert launch["cwd"] == str(root)
    assert f"{root}/models/tiny-moe" in launch["argv"]


def test_going_back_says_whose_release_is_current(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    for port in (1, 2, 3):
        run(capsys, root, **staging(port=port))
    run(capsys, root, state="current", release=3)
    other = run(capsys, root, state="restored", release=2)
    assert (other["changed"], other["previous"], other["current"]) == (False, 3, 3)
    (root / "state" / "releases.json").write_text("")
    lost = run(capsys, root, state="restored", release=3)
    assert lost["failed"] and "cannot tell which release" in lost["msg"]
    back = run(capsys, root, state="restored", release=3, fallback=1)
    assert (back["changed"], back["previous"], back["current"], link(root)) == (True, 3, 1, "releases/1")


def test_diff_compares_with_what_serves(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    first = run(capsys, root, **staging(port=31400))
    assert (first["diff"]["before_header"], first["diff"]["before"]) == ("no release", "")
    switched = run(capsys, root, state="current", release=1)
    assert (switched["changed"], switched["previous"], switched["current"]) == (True, None, 1)
    assert (switched["diff"]["before"], switched["diff"]["after"]) == ("", "current -> releases/1\n")
    second = run(capsys, root, check_mode=True, **staging(port=31401))
    assert (second["release"], second["diff"]["before_header"]) == (2, "releases/1/launch.json")
    assert '"31400"' in second["diff"]["before"] and '"31401"' in second["diff"]["after"]
    assert not (root / "releases" / "2").exists()


def test_kernels_are_compiled_for_a_pair_and_go_with_its_last_release(
    capsys: pytest.CaptureFixture[str], root: Path
) -> None:
    pair = {"flashinfer": "0.7.2", "cuda": "13.0"}
    run(capsys, root, **staging(**pair, port=1))
    run(capsys, root, **staging(**{**pair, "cuda": "12.9"}, autotune_cache_policy="keep"))
    launches = [json.loads((root / "releases" / name / "launch.json").read_text())["env"] for name in ("1", "2")]
    names = ["flashinfer-0.7.2-cuda13.0", "flashinfer-0.7.2-cuda12.9"]
    assert [env["FLASHINFER_WORKSPACE_BASE"] for env in launches] == [f"{root}/cache/jit/{name}" for name in names]
    assert [env.get("TOKFORGE_AUTOTUNE_CACHE") for env in launches] == [None, "keep"]
    for name in names:
        (root / "cache" / "jit" / name).mkdir(parents=True)
    run(capsys, root, state="current", release=2)
    told = run(capsys, root, check_mode=True, state="pruned", keep=0)
    done = run(capsys, root, state="pruned", keep=0)
    for result in (told, done):
        assert (result["changed"], result["removed"]) == (True, [1])
        assert result["removed_jit_caches"] == [f"{root}/cache/jit/{names[0]}"]
        assert result["diff"] == {"before": f"releases/1\ncache/jit/{names[0]}\n", "after": ""}
    assert os.listdir(root / "cache" / "jit") == names[1:]
    again = run(capsys, root, state="pruned", keep=0)
    assert (again["changed"], again["removed_jit_caches"]) == (False, [])


def recorded_start(root: Path, content_id: str, **failure: Any) -> None:
    """Put a start on record, a failed one with `failure`."""
    start = {"boot_id": "b", "pid": 40 + len(start_history.read(str(root))), "start_ticks": 7, "content_id": content_id}
    start.update(state="failed" if failure else "ready", failure=failure or None)
    assert start_history.add(str(root), start)


def test_content_that_failed_inside_autotune_is_staged_without_it(
    capsys: pytest.CaptureFixture[str], root: Path
) -> None:
    asked = staging(autotune_fallback=True, args={"max-total-tokens": 8192})
    first = run(capsys, root, **asked)
    assert (first["release"], first["autotune_fallback"]) == (1, False)
    recorded_start(root, first["content_id"], stage="autotune", fatal=True, reason="illegal_instruction")
    told = run(capsys, root, check_mode=True, **asked)
    assert (told["changed"], told["autotune_fallback"]) == (True, True) and not (root / "releases/2").exists()
    fallback = run(capsys, root, **asked)
    assert (fallback["changed"], fallback["release"], fallback["autotune_fallback"]) == (True, 2, True)
    # Nothing but that argument is another one.
    assert fallback["args"] == {**first["args"], "disable-flashinfer-autotune": True}
    assert sorted(fallback["argv"]) == sorted([*first["argv"], "--disable-flashinfer-autotune"])
    assert json.loads((root / "releases/2/launch.json").read_text())["argv"] == fallback["argv"]
    assert fallback["content_id"] != first["content_id"]
    again = run(capsys, root, **asked)
    assert (again["changed"], again["release"], again["autotune_fallback"]) == (False, 2, True)
    # Without the fallback, or with other arguments, what is asked for is what is staged.
    assert run(capsys, root, **{**asked, "autotune_fallback": False})["release"] == 1
    assert run(capsys, root, **{**asked, "args": {"max-total-tokens": 4096}})["autotune_fallback"] is False
    # The fallback serves; that says nothing about what it stands in for. A later start of that itself does.
    recorded_start(root, fallback["content_id"])
    assert run(capsys, root, **asked)["release"] == 2
    recorded_start(root, first["content_id"])
    assert (run(capsys, root, **asked)["release"], run(capsys, root, **asked)["autotune_fallback"]) == (1, False)


@pytest.mark.parametrize(
    "failure",
    [
        {"stage": "weights", "fatal": True, "reason": "oom_cuda"},
        {"stage": "autotune", "fatal": False, "reason": "port_in_use"},
    ],
)
def test_failure_that_autotune_has_no_part_in_changes_no_argument(
    capsys: pytest.CaptureFixture[str], root: Path, failure: dict[str, Any]
) -> None:
    first = run(capsys, root, **staging(autotune_fallback=True))
    recorded_start(root, first["content_id"], **failure)
    again = run(capsys, root, **staging(autotune_fallback=True))
    assert (again["changed"], again["release"], again["autotune_fallback"]) == (False, 1, False)


def test_pruning_and_removing_say_what_went(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    for port in (1, 2, 3, 4):
        run(capsys, root, **staging(port=port))
    run(capsys, root, state="current", release=4)
    assert run(capsys, root, state="absent", release=1)["removed"] == [1]
    assert run(capsys, root, state="absent", release=1)["changed"] is False
    pruned = run(capsys, root, state="pruned", keep=2)
    assert (pruned["changed"], pruned["removed"], pruned["unused_environments"]) == (True, [2], [])
    failed = run(capsys, root, state="absent", release=4)
    assert "it is the current one" in failed["msg"]


# --- the roles --------------------------------------------------------------------------------------------------------

#: One entry point of a role, or one with variables of its own.
Step = Union[str, tuple[str, dict[str, Any]]]


def play(
    tmp_path: Path,
    root: Path,
    steps: list[Step],
    *options: str,
    machine: Mapping[str, str] | None = None,
    **variables: Any,
) -> tuple[str, list[dict[str, Any]]]:
    """Run role entry points in one play, where the machine sets `machine`.

    Give its output and, after every step, the facts `model` and `release`.
    """
    seen = root.parent / "seen"
    seen.mkdir(exist_ok=True)
    for old in seen.iterdir():
        old.unlink()
    tasks: list[dict[str, Any]] = []
    for number, step in enumerate(steps):
        name, own = (step, {}) if isinstance(step, str) else step
        role, _sep, entry = name.partition(":")
        include = {"name": f"tokforge.sglang.{role}", "tasks_from": entry or "main"}
        tasks.append({"ansible.builtin.include_role": include, "vars": own})
        facts = (
            "{{ {'model': sglang_model_info | default({}), 'release': sglang_release_info | default({})} | to_json }}"
        )
        copy = {"content": facts, "dest": str(seen / str(number)), "mode": "0644"}
        tasks.append({"ansible.builtin.copy": copy, "check_mode": False, "changed_when": False})
    environment = {"id": ENVIRONMENT, "python": f"{root}/venvs/{ENVIRONMENT}/bin/python"}
    given = {
        "sglang_root": str(root),
        "sglang_environment": environment,
        "sglang_lane": "cpu",
        "sglang_version": NEWEST,
        "ansible_python_interpreter": sys.executable,
    }
    book = tmp_path / "play.yml"
    book.write_text(
        yaml.safe_dump(
            [{"hosts": "localhost", "gather_facts": False, "vars": {**given, **variables}, "tasks": tasks}],
            sort_keys=False,
        )
    )
    done = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "localhost,", "-c", "local", str(book), *options],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "ANSIBLE_INJECT_FACT_VARS": "false",
            "ANSIBLE_STDOUT_CALLBACK": "default",
            **(machine or {}),
        },
        check=False,
    )
    snapshots = [json.loads((seen / str(number)).read_text()) for number in range(len(list(seen.iterdir())))]
    output = done.stdout + done.stderr
    assert (done.returncode == 0) == (len(snapshots) == len(steps)), output
    return output, snapshots


def link(root: Path) -> str | None:
    """What `current` points to."""
    return os.readlink(root / "current") if (root / "current").is_symlink() else None


@pytest.fixture
def models(root: Path) -> dict[str, Any]:
    """Variables for a model directory, so that these tests need no tokenizer."""
    directory = root / "given"
    directory.mkdir()
    (directory / "config.json").write_text('{"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe"}')
    return {"sglang_model": str(directory), "sglang_served_model_name": "given", "sglang_model_random_weights": True}


ROLLOUT: list[Step] = ["sglang_model", "sglang_release", "sglang_release:activate"]


def test_roles_make_stage_switch_and_change_nothing_the_second_time(tmp_path: Path, root: Path) -> None:
    pytest.importorskip("tokenizers", reason="the packages that a server's environment has are not installed here")
    steps = [*ROLLOUT, "sglang_release:prune"]
    _output, seen = play(tmp_path, root, steps)
    assert seen[0]["model"]["served_name"] == "tiny-moe"
    staged, switched = seen[1]["release"], seen[2]["release"]
    assert (staged["release"], staged["reused"], staged["current"], staged["previous"], staged["activated"]) == (
        1,
        False,
        None,
        None,
        False,
    )
    assert staged["path"] == f"{root}/releases/1"
    assert staged["argv"][:2] == ["-m", "sglang.launch_server"]
    assert switched == {**staged, "current": 1, "activated": True}
    assert link(root) == "releases/1"
    output, seen = play(tmp_path, root, steps)
    assert "changed=0 " in output
    again = seen[2]["release"]
    assert (again["reused"], again["activated"], again["current"], again["previous"]) == (True, False, 1, 1)


def test_restore_goes_back_to_the_release_that_served_last(tmp_path: Path, root: Path, models: dict[str, Any]) -> None:
    other = ("sglang_release", {"sglang_port": 30001})
    switched: list[Step] = ["sglang_model", other, "sglang_release:activate"]
    steps: list[Step] = [
        *ROLLOUT,
        "sglang_release:restore",  # 3: the first rollout fails, so nothing is current
        *ROLLOUT,
        "sglang_release:prove",  # 7: the next one is good
        *switched,
        "sglang_release:restore",  # 11: another port fails, so the good one is back
        *switched,  # 14: killed after the switch, nothing proven or restored
        *switched,
        "sglang_release:restore",  # 18: fails again: what served is back, not what current happened to be
        *ROLLOUT,
        "sglang_release:restore",  # 22: the good one itself fails a check, so nothing is switched
    ]
    _output, seen = play(tmp_path, root, steps, **models)
    told = [(seen[at]["release"]["release"], seen[at]["release"]["current"]) for at in (2, 3, 7, 10, 11, 14, 18, 22)]
    assert told == [(1, 1), (1, None), (1, 1), (2, 2), (2, 1), (2, 2), (2, 1), (1, 1)]
    assert link(root) == "releases/1"


def test_role_hands_on_what_is_installed_and_the_policy(tmp_path: Path, root: Path, models: dict[str, Any]) -> None:
    installed = {
        "id": ENVIRONMENT,
        "python": f"{root}/venvs/{ENVIRONMENT}/bin/python",
        "versions": {"sglang": NEWEST, "flashinfer-python": "0.7.2"},
        "torch": {"version": "2.14.1", "cuda": "13.0"},
    }
    keep = ("sglang_release", {"sglang_autotune_cache_policy": "keep"})
    cpu = ("sglang_release", {"sglang_environment": {**installed, "torch": {"version": "2.13.0", "cuda": None}}})
    play(tmp_path, root, ["sglang_model", "sglang_release", keep, cpu], **models, sglang_environment=installed)
    launches = [json.loads((root / "releases" / name / "launch.json").read_text())["env"] for name in "123"]
    pair = f"{root}/cache/jit/flashinfer-0.7.2-cuda13.0"
    assert [env["FLASHINFER_WORKSPACE_BASE"] for env in launches] == [pair, pair, f"{root}/cache"]
    assert [env.get("TOKFORGE_AUTOTUNE_CACHE") for env in launches] == [None, "keep", None]


def test_rollout_keeps_what_the_machine_sets_and_a_way_back_that_does_not_is_refused(
    tmp_path: Path, root: Path, models: dict[str, Any]
) -> None:
    (root / "venvs" / ENVIRONMENT / "environment.json").write_text('{"schema_version": 1}')
    steps: list[Step] = [*ROLLOUT, "sglang_release:prove"]
    play(tmp_path, root, steps, **models)
    variables = {**models, "sglang_server_env_pass_on": ["NCCL_NVLS_ENABLE"]}
    _output, seen = play(tmp_path, root, steps, machine={"NCCL_NVLS_ENABLE": "0"}, **variables)
    assert seen[-1]["release"]["env"] == {"NCCL_NVLS_ENABLE": "0"}
    assert json.loads((root / "current" / "launch.json").read_text())["env"]["NCCL_NVLS_ENABLE"] == "0"
    output, _seen = play(tmp_path, root, steps, machine={"NCCL_NVLS_ENABLE": "0"}, **variables)
    assert "changed=0 " in output and link(root) == "releases/2"
    output, _seen = play(tmp_path, root, steps, "--check", machine={"NCCL_NVLS_ENABLE": "1"}, **variables)
    assert "changed=0 " not in output and link(root) == "releases/2"
    play(tmp_path, root, steps, machine={"NCCL_NVLS_ENABLE": "1"}, **variables)
    assert link(root) == "releases/3"
    choose: list[Step] = [("sglang_release:choose", {"sglang_release_chosen": "1"})]
    output, _seen = play(tmp_path, root, choose, machine={"NCCL_NVLS_ENABLE": "0"}, **variables)
    told = " ".join(output.split())
    assert "cannot start release 1" in told and "this machine sets NCCL_NVLS_ENABLE=0, and the release has none" in told
    back: list[Step] = [("sglang_release:choose", {"sglang_release_chosen": "2"})]
    output, _seen = play(tmp_path, root, back, machine={"NCCL_NVLS_ENABLE": "1"}, **variables)
    assert "sets NCCL_NVLS_ENABLE=1, and the release has NCCL_NVLS_ENABLE=0" in " ".join(output.split())
    _output, seen = play(tmp_path, root, back, machine={"NCCL_NVLS_ENABLE": "0"}, **variables)
    assert seen[0]["release"]["release"] == 2


def test_check_mode_on_a_fresh_root_predicts_and_writes_nothing(tmp_path: Path, models: dict[str, Any]) -> None:
    fresh = tmp_path / "of" / "nothing"
    fresh.parent.mkdir()
    _output, seen = play(
        tmp_path, fresh, [*ROLLOUT, "sglang_release:prune"], "--check", sglang_model="builtin:tiny-moe"
    )
    assert (seen[3]["release"]["release"], seen[3]["release"]["current"]) == (1, 1)
    assert seen[0]["model"]["architecture"] == "Qwen3MoeForCausalLM"
    assert not fresh.exists()


def test_backend_that_is_no_choice_stops_before_anything_is_written(
    tmp_path: Path, root: Path, models: dict[str, Any]
) -> None:
    output, _seen = play(tmp_path, root, ROLLOUT, **models, sglang_backend="nonsense")
    assert "nonsense" in output and "moe-runner-backend" in output
    assert not (root / "releases").exists()


def test_hub_token_shows_in_no_output(tmp_path: Path, root: Path) -> None:
    secret = "hf_canary0123456789"
    output, _seen = play(
        tmp_path,
        root,
        ["sglang_model"],
        "-vvv",
        "--diff",
        sglang_model=f"org/name@{'0' * 40}",
        sglang_hub_endpoint="http://127.0.0.1:9",
        sglang_hub_token=secret,
    )
    assert "http://127.0.0.1:9" in output
    assert secret not in output
