# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Preflight's decisions."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import findings, preflight

KNOWN = ["backend", "model", "sglang_version", "sglang_port", "sglang_root"]


def test_unknown_variable_with_our_prefix_fails_and_names_the_near_one() -> None:
    [finding] = preflight.unknown_variables(["sglang_prot", "sglang_port"], [], KNOWN)
    assert (finding.level, finding.check) == ("fail", "variables")
    assert finding.message.startswith("sglang_prot is no variable")
    assert finding.remedy == "did you mean sglang_root or sglang_port?"


def test_unknown_variable_with_our_prefix_and_no_near_name_fails_too() -> None:
    [finding] = preflight.unknown_variables(["sglang_zzzzzzzzzz"], [], KNOWN)
    assert finding.remedy == "see the table of variables in README.md"


@pytest.mark.parametrize("name", ["bakend", "modle", "backends"])
def test_misspelt_short_name_on_the_command_line_fails(name: str) -> None:
    [finding] = preflight.unknown_variables([name], [name], KNOWN)
    assert finding.message.startswith(name + " ")


@pytest.mark.parametrize("name", ["bakend", "modle"])
def test_misspelt_short_name_in_an_inventory_is_only_a_warning(name: str) -> None:
    [finding] = preflight.unknown_variables([name], [], KNOWN)
    assert finding.level == "warn"
    assert finding.message.startswith(name + " ")


@pytest.mark.parametrize("name", ["proxy", "ansible_user", "_backend", "port", "root"])
def test_names_that_are_not_ours_in_an_inventory_are_left_alone(name: str) -> None:
    assert preflight.unknown_variables([name], [], KNOWN) == []


def test_foreign_extra_variable_is_left_alone() -> None:
    assert preflight.unknown_variables(["cluster"], ["cluster"], KNOWN) == []


def test_declared_variables_and_role_facts_pass() -> None:
    assert preflight.unknown_variables([*KNOWN, "sglang_environment", "sglang_release_info"], ["backend"], KNOWN) == []


def test_release_without_a_lock_names_the_locked_ones() -> None:
    [finding] = preflight.check_release("0.5.99", "cpu", ["0.5.23", "0.5.12.post1"])
    assert finding.level == "fail"
    assert finding.message == "sglang_version '0.5.99' has no lock in lane cpu; locked are 0.5.23, 0.5.12.post1"


def test_release_given_as_a_number_fails_instead_of_matching_by_text() -> None:
    # YAML reads `sglang_version: 0.5` as a float: it must be told, not turned into text that happens to fit.
    assert preflight.check_release(0.5, "cpu", ["0.5"])[0].level == "fail"


def test_locked_release_passes() -> None:
    assert preflight.check_release("0.5.23", "cpu", ["0.5.23"])[0].level == "ok"


def test_backend_outside_the_choices_lists_them_and_the_near_one() -> None:
    [finding] = preflight.check_backend("flashinfer_cutlas", "0.5.12.post1", ["auto", "flashinfer_cutlass"])
    assert finding.level == "fail"
    assert finding.remedy == "did you mean flashinfer_cutlass? choices there: auto, flashinfer_cutlass"
    assert preflight.check_backend("auto", "0.5.12.post1", ["auto"])[0].level == "ok"


CHOICES = ["auto", "flashinfer_cutlass", "flashinfer_trtllm"]


def check_autotune(
    gate: Any, backend: str | None, version: str, served: str = "auto", in_place: bool = False
) -> list[findings.Finding]:
    return preflight.check_autotune(gate, backend, served, version, CHOICES, in_place)


@pytest.mark.parametrize("gate", ["closed", None])
def test_a_gate_that_stays_as_it_is_needs_nothing(gate: str | None) -> None:
    assert check_autotune(gate, None, "0.5.5") == []


def test_a_backend_for_a_gate_that_stays_closed_is_told_to_be_without_effect() -> None:
    [finding] = check_autotune(None, "flashinfer_cutlass", "0.5.12.post1")
    assert (finding.level, finding.remedy) == ("warn", "set sglang_autotune_gate to open")


def test_an_open_gate_needs_a_backend_by_name() -> None:
    for backend in (None, "auto"):
        [finding] = check_autotune("open", backend, "0.5.12.post1")
        assert (finding.level, finding.check) == ("fail", "autotune")
        assert "sglang_autotune_backend" in finding.remedy


def test_an_open_gate_needs_a_backend_of_the_release() -> None:
    [finding] = check_autotune("open", "flashinfer_cutlas", "0.5.12.post1")
    assert finding.level == "fail"
    assert finding.remedy.startswith("did you mean flashinfer_cutlass?")


@pytest.mark.parametrize(
    ("version", "words"), [("0.5.5.post3", "no FlashInfer autotune at all"), ("0.5.6", "the attention backend")]
)
def test_a_release_without_the_gate_is_refused_unless_a_tree_is_used_in_place(version: str, words: str) -> None:
    [finding] = check_autotune("open", "flashinfer_cutlass", version)
    assert finding.level == "fail"
    assert words in finding.message
    assert check_autotune("open", "flashinfer_cutlass", version, in_place=True)[0].level == "ok"


@pytest.mark.parametrize("version", ["0.5.7", "0.5.12.post1", "0.5.23", "0.6.0"])
def test_a_gate_that_can_be_opened_for_what_is_served_passes(version: str) -> None:
    for backend in (None, "flashinfer_cutlass"):
        [finding] = check_autotune("open", backend, version, served="flashinfer_cutlass")
        assert finding.level == "ok"


def test_a_gate_for_another_backend_than_the_served_one_is_told() -> None:
    [passed, finding] = check_autotune("open", "flashinfer_trtllm", "0.5.12.post1", served="flashinfer_cutlass")
    assert (passed.level, finding.level) == ("ok", "warn")
    assert finding.message.endswith("for flashinfer_trtllm and the server is started with backend flashinfer_cutlass")


def test_a_backend_that_flashinfer_does_not_tune_is_told() -> None:
    findings = preflight.check_autotune("open", None, "triton", "0.5.12.post1", ["triton"], False)
    assert [finding.level for finding in findings] == ["ok", "warn"]


def test_space_is_told_in_figures() -> None:
    [finding] = preflight.check_space("/opt", 3_100_000_000, 5_000_000_000)
    assert finding.level == "fail"
    assert finding.message == "3.1 GB free at /opt, 5.0 GB needed"
    assert preflight.check_space("/opt", 5_000_000_000, 5_000_000_000)[0].level == "ok"


@pytest.mark.parametrize(
    ("root", "is_dir", "writable", "part"),
    [
        ("opt/x", True, True, "is not an absolute path"),
        ("/opt/a\nb", True, True, "control character"),
        ("/opt/%x", True, True, "control character or %"),
        ("/opt/file/x", False, True, "/opt is not a directory"),
        ("/opt/x", True, False, "user u may not write /opt"),
    ],
)
def test_root_that_cannot_be_used_says_why(root: str, is_dir: bool, writable: bool, part: str) -> None:
    [finding] = preflight.check_writable(root, "/opt", is_dir, writable, "u")
    assert finding.level == "fail"
    assert part in finding.message


def test_writable_root_passes() -> None:
    assert preflight.check_writable("/opt/x", "/opt", True, True, "u")[0].level == "ok"


@pytest.mark.parametrize("character", list("%$;~'\"`\\\n\x7f"))
def test_root_with_a_character_that_a_service_manager_reads_is_refused(character: str) -> None:
    [finding] = preflight.check_writable(f"/opt/a{character}b", "/opt", True, True, "u")
    assert "control character or %" in finding.message


def test_other_directory_is_named_by_its_variable() -> None:
    [finding] = preflight.check_writable("facts", "", True, True, "u", "sglang_facts_dir")
    assert (finding.check, finding.message) == ("directory", "sglang_facts_dir 'facts' is not an absolute path")
    assert preflight.check_writable("/data/100%", "/data", True, True, "u", "sglang_models_dir")[0].level == "ok"


@pytest.mark.parametrize(
    ("blocks", "flags", "runs", "part"),
    [
        (0, 0, False, "keeps no files"),
        (1, os.ST_RDONLY, False, "read-only file system"),
        (1, os.ST_NOEXEC, True, "mounted noexec"),
    ],
)
def test_file_system_that_cannot_hold_the_directory_is_told(blocks: int, flags: int, runs: bool, part: str) -> None:
    [finding] = preflight.check_file_system("sglang_root", "/r/x", "/r", blocks, flags, runs)
    assert part in finding.message
    assert preflight.check_file_system("sglang_facts_dir", "/r/x", "/r", 1, os.ST_NOEXEC, False) == []


@pytest.mark.parametrize("root", ["/", "/usr", "/etc", "/bin", "/home", "/tmp", "/var/lib", "/usr/local/bin", "/etc/x"])
def test_root_that_is_the_systems_is_refused(root: str) -> None:
    [finding] = preflight.check_root_place(root, root, [])
    assert "is a directory of the system, and everything below a root belongs to rollouts" in finding.message


def test_root_that_is_a_home_or_leads_to_a_system_directory_is_refused() -> None:
    [finding] = preflight.check_root_place("/home/ann", "/home/ann", ["/home/ann"])
    assert "is a home directory" in finding.message
    [finding] = preflight.check_root_place("/opt/link", "/usr", [])
    assert finding.message.startswith("sglang_root /opt/link leads to /usr, which is a directory of the system")


@pytest.mark.parametrize("root", ["/opt/sglang", "/home/ann/sglang", "/srv/x", "/data", "/tmp/x", "/var/lib/sglang"])
def test_root_of_its_own_passes(root: str) -> None:
    assert preflight.check_root_place(root, root, ["/home/ann"]) == []


@pytest.mark.parametrize(
    ("value", "option", "message"),
    [
        (None, {"type": "raw"}, "x is empty; give a value or leave it out"),
        (True, {"type": "int"}, "x is true or false; give a number"),
        (["s3cr3t"], {"type": "str"}, "x is a list; give one text"),
        ({"s3cr3t": 1}, {}, "x is a mapping; give one text"),
        ("s3cr3t", {"type": "dict"}, "x is a text; give a mapping"),
        (["s3cr3t"], {"type": "dict"}, "x is a list; give a mapping"),
        ({}, {"type": "list"}, "x is a mapping; give a list"),
        ([None], {"type": "list", "elements": "int"}, "x[0] is empty; give a value or leave it out"),
        ([1, True], {"type": "list", "elements": "int"}, "x[1] is true or false; give a number"),
        ({"p": []}, {"type": "dict", "options": {"p": {"type": "path"}}}, "x.p is a list; give one path"),
        (
            {"s3cr3t": 1},
            {"type": "str", "no_log": True},
            "x has a value of the wrong type (not shown, it is a secret); give one text",
        ),
    ],
)
def test_value_of_another_shape_is_told_by_its_name(value: Any, option: dict[str, Any], message: str) -> None:
    assert preflight.shape_problem("x", value, option) == message


@pytest.mark.parametrize(
    ("value", "option"),
    [
        ("1", {"type": "int"}),
        (1, {"type": "str"}),
        (False, {"type": "bool"}),
        ('{"a": 1}', {"type": "dict"}),
        ("a=1", {"type": "dict"}),
        ("a,b", {"type": "list", "elements": "str"}),
        ([], {"type": "raw"}),
        ({"q": None}, {"type": "dict"}),
    ],
)
def test_value_that_can_be_read_as_its_type_has_no_problem(value: Any, option: dict[str, Any]) -> None:
    assert preflight.shape_problem("x", value, option) is None


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ({"type": "wheelhouse"}, "a wheelhouse needs a path"),
        ({"type": "wheelhouse", "path": "w"}, "its path 'w' is not absolute"),
        ({"type": "checkout"}, "a checkout needs a path or a url"),
        ({"type": "checkout", "url": "https://u:s3cr3t@h"}, "a url needs a commit"),
        ({"type": "checkout", "url": "https://u:s3cr3t@h", "commit": "main"}, "its commit 'main'"),
        ({"type": "checkout", "path": "/c", "commit": "abc"}, "its commit 'abc'"),
    ],
)
def test_source_without_what_its_type_needs_is_told(source: dict[str, Any], part: str) -> None:
    [finding] = preflight.check_source(source)
    assert part in finding.message
    assert finding.remedy
    assert "s3cr3t" not in findings.render([finding])


@pytest.mark.parametrize(
    "source",
    [{}, {"type": "index"}, {"type": "wheelhouse", "path": "/w"}, {"type": "checkout", "url": "u", "commit": "a" * 40}],
)
def test_whole_source_passes(source: dict[str, Any]) -> None:
    assert preflight.check_source(source) == []


def test_torch_of_another_lane_is_refused() -> None:
    assert preflight.check_torch("cpu", "cuda13")[0].level == "fail"
    assert preflight.check_torch("cuda13", "cpu")[0].level == "fail"
    for lane, build in (("cpu", "any"), ("cpu", "cpu"), ("cuda13", "cuda13"), ("cuda13", None)):
        assert preflight.check_torch(lane, build) == []


def test_port_of_somebody_else_names_the_process() -> None:
    [finding] = preflight.check_port("127.0.0.1", 30000, "pid 7 (nginx -g daemon)", ours=False)
    assert finding.level == "fail"
    assert "pid 7 (nginx -g daemon)" in finding.message


def test_port_of_our_own_server_and_a_free_port_pass() -> None:
    assert preflight.check_port("127.0.0.1", 30000, "pid 7 (python)", ours=True)[0].level == "ok"
    assert preflight.check_port("127.0.0.1", 30000, None, ours=False)[0].level == "ok"


def test_model_directory_problem_is_passed_on() -> None:
    assert preflight.check_model_directory("/m", None)[0].level == "ok"
    [finding] = preflight.check_model_directory("/m", "model directory /m: no config.json")
    assert finding.level == "fail"
    assert finding.remedy
    [finding] = preflight.check_model_directory("/m", "model directory /m: no config.json; add one")
    assert finding.remedy == ""


NAME = re.compile("[a-z]+")


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"sglang_port": 0}, "sglang_port is 0"),
        ({"sglang_port": 65536}, "sglang_port is 65536"),
        ({"sglang_keep_releases": -1}, "sglang_keep_releases is -1"),
        ({"sglang_ready_timeout_s": -1}, "sglang_ready_timeout_s is -1"),
        ({"sglang_ready_stall_timeout_s": 0}, "sglang_ready_stall_timeout_s is 0"),
        ({"sglang_ready_new_tokens": 0}, "sglang_ready_new_tokens is 0"),
        ({"sglang_ready_output_concurrency": 0}, "sglang_ready_output_concurrency is 0"),
        ({"sglang_ready_output_tokens": 0}, "sglang_ready_output_tokens is 0"),
        ({"sglang_ready_output_repeats": -1}, "sglang_ready_output_repeats is -1"),
        ({"sglang_ready_output_timeout_s": 0}, "sglang_ready_output_timeout_s is 0"),
        ({"sglang_supervisor_start_s": 0}, "sglang_supervisor_start_s is 0"),
        ({"sglang_min_free_bytes": -1}, "sglang_min_free_bytes is -1"),
        ({"sglang_benchmark_env": {"A=B": "s3cr3t"}}, "sglang_benchmark_env: 'A=B' is no name"),
        ({"sglang_benchmark_env": {"A": "s3cr3t\0"}}, "sglang_benchmark_env: the value of A holds a line end or a NUL"),
        ({"sglang_benchmark_env": {"A": None}}, "sglang_benchmark_env: the value of A is empty"),
        ({"sglang_server_secrets": {"A": None}}, "the value of A is empty"),
        ({"sglang_service_name": "a b"}, "sglang_service_name is 'a b'"),
        ({"sglang_server_api_key": "s3cr3t-of-15-ch"}, "sglang_server_api_key has 15 characters"),
        (
            {"sglang_server_api_key": "a" * 16, "sglang_server_admin_api_key": "s3cr3t-of-2\nlines"},
            "sglang_server_admin_api_key holds a character",
        ),
        ({"sglang_server_api_key": "schlüssel-mit-umlaut"}, "sglang_server_api_key holds a character"),
        ({"sglang_server_api_key": "a-blank-at-the-end-s3cr3t "}, "sglang_server_api_key holds a character"),
        ({"sglang_server_secrets": {"A B": "s3cr3t"}}, "'A B' is no name of an environment variable"),
        ({"sglang_server_secrets": {"A": "s3cr3t\nB=1"}}, "the value of A has more than one line"),
    ],
)
def test_value_out_of_bounds_is_told_without_secrets(values: dict[str, object], part: str) -> None:
    [finding] = preflight.check_values(values, NAME)
    assert finding.level == "fail"
    assert part in finding.message
    assert finding.remedy
    assert "s3cr3t" not in findings.render([finding])


def test_values_within_bounds_and_unset_ones_pass() -> None:
    values = {
        "sglang_port": 65535,
        "sglang_keep_releases": 0,
        "sglang_service_name": "name",
        "sglang_server_api_key": "sixteen-letters!",
        "sglang_server_admin_api_key": "",
        "sglang_server_secrets": {"HF_TOKEN": "hf"},
        "sglang_ready_timeout_s": 0,  # as long as the kind of start may take
        "sglang_ready_output_repeats": 0,  # prompts that are not repeated
        "sglang_ready_stall_timeout_s": None,
    }
    assert preflight.check_values(values, NAME) == []
    assert preflight.check_values({}, NAME) == []


API_KEY, ADMIN_KEY = {"sglang_server_api_key": "s3cr3t-of-clients"}, {"sglang_server_admin_api_key": "s3cr3t-of-admins"}
BOTH = {**API_KEY, **ADMIN_KEY}


@pytest.mark.parametrize(
    ("values", "level", "part"),
    [
        (ADMIN_KEY, "fail", "reads it at /server_info"),
        ({**ADMIN_KEY, "sglang_host": "0.0.0.0"}, "fail", "reads it at /server_info"),
        ({**API_KEY, "sglang_server_args": {"tokenizer_worker_num": 2}}, "fail", "tokenizer-worker-num is 2"),
        ({**BOTH, "sglang_server_args": {"tokenizer-worker-num": "8"}}, "fail", "tokenizer-worker-num is 8"),
        ({**API_KEY, "sglang_server_args": {"grpc-port": 50051}}, "warn", "grpc-port opens a port"),
        ({**BOTH, "sglang_server_args": {"smg_grpc_mode": True}}, "warn", "smg-grpc-mode opens a port"),
        ({"sglang_host": "0.0.0.0"}, "warn", "whoever reaches 0.0.0.0 can use the server and manage it"),
        ({"sglang_host": "::"}, "warn", "whoever reaches :: can"),
        ({"sglang_host": "box.example"}, "warn", "whoever reaches box.example can"),
    ],
)
def test_gap_in_who_may_use_the_server_is_told(values: dict[str, object], level: str, part: str) -> None:
    [finding] = preflight.check_values(values, NAME)
    assert (finding.level, finding.check) == (level, "secrets")
    assert part in finding.message
    assert finding.remedy and "s3cr3t" not in findings.render([finding])


@pytest.mark.parametrize(
    "values",
    [
        {**BOTH, "sglang_host": "0.0.0.0"},
        {**API_KEY, "sglang_host": "::"},
        {"sglang_host": "::1"},
        {"sglang_host": "127.0.0.53"},
        {"sglang_host": "localhost"},
        {**BOTH, "sglang_server_args": {"tokenizer-worker-num": 1, "grpc-mode": False}},
        # Nothing is asked for, so there is no gap between what is asked for and what is.
        {"sglang_server_args": {"tokenizer-worker-num": 4, "grpc-port": 50051}},
        # The check of arguments says that it is no number.
        {**BOTH, "sglang_server_args": {"tokenizer-worker-num": "many"}},
    ],
)
def test_server_that_nobody_uses_without_a_key_is_well(values: dict[str, object]) -> None:
    assert preflight.check_values(values, NAME) == []


def test_spec_message_of_two_roles_is_told_once() -> None:
    found = preflight.spec_problems({"a": ["port: not an int"], "b": ["port: not an int", "other"]})
    assert [finding.message for finding in found] == ["port: not an int", "other"]
    assert found[0].remedy == "see roles/a/README.md for what is allowed"


def test_render_puts_failures_before_warnings_and_leaves_out_the_rest() -> None:
    found = [
        findings.Finding("warn", "w", "look"),
        findings.Finding("ok", "o", "fine"),
        findings.Finding("fail", "f", "broken", "mend it"),
    ]
    assert findings.render(found) == "f: broken; mend it\nw: look"
    assert [finding.check for finding in findings.failures(found)] == ["f"]
