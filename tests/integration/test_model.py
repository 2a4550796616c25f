# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `model` with the real packages:

the tokenizers library makes the built-in model, huggingface_hub downloads.

The hub is a server of this test on the loopback. It speaks what huggingface_hub asks for (repository information, file
tree, `resolve` with etags and ranges) and can refuse, stall and cut off.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tokenizers", reason="the packages that a server's environment has are not installed here")
pytest.importorskip("huggingface_hub", reason="the packages that a server's environment has are not installed here")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPO = "org/tiny"
BIG = "model-00002-of-00002.safetensors"
TOKEN = "hf_canary0123456789"

#: Runs the module as Ansible does, with the arguments on standard input. A program of its own, so that it can be
#: killed.
RUN_MODULE = f"""
import json, sys
sys.path.insert(0, {str(Path(__file__).resolve().parents[1])!r})
from module_args import patch_module_args
from ansible_collections.tokforge.sglang.plugins.modules import model
with patch_module_args(json.loads(sys.stdin.read())):
    model.main()
"""


@dataclass
class Repository:
    """What the hub has and how it behaves."""

    files: dict[str, bytes]
    #: Only this token may read it; None: everybody.
    token: str | None = None
    #: Accept listing without a token, but no download (a gated repository).
    gated: bool = False
    #: Send this many bytes of the big file, then hold the connection until told otherwise.
    stall_after: int | None = None
    #: Drop the connection once after this many bytes of the big file.
    drop_after: int | None = None
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    stalled: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def fetched(self) -> list[str]:
        """The files whose content was asked for, in order."""
        return [
            path.rsplit("/", 1)[1] for method, path, _range in self.requests if method == "GET" and "/resolve/" in path
        ]


def handler(repository: Repository) -> type[BaseHTTPRequestHandler]:
    """A request handler for one repository."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            """Silence."""

        def do_HEAD(self) -> None:
            self.respond()

        def do_GET(self) -> None:
            self.respond()

        def respond(self) -> None:
            path = self.path.partition("?")[0]
            repository.requests.append((self.command, path, self.headers.get("Range")))
            allowed = repository.token is None or self.headers.get("Authorization") == f"Bearer {repository.token}"
            if not allowed and not (repository.gated and path.startswith("/api/")):
                self.refuse("GatedRepo" if repository.gated else "RepoNotFound")
            elif path == f"/api/models/{REPO}/revision/{COMMIT}":
                self.send_json(
                    {"id": REPO, "sha": COMMIT, "siblings": [self.sibling(name) for name in repository.files]}
                )
            elif path == f"/api/models/{REPO}/tree/{COMMIT}":
                self.send_json([self.entry(name) for name in repository.files])
            elif path.startswith(f"/{REPO}/resolve/{COMMIT}/") and path.split("/", 5)[5] in repository.files:
                self.send_file(path.split("/", 5)[5])
            elif path.startswith(f"/api/models/{REPO}/"):
                self.refuse("RevisionNotFound", 404)
            else:
                self.refuse("RepoNotFound", 404)

        def sibling(self, name: str) -> dict[str, Any]:
            return {"rfilename": name, "size": len(repository.files[name]), "blobId": self.etag(name)}

        def entry(self, name: str) -> dict[str, Any]:
            return {"type": "file", "path": name, "size": len(repository.files[name]), "oid": self.etag(name)}

        def etag(self, name: str) -> str:
            return hashlib.sha256(repository.files[name]).hexdigest()[:40]

        def refuse(self, code: str, status: int | None = None) -> None:
            self.send_response(status or (403 if code == "GatedRepo" else 401))
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", "no")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def send_json(self, value: object) -> None:
            data = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def send_file(self, name: str) -> None:
            data = repository.files[name]
            start = 0
            wanted = self.headers.get("Range")
            if wanted:
                start = int(wanted.removeprefix("bytes=").split("-")[0])
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            else:
                self.send_response(200)
            self.send_header("ETag", f'"{self.etag(name)}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            if self.command == "HEAD":
                return
            if name == BIG and repository.stall_after is not None:
                self.wfile.write(data[start : start + repository.stall_after])
                self.wfile.flush()
                repository.stalled.set()
                repository.go_on.wait(60)
                self.close_connection = True
                return
            if name == BIG and repository.drop_after is not None:
                self.wfile.write(data[: repository.drop_after])
                repository.drop_after = None
                self.close_connection = True
                return
            self.wfile.write(data[start:])

    return Handler


def contents() -> dict[str, bytes]:
    """A small repository in the layout of a real one, the second weight file big enough to be cut in the middle."""
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": BIG}}
    return {
        ".gitattributes": b"*.safetensors filter=lfs\n",
        "config.json": json.dumps({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe"}).encode(),
        "model.safetensors.index.json": json.dumps(index).encode(),
        "model-00001-of-00002.safetensors": b"1" * 1000,
        BIG: bytes(range(256)) * 60_000,
        "original/params.json": b"{}",
    }


@pytest.fixture
def hub() -> Iterator[tuple[str, Repository]]:
    """A hub's address and the repository it has."""
    repository = Repository(contents())
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(repository))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", repository
    finally:
        repository.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()


def start(home: Path, check_mode: bool = False, **params: Any) -> subprocess.Popen[str]:
    """Start the module with a home of its own, so that no login or cache of this machine plays a part."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    env.update(HOME=str(home), HF_HOME=str(home / "hf"))
    program = subprocess.Popen(
        [sys.executable, "-c", RUN_MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )
    assert program.stdin is not None
    arguments = {"python": sys.executable, "min_free_bytes": 0, **params, "_ansible_check_mode": check_mode}
    program.stdin.write(json.dumps(arguments))
    program.stdin.close()
    program.stdin = None
    return program


def run(home: Path, check_mode: bool = False, **params: Any) -> dict[str, Any]:
    """Run the module to its end and give its result."""
    program = start(home, check_mode, **params)
    out, err = program.communicate(timeout=120)
    assert out, err
    result: dict[str, Any] = json.loads(out)
    return result


def request(address: str, models_dir: Path, **more: Any) -> dict[str, Any]:
    """The module's parameters for the test repository."""
    return {"model": f"{REPO}@{COMMIT}", "models_dir": str(models_dir), "endpoint": address, **more}


def on_disk(directory: Path, repository: Repository) -> dict[str, bytes]:
    """Content of those repository files that are there."""
    return {name: (directory / name).read_bytes() for name in repository.files if (directory / name).exists()}


# --- the built-in model -----------------------------------------------------------------------------------------------


def test_builtin_model_is_made_once_and_then_costs_no_program(tmp_path: Path) -> None:
    first = run(tmp_path, model="builtin:tiny-moe", models_dir=str(tmp_path / "models"))
    assert {
        key: first[key]
        for key in ("changed", "served_name", "random_weights", "revision", "architecture", "model_type")
    } == {
        "changed": True,
        "served_name": "tiny-moe",
        "random_weights": True,
        "revision": "recipe-1",
        "architecture": "Qwen3MoeForCausalLM",
        "model_type": "qwen3_moe",
    }
    path = Path(first["path"])
    assert sorted(entry.name for entry in path.iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert {entry.stat().st_mode & 0o777 for entry in path.iterdir()} == {0o644}
    second = run(tmp_path, model="builtin:tiny-moe", models_dir=str(tmp_path / "models"), python="/no/such/python")
    assert second == {**first, "changed": False, "reason": None, "invocation": second["invocation"]}


def test_builtin_tokenizer_gives_every_text_back_and_fits_the_config(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    path = Path(run(tmp_path, model="builtin:tiny-moe", models_dir=str(tmp_path))["path"])
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    config = json.loads((path / "config.json").read_text())
    for text in ("def main() -> None:\n    pass\n", "Grüße, 世界 \U0001f600\x00"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert tokenizer.get_vocab_size() == config["vocab_size"] <= 8192
    # Learned from Python sources: their words are single tokens, which shows that there was a training at all.
    assert len(tokenizer.encode("import").ids) == 1
    assert [tokenizer.token_to_id(name) for name in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")] == [0, 1, 2]
    assert config["hidden_size"] == config["num_attention_heads"] * config["head_dim"]
    assert config["num_experts_per_tok"] < config["num_experts"]


def test_builtin_models_lie_beside_each_other_with_one_tokenizer(tmp_path: Path) -> None:
    tiny, large = (
        Path(run(tmp_path, model=f"builtin:{name}", models_dir=str(tmp_path))["path"])
        for name in ("tiny-moe", "moe-30b")
    )
    assert (tiny / "tokenizer.json").read_bytes() == (large / "tokenizer.json").read_bytes()
    config = json.loads((large / "config.json").read_text())
    assert (config["num_hidden_layers"], config["num_experts"], config["vocab_size"]) == (48, 128, 8192)
    # 60 GB of weights that are nowhere.
    assert sum(entry.stat().st_size for entry in large.iterdir()) < 2_000_000


def test_builtin_model_is_the_same_each_time_and_whatever_is_installed(tmp_path: Path) -> None:
    makes = [run(tmp_path, model="builtin:tiny-moe", models_dir=str(tmp_path / name)) for name in ("a", "b")]
    digests = [hashlib.sha256((Path(made["path"]) / "tokenizer.json").read_bytes()).hexdigest() for made in makes]
    assert digests[0] == digests[1]


def test_half_made_builtin_model_is_replaced(tmp_path: Path) -> None:
    for name in ("tiny-moe", "tiny-moe.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{")
    made = run(tmp_path, model="builtin:tiny-moe", models_dir=str(tmp_path))
    assert made["changed"] is True
    assert made["reason"] == "it was never finished"
    assert not (tmp_path / "tiny-moe.partial").exists()
    assert json.loads((tmp_path / "tiny-moe" / "config.json").read_text())["model_type"] == "qwen3_moe"


def test_check_mode_predicts_the_builtin_model_without_making_it(tmp_path: Path) -> None:
    predicted = run(
        tmp_path, check_mode=True, model="builtin:tiny-moe", models_dir=str(tmp_path / "models"), python="/no/python"
    )
    assert predicted["changed"] is True
    assert predicted["path"] == str(tmp_path / "models" / "tiny-moe")
    assert predicted["architecture"] == "Qwen3MoeForCausalLM"
    assert not (tmp_path / "models").exists()


# --- a directory ------------------------------------------------------------------------------------------------------


def test_directory_is_looked_at_and_never_changed(tmp_path: Path) -> None:
    given = tmp_path / "GLM"
    given.mkdir()
    (given / "config.json").write_text('{"architectures": ["Glm5MoeForCausalLM"], "model_type": "glm5"}')
    (given / "model.safetensors").write_text("x")
    result = run(tmp_path, model=str(given), models_dir=str(tmp_path / "models"), python="/no/such/python")
    assert (result["changed"], result["path"], result["served_name"], result["random_weights"]) == (
        False,
        str(given),
        "GLM",
        False,
    )
    assert result["architecture"] == "Glm5MoeForCausalLM"
    assert sorted(entry.name for entry in given.iterdir()) == ["config.json", "model.safetensors"]
    assert not (tmp_path / "models").exists()


def test_directory_without_config_fails_with_path_beside_the_message(tmp_path: Path) -> None:
    failed = run(tmp_path, model=str(tmp_path), models_dir=str(tmp_path))
    assert failed["failed"] is True
    assert f"cannot use model directory {tmp_path}: it has no config.json" in failed["msg"]
    assert failed["path"] == str(tmp_path)


# --- the hub ----------------------------------------------------------------------------------------------------------


def test_download_is_complete_and_afterwards_asks_nobody(tmp_path: Path, hub: tuple[str, Repository]) -> None:
    address, repository = hub
    first = run(tmp_path, **request(address, tmp_path / "models"))
    assert first["changed"] is True, first
    assert (first["served_name"], first["revision"], first["random_weights"]) == (REPO, COMMIT, False)
    path = tmp_path / "models" / f"org--tiny@{COMMIT[:12]}"
    assert first["path"] == str(path)
    assert on_disk(path, repository) == repository.files
    marker = json.loads((path / "model.json").read_text())
    assert marker["revision"] == COMMIT
    assert marker["files"] == {name: len(data) for name, data in repository.files.items()}
    repository.requests.clear()
    second = run(tmp_path, **request(address, tmp_path / "models", python="/no/such/python"))
    assert (second["changed"], second["path"]) == (False, first["path"])
    assert repository.requests == []


def test_killed_download_leaves_no_marker_and_no_program_and_goes_on_with_what_is_missing(
    tmp_path: Path, hub: tuple[str, Repository]
) -> None:
    address, repository = hub
    repository.stall_after = 300_000
    module = start(tmp_path, **request(address, tmp_path / "models"))
    path = tmp_path / "models" / f"org--tiny@{COMMIT[:12]}"
    assert repository.stalled.wait(60)
    small = sorted(set(repository.files) - {BIG})
    wait_until(lambda: sorted(on_disk(path, repository)) == small, "the small files")
    module.send_signal(signal.SIGKILL)
    module.communicate()
    assert not (path / "model.json").exists()
    wait_until(lambda: not programs_that_name(str(path)), "the end of the download program")
    repository.go_on.set()
    repository.stall_after = None
    repository.requests.clear()
    result = run(tmp_path, **request(address, tmp_path / "models"))
    assert result.get("changed") is True, result
    assert repository.fetched() == [BIG]
    assert on_disk(path, repository) == repository.files
    assert [entry.name for entry in path.rglob("*.incomplete")] == []


def test_dropped_connection_goes_on_inside_the_file(tmp_path: Path, hub: tuple[str, Repository]) -> None:
    address, repository = hub
    # huggingface_hub keeps what it has in steps of 10 MiB.
    repository.drop_after = 12_000_000
    result = run(tmp_path, **request(address, tmp_path))
    assert result.get("changed") is True, result
    ranges = [wanted for method, path, wanted in repository.requests if method == "GET" and path.endswith(BIG)]
    assert ranges == [None, "bytes=10485760-"]
    assert (Path(result["path"]) / BIG).read_bytes() == repository.files[BIG]


@pytest.mark.parametrize("damage", ["truncated", "deleted"])
def test_file_damaged_on_disk_is_fetched_again_and_only_that_one(
    tmp_path: Path, hub: tuple[str, Repository], damage: str
) -> None:
    address, repository = hub
    path = Path(run(tmp_path, **request(address, tmp_path))["path"])
    if damage == "truncated":
        os.truncate(path / BIG, 1000)
    else:
        (path / BIG).unlink()
    repository.requests.clear()
    predicted = run(tmp_path, check_mode=True, **request(address, tmp_path))
    assert (predicted["changed"], predicted["reason"]) == (True, f"{BIG} is missing or has the wrong size")
    assert repository.requests == []
    repaired = run(tmp_path, **request(address, tmp_path))
    assert repaired["changed"] is True, repaired
    assert repository.fetched() == [BIG]
    assert on_disk(path, repository) == repository.files


def test_private_repository_is_refused_with_the_variable_to_set(tmp_path: Path, hub: tuple[str, Repository]) -> None:
    address, repository = hub
    repository.token = TOKEN
    failed = run(tmp_path, **request(address, tmp_path))
    assert failed["failed"] is True
    assert f"{address} refuses it; check the name" in failed["msg"]
    assert "set sglang_hub_token to a token that may read it" in failed["msg"]
    assert not (tmp_path / f"org--tiny@{COMMIT[:12]}").exists()


def test_gated_repository_names_the_page_with_its_terms(tmp_path: Path, hub: tuple[str, Repository]) -> None:
    address, repository = hub
    repository.token, repository.gated = TOKEN, True
    failed = run(tmp_path, **request(address, tmp_path))
    assert failed["failed"] is True
    assert f"accept its terms at {address}/{REPO} and set sglang_hub_token" in failed["msg"]
    assert not (tmp_path / f"org--tiny@{COMMIT[:12]}" / "model.json").exists()


def test_token_opens_the_repository_and_is_written_nowhere(tmp_path: Path, hub: tuple[str, Repository]) -> None:
    address, repository = hub
    repository.token = TOKEN
    program = start(tmp_path, **request(address, tmp_path / "models", token=TOKEN))
    out, err = program.communicate(timeout=120)
    assert json.loads(out)["changed"] is True, out
    assert TOKEN not in out + err
    written = [path for path in tmp_path.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert written == []


def test_token_never_stands_in_an_argument(tmp_path: Path, hub: tuple[str, Repository]) -> None:
    address, repository = hub
    repository.token, repository.stall_after = TOKEN, 1000
    module = start(tmp_path, **request(address, tmp_path / "models", token=TOKEN))
    assert repository.stalled.wait(60)
    assert programs_that_name(f"org--tiny@{COMMIT[:12]}") != []
    assert programs_that_name(TOKEN) == []
    module.kill()
    module.communicate()


def test_wrong_token_is_named_as_such_without_its_value(tmp_path: Path, hub: tuple[str, Repository]) -> None:
    address, repository = hub
    repository.token = TOKEN
    failed = run(tmp_path, **request(address, tmp_path, token="hf_other9876543210"))
    assert "refuses it to the token in sglang_hub_token" in failed["msg"]
    assert "hf_other9876543210" not in json.dumps(failed)


def test_commit_that_is_not_there_is_told_from_a_missing_repository(
    tmp_path: Path, hub: tuple[str, Repository]
) -> None:
    address, _repository = hub
    commit = "f" * 40
    asked = {**request(address, tmp_path), "model": f"{REPO}@{commit}"}
    assert f"it has no commit {commit}" in run(tmp_path, **asked)["msg"]
    asked["model"] = f"org/nothing@{COMMIT}"
    assert "has no such repository" in run(tmp_path, **asked)["msg"]


def test_hub_that_is_not_there_says_so(tmp_path: Path) -> None:
    # Port 9 (discard) is never in use here; a refused connection needs no waiting.
    failed = run(tmp_path, **request("http://127.0.0.1:9", tmp_path))
    assert failed["failed"] is True
    assert "http://127.0.0.1:9 cannot be reached" in failed["msg"]


def test_too_little_room_fails_with_figures_before_any_file_is_fetched(
    tmp_path: Path, hub: tuple[str, Repository]
) -> None:
    address, repository = hub
    failed = run(tmp_path, **request(address, tmp_path, min_free_bytes=10**15))
    assert failed["failed"] is True
    assert "0.02 GB still to come and 1000000.00 GB to stay free do not fit into the" in failed["msg"]
    assert failed["need_bytes"] == sum(map(len, repository.files.values()))
    assert repository.fetched() == []


def test_what_is_there_already_needs_no_room(tmp_path: Path, hub: tuple[str, Repository]) -> None:
    address, repository = hub
    path = Path(run(tmp_path, **request(address, tmp_path))["path"])
    (path / "config.json").unlink()
    failed = run(tmp_path, **request(address, tmp_path, min_free_bytes=10**15))
    assert failed["need_bytes"] == len(repository.files["config.json"])


def wait_until(holds: Any, what: str, timeout_s: float = 30) -> None:
    """Wait for a condition of another process."""
    end = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end, f"no {what} after {timeout_s} s"
        time.sleep(0.05)


def programs_that_name(text: str) -> list[int]:
    """Processes other than this one with `text` in their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if (
                entry.name.isdigit()
                and int(entry.name) != os.getpid()
                and text.encode() in (entry / "cmdline").read_bytes()
            ):
                found.append(int(entry.name))
    return found
