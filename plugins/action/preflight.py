# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller half of preflight: what only the controller knows (every variable, the argument specs, the locks).

The target half is the module of the same name. Both give findings; this plugin joins them, so a person reads one
message with everything that is wrong.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    benchmark,
    launch_plan,
    managers,
    model,
    passed_env,
    releases,
    server_nodes,
)
from ansible_collections.tokforge.sglang.plugins.module_utils import preflight as core
from ansible_collections.tokforge.sglang.plugins.module_utils.findings import (
    FAIL,
    WARN,
    Finding,
    counts,
    failures,
    render,
    verdict,
)

ROLES = Path(__file__).resolve().parents[2] / "roles"


def role_options() -> dict[str, dict[str, Any]]:
    """The declared variables of every role, of all its entry points: role name -> option name -> spec."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(ROLES.glob("*/meta/argument_specs.yml")):
        specs = yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"]
        found[path.parents[1].name] = {
            name: option for entry in specs.values() for name, option in entry.get("options", {}).items()
        }
    return found


class ActionModule(ActionBase):
    """Judge the request on the controller, then look at the target, then fail once with all findings."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        began = time.monotonic()
        variables: dict[str, Any] = task_vars or {}
        options = role_options()
        findings = core.unknown_variables(
            variables, load_extra_vars(self._loader), {name for role in options.values() for name in role}
        )
        problems, values = self._validate(options, variables)
        refused = core.spec_problems(problems)
        findings += refused
        target: dict[str, Any] = {}
        # With a value of the wrong type the checks below would only repeat what the specs said already.
        if not refused:
            findings += core.check_values(values, managers.NAME_PATTERN)
            findings += _benchmark(values)
            findings += core.check_source(values.get("sglang_install_source") or {})
            findings += self._overlay(values.get("sglang_overlay"))
            findings += _served_name(str(self._task.args["model"]), values.get("sglang_served_model_name"))
            nodes, apart = _nodes(values, variables)
            findings += apart
            target = self._execute_module(
                module_name="tokforge.sglang.preflight",
                module_args={
                    **self._task.args,
                    **_for_target(values, nodes),
                    "force_backend": _switch(self._task.args),
                },
                task_vars=variables,
            )
            if target.get("failed"):
                return target
            findings += [Finding(**finding) for finding in target["findings"]]
            findings += self._request(values, target, nodes)
        return self._outcome(result, findings, target, variables, round(time.monotonic() - began, 2))

    def _outcome(
        self,
        result: dict[str, Any],
        findings: Sequence[Finding],
        target: Mapping[str, Any],
        variables: Mapping[str, Any],
        elapsed_s: float,
    ) -> dict[str, Any]:
        """The result of the task, failed or not, with its warnings said."""
        plain = [finding.as_dict() for finding in findings]
        choice, backend = target.get("choice"), target.get("backend")
        passed_on = target.get("passed_on", {})
        result.update(changed=False, findings=plain, choice=choice, backend=backend, passed_on=passed_on)
        if boolean(self._task.args.get("report_only", False)):
            # Not beside a failure, which would print every finding twice.
            result["report"] = {
                "verdict": verdict(findings),
                "counts": counts(findings),
                "choice": choice,
                "backend": backend,
                "findings": plain,
                "elapsed_s": elapsed_s,
            }
            return result
        for finding in findings:
            if finding.level == WARN:
                self._display.warning(render([finding]))
        failed = failures(findings)
        if failed:
            host = variables.get("inventory_hostname", "the host")
            result.update(
                failed=True,
                msg=f"nothing was changed on {host}: {len(failed)} of the checks before a rollout failed\n"
                + render(findings),
            )
        return result

    def _validate(
        self, options: Mapping[str, dict[str, Any]], variables: dict[str, Any]
    ) -> tuple[dict[str, list[str]], dict[str, Any]]:
        """Hold every variable of ours that is set against the specs of the roles that declare it.

        :returns: messages by role, and the templated values by name (only those that are set).
        """
        problems: dict[str, list[str]] = {}
        values: dict[str, Any] = {}
        for role, declared in options.items():
            given: dict[str, Any] = {}
            for name in declared:
                if name not in variables:
                    continue
                try:
                    value = self._templar.template(variables[name])
                except AnsibleError as error:
                    problems.setdefault(role, []).append(f"{name} cannot be evaluated: {error}")
                    continue
                problem = core.shape_problem(name, value, declared[name])
                if problem:
                    problems.setdefault(role, []).append(problem)
                else:
                    values[name] = given[name] = value
            # A variable that is not set falls back to its role's default, so nothing is required here.
            spec = {name: {**option, "required": False} for name, option in declared.items() if name in given}
            outcome = ArgumentSpecValidator(_plain(spec)).validate(given)
            secrets = [name for name, option in spec.items() if option.get("no_log")]
            problems.setdefault(role, []).extend(_without_values(outcome.error_messages, secrets))
            # A path stays as it was given: the validator would expand it with the controller's environment.
            values.update(
                {
                    name: given[name] if spec[name].get("type") == "path" else outcome.validated_parameters[name]
                    for name in given
                }
            )
        return problems, values

    def _overlay(self, overlay: str | None) -> list[Finding]:
        """The overlay must be found where role sglang_install will look: its files, or the playbook's."""
        if not overlay:
            return []
        bases = [ROLES / "sglang_install" / "files", ROLES / "sglang_install", Path(self._loader.get_basedir())]
        if any((base / part / overlay).exists() for base in bases for part in ("", "files")):
            return []
        message = f"sglang_overlay {overlay!r} is not there on the controller"
        return [Finding(FAIL, "overlay", message, "give a directory or a file that exists, or leave it out")]

    def _request(self, values: Mapping[str, Any], target: Mapping[str, Any], nodes: Mapping[str, Any]) -> list[Finding]:
        """Release, backend and launch arguments against the data of the release that was chosen for the host."""
        args, choice = self._task.args, target["choice"]
        if choice is None:
            # Why is among the target's own findings.
            return []
        lane, version = choice["lane"], choice["version"]
        findings = core.check_release(version, lane, releases.known(lane))
        if failures(findings):
            return findings
        findings += core.check_torch(lane, values.get("sglang_torch_build"))
        backend = args["backend"]
        findings += core.check_backend(backend, version, releases.get(version).moe_runner_backends())
        gate, tuned = values.get("sglang_autotune_gate"), values.get("sglang_autotune_backend")
        # A bad backend is told above.
        if tuned or not failures(findings):
            findings += core.check_autotune(
                gate,
                tuned,
                backend,
                version,
                releases.get(version).moe_runner_backends(),
                (values.get("sglang_install_source") or {}).get("type") == "checkout",
            )
        request = launch_plan.Request(
            root=args["root"],
            sglang_version=version,
            lane=lane,
            # A bad backend is told above with its choices; here it would only be told twice.
            backend="auto" if failures(findings) else backend,
            host=args["host"],
            port=int(args["port"]),
            metrics=True,
            model_path="model",
            served_name="model",
            random_weights=str(args["model"]).startswith("builtin:"),
            args=values.get("sglang_server_args") or {},
            env={**(values.get("sglang_server_env") or {}), **target["passed_on"]},
            nodes=nodes,
        )
        for check in (launch_plan.arguments, launch_plan.environment):
            try:
                check(request)
            except launch_plan.PlanError as error:
                findings += [Finding(FAIL, "arguments", problem) for problem in error.facts["problems"]]
        if not failures(findings):
            findings += [Finding(WARN, "arguments", problem) for problem in launch_plan.warnings(request)]
        return findings


def _switch(args: Mapping[str, Any]) -> bool:
    """Whether the backend is forced; what is neither true nor false is told already."""
    return bool(boolean(args.get("force_backend", False), strict=False))


def _nodes(values: Mapping[str, Any], variables: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Finding]]:
    """The launch arguments that follow from the hosts that make the server together, and what is wrong with these."""
    group, host = str(values.get("sglang_nodes_group") or ""), str(variables.get("inventory_hostname", ""))
    port = int(values.get("sglang_nodes_port") or server_nodes.PORT)
    try:
        nodes = server_nodes.by_inventory(
            group, host, variables.get("groups") or {}, variables.get("hostvars") or {}, port
        )
    except server_nodes.NodesError as error:
        return {}, [Finding(FAIL, "nodes", str(error))]
    problem = server_nodes.absent(nodes, variables.get("ansible_play_batch") or ()) if group else ""
    return nodes.args, [Finding(FAIL, "nodes", problem)] if problem else []


def _for_target(values: Mapping[str, Any], nodes: Mapping[str, Any]) -> dict[str, Any]:
    """What the target's half is told beside the task's own arguments."""
    places = ("facts_dir", "models_dir", "uv_cache", "install_source", "install_base")
    told = {name: values[f"sglang_{name}"] for name in places if values.get(f"sglang_{name}")}
    return {
        **told,
        "args": {**(values.get("sglang_server_args") or {}), **nodes},
        "env": values.get("sglang_server_env") or {},
        "env_pass_on": values.get(passed_env.VARIABLE) or [],
        "random_weights": values.get("sglang_model_random_weights") or False,
        "hub_endpoint": values.get("sglang_hub_endpoint"),
        "controller_s": time.time(),
        "concurrency": values.get("sglang_benchmark_concurrency") or list(benchmark.LADDER),
    }


def _served_name(text: str, given: str | None) -> list[Finding]:
    """The name the model gets must be one that a server can carry. A text of no known form is the target's to tell."""
    try:
        name = given or model.parse(text).served_name
    except model.ModelError:
        return []
    try:
        model.check_served_name(name)
    except model.ModelError as error:
        return [Finding(FAIL, "model", str(error))]
    return []


def _benchmark(values: Mapping[str, Any]) -> list[Finding]:
    """What the benchmark would say about its parameters after the server was started."""
    given: dict[str, Any] = {"concurrency": benchmark.LADDER, "input_len": 256, "output_len": 64}
    for field in fields(benchmark.Parameters):
        # An empty list of points is the usual ladder.
        value = values.get(f"sglang_benchmark_{field.name}")
        if value is not None and value != []:
            given[field.name] = value
    try:
        benchmark.Parameters(**given, capped=given["concurrency"] is benchmark.LADDER)
    except benchmark.BenchmarkError as error:
        return [Finding(FAIL, "benchmark", str(error))]
    return []


def _without_values(messages: Iterable[str], secrets: Sequence[str]) -> list[str]:
    """The messages, but those about a secret without the value that the validator quotes."""
    kept = []
    for message in messages:
        named = next((name for name in secrets if name in message), None)
        kept.append(message if named is None else f"{named} has a value of the wrong type (not shown, it is a secret)")
    return kept


def _plain(spec: Mapping[str, Any]) -> dict[str, Any]:
    """An argument spec without what is only documentation, as the validator wants it."""
    keys = (
        "type",
        "choices",
        "elements",
        "required",
        "no_log",
        "options",
        "mutually_exclusive",
        "required_if",
        "default",
    )
    plain: dict[str, Any] = {}
    for name, option in spec.items():
        kept = {key: value for key, value in option.items() if key in keys and key != "default"}
        if "options" in kept:
            kept["options"] = _plain(kept["options"])
        plain[name] = kept
    return plain
