# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The examples for CI systems, the page about them, and what they need say the same as the command and the roles."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomllib
import yaml

from tokforge_rollout import artifacts, command_line
from tokforge_rollout.command import PRIVATE
from tokforge_rollout.outcome import Outcome
from tokforge_rollout.redaction import is_secret_name

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
GITHUB = yaml.safe_load((ROOT / "docs" / "ci" / "github-actions.yml").read_text(encoding="utf-8"))
GITLAB = yaml.safe_load((ROOT / "docs" / "ci" / "gitlab-ci.yml").read_text(encoding="utf-8"))
SURVEY = json.loads((ROOT / "docs" / "ci" / "awx-survey.json").read_text(encoding="utf-8"))
SHORT_NAMES = (ROOT / "playbooks" / "vars" / "short_names.yml").read_text(encoding="utf-8")


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)


def commands(text: str) -> list[str]:
    begins = re.compile(r"\s*(?:\$ |exec )?(tokforge-rollout .*)")
    return [match.group(1) for match in map(begins.match, text.splitlines()) if match]


def options() -> dict[str, dict[str, Any]]:
    """Every variable of the roles, with what each role says of it."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(ROOT.glob("roles/*/meta/argument_specs.yml")):
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values():
            for name, option in (entry.get("options") or {}).items():
                found[name] = found.get(name, {}) | option
    return found


OPTIONS = options()
# The short name of an option -> the option.
SHORT = {short: name for name, short in re.findall(r"^(\w+): \"\{\{ (\w+) \|", SHORT_NAMES, re.MULTILINE)}


@pytest.mark.parametrize("example", [GITHUB, GITLAB, PAGE], ids=["github", "gitlab", "page"])
def test_every_command_of_an_example_is_understood(example: Any) -> None:
    found = [command for text in texts(example) for command in commands(text)]
    assert found
    for command in found:
        request = command_line.parse(shlex.split(command, comments=True)[1:])
        assert not any(is_secret_name(given.partition("=")[0]) for given in request.extra_vars), command


def test_github_keeps_artifacts_of_every_run_and_hands_secrets_over_in_the_environment() -> None:
    job = GITHUB["jobs"]["rollout"]
    (upload,) = [step for step in job["steps"] if "upload-artifact" in step.get("uses", "")]
    assert upload["if"] == "always()"
    lines = [command for text in texts(job) for command in commands(text)]
    requests = [command_line.parse(shlex.split(line)[1:]) for line in lines]
    assert [request.command for request in requests] == ["preflight", "deploy", "outcome"]
    assert requests[2].artifacts == requests[1].artifacts
    assert {request.artifacts.parent.name for request in requests} == {Path(upload["with"]["path"]).name}
    (deploy,) = [step for step in job["steps"] if " deploy " in step.get("run", "")]
    assert deploy["run"].startswith("exec tokforge-rollout ")  # a shell would keep SIGINT for itself
    (told,) = [step for step in job["steps"] if "tokforge-rollout outcome" in step.get("run", "")]
    assert told["if"] == "always()"
    assert job["steps"].index(deploy) < job["steps"].index(told) < job["steps"].index(upload)
    # GitHub kills a cancelled job after ten seconds.
    assert requests[1].grace_s <= 5
    assert sum(request.timeout_s or 0 for request in requests) <= job["timeout-minutes"] * 60
    assert not any("secrets." in step.get("run", "") for step in job["steps"])


def test_examples_know_the_hosts_before_they_log_in() -> None:
    steps = [step.get("run", "") for step in GITHUB["jobs"]["rollout"]["steps"]]
    (known,) = [number for number, run in enumerate(steps) if "UserKnownHostsFile=" in run]
    assert 'printenv KNOWN_HOSTS > "$RUNNER_TEMP/known_hosts"' in steps[known]
    assert known < min(number for number, run in enumerate(steps) if "tokforge-rollout preflight" in run)
    assert any("known_hosts" in line for line in GITLAB["default"]["before_script"])
    assert GITLAB["variables"]["ANSIBLE_SSH_COMMON_ARGS"] == "-o UserKnownHostsFile=$CI_PROJECT_DIR/known_hosts"


def test_default_artifacts_are_in_no_commit_and_no_package() -> None:
    default = command_line.parse(["outcome"]).artifacts.name
    assert f"/{default}/" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert default in yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["build_ignore"]


def test_gitlab_keeps_artifacts_and_tests_of_every_run() -> None:
    for name in ("preflight", "deploy"):
        kept = GITLAB[name]["artifacts"]
        assert (kept["when"], kept["paths"]) == ("always", ["out/"])
        assert kept["reports"]["junit"] == f"out/{artifacts.JUNIT}"
    assert GITLAB["deploy"]["retry"]["exit_codes"] == [Outcome.LOCKED.exit_code]


@pytest.mark.parametrize("example", [GITHUB["jobs"]["rollout"]["env"], GITLAB["variables"]], ids=["github", "gitlab"])
def test_variables_in_the_environment_exist(example: dict[str, str]) -> None:
    names = [name.removeprefix("TOKFORGE_VAR_").lower() for name in example if name.startswith("TOKFORGE_VAR_")]
    assert len(names) >= 3
    assert [name for name in names if name not in OPTIONS and name not in SHORT] == []


def test_survey_asks_for_variables_that_exist_with_their_own_choices() -> None:
    for question in SURVEY["spec"]:
        option = OPTIONS[SHORT.get(question["variable"], question["variable"])]
        secret = bool(option.get("no_log"))
        assert (question["type"] == "password") is secret is is_secret_name(question["variable"]), question
        if question["type"] == "multiplechoice":
            known = option.get("choices") or ["true", "false"]
            assert set(question["choices"]) <= set(known), question
            assert option.get("choices") or option["type"] == "bool" or question["variable"] in SHORT, question
        # An answer is an extra variable: a default would win over every inventory.
        assert (question["default"], question["required"]) == ("", False)
    assert len({question["variable"] for question in SURVEY["spec"]}) == len(SURVEY["spec"])


def test_page_has_every_exit_code_with_its_meaning() -> None:
    rows = [f"| {outcome.exit_code} | `{outcome.label}` | {outcome.meaning} |" for outcome in Outcome]
    assert [row for row in rows if row not in PAGE.splitlines()] == []
    assert len(re.findall(r"^\| \d+ \| `", PAGE, re.MULTILINE)) == len(rows)


def test_page_has_every_option_and_every_file_of_the_artifacts() -> None:
    (subparsers,) = [a for a in command_line.parser()._actions if isinstance(a, argparse._SubParsersAction)]
    for option in subparsers.choices["deploy"]._option_string_actions:
        assert f"`{option}" in PAGE or option in ("-h", "--help"), option
    assert [name for name in (*artifacts.OURS, artifacts.LOCK, PRIVATE) if f"`{name}" not in PAGE] == []


def test_commands_are_the_playbooks() -> None:
    written = {path.stem for path in (ROOT / "playbooks").glob("*.yml")} - {"check_inventory"}
    # rollback.yml may be of a later version than this command.
    assert set(command_line.PLAYBOOKS) - {"rollback"} == written - {"rollback"}


def test_execution_environment_is_one_that_ansible_builder_accepts(tmp_path: Path) -> None:
    builder = Path(sys.executable).with_name("ansible-builder")
    done = subprocess.run(
        [
            builder,
            "create",
            "-f",
            ROOT / "execution-environment.yml",
            "-c",
            tmp_path / "context",
            "--output-filename",
            "Containerfile",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    recipe = (tmp_path / "context" / "Containerfile").read_text(encoding="utf-8")
    pinned = project()["dependencies"]
    assert next(name for name in pinned if name.startswith("ansible==")) in recipe
    kept = tmp_path / "context" / "_build"
    assert (kept / "requirements.txt").read_text(encoding="utf-8") == requirements_file()
    assert "openssh-client" in (kept / "bindep.txt").read_text(encoding="utf-8")


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def requirements_file() -> str:
    return (ROOT / "meta" / "ee-requirements.txt").read_text(encoding="utf-8")


def test_execution_environments_have_what_the_package_has() -> None:
    asked = {line for line in requirements_file().splitlines() if not line.startswith("#")}
    assert asked == {name for name in project()["dependencies"] if not name.startswith("ansible")}
    described = yaml.safe_load((ROOT / "meta" / "execution-environment.yml").read_text(encoding="utf-8"))
    whole = yaml.safe_load((ROOT / "execution-environment.yml").read_text(encoding="utf-8"))["dependencies"]
    assert described["dependencies"] == {key: whole[key] for key in ("python", "system")}
    runner = next(name for name in project()["dependencies"] if name.startswith("ansible-runner"))
    assert whole["ansible_runner"]["package_pip"] == runner
