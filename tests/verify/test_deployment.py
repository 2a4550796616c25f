# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Does the server that was asked for serve, where it was asked to, and are its recorded results there for any play?"""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest


def test_server_runs_the_current_release(asked: dict[str, Any], seen: dict[str, Any]) -> None:
    assert seen["current"], "no current release: deploy first"
    running = {process["release"] for process in seen["processes"]}
    said = f"running: {', '.join(sorted(running)) or 'nothing'}, current: {seen['current']}"
    log = f"{asked['sglang_root']}/log/server.log"
    assert running == {seen["current"]}, f"{said}; see at the end of {log} why a server ended, and deploy again"


def test_port_is_open_only_where_asked(asked: dict[str, Any], seen: dict[str, Any]) -> None:
    port, asked_for, log = (
        asked["sglang_port"],
        ", ".join(seen["asked_addresses"]),
        f"{asked['sglang_root']}/log/server.log",
    )
    assert seen["listening"], f"nobody listens on port {port}: the server ended, or is still starting; see {log}"
    said = (
        f"port {port} is open on {', '.join(seen['listening'])}, asked was {asked_for}: set sglang_host, deploy again"
    )
    assert set(seen["listening"]) <= set(seen["asked_addresses"]), said


def test_version_is_the_asked_one(asked: dict[str, Any], seen: dict[str, Any]) -> None:
    wanted = asked["sglang_version"] or seen["manifest"].get("sglang_version")
    assert seen["manifest"].get("sglang_version") == wanted, seen["manifest"].get("error")
    assert seen["installed_version"] == wanted


def test_autotune_gate_is_what_the_environment_was_built_with(seen: dict[str, Any]) -> None:
    gate = seen["autotune_gate"]
    if gate is None:
        pytest.skip("this environment recorded no autotune gate")
    assert gate["as_recorded"], f"{gate['file']} was changed after the environment was built: {gate.get('error', '')}"


def test_served_model_has_the_asked_name(first_node: None, asked: dict[str, Any], seen: dict[str, Any]) -> None:
    wanted = asked["sglang_served_model_name"] or seen["manifest"].get("model", {}).get("served_name")
    names = [model["id"] for model in seen["models"].get("data", [])]
    assert names == [wanted], seen["models"].get("error", "another model is served")


def test_generation_returns_every_token_asked(first_node: None, seen: dict[str, Any]) -> None:
    generated = seen["generation"].get("meta_info", {}).get("completion_tokens")
    assert generated == seen["tokens_asked"], seen["generation"].get("error", seen["generation"])


def test_generated_text_is_text(first_node: None, seen: dict[str, Any]) -> None:
    # One character over and over is what NaN logits decode to. Random weights may say anything else.
    text = seen["generation"].get("text", "")
    assert len(set(text.strip())) > 1 or seen["manifest"].get("model", {}).get("random_weights"), repr(text)


def test_secrets_are_readable_by_their_owner_only(seen: dict[str, Any]) -> None:
    assert seen["secrets_mode"] in (None, "0600")


REFUSED = (401, 403)


def test_nothing_but_health_and_metrics_answers_without_the_key(
    first_node: None, asked: dict[str, Any], seen: dict[str, Any]
) -> None:
    keys = seen["access"]["keys"]
    if keys is None:
        pytest.skip(
            f"{asked['sglang_root']}/state/secrets.env cannot be read by the user that looks: verify with become"
        )
    if not keys["client"]:
        open_to = [address for address in seen["listening"] if not ipaddress.ip_address(address).is_loopback]
        if open_to:
            pytest.skip(f"no API key is set: whoever reaches {', '.join(open_to)} can use and manage this server")
        pytest.skip("no API key is set, and only this machine reaches the server")
    answered = {request: status for request, status in seen["access"]["without_key"].items() if status not in REFUSED}
    assert not answered, f"answered without a key: {answered}; close the port, and see docs/security.md"


def test_management_endpoints_refuse_the_clients_key(first_node: None, seen: dict[str, Any]) -> None:
    if not (seen["access"]["keys"] or {}).get("admin"):
        pytest.skip("no admin key is set: who has the API key can manage the server")
    answered = {request: code for request, code in seen["access"]["with_client_key"].items() if code not in REFUSED}
    assert not answered, f"answered to the clients' key: {answered}; close the port, and see docs/security.md"


@pytest.fixture(scope="module")
def recorded(first_node: None, host: Any, asked: dict[str, Any]) -> Any:
    """ansible_local.sglang as a play would gather it. A damaged file turns into a text there, without an error."""
    answer = host.ansible(
        "ansible.builtin.setup",
        f"gather_subset=!all,!min,local filter=ansible_local fact_path={asked['sglang_facts_dir']}",
        check=False,
        become=False,
    )
    return answer["ansible_facts"].get("ansible_local", {}).get("sglang")


def test_fact_file_is_data_and_not_a_program(first_node: None, seen: dict[str, Any]) -> None:
    # Ansible runs an executable fact file and takes its output.
    assert seen["fact_mode"] == "0644"


def test_facts_are_a_mapping_of_a_known_schema(recorded: Any) -> None:
    assert isinstance(recorded, dict), f"not a mapping: {recorded!r}"
    assert recorded["schema_version"] >= 2


def test_latest_result_is_valid_and_measured_something(recorded: Any) -> None:
    assert isinstance(recorded, dict), f"not a mapping: {recorded!r}"
    latest = recorded["latest"]
    assert latest["valid"] is True, latest.get("reasons")
    assert latest["points"]
    assert all(point["output_tok_s"] > 0 for point in latest["points"])


def test_latest_result_is_about_the_version_that_serves(recorded: Any, seen: dict[str, Any]) -> None:
    assert isinstance(recorded, dict), f"not a mapping: {recorded!r}"
    assert recorded["latest"]["context"]["sglang_version"] == seen["manifest"].get("sglang_version")
