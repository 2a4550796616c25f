# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real SGLang through the real playbooks: first rollout, no-op, switch, refusals, failures, kills, and the end.

The tests are one story in the order of the file, since a start of the server costs half a minute. Each takes what it
needs from a fixture that makes it when it is not there, so that one test can also run alone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import canaries
import probing
import pytest
import rollout
import starting
from full_only import IN_FULL
from probing import ProbeRoot
from rollout import Play, Rollout, Running, free_port
from starting import Start

from ansible_collections.tokforge.sglang.plugins.module_utils import probe, proc

pytestmark = pytest.mark.real

# What would take `make test` past the time that CI has.

NEWEST, OTHER = "0.5.23", "0.5.12.post1"
# The local inventory's arguments and a backend that every release offers and no CPU can run: it crashes at start.
CRASHING = {"max-total-tokens": 8192, "max-running-requests": 64, "attention-backend": "fa3"}
# What a rollout that changes nothing may write: the server logs the requests that ask whether it serves.
MAY_GROW = ("log",)
# Every play that may change something takes the lock there, and gives it back.
LOCK = "state/rollout"
NO_OP_LIMIT_S = 30
# A step without a word for longer than this looks like a hang.
SILENCE_LIMIT_S = 10


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    """One directory for everything, so that environments share the files of one uv cache."""
    path = Path(tempfile.mkdtemp(prefix="rollout-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def site(base: Path) -> Iterator[Rollout]:
    made = Rollout(base / "site", free_port(), base / "uv-cache")
    yield made
    made.run("destroy.yml", sglang_destroy_models=True, sglang_destroy_caches=True)
    made.end_everything()


@pytest.fixture(scope="module")
def deployed(site: Rollout) -> Play:
    """The first deploy below the root, with the probe, the check of what the server writes, and verify."""
    checks = {"sglang_ready_output_check": True, "sglang_ready_output_tokens": 8, "sglang_ready_output_repeats": 2}
    return site.deploy(probe=True, verify=True, **checks)


@pytest.fixture
def serving(site: Rollout, deployed: Play) -> Rollout:
    """The newest release serves; deployed again when a test before left something else."""
    if site.server() is None or not site.listening() or site.release() != 1:
        repaired = site.deploy()
        assert repaired.code == 0, repaired.output
    return site


# --- the first deploy ------------------------------------------------------------------------------------------------


def test_check_mode_on_a_fresh_machine_predicts_changes_and_creates_nothing(site: Rollout, base: Path) -> None:
    before = rollout.tree(base)
    play = site.deploy("--check", "--diff")
    assert play.code == 0, play.output
    assert play.counts["changed"] > 0
    assert rollout.differences(before, rollout.tree(base)) == []


def test_first_deploy_serves_the_newest_release(site: Rollout, deployed: Play) -> None:
    assert deployed.code == 0, deployed.output
    assert deployed.counts["changed"] > 0
    assert site.version() == NEWEST
    assert site.generate(tokens=5) == 5


def test_layer_of_the_model_ran_before_the_switch(site: Rollout, deployed: Play) -> None:
    tried = deployed.output.index("TASK [tokforge.sglang.preflight : Try the kernels of the new release]")
    assert tried < deployed.output.index("TASK [Switch to the release]")
    [record] = json.loads((site.root / "state/probes.json").read_text())["probes"]
    assert record


def test_it_was_proven_from_outside_before_the_way_back_was_given_up(site: Rollout, deployed: Play) -> None:
    proved = deployed.output.index("TASK [Prove from outside that it is what was asked for]")
    assert proved < deployed.output.index("TASK [Note that this release serves]")
    assert re.search(r"\d+ passed", deployed.output[proved:]), deployed.output[proved : proved + 3000]


def test_summary_tells_the_address_and_the_measured_speed(site: Rollout, deployed: Play) -> None:
    summary = deployed.output.rsplit("TASK [Summary]", 1)[1]
    assert f"SGLang serves on localhost at http://127.0.0.1:{site.port}" in summary
    assert f"SGLang {NEWEST}" in summary
    [speed] = re.findall(r"measured +([\d.]+) tok/s output at concurrency 1,", summary)
    assert float(speed) > 0


def test_no_step_is_silent_for_long(deployed: Play) -> None:
    assert deployed.silence_s < SILENCE_LIMIT_S * deployed.crowd


def test_fact_is_what_ansible_reads_and_is_valid(site: Rollout, deployed: Play) -> None:
    command = [str(Path(sys.executable).with_name("ansible")), "-i", str(rollout.INVENTORY), "sglang", "-m", "setup"]
    command += ["-a", f"gather_subset=!all,!min,local filter=ansible_local fact_path={site.root}/facts"]
    read = subprocess.run(command, capture_output=True, text=True, cwd=rollout.CHECKOUT, check=True).stdout
    latest = site.facts()["latest"]
    assert latest["valid"] is True, latest["reasons"]
    assert latest["context"]["sglang_version"] == NEWEST
    assert [point["concurrency"] for point in latest["points"]] == [1]
    assert latest["points"][0]["output_tok_s"] > 0
    assert f"id: {latest['id']}" in read


# --- the same again --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Again:
    """A run on what serves already, with what was there before and after."""

    play: Play
    server: tuple[proc.Process, proc.Process | None]
    written: list[str]


def again(site: Rollout, *options: str) -> Again:
    server, before = site.must_run(), rollout.tree(site.root, MAY_GROW)
    play = site.deploy(*options)
    written = rollout.differences(before, rollout.tree(site.root, MAY_GROW))
    return Again(
        play, (server, site.server()), [path for path in written if not path.startswith(f"{site.root}/{LOCK}")]
    )


def same_process(pair: tuple[proc.Process, proc.Process | None]) -> bool:
    before, after = pair
    return after is not None and (before.pid, before.start_ticks) == (after.pid, after.start_ticks)


@pytest.fixture(scope="module")
def second(site: Rollout, deployed: Play) -> Again:
    return again(site)


def test_second_deploy_changes_nothing(second: Again) -> None:
    assert second.play.code == 0, second.play.output
    assert second.play.counts["changed"] == 0, second.play.output


def test_second_deploy_leaves_the_server_running(second: Again) -> None:
    assert same_process(second.server)


def test_second_deploy_writes_no_file(second: Again) -> None:
    assert second.written == []


def test_second_deploy_is_quick(second: Again) -> None:
    assert second.play.elapsed_s < NO_OP_LIMIT_S * second.play.crowd


def test_check_mode_on_a_deployed_machine_changes_nothing(serving: Rollout) -> None:
    seen = again(serving, "--check", "--diff")
    assert seen.play.code == 0, seen.play.output
    assert seen.play.counts["changed"] == 0, seen.play.output
    assert seen.written == []
    assert same_process(seen.server)


# --- verify ----------------------------------------------------------------------------------------------------------


def test_verify_passes_on_what_was_deployed(serving: Rollout) -> None:
    play = serving.run("verify.yml")
    assert play.code == 0, play.output
    assert re.search(r"\d+ passed", play.output)


def test_verify_fails_when_another_port_is_asked(serving: Rollout) -> None:
    play = serving.run("verify.yml", sglang_port=serving.port + 1)
    assert play.code != 0
    assert "test_port_is_open_only_where_asked" in play.output


def test_verify_fails_on_a_damaged_fact_file(serving: Rollout) -> None:
    fact = serving.root / "facts/sglang.fact"
    whole = fact.read_bytes()
    fact.write_bytes(whole[: len(whole) // 2])
    try:
        play = serving.run("verify.yml")
    finally:
        fact.write_bytes(whole)
    assert play.code != 0
    assert "test_facts_are_a_mapping_of_a_known_schema" in play.output


# --- wrong requests --------------------------------------------------------------------------------------------------

SECRET = "sk-canary-0123456789"
# What is asked, and what the message must say about it.
REFUSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "unknown version": ({"sglang_version": "0.5.99"}, ["release: ", "'0.5.99' has no lock", NEWEST, OTHER]),
    "backend that only the other release has": (
        {"sglang_version": OTHER, "backend": "experimental_sgl_trtllm"},
        ["backend: 'experimental_sgl_trtllm' is no --moe-runner-backend", OTHER, "choices there: auto, "],
    ),
    "misspelt backend": ({"backend": "flashinfer_cutlas"}, ["did you mean flashinfer_cutlass?"]),
    "gate of nobody knows which backend": (
        {"sglang_autotune_gate": "open"},
        ["autotune: sglang_autotune_gate is open and the backend is auto", "sglang_autotune_backend"],
    ),
    "gate of a misspelt backend": (
        {"sglang_autotune_gate": "open", "sglang_autotune_backend": "flashinfer_cutlas"},
        ["autotune: sglang_autotune_backend 'flashinfer_cutlas' is no", "did you mean flashinfer_cutlass?"],
    ),
    "misspelt variable": ({"sglang_prot": 1}, ["variables: sglang_prot is no variable", "sglang_port?"]),
    "misspelt short name": ({"bakend": "auto"}, ["variables: bakend is no variable", "backend"]),
    "unknown launch argument": (
        {"sglang_server_args": {"max-runing-requests": 4}},
        ["arguments: --max-runing-requests is no argument", "did you mean --max-running-requests?"],
    ),
    "argument of another variable": ({"sglang_server_args": {"port": 5}}, ["port is decided by sglang_port"]),
    "secret in the arguments": ({"sglang_server_args": {"api-key": SECRET}}, ["--api-key", "sglang_server_api_key"]),
    "short secret": ({"sglang_server_api_key": SECRET[:10]}, ["sglang_server_api_key has 10 characters"]),
    "wrong type": ({"sglang_port": "http"}, ["values: ", "sglang_port", "int"]),
    "port out of range": ({"sglang_port": 70000}, ["sglang_port is 70000", "65535"]),
    # 192.0.2.0/24 is for documentation (RFC 5737): no machine has it.
    "address of another machine": ({"sglang_host": "192.0.2.1"}, ["sglang_host 192.0.2.1 is no address of this"]),
    "benchmark of nothing": ({"sglang_benchmark_concurrency": [0]}, ["benchmark: ", "concurrency=0 is too small"]),
    "model without config.json": ({"model": "{base}/no-model"}, ["model: ", "{base}/no-model", "config.json"]),
    "model of no known form": ({"model": "tiny"}, ["model: ", "'tiny'", "builtin:tiny-moe"]),
    "too little disk": (
        {"sglang_root": "{base}/new", "sglang_port": 31795, "sglang_min_free_bytes": 10**18},
        ["disk: ", "1000000000.0 GB needed", "{base}"],
    ),
    "root below a file": (
        {"sglang_root": "{base}/file/new", "sglang_port": 31795},
        ["root: cannot create sglang_root {base}/file/new", "{base}/file is not a directory"],
    ),
}


def refuse(site: Rollout, variables: dict[str, Any], words: list[str]) -> None:
    """Deploy what must be refused: one message with these words, and nothing is touched."""
    server, before = site.must_run(), rollout.tree(site.root, MAY_GROW)
    play = site.deploy(**variables)
    assert play.code != 0, play.output
    assert (play.failures, play.counts["failed"], play.counts["changed"]) == (1, 1, 0), play.output
    assert play.message.startswith("nothing was changed on localhost: 1 of the checks"), play.message
    assert [word for word in words if word not in play.message] == [], play.message
    assert "canary" not in play.output
    assert rollout.differences(before, rollout.tree(site.root, MAY_GROW)) == []
    assert same_process((server, site.server()))


@pytest.mark.parametrize("wrong", REFUSED)
def test_wrong_value_is_refused_before_anything_changes(serving: Rollout, base: Path, wrong: str) -> None:
    (base / "no-model").mkdir(exist_ok=True)
    (base / "file").touch()
    asked, words = REFUSED[wrong]

    def placed(value: Any) -> Any:
        return value.replace("{base}", str(base)) if isinstance(value, str) else value

    refuse(serving, {name: placed(value) for name, value in asked.items()}, [placed(word) for word in words])
    assert not (base / "new").exists()


def test_port_of_another_process_is_refused_and_the_process_is_named(serving: Rollout) -> None:
    program = "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)"
    other = subprocess.Popen(
        [sys.executable, "-c", f"{program}; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout
    port = int(other.stdout.readline())
    try:
        refuse(serving, {"sglang_port": port}, [f"127.0.0.1:{port} is in use by pid {other.pid} (", "socket"])
    finally:
        other.communicate()


def test_directory_that_this_user_may_not_write_is_refused(serving: Rollout, base: Path) -> None:
    locked = base / "locked"
    locked.mkdir(exist_ok=True)
    locked.chmod(0o555)
    user = {}
    if os.geteuid() == 0:
        if not shutil.which("su") or not Path("/usr/bin/python3").exists():
            pytest.skip("root may write everywhere, and without su and /usr/bin/python3 there is no other user here")
        elsewhere = base / "cache-for-all"
        elsewhere.mkdir(exist_ok=True)
        elsewhere.chmod(0o777)
        user = {
            "sglang_uv_cache": str(elsewhere),
            "ansible_become": True,
            "ansible_become_method": "su",
            "ansible_become_user": "nobody",
            "ansible_become_flags": "-s /bin/sh",
            "ansible_python_interpreter": "/usr/bin/python3",
        }
    asked = {"sglang_root": f"{locked}/new", "sglang_port": 31795, **user}
    refuse(serving, asked, ["root: cannot write sglang_root", f"may not write {locked}"])


def test_read_only_file_system_is_refused(serving: Rollout, base: Path) -> None:
    with rollout.tmpfs(base / "read-only", "size=1m,ro"):
        asked = {"sglang_root": f"{base}/read-only/new", "sglang_port": 31795}
        refuse(serving, asked, ["root: cannot write sglang_root", f"may not write {base}/read-only"])


def test_small_file_system_is_refused(serving: Rollout, base: Path) -> None:
    with rollout.tmpfs(base / "small", "size=64m"):
        asked = {"sglang_root": f"{base}/small/new", "sglang_port": 31795}
        refuse(serving, asked, [f"disk: 0.1 GB free at {base}/small, 5.0 GB needed"])
        assert list((base / "small").iterdir()) == []


# --- a release that crashes at start ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crashed(site: Rollout, deployed: Play) -> Play:
    """A rollout over a release that serves."""
    return site.deploy(sglang_server_args=CRASHING)


def test_crashing_release_fails_the_play_with_its_traceback(crashed: Play) -> None:
    assert crashed.code != 0
    assert crashed.counts["failed"] == 1
    assert "release 2 failed: " in crashed.message
    assert "Traceback (most recent call last)" in crashed.message
    assert "FlashAttention v3" in crashed.message


def test_crashing_release_is_rolled_back_to_the_one_that_served(site: Rollout, crashed: Play) -> None:
    assert "rolled_back: true; release 1 was switched back and serves again" in crashed.message
    assert site.release() == 1
    assert site.version() == NEWEST
    assert site.generate() == 4


# --- stopped, killed, deployed again ---------------------------------------------------------------------------------


@pytest.fixture
def stopped(site: Rollout, deployed: Play) -> Rollout:
    """Somebody stopped the server, without the collection."""
    if site.server() is not None:
        site.supervisorctl("stop", "sglang")
    return site


def test_verify_fails_when_the_server_is_stopped(stopped: Rollout) -> None:
    play = stopped.run("verify.yml")
    assert play.code != 0
    assert "test_server_runs_the_current_release" in play.output


def deploy_starts_it_again(site: Rollout) -> None:
    installed = rollout.identity(site.environments()[NEWEST])
    play = site.deploy()
    assert play.code == 0, play.output
    assert site.generate() == 4
    assert site.release() == 1
    assert rollout.identity(site.environments()[NEWEST]) == installed


@IN_FULL
def test_server_that_was_stopped_by_hand_is_started_by_the_next_deploy(stopped: Rollout) -> None:
    deploy_starts_it_again(stopped)


# The same way as after a stop by hand, which is above.
@IN_FULL
def test_server_that_was_killed_is_started_by_the_next_deploy(serving: Rollout) -> None:
    assert proc.send(serving.must_run(), signal.SIGKILL)
    deploy_starts_it_again(serving)


# --- another release, its autotune gate, and back --------------------------------------------------------------------

#: Nobody can see on a CPU whether a backend is tuned, so the gate is opened for one that is not served.
GATE = {"sglang_version": OTHER, "sglang_autotune_backend": "flashinfer_cutlass"}


@dataclass(frozen=True)
class Switched:
    """What served after one deploy of the other release: the file with its gate, and the server's process."""

    play: Play
    version: str
    release: int | None
    gate: str
    server: proc.Process


def switch(site: Rollout, state: str, *options: str) -> Switched:
    play = site.deploy(*options, sglang_autotune_gate=state, **GATE)
    assert play.code == 0, play.output
    [path] = (site.root / "current/venv").glob("lib/*/site-packages/sglang/srt/model_executor/model_runner.py")
    return Switched(play, site.version(), site.release(), path.read_text(), site.must_run())


@pytest.fixture(scope="module")
def installed(site: Rollout, deployed: Play) -> tuple[int, int]:
    """What was installed before the way to the other release."""
    return rollout.identity(site.environments()[NEWEST])


@dataclass(frozen=True)
class Keyed:
    """The first deploy with secrets, with all that it shows: where they were while it ran, and in the end."""

    switched: Switched
    arguments: canaries.Arguments
    leaks: list[str]
    guarded: dict[str, int]


@pytest.fixture(scope="module")
def secret(site: Rollout, base: Path) -> None:
    """From here on the server asks for keys, and every play has secrets."""
    site.keep_secret(base / "secrets.json", canaries.VARIABLES)


@pytest.fixture(scope="module")
def keyed(site: Rollout, installed: tuple[int, int], secret: None) -> Keyed:
    """The other release, with its gate open."""
    with canaries.arguments_watched() as arguments:
        first = switch(site, "open", "--diff", "-vvv")
    return Keyed(first, arguments, canaries.leaks(site.root), answers_without_a_key(site))


@pytest.fixture(scope="module")
def switched(site: Rollout, keyed: Keyed) -> list[Switched]:
    """The other release with its gate open, closed, and open again."""
    return [keyed.switched, *(switch(site, state) for state in ("closed", "open"))]


@pytest.fixture(scope="module")
def back(site: Rollout, base: Path, switched: list[Switched]) -> Play:
    """The way back, with the releases that there were, through the command for CI."""
    options = ["--artifacts", str(base / "artifacts"), "--diff", "-vvv", "--report"]
    with canaries.arguments_watched() as arguments:
        play = site.start_command("deploy", *options).finish()
    assert arguments.leaks == set() and {"tokforge_rollout", "launch.py"} <= arguments.seen
    return play


# --- secrets ---------------------------------------------------------------------------------------------------------


def answers_without_a_key(site: Rollout) -> dict[str, int]:
    """The status of every request that the running server says it understands, made without a key."""
    found = {}
    for path, methods in site.ask("/openapi.json")["paths"].items():
        for method in methods:
            found[f"{method.upper()} {path}"] = site.status(method.upper(), re.sub(r"{[^}]*}", "x", path))
    # What its list does not name, and a path that only a careless address has.
    found["GET /openapi.json"] = site.status("GET", "/openapi.json")
    found["GET /docs"] = site.status("GET", "/docs")
    found["misled"] = site.status("GET", "/server_info", Host="localhost/health?")
    return found


def management(site: Rollout) -> list[str]:
    """The paths that the source of the release that serves marks as management."""
    [source] = (site.root / "current/venv").glob("lib/*/site-packages/sglang/srt/entrypoints/http_server.py")
    marked = r'@app\.\w+\(\s*"(/[^"]*)"[^\n]*\n@auth_level\(AuthLevel\.ADMIN_OPTIONAL\)'
    return re.findall(marked, source.read_text())


#: What must be among them in every release; the list of a release is longer.
MANAGING = {
    "/flush_cache", "/set_internal_state", "/update_weights_from_disk", "/update_weights_from_tensor", "/start_profile",
    "/release_memory_occupation", "/load_lora_adapter", "/abort_request", "/freeze_gc", "/pause_generation",
}  # fmt: skip


def is_guarded(site: Rollout, without_a_key: dict[str, int]) -> None:
    """Only health and metrics answer without a key, management to its own key only, and each key opens what is its."""
    open_to_all = {asked for asked, status in without_a_key.items() if status not in (401, 403)}
    assert {asked.split()[1].split("_")[0] for asked in open_to_all} <= {"/health", "/ready", "/metrics"}, without_a_key
    assert len(without_a_key) - len(open_to_all) > 60
    managing = management(site)
    assert set(managing) >= MANAGING
    asked = [request.split() for request in without_a_key if " " in request]
    assert [path for path in managing if path not in {path for _method, path in asked}] == []
    answered = {(method, path): site.status(method, path, site.key) for method, path in asked if path in managing}
    assert set(answered.values()) == {401}, answered
    assert site.status("GET", "/v1/models", site.key) == 200
    assert site.status("POST", "/flush_cache", site.admin_key) == 200
    assert site.status("GET", "/health") == 200


def test_secrets_are_in_no_argument_no_output_and_no_file_but_0600_ones(site: Rollout, keyed: Keyed) -> None:
    assert keyed.arguments.looks > 50 and {"deploy.yml", "launch.py"} <= keyed.arguments.seen
    assert keyed.arguments.leaks == set()
    assert canaries.MARK not in keyed.switched.play.output
    assert keyed.leaks == []
    # They did arrive.
    assert canaries.holders(site.root, canaries.LEFT_OUT) == [site.root / "state/secrets.env"]
    assert site.generate() == 4
    environ = Path("/proc", str(site.must_run().pid), "environ")
    assert canaries.MARK.encode() in environ.read_bytes() and environ.stat().st_mode & 0o777 == 0o400


def test_nothing_that_manages_the_server_answers_without_its_key(
    site: Rollout, keyed: Keyed, switched: list[Switched]
) -> None:
    is_guarded(site, keyed.guarded)


def test_newest_release_guards_as_well_and_verify_says_so(site: Rollout, back: Play) -> None:
    is_guarded(site, answers_without_a_key(site))
    play = site.run("verify.yml")
    assert play.code == 0, play.output
    assert "no API key is set" not in play.output and "no admin key is set" not in play.output
    assert canaries.MARK not in play.output


def test_secrets_are_in_nothing_that_the_command_for_ci_leaves(site: Rollout, base: Path, back: Play) -> None:
    assert back.code == 0, back.output
    assert canaries.MARK not in back.output
    assert canaries.holders(base / "artifacts") == []
    written = {path.name for path in (base / "artifacts").rglob("*")}
    assert {"summary.json", "junit.xml", "play.log", "report.html", "status"} <= written
    assert canaries.leaks(site.root) == []


# --- what became of the other release --------------------------------------------------------------------------------


def test_other_version_is_another_environment_and_another_release(site: Rollout, switched: list[Switched]) -> None:
    assert switched[0].version == OTHER
    assert switched[0].release not in (None, 1)
    assert set(site.environments()) == {NEWEST, OTHER}


def test_gate_that_is_opened_closed_and_opened_restarts_the_server_exactly_when_the_bytes_change(
    switched: list[Switched],
) -> None:
    live, commented = '            "flashinfer_cutlass",\n', '            # "flashinfer_cutlass",\n'
    opened, closed, again = switched
    assert (live in opened.gate, commented in opened.gate) == (True, False)
    assert opened.gate.replace(live, commented) == closed.gate
    assert opened.gate == again.gate
    assert not same_process((opened.server, closed.server))
    assert not same_process((closed.server, again.server))


def test_each_state_of_the_gate_has_a_release_of_its_own(switched: list[Switched]) -> None:
    opened, closed, again = switched
    assert opened.release == again.release != closed.release


def test_summary_and_facts_tell_the_state_of_the_gate(site: Rollout, switched: list[Switched]) -> None:
    assert "autotune   gate open for flashinfer_cutlass, edited into the release" in switched[0].play.output
    assert "autotune   gate" not in switched[1].play.output.rsplit("TASK [Summary]", 1)[1]
    contexts = [record["context"] for record in site.facts()["history"]]
    told = [context["autotune_gate"] for context in contexts if context["sglang_version"] == OTHER]
    opened = ("open_by_patch", "patch")
    assert [(gate["gate"], gate["enabled_by"]) for gate in told] == [opened, (None, None), opened]


def test_way_back_reuses_the_first_release_and_installs_nothing(
    site: Rollout, installed: tuple[int, int], back: Play
) -> None:
    assert back.code == 0, back.output
    assert site.version() == NEWEST
    assert site.release() == 1
    assert rollout.identity(site.environments()[NEWEST]) == installed


# --- starts, rank by rank --------------------------------------------------------------------------------------------


@pytest.fixture
def start(serving: Rollout, tmp_path: Path) -> Callable[..., Start]:
    """Start the installed SGLang beside the server that serves, on another port."""
    python = serving.environments()[NEWEST].parent / "bin/python"

    def begin(name: str = "start", tp: int = 1) -> Start:
        return Start(python, serving.root / "models/tiny-moe", tmp_path / name, free_port(), tp)

    return begin


@pytest.fixture
def probed(serving: Rollout, tmp_path: Path) -> ProbeRoot:
    """A root beside the server that serves, with the installed SGLang as its environment."""
    return ProbeRoot(tmp_path / "probed", serving.environments()[NEWEST].parent, serving.root / "models/tiny-moe")


def test_layer_of_one_of_two_ranks_runs_once_and_is_not_probed_again(probed: ProbeRoot) -> None:
    asked = probe.Request(root=str(probed.root), release=probed.stage(**{"tp-size": 2}), timeout_s=240, force=True)
    first = probe.carry_out(asked).as_dict()
    [layer] = [step for step in first["steps"] if step["name"] == "layer"]
    assert (layer["result"], layer["detail"]) == ("ok", "8 forward passes, with finite output"), first
    assert first["ok"] and first["autotune"]["expected"] == "not_expected" and first["gpu"] is None
    assert first["shared_cache"] is True
    assert not (probed.root / "cache/sglang/flashinfer").exists()
    again = probe.carry_out(replace(asked, force=False)).as_dict()
    assert again["recorded"] is True and {step["result"] for step in again["steps"]} == {"skipped"}
    assert probing.left() == []


def test_backend_that_is_not_installed_fails_its_probe_in_a_moment(probed: ProbeRoot) -> None:
    number = probed.stage("flashinfer_cutlass")
    answer = probe.carry_out(probe.Request(root=str(probed.root), release=number, timeout_s=60))
    assert answer.failed is not None
    assert (answer.failed.name, answer.failed.reason) == ("import", "import_error")
    assert answer.failed.detail == "importing flashinfer.fused_moe: ModuleNotFoundError: No module named 'flashinfer'"
    assert answer.steps[-1].result == "skipped"


def test_argument_that_crashes_the_server_crashes_its_probe(probed: ProbeRoot) -> None:
    number = probed.stage(**{"attention-backend": "fa3"})
    answer = probe.carry_out(probe.Request(root=str(probed.root), release=number, timeout_s=240, steps=("layer",)))
    assert answer.failed is not None
    assert answer.failed.lines[-1].startswith("AssertionError: ")
    assert "FlashAttention v3" in answer.message()
    assert probing.left() == []


def test_start_with_two_ranks_is_followed_over_rotations_until_it_is_ready(start: Callable[..., Start]) -> None:
    with start(tp=2) as one:
        found = one.until_over("arguments", lambda: starting.copy_and_truncate(one.log))
        assert (found["state"], found["gap"]) == ("ready", False), found["failure"]
        assert found["expected_ranks"] == ["TP0", "TP1"] and found["missing_ranks"] == []
        assert found["milestones"]["weights_loaded"]["ranks"] == found["milestones"]["kv_cache"]["ranks"] == 2
        assert found["autotune"]["expected"] == "not_expected" and "cpu" in found["autotune"]["reason"]
        assert found["durations"]["since_arguments_s"] > 1 and found["restarts"] == 0


def test_rank_that_is_stopped_stalls_the_start_and_rank_that_is_killed_ends_it(start: Callable[..., Start]) -> None:
    with start(tp=2) as one:
        limit_s = 5.0
        found = one.until_over("kv_cache", lambda: os.kill(one.rank("TP1"), signal.SIGSTOP), limit_s)
        assert one.since_cause_s < limit_s + starting.WITHIN_S
        assert (found["state"], found["failure"]["reason"], found["failure"]["rank"]) == ("stalled", "stalled", "TP1")
        one.caused_at = 0.0
        found = one.until_over("kv_cache", lambda: os.kill(one.rank("TP1"), signal.SIGKILL))
        assert one.since_cause_s < starting.WITHIN_S
        assert (found["state"], found["failure"]["reason"]) == ("failed", "rank_dead")
        # On a busy machine the main process may have ended the other rank too by the time of the look.
        told = f"rank {found['failure']['rank']} {' '.join(found['failure']['excerpt'])}"
        assert "rank TP1" in told, found["failure"]


def test_server_that_is_killed_and_server_whose_port_is_taken_fail_within_seconds(start: Callable[..., Start]) -> None:
    with start("killed") as killed, start("robbed") as robbed:
        found = killed.until_over("arguments", lambda: os.kill(killed.process.pid, signal.SIGKILL))
        assert killed.since_cause_s < starting.WITHIN_S
        assert (found["state"], found["failure"]["reason"]) == ("failed", "process_exit")
        # It binds its port when the model is loaded, and notices only then.
        found = robbed.until_over("arguments", robbed.take_port)
        assert (found["state"], found["failure"]["reason"]) == ("failed", "port_in_use")
        assert f"('127.0.0.1', {robbed.port}): address already in use" in found["failure"]["excerpt"][-1]
        robbed.thief.close()


# --- experiments -----------------------------------------------------------------------------------------------------

# Eight requests at once, so that it shows when only one of them runs.
SHORT_LADDER = {
    "sglang_benchmark_concurrency": [8],
    "sglang_benchmark_num_prompts_factor": 2,
    "sglang_experiment_repetitions": 1,
    "sglang_stop_timeout_s": 2,
}


@IN_FULL
def test_sweep_tries_what_can_run_and_leaves_what_served_when_nothing_is_better(serving: Rollout) -> None:
    asked = {
        **SHORT_LADDER,
        "sglang_sweep_confirm_starts": 0,
        "sglang_sweep_candidates": [
            {"name": "slow", "args": {"max-running-requests": 1}},
            {"name": "crash", "args": {"attention-backend": "fa3"}},
            {"name": "unknown", "backend": "no_such_backend"},
        ],
    }
    play = serving.run("sweep.yml", **asked)
    assert play.code == 0, play.output
    sweep = serving.facts()["sweeps"][-1]
    assert {one["name"]: one["state"] for one in sweep["candidates"]} == {
        "original": "measured",
        "slow": "measured",
        "crash": "failed",
        "unknown": "unsupported",
    }
    assert "no_such_backend" in sweep["candidates"][3]["reason"]
    assert (sweep["winner"], sweep["finished"]) == (None, True)
    rates = {one["name"]: one["output_tok_s"].get("8") for one in sweep["candidates"]}
    assert rates["original"] > 1.5 * rates["slow"]
    assert serving.release() == 1
    assert serving.listening()
    again = serving.run("sweep.yml", **asked)
    assert (again.code, again.counts["changed"]) == (0, 0), again.output


def test_report_tells_what_was_measured(serving: Rollout, tmp_path: Path) -> None:
    play = serving.run("report.yml", sglang_report_dir=str(tmp_path / "report"))
    assert play.code == 0, play.output
    page = (tmp_path / "report/report.html").read_text()
    fastest = max(point["output_tok_s"] for point in serving.facts()["latest"]["points"])
    # From a hundred on without a decimal.
    assert (f"{fastest:,.0f}" if fastest >= 100 else f"{fastest:.1f}") in page
    # Only when a sweep was made before.
    assert ("no_such_backend" in page) is bool(serving.facts().get("sweeps"))
    assert "http://" not in page.replace("http://www.w3.org/", "")
    again = serving.run("report.yml", sglang_report_dir=str(tmp_path / "report"))
    assert again.counts["changed"] == 0, again.output


def experiment(serving: Rollout, playbook: str, **variables: Any) -> Play:
    """Ten starts and more, each of which takes most of a minute."""
    return serving.start(playbook, **{**SHORT_LADDER, **variables}).finish(timeout_s=3600)


@IN_FULL
def test_autotune_gate_makes_no_measurable_gain_on_a_processor(serving: Rollout) -> None:
    play = experiment(serving, "benchmark.yml", ab="autotune_gate")
    assert play.code == 0, play.output
    found = serving.facts()["comparisons"][-1]
    assert (found["kind"], found["verdict"], found["unit"]) == ("ab", "no_measurable_gain", "start")
    assert (found["a"]["starts"], found["b"]["starts"]) == (5, 5)
    assert serving.release() == 1


@IN_FULL
def test_argument_that_changes_much_is_faster(serving: Rollout) -> None:
    play = experiment(serving, "benchmark.yml", ab="max_running_requests", ab_values=[1, 64])
    assert play.code == 0, play.output
    found = serving.facts()["comparisons"][-1]
    assert (found["verdict"], found["points"][0]["verdict"]) == ("faster", "faster")
    assert found["points"][0]["band_percent"][0] > 20
    assert [one["name"] for one in found["differences"] if one["what"] == "args"] == ["max_running_requests"]


@IN_FULL
def test_explanation_finds_the_difference_that_counts(serving: Rollout) -> None:
    plain, better = {"max-running-requests": 1, "random-seed": 1}, {"max-running-requests": 64, "random-seed": 2}
    play = experiment(serving, "explain.yml", sglang_explain_a={"args": plain}, sglang_explain_b={"args": better})
    assert play.code == 0, play.output
    found = serving.facts()["explanations"][-1]
    steps = {step["name"]: step for step in found["steps"]}
    counts, other = steps["max-running-requests=64"], steps["random-seed=2"]
    assert counts["verdict"] == "faster"
    assert counts["change_percent"] > 4 * abs(other["change_percent"])
    assert found["total"]["change_percent"] > 20


# --- the end ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def destroyed(site: Rollout, deployed: Play) -> Play:
    return site.run("destroy.yml")


def test_destroy_ends_every_process(site: Rollout, destroyed: Play) -> None:
    assert destroyed.code == 0, destroyed.output
    assert site.processes() == {}
    assert not site.listening()


def test_destroy_removes_what_was_made_but_models_and_caches(site: Rollout, destroyed: Play) -> None:
    assert sorted(path.name for path in site.root.iterdir()) == [".tokforge-sglang", "cache", "models"]


def test_second_destroy_changes_nothing(site: Rollout, destroyed: Play) -> None:
    before = rollout.tree(site.root)
    play = site.run("destroy.yml")
    assert play.code == 0, play.output
    assert play.counts["changed"] == 0, play.output
    assert rollout.differences(before, rollout.tree(site.root)) == []


# --- stopped on the way to a server, from here on below a root that was destroyed ------------------------------------


@pytest.fixture
def fresh(site: Rollout, destroyed: Play, secret: None) -> Rollout:
    """Nothing serves yet below this root."""
    assert site.release() is None
    return site


def installing(site: Rollout) -> Running:
    """A deploy in the middle of its install."""
    running = site.start("deploy.yml")
    running.wait_for(site.installing, "packages were being installed")
    return running


def test_interrupt_in_the_install_leaves_no_process_and_no_environment(fresh: Rollout) -> None:
    for _attempt in range(3):
        running = installing(fresh)
        running.signal_all(signal.SIGINT)
        assert running.finish().code != 0
        assert fresh.settle() == {}
        complete = fresh.environments()
        if not complete:
            break
        # On a busy machine the interrupt can come after the last package: then it is whole, and there is another try.
        for marker in complete.values():
            assert fresh.installed(marker) == json.loads(marker.read_text())["versions"]
            shutil.rmtree(marker.parent)
    assert complete == {}


def test_install_whose_every_process_was_killed_leaves_nothing_that_counts_as_complete(fresh: Rollout) -> None:
    running = installing(fresh)
    fresh.end_everything()
    assert running.finish().code == -signal.SIGKILL
    assert fresh.environments() == {}
    assert fresh.half_environments_of_sglang()


def test_play_that_is_killed_in_the_install_leaves_no_process_and_no_half_environment(fresh: Rollout) -> None:
    running = installing(fresh)
    os.kill(running.process.pid, signal.SIGKILL)
    assert running.finish().code == -signal.SIGKILL
    # The module it started goes on to its own end, and may complete the environment, over the half one of before.
    assert fresh.settle() == {}
    for marker in fresh.environments().values():
        assert fresh.installed(marker) == json.loads(marker.read_text())["versions"]


def test_kill_of_the_server_in_its_first_start_fails_the_play_at_once_and_leaves_nothing_running(
    fresh: Rollout,
) -> None:
    running = fresh.start("deploy.yml")
    running.wait_for(lambda: "the processes start" in running.output, "the wait for the server")
    assert proc.send(fresh.must_run(), signal.SIGKILL)
    killed_after_s = running.lines[-1][0] - running.began
    play = running.finish()
    assert play.code != 0
    assert play.elapsed_s - killed_after_s < 20 * play.crowd
    assert "SIGKILL" in play.message
    assert "rolled_back: true; no release served before it" in play.message
    # The message quotes the server's log.
    assert canaries.MARK not in play.output
    assert canaries.leaks(fresh.root) == []
    # Whatever the interrupted installs before left is complete now.
    assert set(fresh.environments()) == {NEWEST}
    assert fresh.half_environments() == []
    assert (fresh.server(), fresh.listening(), fresh.release()) == (None, False, None)


@IN_FULL
def test_deploy_after_a_play_that_was_killed_in_the_start_takes_its_server_over(fresh: Rollout) -> None:
    running = fresh.start("deploy.yml")
    running.wait_for(lambda: "the processes start" in running.output, "the wait for the server")
    server = fresh.must_run()
    running.signal_all(signal.SIGKILL)
    running.finish()
    play = fresh.deploy()
    assert play.code == 0, play.output
    assert same_process((server, fresh.server()))
    assert fresh.generate() == 4
    assert fresh.facts()["latest"]["valid"] is True


# --- a machine whose disk fills up -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(base: Path, deployed: Play) -> Iterator[Rollout]:
    """A root on a file system that is too small for the environment, though the request says that little is needed."""
    with rollout.tmpfs(base / "disk", "size=400m"):
        made = Rollout(base / "disk/site", free_port(), base / "uv-cache")
        made.variables["sglang_min_free_bytes"] = 1
        yield made
        made.run("destroy.yml", sglang_destroy_models=True, sglang_destroy_caches=True)
        made.end_everything()


def test_install_on_a_disk_that_fills_up_names_it_and_leaves_nothing_half(small: Rollout) -> None:
    play = small.deploy()
    assert play.code != 0
    assert "free disk space there and run again" in play.message
    assert "rolled_back: false; nothing was switched" in play.message
    assert play.failures == 2  # the task, and the play, which says what became of it
    assert small.environments() == {}
    assert small.half_environments() == []


# A server's start more, and the kill of a first start above ends in the same state.
@IN_FULL
def test_first_rollout_that_crashes_after_the_disk_was_enlarged_leaves_a_clean_stopped_state(small: Rollout) -> None:
    subprocess.run(["mount", "-o", "remount,size=6g", str(small.root.parent)], check=True)
    play = small.deploy(sglang_server_args=CRASHING)
    assert play.code != 0
    assert set(small.environments()) == {NEWEST}
    assert "FlashAttention v3" in play.message
    assert "rolled_back: true; no release served before it" in play.message
    assert (small.server(), small.listening(), small.release()) == (None, False, None)
    assert small.settle(5) == {}
