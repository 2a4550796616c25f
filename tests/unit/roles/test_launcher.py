# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The launcher makes tuning results consistent before it becomes the server, and does not become it without that."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

COLLECTION = Path(__file__).resolve().parents[3]
LAUNCHER = COLLECTION / "roles/sglang_server/files/launch.py"
CORE = COLLECTION / "plugins/module_utils/autotune_cache.py"
#: What the server does: say that it runs, and which files it finds.
SERVER = "import os, sys; print('SERVER', sorted(os.listdir(sys.argv[1])) if os.path.isdir(sys.argv[1]) else 'none')"


class Root:
    """A deployment whose server is a few words of Python."""

    def __init__(self, root: Path) -> None:
        self.path = root
        self.marked = False
        for name in ("bin", "state", "releases/1", "model", "venvs/x/bin"):
            (root / name).mkdir(parents=True)
        (root / "bin/launch.py").write_bytes(LAUNCHER.read_bytes())
        (root / "bin/autotune_cache.py").write_bytes(CORE.read_bytes())
        (root / "venvs/x/bin/python").symlink_to(sys.executable)
        versions = {"sglang": "0.5.23", "flashinfer-python": "0.7.2"}
        (root / "venvs/x/environment.json").write_text(json.dumps({"schema_version": 1, "versions": versions}))
        (root / "model/config.json").write_text('{"model_type": "qwen3_moe"}')
        (root / "releases/1/venv").symlink_to("../../venvs/x")
        (root / "current").symlink_to("releases/1")
        key = f"{root}/model|torch.bfloat16|None|auto|8|1|1|1|Qwen3MoeConfig|candidate_selection=v2_default|skip_ops="
        name = hashlib.sha256(key.encode()).hexdigest()[:16]
        self.folder = root / "cache/flashinfer/autotune/0.7.2"
        self.set = self.folder / "sm100" / name
        self.stage()

    def stage(self, *words: str, **env: str) -> None:
        """Write launch.json."""
        argv = ["-c", SERVER, str(self.set), "--model-path", f"{self.path}/model", "--tp-size", "8", *words]
        launch = {"schema_version": 1, "argv": argv, "env": {"SGLANG_CACHE_DIR": f"{self.path}/cache", **env}}
        (self.path / "releases/1/launch.json").write_text(json.dumps({**launch, "cwd": str(self.path)}))

    def ranks(self, number: int) -> None:
        """Files of the first ranks."""
        self.set.mkdir(parents=True, exist_ok=True)
        for rank in range(number):
            (self.set / f"rank_tp{rank}_pp0_dp0.json").write_text("{}")

    def start(self, code: int = 0, **env: str) -> tuple[str, str]:
        """What the launcher says after the mark of a start, and what the server says."""
        with subprocess.Popen(
            [sys.executable, str(self.path / "bin/launch.py"), str(self.path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            env={**os.environ, **env},
        ) as launcher:
            server, said = launcher.communicate(timeout=60)
        assert launcher.returncode == code, said
        # The process becomes the server, so the mark names the server's own pid.
        mark = f"tokforge: starting release 1 as process {launcher.pid}\n"
        self.marked = said.startswith(mark)
        return said.removeprefix(mark), server


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """A deployment without results."""
    return Root(tmp_path)


def test_each_start_is_marked_in_the_log_before_anything_else(root: Root) -> None:
    root.ranks(8)
    said, server = root.start()
    assert root.marked and "starting release" not in said + server
    (root.path / "current").unlink()
    said, _server = root.start(78)
    assert not root.marked and "starting release" not in said  # nothing is started then


def test_partial_set_is_gone_before_the_server_starts(root: Root) -> None:
    root.ranks(6)
    said, server = root.start()
    assert said == f"tokforge: autotune cache {root.set}: partial (tp0..tp5 of 8 ranks), cleared\n"
    assert server == "SERVER none\n"
    assert root.start() == (f"tokforge: autotune cache {root.folder}: absent\n", "SERVER none\n")
    assert sorted(os.listdir(root.path / "bin")) == ["autotune_cache.py", "launch.py"]


def test_complete_set_reaches_the_server(root: Root) -> None:
    root.ranks(8)
    said, server = root.start()
    assert said == f"tokforge: autotune cache {root.set}: complete\n"
    assert server.count("rank_tp") == 8


def test_set_is_kept_where_that_was_asked_for(root: Root) -> None:
    root.stage(TOKFORGE_AUTOTUNE_CACHE="keep")
    root.ranks(6)
    said, server = root.start()
    assert said == f"tokforge: autotune cache {root.set}: partial (tp0..tp5 of 8 ranks), kept\n"
    assert server.count("rank_tp") == 6


def test_server_is_not_started_with_what_cannot_be_cleared(root: Root) -> None:
    root.ranks(6)
    (root.set / "rank_tp7_pp0_dp0.json" / "x").mkdir(parents=True)
    said, server = root.start(78)
    assert server == ""
    assert said.startswith(f"launch.py: cannot clear the autotune cache {root.set}: ")
    assert "The server is not started" in said and said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "env"), [(["--disable-flashinfer-autotune"], {}), ([], {"SGLANG_FLASHINFER_AUTOTUNE_CACHE": "0"})]
)
def test_server_that_reads_no_results_starts_in_silence(root: Root, words: list[str], env: dict[str, str]) -> None:
    root.stage(*words, **env)
    root.ranks(6)
    said, server = root.start()
    assert (said, server.count("rank_tp")) == ("", 6)


def test_environment_without_flashinfer_starts_in_silence(root: Root) -> None:
    (root.path / "venvs/x/environment.json").write_text('{"schema_version": 1, "versions": {"sglang": "0.5.23"}}')
    assert root.start() == ("", "SERVER none\n")


def test_older_deployment_starts_and_says_what_is_missing(root: Root) -> None:
    (root.path / "bin/autotune_cache.py").unlink()
    root.ranks(6)
    said, server = root.start()
    assert said.startswith("tokforge: autotune cache not checked: ") and "is missing" in said
    assert said.count("\n") == 1 and server.count("rank_tp") == 6


@pytest.mark.parametrize(
    "broken",
    [
        "this is not Python",
        "raise SystemError('while it is loaded')",
        "class AutotuneCacheError(Exception): pass\ndef before_start(*a): raise ZeroDivisionError('two\\nlines')",
        "",
        "\0",
        "raise SystemExit(0)",
        "def before_start(*a): raise ValueError('\\x1b\\r\\u2028')",
        "AutotuneCacheError = 'cut'\ndef before_start(*a): raise ValueError",
        "class AutotuneCacheError(Exception): pass\ndef before_start(*a): raise SystemExit(3)",
        "class AutotuneCacheError(Exception): pass\ndef before_start(*a): return 5",
    ],
)
def test_fault_in_the_check_does_not_keep_the_server_down(root: Root, broken: str) -> None:
    (root.path / "bin/autotune_cache.py").write_text(broken)
    said, server = root.start()
    assert said.startswith("tokforge: autotune cache not checked: ") and said[:-1].isprintable()
    assert server == "SERVER none\n"


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
def test_log_that_cannot_be_written_does_not_keep_the_server_down(root: Root, redirection: str) -> None:
    words = [sys.executable, str(root.path / "bin/launch.py"), str(root.path)]
    shell = ["/bin/sh", "-c", f'exec "$@" {redirection}', "sh", *words]
    root.ranks(6)
    assert subprocess.run(shell, stdout=subprocess.PIPE, text=True, check=True).stdout == "SERVER none\n"
    (root.path / "releases/1/launch.json").unlink()
    assert subprocess.run(shell, check=False).returncode == 78


def test_reason_to_be_down_is_one_line_of_bounded_length(root: Root) -> None:
    (root.path / "releases/1/launch.json").unlink()
    (root.path / "current").unlink()
    (root.path / "current").symlink_to("releases/" + "\x1b[31m\n" + "x" * 200)
    said, _server = root.start(78)
    assert said[:-1].isprintable() and "\\x1b[31m\\nxxx" in said and len(said) <= 1501


def test_pipe_in_the_place_of_a_file_is_not_waited_for(root: Root) -> None:
    launch = root.path / "releases/1/launch.json"
    text = launch.read_text()
    launch.unlink()
    os.mkfifo(launch)
    assert "not a plain file" in root.start(78)[0]
    launch.unlink()
    launch.write_text(text)
    (root.path / "model/config.json").unlink()
    os.mkfifo(root.path / "model/config.json")
    assert root.start()[1] == "SERVER none\n"
    os.mkfifo(root.path / "state/secrets.env", 0o600)
    assert "not a plain file" in root.start(78)[0]


@pytest.mark.parametrize("change", [{"env": ["x"]}, {"cwd": 5}, {"env": {"A": "\0"}}, {"argv": ["\ud800"]}])
def test_launch_json_that_nothing_can_be_started_from_is_refused(root: Root, change: dict[str, Any]) -> None:
    launch = root.path / "releases/1/launch.json"
    launch.write_text(json.dumps({**json.loads(launch.read_text()), **change}))
    said, server = root.start(78)
    assert "launch.py: " in said and "Traceback" not in said and server == ""


def test_policy_counts_from_the_release_only(root: Root) -> None:
    root.ranks(6)
    secrets = root.path / "state/secrets.env"
    secrets.touch(0o600)
    secrets.write_text("TOKFORGE_AUTOTUNE_CACHE=keep\n")
    said, server = root.start(TOKFORGE_AUTOTUNE_CACHE="keep")
    assert said.endswith("partial (tp0..tp5 of 8 ranks), cleared\n") and server == "SERVER none\n"


def test_server_starts_with_stale_results_that_cannot_go_and_that_nobody_loads(root: Root) -> None:
    root.ranks(8)
    for path in root.set.iterdir():
        path.write_text('{"_metadata": {"flashinfer_version": "0.7.1"}, "op": 1}')
    text = (root.path / "bin/autotune_cache.py").read_text()
    broken = "def clear_set(path, within):\n    raise AutotuneCacheError('cannot clear it')\n"
    (root.path / "bin/autotune_cache.py").write_text(f"{text}\n\n{broken}")
    said, server = root.start()
    assert "not cleared (cannot clear it), ignored by all ranks alike" in said and server.count("rank_tp") == 8
    (root.set / "rank_tp3_pp0_dp0.json").unlink()
    said, server = root.start(78)
    assert "sglang_autotune_cache_policy: keep" in said and server == ""


def test_server_with_secrets_is_checked_once(root: Root) -> None:
    secrets = root.path / "state/secrets.env"
    secrets.touch(0o600)
    secrets.write_text("MY_TOKEN=canary-0123456789\n")
    script = root.path / "server.py"
    script.write_text("print('SERVER')")
    root.stage()
    launch = json.loads((root.path / "releases/1/launch.json").read_text())
    launch["argv"] = [str(script), *launch["argv"][3:]]
    (root.path / "releases/1/launch.json").write_text(json.dumps(launch))
    root.ranks(6)
    said, server = root.start()
    assert said == f"tokforge: autotune cache {root.set}: partial (tp0..tp5 of 8 ranks), cleared\n"
    assert server == "SERVER\n"


# --- what kernels are compiled with ----------------------------------------------------------------------------------

#: A server that says what it would compile with.
TOOLS = "import os; print(*(os.environ.get(name, '-') for name in ('MAX_JOBS', 'CUDA_HOME', 'PATH')), sep='|')"


def tooled(root: Root, noted: str | None, **env: str) -> tuple[str, list[str]]:
    """What the launcher says, and what the server has for MAX_JOBS, CUDA_HOME and PATH."""
    root.stage(**env)
    path = root.path / "releases/1/launch.json"
    launch = json.loads(path.read_text())
    launch["argv"][1] = TOOLS
    path.write_text(json.dumps(launch))
    if noted is not None:
        (root.path / "state/build_tools.json").write_text(noted)
    said, server = root.start(PATH="/usr/bin:/bin")
    return said, server.strip().split("|")


def test_server_compiles_with_what_was_noted_for_this_machine(root: Root) -> None:
    said, seen = tooled(root, '{"MAX_JOBS": "6", "CUDA_HOME": "/usr/local/cuda-13.0", "LD_PRELOAD": "/x.so"}')
    own = os.path.realpath(root.path / "releases/1") + "/venv/bin"
    assert seen == ["6", "/usr/local/cuda-13.0", f"{own}:/usr/local/cuda-13.0/bin:/usr/bin:/bin"]
    assert "tokforge: kernels are compiled with CUDA_HOME=/usr/local/cuda-13.0, MAX_JOBS=6\n" in said


def test_what_the_release_says_itself_wins_over_what_was_noted(root: Root) -> None:
    said, seen = tooled(root, '{"MAX_JOBS": "6"}', MAX_JOBS="2", CUDA_HOME="/opt/cuda")
    assert seen[:2] == ["2", "/opt/cuda"]
    assert seen[2].split(":")[1] == "/opt/cuda/bin"
    assert "kernels are compiled with MAX_JOBS=2\n" in said


@pytest.mark.parametrize("noted", [None, "", "[1]", "{", '{"MAX_JOBS": 6}', '{"MAX_JOBS": "6\\u0000"}', "\udcff"])
def test_a_damaged_note_is_no_reason_to_be_down(root: Root, noted: str | None) -> None:
    if noted == "\udcff":
        (root.path / "state/build_tools.json").mkdir()
        noted = None
    said, seen = tooled(root, noted)
    assert seen[:2] == ["-", "-"]
    assert seen[2].endswith("/venv/bin:/usr/bin:/bin")
    assert "kernels are compiled" not in said
