# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""verify.yml and tests/verify judge a deployment: a small HTTP server stands in for SGLang, everything else is real."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent

SERVER = """
import http.server, json, os, sys

KEYS, FAULT = os.environ.get("STAND_IN_KEYS", "").split(), os.environ.get("STAND_IN_FAULT", "")
ADMIN = ("/update_weights_from_disk", "/load_lora_adapter", "/set_internal_state")

class Handler(http.server.BaseHTTPRequestHandler):
    def refuses(self):
        if not KEYS or (FAULT == "host" and "/health" in self.headers["Host"]):
            return False
        admin = self.path in ADMIN
        if admin and FAULT == "open":
            return False
        wanted = KEYS[-1] if admin and FAULT != "levels" else KEYS[0]
        return self.headers["Authorization"] != f"Bearer {wanted}"

    def parse_request(self):
        if not super().parse_request():
            return False
        if self.refuses():
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            self.send_error(401)
            return False
        return True

    def do_DELETE(self):
        self.send_error(405)

    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer({"data": [{"id": "tiny-moe"}]})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if body == b"no JSON":
            return self.send_error(422)
        asked = json.loads(body)
        count = asked["sampling_params"]["max_new_tokens"]
        self.answer({"text": sys.argv[2], "meta_info": {"completion_tokens": count}})

    def log_message(self, *arguments):
        pass

server = http.server.HTTPServer((sys.argv[1], 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@dataclass
class Deployment:
    """A deployment as the roles leave it, with a stand-in for SGLang."""

    root: Path
    server: subprocess.Popen[str]
    port: int

    @property
    def inventory(self) -> Path:
        return self.root / "hosts.yml"

    @property
    def facts(self) -> Path:
        return self.root / "facts" / "sglang.fact"

    def stop(self) -> None:
        self.server.terminate()
        self.server.wait(10)

    def write_inventory(self, **variables: object) -> None:
        python = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        values = python | {"sglang_root": str(self.root), "sglang_port": self.port} | variables
        text = json.dumps({"sglang": {"hosts": {"box": values}}})
        self.inventory.write_text(text, encoding="utf-8")


def result() -> dict[str, object]:
    latest = {
        "valid": True,
        "context": {"sglang_version": "0.5.23"},
        "points": [{"concurrency": 1, "output_tok_s": 12.5}],
    }
    return {"schema_version": 2, "latest": latest, "history": []}


def deploy(root: Path, address: str = "127.0.0.1", text: str = "some words", **env: str) -> Deployment:
    release = root / "releases" / "1"
    python = root / "venvs" / "abc" / "bin" / "python"
    packages = root / "venvs" / "abc" / "packages" / "sglang-0.5.23.dist-info"
    for folder in (release, python.parent, packages, root / "facts"):
        folder.mkdir(parents=True)
    (packages / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.23\n", encoding="utf-8")
    python.write_text(f'#!/bin/sh\nPYTHONPATH={packages.parent} exec {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    (release / "venv").symlink_to("../../venvs/abc")
    (root / "current").symlink_to("releases/1")
    manifest = {"sglang_version": "0.5.23", "model": {"served_name": "tiny-moe", "random_weights": False}}
    (release / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    (root / "facts" / "sglang.fact").write_text(json.dumps(result()), encoding="utf-8")
    (root / "facts" / "sglang.fact").chmod(0o644)
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, address, text],
        env=os.environ | {"TOKFORGE_RELEASE": str(release)} | env,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout
    made = Deployment(root, server, int(server.stdout.readline()))
    made.write_inventory()
    return made


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    made = deploy(tmp_path)
    yield made
    made.stop()


def verify(deployment: Deployment) -> subprocess.CompletedProcess[str]:
    """tests/verify by hand, with the inventory alone."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short"]
    command += ["--hosts=ansible://sglang?force_ansible=True", f"--ansible-inventory={deployment.inventory}"]
    env = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        [*command, "tests/verify"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False
    )


def play(deployment: Deployment, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(BIN / "ansible-playbook"), "-i", str(deployment.inventory), "playbooks/verify.yml", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def flat(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join(done.stdout.split())


def failures(done: subprocess.CompletedProcess[str]) -> set[str]:
    """Names of the tests that failed or could not be judged."""
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return {line.split("::")[1].split("[")[0] for line in lines}


def test_good_deployment_passes_and_stays_untouched(deployment: Deployment) -> None:
    before = sorted((path, path.lstat().st_mtime_ns) for path in deployment.root.rglob("*"))
    done = play(deployment)
    assert done.returncode == 0, done.stdout
    assert "11 passed" in done.stdout
    assert "changed=0" in done.stdout
    assert sorted((path, path.lstat().st_mtime_ns) for path in deployment.root.rglob("*")) == before


def test_version_asked_on_the_command_line_is_the_one_judged(deployment: Deployment) -> None:
    done = play(deployment, "-e", "sglang_version=0.5.12.post1")
    assert done.returncode == 2
    assert "test_version_is_the_asked_one" in done.stdout
    assert "10 passed" in done.stdout


def test_stopped_server_fails_the_playbook(deployment: Deployment) -> None:
    deployment.stop()
    done = play(deployment)
    assert done.returncode == 2
    told = flat(done)
    assert f"running: nothing, current: {deployment.root}/releases/1; see at the end of" in told
    assert f"{deployment.root}/log/server.log why a server ended, and deploy again" in told


def test_stopped_server_fails_what_it_must_and_no_more(deployment: Deployment) -> None:
    deployment.stop()
    assert failures(verify(deployment)) == {
        "test_server_runs_the_current_release",
        "test_port_is_open_only_where_asked",
        "test_served_model_has_the_asked_name",
        "test_generation_returns_every_token_asked",
        "test_generated_text_is_text",
    }


def test_hanging_server_is_told_after_the_timeout(deployment: Deployment) -> None:
    probe = (ROOT / "tests" / "verify" / "probe.py").read_text(encoding="utf-8")
    quick = deployment.root / "probe.py"
    quick.write_text(probe.replace("TIMEOUT_S = 60", "TIMEOUT_S = 1"), encoding="utf-8")
    deployment.server.send_signal(signal.SIGSTOP)
    try:
        command = [sys.executable, str(quick), str(deployment.root), "127.0.0.1", str(deployment.port), ""]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    finally:
        deployment.server.send_signal(signal.SIGCONT)
    assert "timed out" in json.loads(done.stdout)["generation"]["error"]


def test_other_port_than_asked_fails(deployment: Deployment) -> None:
    deployment.write_inventory(sglang_port=deployment.port + 1)
    assert "test_port_is_open_only_where_asked" in failures(verify(deployment))


def test_port_open_to_everybody_fails(tmp_path: Path) -> None:
    made = deploy(tmp_path, address="0.0.0.0")
    try:
        done = play(made)
        assert (done.returncode, "1 failed, 10 passed" in done.stdout) == (2, True), done.stdout
        assert "test_port_is_open_only_where_asked" in done.stdout
        assert "no API key is set: whoever reaches 0.0.0.0 can use and manage this server" in flat(done)
    finally:
        made.stop()


KEYS = ["canary-of-the-clients-0123", "canary-of-the-admins-0123"]
OPEN = "test_nothing_but_health_and_metrics_answers_without_the_key"
LEVELS = "test_management_endpoints_refuse_the_clients_key"


@contextlib.contextmanager
def guarded(root: Path, keys: list[str], fault: str = "") -> Iterator[Deployment]:
    """A deployment with keys: the clients' one, and an admin key when there are two."""
    made = deploy(root, STAND_IN_KEYS=" ".join(keys), STAND_IN_FAULT=fault)
    (made.root / "state").mkdir()
    lines = zip(("TOKFORGE_API_KEY", "TOKFORGE_ADMIN_API_KEY"), keys, strict=False)
    (made.root / "state" / "secrets.env").write_text("".join(f"{name}={key}\n" for name, key in lines))
    (made.root / "state" / "secrets.env").chmod(0o600)
    try:
        yield made
    finally:
        made.stop()


@pytest.mark.parametrize(("fault", "failed"), [("", set()), ("open", {OPEN, LEVELS})])
def test_keys_are_tried_and_shown_to_nobody(tmp_path: Path, fault: str, failed: set[str]) -> None:
    with guarded(tmp_path, KEYS, fault) as made:
        done = verify(made)
    assert failures(done) == failed, done.stdout
    assert "canary" not in done.stdout + done.stderr


def looked(made: Deployment) -> dict[str, Any]:
    """What the look alone says about keys."""
    command = [sys.executable, str(ROOT / "tests/verify/probe.py"), str(made.root), "127.0.0.1", str(made.port), ""]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)["access"]
    return answer


def let_through(answered: dict[str, int]) -> set[str]:
    return {request for request, status in answered.items() if status != 401}


def test_key_of_clients_that_opens_the_management_is_seen(tmp_path: Path) -> None:
    with guarded(tmp_path, KEYS, "levels") as made:
        seen = looked(made)
    assert let_through(seen["without_key"]) == set()
    assert let_through(seen["with_client_key"]) == set(seen["with_client_key"])
    assert len(seen["with_client_key"]) == 3


def test_server_that_takes_its_path_from_the_host_header_is_seen(tmp_path: Path) -> None:
    with guarded(tmp_path, KEYS[:1], "host") as made:
        seen = looked(made)
    assert seen["keys"] == {"client": True, "admin": False} and seen["with_client_key"] == {}
    assert let_through(seen["without_key"]) == {"GET /server_info for a misleading host"}


def test_degenerate_text_with_status_200_fails(tmp_path: Path) -> None:
    made = deploy(tmp_path, text="!!!!!!!!")
    try:
        assert failures(verify(made)) == {"test_generated_text_is_text"}
    finally:
        made.stop()


def test_damaged_fact_file_fails(deployment: Deployment) -> None:
    deployment.facts.write_text(json.dumps(result())[:-9], encoding="utf-8")
    assert failures(verify(deployment)) == {
        "test_facts_are_a_mapping_of_a_known_schema",
        "test_latest_result_is_valid_and_measured_something",
        "test_latest_result_is_about_the_version_that_serves",
    }


def test_executable_fact_file_and_open_secrets_fail(deployment: Deployment) -> None:
    deployment.facts.chmod(0o755)
    (deployment.root / "state").mkdir()
    (deployment.root / "state" / "secrets.env").write_text("A=b\n", encoding="utf-8")
    (deployment.root / "state" / "secrets.env").chmod(0o644)
    assert {
        "test_fact_file_is_data_and_not_a_program",
        "test_secrets_are_readable_by_their_owner_only",
    } <= failures(verify(deployment))
