#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: experiment
short_description: Plan the trials of an A/B run, a sweep or an explanation, and remember how far they are
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - An experiment tries several configurations of a server, each in one or more trials. A trial is one start of the
    server and one benchmark run. This module decides which trials there are, in which order, and what comes out. It
    starts and measures nothing itself.
  - What was done is kept in C(state/experiments/<id>.json) below O(root). The same call goes on where an interrupted
    play was.
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
    details:
      - Returns what would be, and writes nothing. An experiment that is not there, because O(action=begin) wrote none,
        is no error then.
  diff_mode:
    support: full
    details:
      - Compares how many trials are in which state.
options:
  root:
    description: Root directory of the server on the target.
    type: path
    required: true
  action:
    description:
      - V(look) tells in RV(original_release) what served before the experiments. It is O(original_release), unless that
        is a candidate that an interrupted play left. RV(unfinished) are the experiments that were interrupted.
      - V(begin) makes the experiment, or takes up one that was interrupted, and returns the trials to do.
      - V(staged) notes the release of O(candidate), or with O(reason) that it is not supported.
      - V(trial_begin) notes that trial O(number) runs now. RV(skip) says that it must not.
      - V(trial_end) notes how it ended, by O(record_id) or O(reason).
      - V(next) adds the trials of the next stage, when there is one. Call it until RV(trials) is empty.
      - V(conclude) compares, records the result in the fact file below O(facts_dir), returns it, and marks the
        experiment finished when no trial is left.
      - V(served) notes that what is to serve after a finished experiment serves. Until then RV(served) is false.
        With O(reason) it notes that the winner does not, which the fact file tells then.
      - V(abandon) gives an interrupted experiment up. When its winner came out and was not seen to serve, and
        O(facts_dir) is given, the fact file tells so. It starts and stops nothing.
    type: str
    choices: [look, begin, staged, trial_begin, trial_end, next, conclude, served, abandon]
    required: true
  kind:
    description: What to begin.
    type: str
    choices: [ab, sweep, explain]
  request:
    description:
      - What to try. For V(ab) C(ab) and C(ab_values), for V(sweep) C(grid), C(candidates), C(objective) and
        C(tie_percent), for V(explain) C(a), C(b) and C(concurrency).
      - C(docs/experiments.md) of this collection describes each.
    type: dict
    default: {}
  base:
    description:
      - "Settings without the experiment: C(backend), C(sglang_version), C(autotune_gate), C(args), C(env), and
        C(autotune_backend) where there is one."
      - Take them from what is declared, not from what serves, which may be a candidate of an interrupted play.
    type: dict
    default: {}
  parameters:
    description:
      - C(starts) for each side of an A/B run or configuration of an explanation (5), C(rounds) of a sweep (1),
        C(confirm_starts) for its winner and the original (5, 0 for none), C(seed) of the prompts (1).
      - Anything else that decides how is measured, such as lengths and concurrency. It makes another experiment.
    type: dict
    default: {}
  env_pass_on:
    description:
      - Environment variables that the target sets and that every server keeps, for O(action=begin), as
        O(tokforge.sglang.release#module:env_pass_on). With other values it is another experiment.
      - A record that is explained is taken without them, since what the target sets today decides.
    type: list
    elements: str
    default: []
  original_release:
    description: Number of the release that serves before the experiment. It is kept over interruptions, unless a
      release that is none of the experiment's was deployed since.
    type: int
  enabled_by:
    description:
      - Who lets the installed release tune the backend, for an A/B run of C(autotune_gate).
      - Left out, what is known of the release counts.
    type: str
    choices: [upstream, patch, none]
  force:
    description: Begin a finished experiment anew. One that was interrupted is taken up all the same.
    type: bool
    default: false
  id:
    description: Which experiment, for all actions but V(look) and V(begin).
    type: str
  candidate:
    description: Name of a candidate, for O(action=staged).
    type: str
  release:
    description: Number of its release, for O(action=staged).
    type: int
  reason:
    description: Why a candidate is not supported, why a trial failed, or why a winner does not serve.
    type: str
    default: ""
  number:
    description: Which trial, for O(action=trial_begin) and O(action=trial_end).
    type: int
  record_id:
    description: The record that a trial made. It is read from the fact file.
    type: str
  facts_dir:
    description: Directory of the fact file, for O(record_id), for an explanation that names records, for
      O(action=begin) to see which records of an interrupted experiment are still there, and for O(action=abandon).
    type: path
  metric:
    description: The figure that the sides of an A/B run are compared by, for O(action=conclude).
    type: str
    default: output_tok_s
  concurrency:
    description: The point that counts in an A/B run, for O(action=conclude), and for O(action=begin) to see that it is
      measured. All of them when it is not given.
    type: int
  tie_percent:
    description: A change that is certain but smaller than this is no measurable gain, for O(action=conclude).
    type: float
    default: 1.0
  breakdown:
    description: What M(tokforge.sglang.decode_profile) told of the two sides C(a) and C(b), for O(action=conclude).
    type: dict
seealso:
  - module: tokforge.sglang.benchmark
  - module: tokforge.sglang.release
"""

EXAMPLES = r"""
- name: Plan an A/B run of one argument
  tokforge.sglang.experiment:
    root: /opt/sglang
    action: begin
    kind: ab
    request:
      ab: max_running_requests
      ab_values: [1, 64]
    base:
      backend: auto
      sglang_version: 0.5.23
      args:
        max-total-tokens: 8192
    original_release: 3
  register: experiment

- name: Note what a trial measured
  tokforge.sglang.experiment:
    root: /opt/sglang
    facts_dir: /opt/sglang/facts
    action: trial_end
    id: "{{ experiment.id }}"
    number: 1
    record_id: 20260314T091500Z-4f1c2a

- name: Plan a sweep for latency limits
  tokforge.sglang.experiment:
    root: /opt/sglang
    action: begin
    kind: sweep
    request:
      grid:
        backend: [triton, flashinfer_cutlass]
        args:
          tp-size: [4, 8]
      objective:
        slo:
          ttft_p99_ms: 500
          tpot_p99_ms: 30
"""

RETURN = r"""
id:
  description: Name of the experiment, and of its file.
  returned: success
  type: str
  sample: ab-3f0c2b9d51e7
trials:
  description: The trials that are still to be made, in their order.
  returned: success
  type: list
  elements: dict
  contains:
    number:
      description: Number of the trial, from 1.
      type: int
    of:
      description: How many trials there are, with those that are done.
      type: int
    candidate:
      description: Which configuration.
      type: str
      sample: backend=triton tp-size=4
    settings:
      description: All of its settings, as O(base) has them.
      type: dict
    release:
      description: Number of its release, V(null) when it has none yet.
      type: int
    round:
      description: Number of the round, from 1.
      type: int
    stage:
      description: Number of the stage, from 1.
      type: int
    seed:
      description: Seed of the prompts.
      type: int
candidates:
  description: All configurations.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Short name.
      type: str
    settings:
      description: All of its settings.
      type: dict
    release:
      description: Number of its release, or V(null).
      type: int
    state:
      description: V(measured), V(unsupported), V(failed), V(invalid) or V(waiting).
      type: str
    reason:
      description: Why it is not supported, failed or is not valid.
      type: str
    staged:
      description: Whether nothing is left to be written for it.
      type: bool
original_release:
  description: The release that served before the experiment, or V(null). It is to serve again when the original stays.
  returned: success
  type: int
finished:
  description: Whether the experiment is done.
  returned: success
  type: bool
served:
  description: Whether what is to serve after it was noted as serving. A play that died in between leaves it false.
  returned: success
  type: bool
result:
  description: What came out, V(null) before O(action=conclude).
  returned: success
  type: dict
compare:
  description: The two sides C(a) and C(b) whose records are to be compared, each with C(label), C(ids) and C(starts),
    and the C(metric) and C(concurrency) (V(null) for all) to compare them by. Empty when there is nothing to compare.
  returned: success
  type: dict
comparison:
  description:
    - The comparison of B with A, or of a sweep's winner with the original, as M(tokforge.sglang.comparison_info)
      returns it. V(null) when there is nothing to compare.
  returned: O(action=conclude)
  type: dict
serves:
  description: The release that is to serve after the experiment, the winner of a sweep or what served before. V(null)
    when nothing did, and while nothing came out.
  returned: success
  type: int
progress:
  description: Which trial this is, how long it took so far and how long it will take yet.
  returned: O(action=trial_begin)
  type: str
  sample: "trial 3 of 10, B, 95 s elapsed, about 5 min left"
skip:
  description: Whether the trial must not be made.
  returned: O(action=trial_begin)
  type: bool
trial:
  description: The trial as it is noted.
  returned: O(action=trial_begin) or O(action=trial_end)
  type: dict
unfinished:
  description: Experiments that were interrupted, with C(id), C(kind), C(original_release) and C(todo).
    A begin leaves out its own.
  returned: O(action=begin) or O(action=look)
  type: list
  elements: dict
lost:
  description: What of an interrupted experiment is not there any more, in sentences.
  returned: O(action=begin)
  type: list
  elements: str
set_aside:
  description: Where a damaged file was moved to, V(null) when there was none.
  returned: O(action=begin)
  type: str
removed:
  description: Old experiments whose files were removed. The newest 20 are kept.
  returned: O(action=begin)
  type: list
  elements: str
"""

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    comparison,
    experiment_files,
    experiment_resume,
    experiment_run,
    experiment_settings,
    experiment_state,
    passed_env,
    release_store,
    result_document,
    result_store,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.experiment_settings import ExperimentError


def begin(module: AnsibleModule, now: str) -> tuple[dict[str, Any] | None, dict[str, Any], dict[str, Any]]:
    """The document before and after, and what is told beside it."""
    given: dict[str, Any] = module.params
    kind, request, root = given["kind"], given["request"], given["root"]
    base = experiment_settings.base(given["base"])
    parameters = with_machine(given["parameters"], given["env_pass_on"], base["env"])
    name = experiment_state.identify(kind, request, base, parameters)
    unfinished = experiment_files.unfinished(root, name)
    told: dict[str, Any] = {"unfinished": unfinished, "lost": [], "set_aside": None, "removed": []}
    for other in told["unfinished"]:
        module.warn(f"experiment {other['id']} was interrupted with {other['waiting']} trials left: {other['todo']}")
    try:
        before = experiment_files.read(root, name)
    except experiment_files.CorruptError as error:
        before = None
        told["set_aside"] = "" if module.check_mode else experiment_files.set_aside(root, name)
        where = f"moved to {told['set_aside']}" if told["set_aside"] else "it would be moved aside"
        module.warn(f"{error}; {where}, and its trials are made again")
    if before is not None and not (before["finished"] and given["force"]):
        after, told["lost"] = experiment_resume.reconciled(
            experiment_run.taken_up(before, request, given["original_release"]),
            given["original_release"],
            has_record(module),
            has_release(root),
        )
        for lost in told["lost"]:
            module.warn(f"experiment {name} goes on: {lost}")
    else:
        experiment_run.must_be_measured(given["concurrency"], given["parameters"])
        after = experiment_run.planned(
            kind, request, base, parameters, given["original_release"], now, given["enabled_by"],
            lambda wanted: find_record(module, wanted), given["env_pass_on"],
        )  # fmt: skip
    return before, after, told


def with_machine(parameters: Mapping[str, Any], names: Sequence[str], declared: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parameters with what the target sets for its servers. Raises ExperimentError."""
    passed, problems = passed_env.passed_on(names, os.environ, declared)
    if problems:
        raise ExperimentError("planning the trials: " + "\n".join(problems), problems=problems)
    # Only then, so that an experiment on other machines stays the same one.
    return {**parameters, "env_passed_on": passed} if passed else parameters


def look(module: AnsibleModule) -> dict[str, Any]:
    """What served before the experiments, and which of them were interrupted."""
    root = module.params["root"]
    try:
        proven = release_store.last_proven(root)
    except release_store.StoreError as error:
        raise ExperimentError(str(error), **error.facts) from error
    documents = experiment_files.others(root, "")
    found = experiment_resume.served_before(documents, module.params["original_release"], proven)
    return {"changed": False, "original_release": found, "unfinished": experiment_files.unfinished(root, "")}


def has_release(root: str) -> Callable[[int], bool]:
    """Tells whether a release is there and sound. A root without releases has them elsewhere."""
    if not os.path.isdir(os.path.join(root, "releases")):
        return lambda _number: True
    return lambda number: release_store.load(root, number).broken is None


def has_record(module: AnsibleModule) -> Callable[[str], bool]:
    """Tells whether a record is in the fact file; all are when it is not known where that lies."""

    def found(wanted: str) -> bool:
        try:
            find_record(module, wanted)
        except MissingRecordError:
            return False
        return True

    return found if module.params["facts_dir"] is not None else lambda _wanted: True


def change(module: AnsibleModule, before: Mapping[str, Any], now: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The document after an action other than begin, and what is told beside it."""
    given: dict[str, Any] = module.params
    action, number = given["action"], given["number"]
    if action == "staged":
        return experiment_state.staged(before, given["candidate"], given["release"], given["reason"]), {}
    if action == "trial_begin":
        after, why = experiment_state.begun(before, number, now)
        told = experiment_run.progress(after, number, now)
        return after, {
            "skip": bool(why),
            "reason": why,
            "trial": experiment_state.trial(after, number),
            "progress": told,
        }
    if action == "trial_end":
        record = find_record(module, given["record_id"]) if given["record_id"] else None
        after = experiment_state.ended(before, number, now, record, given["reason"])
        return after, {"trial": experiment_state.trial(after, number)}
    if action == "next":
        return experiment_run.extended(before), {}
    if action == "conclude":
        return conclude(module, before, now)
    after = (
        experiment_resume.served(before, given["reason"]) if action == "served" else experiment_resume.given_up(before)
    )
    told_otherwise = after.get("not_served", "") != before.get("not_served", "")
    if told_otherwise and given["facts_dir"] is not None and not module.check_mode:
        put_into_facts(given["facts_dir"], after, None)
    return after, {}


def conclude(module: AnsibleModule, before: Mapping[str, Any], now: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Compare the sides whose records decide, and put the result into the fact file."""
    given: dict[str, Any] = module.params
    sides = experiment_run.comparable(before)
    compared = None
    if sides and sides["a"]["ids"] and sides["b"]["ids"]:
        a, b = ([find_record(module, one) for one in sides[name]["ids"]] for name in ("a", "b"))
        compared = comparison.compare(
            a,
            b,
            kind=before["kind"],
            metric=given["metric"] if before["kind"] == "ab" else sides["metric"],
            concurrency=given["concurrency"] if before["kind"] == "ab" else sides["concurrency"],
            tie_percent=given["tie_percent"],
            restarts=True,
            labels=(sides["a"]["label"], sides["b"]["label"]),
            recorded_at=now,
        )
        # One experiment is one comparison, however often it is concluded.
        compared["id"] = before["id"]
    after, _sides = experiment_run.concluded(before, now, experiment_run.ratio_for(before), compared)
    if given["breakdown"] and before["kind"] == "explain":
        after["result"] = {**after["result"], "breakdown": given["breakdown"]}
    # A play that dies before the better one serves has left something else serving: the next one has to know.
    after.update(served=False, not_served="")
    if not module.check_mode:
        put_into_facts(given["facts_dir"], after, compared)
    return after, {"comparison": compared}


def put_into_facts(facts_dir: str, document: Mapping[str, Any], compared: Mapping[str, Any] | None) -> None:
    """Add what came out to the fact file. Raises ExperimentError."""

    def added(facts: dict[str, Any]) -> dict[str, Any]:
        grown = result_document.add(facts, "comparisons", compared) if compared is not None else facts
        name = {"sweep": "sweeps", "explain": "explanations"}.get(document["kind"])
        return result_document.add(grown, name, experiment_run.told_result(document) or {}) if name else grown

    try:
        result_store.update(facts_dir, added)
    except result_store.StoreError as error:
        raise ExperimentError(str(error), **error.facts) from error


class MissingRecordError(ExperimentError):
    """The fact file can be read, and the record is not in it."""


def find_record(module: AnsibleModule, wanted: str) -> Mapping[str, Any]:
    """A record of the fact file. Raises ExperimentError."""
    where = module.params["facts_dir"]
    if where is None:
        raise ExperimentError(f"looking for record {wanted[:50]}: facts_dir is not given; give it")
    try:
        document = result_store.read(where) or {}
    except result_store.StoreError as error:
        raise ExperimentError(str(error), **error.facts) from error
    kept = [part.get(name) for part in document.get("results") or [] for name in ("latest", "baseline")]
    for record in [*reversed(document.get("history") or []), document.get("latest"), *kept]:
        if isinstance(record, dict) and record.get("id") == wanted:
            return record
    raise MissingRecordError(
        f"looking for record {wanted[:50]} in {where}: there is none; give the id of one that is there, or run the "
        "same experiment again, which makes the trials anew whose records are gone"
    )


def shown(document: Mapping[str, Any]) -> dict[str, Any]:
    """What every action returns of an experiment."""
    entries = []
    for entry in document["candidates"]:
        state, reason = experiment_state.outcome(document, entry["name"])
        entries.append(
            {
                **{name: entry[name] for name in ("name", "settings", "release")},
                "state": state,
                "reason": reason,
                "staged": entry["state"] != experiment_state.WAITING,
            }
        )
    return {
        "id": document["id"],
        "trials": experiment_run.to_do(document),
        "candidates": entries,
        "original_release": document["original_release"],
        "finished": document["finished"],
        "served": experiment_resume.is_served(document),
        "serves": experiment_run.serves(document) if document["result"] else None,
        "result": experiment_run.told_result(document),
        "compare": experiment_run.comparable(document),
    }


def counted(document: Mapping[str, Any] | None) -> dict[str, int]:
    """How many trials are in which state, for a diff."""
    states = [trial["state"] for trial in (document or {}).get("trials", [])]
    return {state: states.count(state) for state in experiment_state.STATES}


def main() -> None:
    """Arguments, what the core makes of them, result."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "action": {
                "type": "str",
                "choices": [
                    "look",
                    "begin",
                    "staged",
                    "trial_begin",
                    "trial_end",
                    "next",
                    "conclude",
                    "served",
                    "abandon",
                ],
                "required": True,
            },
            "kind": {"type": "str", "choices": ["ab", "sweep", "explain"]},
            "request": {"type": "dict", "default": {}},
            "base": {"type": "dict", "default": {}},
            "parameters": {"type": "dict", "default": {}},
            "env_pass_on": {"type": "list", "elements": "str", "default": [], "no_log": False},
            "original_release": {"type": "int"},
            "enabled_by": {"type": "str", "choices": ["upstream", "patch", "none"]},
            "force": {"type": "bool", "default": False},
            "id": {"type": "str"},
            "candidate": {"type": "str"},
            "release": {"type": "int"},
            "reason": {"type": "str", "default": ""},
            "number": {"type": "int"},
            "record_id": {"type": "str"},
            "facts_dir": {"type": "path"},
            "metric": {"type": "str", "default": "output_tok_s"},
            "concurrency": {"type": "int"},
            "tie_percent": {"type": "float", "default": 1.0},
            "breakdown": {"type": "dict"},
        },
        required_if=[
            ("action", "begin", ("kind",)),
            ("action", "staged", ("id", "candidate")),
            ("action", "trial_begin", ("id", "number")),
            ("action", "trial_end", ("id", "number")),
            ("action", "next", ("id",)),
            ("action", "conclude", ("id", "facts_dir")),
            ("action", "served", ("id", "facts_dir")),
            ("action", "abandon", ("id",)),
        ],
        supports_check_mode=True,
    )
    try:
        module.exit_json(**act(module))
    except (ExperimentError, comparison.ComparisonError) as error:
        module.fail_json(msg=str(error), **getattr(error, "facts", {}))


def act(module: AnsibleModule) -> dict[str, Any]:
    """What the module returns. Raises ExperimentError."""
    if module.params["action"] == "look":
        return look(module)
    root, now = module.params["root"], time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    # A look takes no lock: it would have to make the directory.
    with contextlib.nullcontext() if module.check_mode else experiment_files.locked(root):
        if module.params["action"] == "begin":
            before, after, told = begin(module, now)
        else:
            before = experiment_files.read(root, module.params["id"]) if module.check_mode else None
            if before is None and module.check_mode:
                return {"changed": True, "id": module.params["id"], "trials": [], "candidates": [], "compare": {}}
            before = before or experiment_files.get(root, module.params["id"])
            after, told = change(module, before, now)
        changed = after != before
        if changed and not module.check_mode:
            after = {**after, "updated_at": now}
            experiment_files.write(root, after)
            if module.params["action"] == "begin":
                told["removed"] = experiment_files.prune(root, after["id"])
    diff = {"before": {"trials": counted(before)}, "after": {"trials": counted(after)}}
    return {"changed": changed, **shown(after), **told, "diff": diff}


if __name__ == "__main__":
    main()
