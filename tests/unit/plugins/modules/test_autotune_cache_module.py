# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module, for a set and for a root: what it says, what it clears, and what it refuses."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from module_args import patch_module_args

from ansible_collections.tokforge.sglang.plugins.module_utils import release_store
from ansible_collections.tokforge.sglang.plugins.modules import autotune_cache

ENVIRONMENT = "0123456789ab"


def write_set(folder: Path, ranks: range, dp: int = 0, **metadata: str) -> Path:
    """Rank files of a set."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in ranks:
        saved = {"flashinfer_version": "0.7.2", "cuda_version": "13.0", "gpu": "X", **metadata}
        (folder / f"rank_tp{number}_pp0_dp{dp}.json").write_text(json.dumps({"_metadata": saved}))
    return folder


def files(folder: Path) -> dict[str, bytes]:
    """Every file with its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run(capsys: pytest.CaptureFixture[str], check_mode: bool = False, **params: Any) -> dict[str, Any]:
    """Run the module in this process and give its result."""
    given = {name: str(value) if isinstance(value, Path) else value for name, value in params.items()}
    with patch_module_args({**given, "_ansible_check_mode": check_mode}), pytest.raises(SystemExit):
        autotune_cache.main()
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Where one set lies."""
    return tmp_path / "cache" / "0123456789abcdef"


# --- one set ----------------------------------------------------------------------------------------------------------


def test_partial_set_is_cleared_once_and_check_mode_said_so(capsys: pytest.CaptureFixture[str], own: Path) -> None:
    write_set(own, range(6))
    (own / "runs").mkdir()
    (own / "runs" / "kept.json").write_text("{}")
    before = files(own)
    told = run(capsys, True, path=own, tp_size=8)
    assert files(own) == before
    done = run(capsys, path=own, tp_size=8)
    assert files(own) == {"runs/kept.json": b"{}"}
    for result in (told, done):
        result.pop("invocation", None)
    assert told == done
    names = [str(own / f"rank_tp{t}_pp0_dp0.json") for t in range(6)]
    assert (done["changed"], done["cache_state"], done["key"]) == (True, "partial", own.name)
    assert done["cleared"] == names
    assert done["ranks_present"] == [f"tp{t}_pp0_dp0" for t in range(6)]
    assert done["ranks_missing"] == ["tp6_pp0_dp0", "tp7_pp0_dp0"]
    assert len(done["ranks_expected"]) == 8
    assert (done["diff"]["before"], done["diff"]["after"]) == ("".join(f"{name}\n" for name in names), "")
    again = run(capsys, path=own, tp_size=8)
    assert (again["changed"], again["cache_state"], again["cleared"]) == (False, "absent", [])


def test_complete_set_stays_until_it_is_to_be_absent(capsys: pytest.CaptureFixture[str], own: Path) -> None:
    write_set(own, range(8))
    kept = run(capsys, path=own, tp_size=8)
    assert (kept["changed"], kept["cache_state"], kept["cleared"]) == (False, "complete", [])
    assert kept["diff"]["before"] == kept["diff"]["after"] != ""
    told = run(capsys, True, path=own, tp_size=8, state="absent")
    assert (told["changed"], len(told["cleared"])) == (True, 8) and own.exists()
    assert run(capsys, path=own, tp_size=8, state="absent")["changed"] is True
    assert not own.exists()
    assert run(capsys, path=own, tp_size=8, state="absent")["changed"] is False


def test_given_values_are_compared(capsys: pytest.CaptureFixture[str], own: Path) -> None:
    write_set(own, range(2), cuda_version="12.8")
    told = run(capsys, True, path=own, tp_size=2, metadata={"cuda_version": "13.0"})
    assert (told["cache_state"], told["changed"]) == ("stale", True)
    stale = {"key": "cuda_version", "saved": "12.8", "current": "13.0"}
    assert told["stale"] == [{"rank": f"tp{t}_pp0_dp0", **stale} for t in (0, 1)]
    assert run(capsys, path=own, tp_size=2, metadata={"cuda_version": "12.8"})["cache_state"] == "complete"


def test_torn_file_is_named(capsys: pytest.CaptureFixture[str], own: Path) -> None:
    write_set(own, range(2))
    torn = own / "rank_tp1_pp0_dp0.json"
    torn.write_text('{"_meta')
    told = run(capsys, path=own, tp_size=2)
    assert (told["cache_state"], told["changed"]) == ("unreadable", True)
    assert told["unreadable"] == [{"path": str(torn), "why": "is not JSON"}]
    assert not own.exists()


def test_attention_groups_and_nodes_are_options(capsys: pytest.CaptureFixture[str], own: Path) -> None:
    write_set(own, range(4))
    write_set(own, range(4, 8), dp=1)
    assert run(capsys, True, path=own, tp_size=8, dp_size=2)["cache_state"] == "partial"
    assert run(capsys, path=own, tp_size=8, dp_size=2, dp_attention=True)["cache_state"] == "complete"
    node = {"tp_size": 8, "dp_size": 2, "dp_attention": True, "nnodes": 2, "node_rank": 1}
    assert run(capsys, path=own, **node)["cache_state"] == "complete"
    failed = run(capsys, path=own, **{**node, "node_rank": 2})
    assert failed["failed"] and "node_rank 2 is none of 2 nodes" in failed["msg"]


def test_set_that_leads_elsewhere_is_refused_in_check_mode_too(
    capsys: pytest.CaptureFixture[str], own: Path, tmp_path: Path
) -> None:
    elsewhere = write_set(tmp_path / "elsewhere", range(6))
    own.parent.mkdir()
    own.symlink_to(elsewhere)
    for check_mode in (True, False):
        failed = run(capsys, check_mode, path=own, tp_size=8)
        assert failed["failed"] and "outside of" in failed["msg"]
    assert len(files(elsewhere)) == 6


@pytest.mark.parametrize("state", ["consistent", "absent"])
def test_set_that_is_a_file_is_refused_in_check_mode_too(
    capsys: pytest.CaptureFixture[str], own: Path, state: str
) -> None:
    own.parent.mkdir()
    own.write_text("mine")
    for check_mode in (True, False):
        failed = run(capsys, check_mode, path=own, state=state)
        assert failed["failed"] and "is not a directory; remove it by hand" in failed["msg"]
        # Ansible adds these to a result with a path.
        assert failed["directory"] == str(own) and not {"path", "mode", "owner", "state"}.intersection(failed)
    assert own.read_text() == "mine"


def test_results_have_the_keys_that_are_documented(capsys: pytest.CaptureFixture[str], own: Path) -> None:
    write_set(own, range(2))
    result = run(capsys, path=own, tp_size=2)
    assert set(result) - {"changed", "diff", "invocation"} == set(yaml.safe_load(autotune_cache.RETURN)) - {"msg"}
    assert not {"path", "dest", "state", "rc"}.intersection(result)


def test_null_stands_for_an_unknown_value(capsys: pytest.CaptureFixture[str], own: Path) -> None:
    write_set(own, range(2), cudnn_version="91300")
    told = run(capsys, True, path=own, tp_size=2, metadata={"cudnn_version": None})
    assert (told["cache_state"], told["stale"]) == ("complete", [])


def test_lone_surrogates_are_escaped_and_the_set_goes(capsys: pytest.CaptureFixture[str], own: Path) -> None:
    write_set(own, range(2), gpu="\ud800")
    odd = os.fsencode(str(own)) + b"/.autotuner_\x80.tmp"
    with open(odd, "w"):
        pass
    told = run(capsys, True, path=own, tp_size=2, metadata={"gpu": "X"})
    assert told["stale"][0]["saved"] == "\\ud800"
    assert told["cleared"][0].endswith("/.autotuner_\\udc80.tmp")
    done = run(capsys, path=own, tp_size=2, metadata={"gpu": "X"})
    assert done["cleared"] == told["cleared"] and not own.exists()


def test_what_cannot_be_told_is_not_cleared_either(
    capsys: pytest.CaptureFixture[str], own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_value: Any) -> Any:
        raise UnicodeError("cannot be told")

    write_set(own, range(2))
    monkeypatch.setattr(autotune_cache, "plain", fail)
    with patch_module_args({"path": str(own), "state": "absent"}), pytest.raises(UnicodeError):
        autotune_cache.main()
    assert len(files(own)) == 2


def test_diff_of_a_set_that_is_a_link_is_that_before_it_went(capsys: pytest.CaptureFixture[str], own: Path) -> None:
    real = write_set(own.with_name("f" * 16), range(2))
    own.symlink_to(real.name)
    told, done = (run(capsys, check_mode, path=own, tp_size=4) for check_mode in (True, False))
    assert told["diff"] == done["diff"]
    assert (done["diff"]["before"], done["diff"]["after"]) == (f"{own}\n", "")
    assert not own.is_symlink() and len(files(real)) == 2


def test_root_and_path_exclude_each_other(capsys: pytest.CaptureFixture[str], own: Path) -> None:
    assert "mutually exclusive" in run(capsys, path=own, root=own)["msg"]
    assert "one of the following is required" in run(capsys)["msg"]


# --- a root -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a current release of eight ranks, and one before it of four."""
    base = tmp_path / "root"
    venv = base / "venvs" / ENVIRONMENT
    venv.mkdir(parents=True)
    record = {"versions": {"sglang": "0.5.23", "flashinfer-python": "0.7.2"}, "torch": {"cuda": "13.0"}}
    (venv / "environment.json").write_text(json.dumps({"schema_version": 1, **record}))
    (base / "model").mkdir()
    (base / "model" / "config.json").write_text('{"model_type": "qwen3_moe"}')
    for size in (4, 8):
        content = release_store.Content(
            environment=ENVIRONMENT,
            sglang_version="0.5.23",
            backend="auto",
            argv=["-m", "sglang.launch_server", "--model-path", str(base / "model"), "--tp-size", str(size)],
            env={"SGLANG_CACHE_DIR": str(base / "cache" / "sglang")},
            cwd=str(base),
            model={},
        )
        number = release_store.stage(str(base), content, "2026-01-01T00:00:00Z").release
        release_store.switch(str(base), number)
    return base


def set_of(root: Path, size: int, version: str = "0.7.2") -> Path:
    """Where the set of the release with so many ranks lies."""
    words = (
        f"{root}/model|torch.bfloat16|None|triton|{size}|1|1|1|Qwen3MoeConfig|candidate_selection=v2_default|skip_ops="
    )
    key = hashlib.sha256(words.encode()).hexdigest()[:16]
    return root / "cache" / "sglang" / "flashinfer" / "autotune" / version / "sm90" / key


def test_root_knows_its_own_set_and_leaves_all_others(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    nothing = run(capsys, root=root)
    folder = str(set_of(root, 8).parent.parent)
    assert (nothing["cache_state"], nothing["sets"], nothing["key"], nothing["directory"]) == ("absent", [], "", folder)
    assert len(nothing["ranks_missing"]) == 8
    others = [set_of(root, 4), set_of(root, 8, "0.6.17"), set_of(root, 8).with_name("f" * 16)]
    for other in others:
        write_set(other, range(3))
    before = files(root)
    mine = write_set(set_of(root, 8), range(6))
    told, done = run(capsys, True, root=root), run(capsys, root=f"{root}/")
    assert (told["changed"], told["cleared"], told["diff"]) == (True, done["cleared"], done["diff"])
    assert (done["cache_state"], done["directory"], done["key"]) == ("partial", str(mine), mine.name)
    assert [one["cache_state"] for one in done["sets"]] == ["partial"]
    assert files(root) == before
    assert run(capsys, root=root)["changed"] is False


def test_root_compares_with_its_environment(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    write_set(set_of(root, 8), range(8), cuda_version="12.8")
    stale = run(capsys, True, root=root)["stale"]
    assert {(one["key"], one["saved"], one["current"]) for one in stale} >= {("cuda_version", "12.8", "13.0")}


@pytest.mark.parametrize(
    ("words", "env", "why"),
    [
        (["--disable-flashinfer-autotune"], {}, "--disable-flashinfer-autotune is given"),
        ([], {"SGLANG_FLASHINFER_AUTOTUNE_CACHE": "0"}, "SGLANG_FLASHINFER_AUTOTUNE_CACHE is 0"),
    ],
)
def test_server_that_reads_no_results_keeps_them_until_they_are_to_be_absent(
    capsys: pytest.CaptureFixture[str], root: Path, words: list[str], env: dict[str, str], why: str
) -> None:
    content = release_store.load(str(root), 2).content
    assert content is not None
    other = dataclasses.replace(content, argv=[*content.argv, *words], env={**content.env, **env})
    number = release_store.stage(str(root), other, "2026-01-01T00:00:00Z").release
    write_set(set_of(root, 8), range(6))
    before = files(root)
    told = run(capsys, root=root, release=number)
    assert (told["changed"], told["cleared"], told["msg"]) == (False, [], f"nothing was cleared: {why}")
    assert files(root) == before
    assert len(run(capsys, root=root, release=number, state="absent")["cleared"]) == 6


def test_another_release_can_be_asked_for(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    write_set(set_of(root, 4), range(3))
    assert run(capsys, root=root)["cache_state"] == "absent"
    assert run(capsys, True, root=root, release=1)["cache_state"] == "partial"
    failed = run(capsys, root=root, release=7)
    assert failed["failed"] and "cannot tell the autotune cache of release 7" in failed["msg"]


def test_root_without_a_release_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "there is no current release" in run(capsys, root=tmp_path)["msg"]


@pytest.fixture
def serving(root: Path) -> Iterator[None]:
    """A process that the launcher marked as the root's server."""
    environment = {**os.environ, "TOKFORGE_RELEASE": f"{os.path.realpath(root)}/releases/2"}
    words = [sys.executable, "-c", "import sys, time; print(flush=True); time.sleep(60)"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.kill()
        process.wait()
        time.sleep(0)


@pytest.mark.usefixtures("serving")
def test_nothing_is_cleared_under_a_living_server(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    write_set(set_of(root, 8), range(6), gpu="X")
    before = files(root)
    told = run(capsys, True, root=root)
    assert (told["changed"], told["cache_state"], len(told["cleared"])) == (True, "partial", 6)
    failed = run(capsys, root=root)
    assert failed["failed"] and "its server runs (process " in failed["msg"] and "stop it first" in failed["msg"]
    assert files(root) == before
    write_set(set_of(root, 8), range(6, 8))
    looked = run(capsys, root=root)
    if looked.get("cache_state") != "stale":  # where a driver is, X is not its GPU
        assert (looked["changed"], looked["cache_state"]) == (False, "complete")
