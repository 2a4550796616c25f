# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Extra variables, and which of them are secrets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tokforge_rollout.redaction import MASK, Redactor, is_secret_name, secrets_of
from tokforge_rollout.variables import UNSAFE, UsageError, gather

ROLES = Path(__file__).resolve().parents[3] / "roles"


def test_arguments_win_over_the_environment_and_it_is_emptied_of_them() -> None:
    env = {"TOKFORGE_VAR_BACKEND": "triton", "TOKFORGE_VAR_sglang_port": "1", "PATH": "/bin", "TOKFORGE_VAR_MODEL": " "}
    found = gather(["backend=auto model='a b'", '{"sglang_server_args": {"tp-size": 8}}'], env)
    assert found.values == {
        "backend": "auto",
        "model": "a b",
        "sglang_port": {UNSAFE: "1"},
        "sglang_server_args": {"tp-size": 8},
    }
    assert env == {"PATH": "/bin"}


def test_environment_holds_json_and_secrets() -> None:
    env = {"TOKFORGE_VAR_SGLANG_SERVER_SECRETS": '{"A": "hidden-a"}', "HF_TOKEN": "hidden-b", "LANG": "C.UTF-8"}
    found = gather([], env)
    assert found.values == {"sglang_server_secrets": {"A": {UNSAFE: "hidden-a"}}}
    assert found.secrets == {"hidden-a", "hidden-b"}


def test_files_are_left_to_ansible_and_their_plain_secrets_are_known(tmp_path: Path) -> None:
    path = tmp_path / "vars.yml"
    path.write_text("sglang_hub_token: hidden\nother: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  00\n", encoding="utf-8")
    vaulted = tmp_path / "vault.yml"
    vaulted.write_text("$ANSIBLE_VAULT;1.1;AES256\n3031\n", encoding="utf-8")
    found = gather([f"@{path}", f"@{vaulted}"], {})
    assert (found.values, found.files, found.secrets) == ({}, (path, vaulted), {"hidden"})


@pytest.mark.parametrize(
    "argument",
    [
        "sglang_hub_token=hidden",
        "backend=auto sglang_server_api_key=hidden",
        '{"sglang_server_env": {"HF_TOKEN": "hidden"}}',
        '{"sglang_index": {"index_url": "https://user:hidden@index.invalid/simple"}}',
        '{"sglang_server_secrets": null}',
    ],
)
def test_secret_in_an_argument_is_refused_and_not_repeated(argument: str) -> None:
    with pytest.raises(UsageError, match="everyone on this machine could read") as caught:
        gather([argument], {})
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "env"),
    [
        (["backend"], {}),
        ([""], {}),
        (["=x"], {}),
        (["a='b"], {}),
        (["{a"], {}),
        (["@/nowhere/at/all.yml"], {}),
        ([], {"TOKFORGE_VAR_": "x"}),
        ([], {"TOKFORGE_VAR_A": '{"a": hidden}'}),
        ([], {"TOKFORGE_VAR_A": '[{"b": {"__ansible_vault": "hidden"}}]'}),
    ],
)
def test_what_cannot_be_read_is_said_without_its_value(arguments: list[str], env: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        gather(arguments, env)
    assert "hidden" not in str(caught.value)


def no_log(options: dict[str, object]) -> list[str]:
    found = []
    for name, option in options.items():
        if isinstance(option, dict):
            found += [name] if option.get("no_log") is True else []
            inner = option.get("options")
            found += no_log(inner) if isinstance(inner, dict) else []
    return found


def test_every_secret_of_the_roles_has_a_secrets_name() -> None:
    names = set()
    for path in ROLES.glob("*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values():
            names |= set(no_log(entry.get("options") or {}))
    # Addresses are public but for a password in them, which is found by its place.
    addresses = {"index_url", "extra_index_urls"}
    assert {name for name in names - addresses if not is_secret_name(name)} == set()
    assert len(names - addresses) >= 4


@pytest.mark.parametrize("name", ["max-total-tokens", "sglang_tokenizer", "keyboard", "sglang_port", "path", "COMPAT"])
def test_ordinary_names_are_no_secrets(name: str) -> None:
    assert not is_secret_name(name)


def test_secrets_are_what_stands_below_a_secrets_name() -> None:
    values = {"a": {"api_key": ["x1", "x2"], "b": "plain"}, "secrets": {"c": {"d": 5}}, "u": ["ftp://me:pw77@host/"]}
    assert [text for _name, text in secrets_of(values)] == ["x1", "x2", "5", "pw77"]


def test_secrets_are_replaced_as_they_are_and_as_json_has_them() -> None:
    secret = 'qu"ote\nsecond-line-of-it'
    redactor = Redactor([secret, "abc", ""])
    shown = {"msg": f"is {secret}!", "raw": json.dumps({"k": secret}), "lines": ["second-line-of-it"], "k": 1}
    assert redactor.tree(shown) == {"msg": f"is {MASK}!", "raw": f'{{"k": "{MASK}"}}', "lines": [MASK], "k": 1}
    assert redactor.text("abc") == "abc"  # too short to tell from a word
    assert Redactor([]).text("anything") == "anything"


def test_files_with_a_secret_are_replaced_and_others_left(tmp_path: Path) -> None:
    bad, good, binary = (tmp_path / name for name in ("bad", "good", "binary"))
    bad.write_text("x hidden-value y", encoding="utf-8")
    good.write_text("x", encoding="utf-8")
    binary.write_bytes(b"\xff\xfe hidden")
    before = good.stat().st_ino
    for path in (bad, good, binary):
        Redactor(["hidden-value"]).file(path)
    assert bad.read_text(encoding="utf-8") == f"x {MASK} y"
    assert (good.stat().st_ino, binary.read_bytes()) == (before, b"\xff\xfe hidden")


def test_texts_of_the_environment_are_no_templates_wherever_they_stand() -> None:
    given = '{"a": ["{{ 1 }}", 2, {"b": "{% x %}"}], "c": null}'
    found = gather(['{"e": "{{ 3 }}"}'], {"TOKFORGE_VAR_D": given, "TOKFORGE_VAR_E": "x"})
    assert found.values == {"d": {"a": [{UNSAFE: "{{ 1 }}"}, 2, {"b": {UNSAFE: "{% x %}"}}], "c": None}, "e": "{{ 3 }}"}


@pytest.mark.parametrize("text", ["{pass", "[1", '{"open": '])
def test_secret_that_only_begins_like_json_is_a_text(text: str) -> None:
    found = gather([], {"TOKFORGE_VAR_SGLANG_HUB_TOKEN": text})
    assert found.values == {"sglang_hub_token": {UNSAFE: text}}
    assert found.secrets == {text}


def test_yaml_of_an_argument_can_be_written_as_json() -> None:
    found = gather(["{a: 2024-01-01, b: {2024-01-02: [{3: x}]}}"], {}).values
    assert json.loads(json.dumps(found, default=str)) == {"a": "2024-01-01", "b": {"2024-01-02": [{"3": "x"}]}}


@pytest.mark.parametrize("word", ["true", "False", "NULL", "none", "yes", "no", "on", "off"])
def test_words_of_settings_are_no_secrets(word: str) -> None:
    assert Redactor([word]).text(f"is {word} and {word * 2}") == f"is {word} and {word * 2}"


def test_json_stays_json_and_numbers_go_only_below_a_secrets_name(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text('{"exit_code": 1234, "x": ["1234"], "y": {"pin_token": 1234, "port": 1234}}', encoding="utf-8")
    Redactor(["1234"]).file(path)
    assert json.loads(path.read_text(encoding="utf-8")) == {
        "exit_code": 1234,
        "x": [MASK],
        "y": {"pin_token": MASK, "port": 1234},
    }
    command = tmp_path / "command"
    command.write_text('{"command": ["a\\"b1"]}', encoding="utf-8")
    Redactor(['a"b1']).file(command)
    assert json.loads(command.read_text(encoding="utf-8")) == {"command": [MASK]}
    half = tmp_path / "2-ab.json"
    half.write_text('{"x": "1234', encoding="utf-8")
    Redactor(["1234"]).file(half)
    assert half.read_text(encoding="utf-8") == f'{{"x": "{MASK}'


def test_what_an_event_is_read_by_is_kept() -> None:
    event = {
        "event": "playbook_on_stats",
        "uuid": "play-1",
        "counter": 7,
        "pid": 1234,
        "stdout": "play",
        "event_data": {"playbook": "play", "ok": {"play": 1}, "event": "play"},
    }
    clean = Redactor(["play", "1234"]).tree(event)
    assert clean == event | {"stdout": MASK, "event_data": {"playbook": MASK, "ok": {"play": 1}, "event": MASK}}
