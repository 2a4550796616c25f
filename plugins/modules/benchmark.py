#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: benchmark
short_description: Measure a running SGLang server and record the result as a local fact
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Measures a server at each concurrency several times after a discarded warm-up, judges whether the figures may be
    believed, and records medians and spread in C(sglang.fact) below O(facts_dir), which Ansible shows as
    C(ansible_local.sglang). What the GPUs did meanwhile, and the share of the roofline, are recorded with them.
  - Compares a valid result with the baseline of its model, hardware, engine and workload, with the noise of both. See
    M(tokforge.sglang.comparison_info) for the method.
  - Prompts are random token ids of exactly O(input_len) tokens; every answer has exactly O(output_len) tokens unless
    O(ignore_eos=false).
  - A run that may not be believed is recorded as invalid with its reasons, and the module fails. It is invalid when a
    request failed, when token counts differ from what was asked, when a figure is missing, zero or not finite, when the
    text is one character repeated, or when O(output_check) says so.
  - Measures nothing when the latest record is valid and has the same fingerprint (configuration and parameters), unless
    O(force=true). What O(max_regression_percent), O(expectation) and O(baseline) ask of a result holds for that record
    then.
  - Only one benchmark runs below a root at a time; another one waits for it.
  - A run that could not begin (no server, another model, no interpreter) fails and records nothing.
extends_documentation_fragment:
  - tokforge.sglang.attributes
  - tokforge.sglang.rollout_token
attributes:
  check_mode:
    support: full
    details:
      - Nothing is run or written. The result C(changed) says whether a measurement would be made, so there are no
        RV(points) then.
  diff_mode:
    support: full
    details:
      - Compares the latest record before and after. In check mode the figures to come are not known.
options:
  python:
    description: Interpreter of the environment that holds SGLang.
    type: path
    required: true
  root:
    description: Directory for raw output, kept in C(bench/) below it for the last 20 runs. Only the owner can read it.
    type: path
    required: true
  facts_dir:
    description: Directory of the fact file. It is made when it does not exist.
    type: path
    required: true
  engine:
    description:
      - What measures. V(bench_serving) is SGLang's own and always there.
      - Results of different engines are never compared.
    type: str
    choices: [bench_serving, aiperf, guidellm]
    default: bench_serving
  engine_python:
    description: Interpreter of the environment that has O(engine). Left out, O(python).
    type: path
  host:
    description: Address of the server.
    type: str
    default: 127.0.0.1
  port:
    description: Port of the server.
    type: int
    default: 30000
  model_path:
    description: Directory on the target with the tokenizer of the served model.
    type: path
    required: true
  served_name:
    description:
      - Name of the model as the server lists it. Another name is an error, so that no other server is measured by
        accident.
    type: str
    required: true
  concurrency:
    description:
      - Numbers of requests in flight, one point each.
      - Left out, 1, 8, 32, 64, 256, 512 and 1024, as far as the server runs so many at once. Its limit is the last
        point then.
    type: list
    elements: int
  repetitions:
    description:
      - How often each point is measured, with other prompts each time.
      - Fewer than 3 tell no spread, and 5 are needed to tell a difference from noise, 6 where only one of the usual
        seven points differs.
    type: int
    default: 6
  input_len:
    description: Tokens of each prompt.
    type: int
    default: 256
  output_len:
    description: Tokens of each answer, at least 2.
    type: int
    default: 64
  num_prompts:
    description:
      - Requests at every point, at least the largest concurrency.
      - Left out, O(num_prompts_factor) times the concurrency.
    type: int
  num_prompts_factor:
    description: Requests at a point as a multiple of its concurrency. Unused when O(num_prompts) is given.
    type: int
    default: 4
  warmup_requests:
    description:
      - Discarded requests before the first repetition of each point.
      - Never less than the concurrency of the point, because the first batch of a size is slower than the next.
    type: int
  seed:
    description: Seed of the prompts.
    type: int
    default: 1
  flush_cache:
    description:
      - Empty the server's prefix cache before each repetition.
      - Without it, prompts that an earlier point or run has sent are found in the cache and the figures are too good.
      - A server with an admin API key may refuse it.
    type: bool
    default: true
  ignore_eos:
    description: Go on after an end-of-sequence token, so that every answer has O(output_len) tokens.
    type: bool
    default: true
  context:
    description:
      - What runs, as plain values that are recorded with the result, for example C(sglang_version), C(backend),
        C(versions), C(args), C(model), C(environment), C(release), C(random_weights).
      - C(autotune_gate) and C(source) are added from the environment below O(root) when C(environment) names one.
      - All of it except C(release) and C(source) is part of the fingerprint. Put nothing into it that differs from play
        to play.
      - C(random_weights=true) tells that the text is garbage by nature, and it is not judged then.
    type: dict
    default: {}
  output_check:
    description:
      - Verdict of a check of the server's text, made before. Recorded with the result.
      - Left out, only the text of the benchmark itself is judged.
    type: dict
    suboptions:
      passed:
        description: Whether the text was right.
        type: bool
        required: true
      reason:
        description: Why it was not.
        type: str
  preflight:
    description:
      - What the checks before found, with C(findings), and C(verdict) and C(counts), which are made from these when
        they are left out. Recorded with the result, without what was well.
      - Left out, the newest ones on record for the same configuration, with the record they are from in C(from).
    type: dict
  experiment:
    description: The experiment that this run is a trial of, with C(id), C(candidate) and C(round).
    type: dict
  sample_gpus:
    description: Watch power, utilisation, memory, clocks and PCIe of the server's GPUs once a second meanwhile.
    type: bool
    default: true
  baseline:
    description: Make a valid result the baseline of its model, hardware, engine and workload from now on.
    type: bool
    default: false
  max_regression_percent:
    description:
      - How much worse than the baseline a result may be, in percent by figure, for example C(output_tok_s) 5.
      - One that is worse by more, beyond the noise, is recorded and fails. When noise hides it, or the two cannot be
        compared, that is a warning.
    type: dict
    default: {}
  expectation:
    description: What is expected of the machine. A result far below is C(degraded), with a list of what to look at.
    type: dict
    suboptions:
      output_tok_s:
        description: Expected output tokens a second by concurrency.
        type: dict
      roofline_share:
        description: Expected share of the ceiling, V(0.3) for 30 %.
        type: float
      degraded_below_percent:
        description: Below this share of what is expected a result is degraded. By default 70.
        type: float
  counts:
    description: The concurrency that counts in the comparison. Left out, all of them.
    type: int
  fail_on_regression:
    description: Fail on a regression and on a degraded result. Otherwise they are warnings.
    type: bool
    default: true
  force:
    description: Measure also when the latest record is valid for the same configuration.
    type: bool
    default: false
  timeout_s:
    description: Seconds for all points together. A benchmark that takes longer is ended and recorded as invalid.
    type: int
    default: 7200
  api_key:
    description: Key of the server. It is handed on in the environment, and removed from the raw output.
    type: str
  admin_api_key:
    description: The server's other key, only to remove it from the raw output.
    type: str
  env:
    description: Environment variables for C(bench_serving), beside the inherited ones. No secrets.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Measure one and eight requests in flight
  tokforge.sglang.benchmark:
    python: /opt/sglang/current/venv/bin/python
    root: /opt/sglang
    facts_dir: /opt/sglang/facts
    model_path: /opt/sglang/models/tiny-moe
    served_name: tiny-moe
    concurrency: [1, 8]
    repetitions: 6
    input_len: 1024
    output_len: 256
    context:
      sglang_version: 0.5.23
      backend: auto
      release: 3
  register: measured

- name: Show the decode speed at concurrency 8
  ansible.builtin.debug:
    msg: "{{ measured.points | community.general.json_query('[?concurrency==`8`].output_tok_s | [0]') }}"
"""

RETURN = r"""
ran:
  description: Whether a benchmark was run. False when the recorded result was returned, and in check mode.
  returned: success or invalid result
  type: bool
  sample: true
valid:
  description: Whether the figures may be believed. Not defined when nothing is measured yet (check mode).
  returned: success or invalid result
  type: bool
  sample: true
reasons:
  description: Why the run is invalid.
  returned: success or invalid result
  type: list
  elements: str
  sample: ["concurrency 8: 31 of 32 requests completed"]
warnings:
  description: What a reader must know of a valid run. Shown by Ansible as warnings.
  returned: when there are any
  type: list
  elements: str
  sample: []
fingerprint:
  description: Equal for the same configuration measured in the same way.
  returned: success or invalid result
  type: str
  sample: 5d1a2c0f9b3e4a77
run_id:
  description: Name of the run, also of its directory below C(bench/).
  returned: when there is a result
  type: str
  sample: 20260314T091500Z-4f1c2a
recorded_at:
  description: Time of the record, UTC.
  returned: when there is a result
  type: str
  sample: "2026-03-14T09:15:09Z"
points:
  description:
    - One entry a concurrency, in the order asked. Latencies in milliseconds, rates per second over the run of the
      point.
  returned: success or invalid result
  type: list
  elements: dict
  contains:
    concurrency:
      description: Requests in flight.
      type: int
      sample: 8
    num_prompts:
      description: Requests asked.
      type: int
      sample: 32
    repetitions:
      description: How often the point was measured.
      type: int
      sample: 5
    values:
      description: The figures of each repetition in order, by name.
      type: dict
    spread:
      description: Of each figure C(least), C(most), and how far they lie apart in C(percent) of the median.
      type: dict
    gpu:
      description: What each GPU did meanwhile, on average. None where nothing was sampled.
      type: list
      elements: dict
    roofline:
      description: The ceiling that the GPUs' memory sets, and the share of it that was reached. None where unknown.
      type: dict
    completed:
      description: Requests completed, the least of the repetitions.
      type: int
      sample: 32
    input_len:
      description: Tokens of a prompt, as asked.
      type: int
      sample: 64
    output_len:
      description: Tokens of an answer, as asked.
      type: int
      sample: 32
    input_tokens:
      description: Tokens of all prompts.
      type: int
      sample: 2048
    output_tokens:
      description: Tokens of all answers.
      type: int
      sample: 1024
    output_tok_s:
      description: Decode speed, output tokens per second of all requests together.
      type: float
      sample: 595.98
    input_tok_s:
      description: Prompt tokens per second.
      type: float
      sample: 1191.96
    total_tok_s:
      description: Prompt and output tokens per second. Not a decode speed.
      type: float
      sample: 1787.94
    request_s:
      description: Requests per second.
      type: float
      sample: 18.62
    duration_s:
      description: Seconds of the point without warm-up.
      type: float
      sample: 1.72
    measured_concurrency:
      description: Requests in flight on average.
      type: float
      sample: 7.9
    ttft_mean_ms:
      description: Time to first token, mean.
      type: float
      sample: 60.1
    ttft_median_ms:
      description: Time to first token, median.
      type: float
      sample: 58.2
    ttft_p99_ms:
      description: Time to first token, 99th percentile.
      type: float
      sample: 90.5
    tpot_mean_ms:
      description: Time per output token after the first, mean over requests.
      type: float
      sample: 11.5
    tpot_median_ms:
      description: Time per output token after the first, median over requests.
      type: float
      sample: 11.4
    tpot_p99_ms:
      description: Time per output token after the first, 99th percentile over requests.
      type: float
      sample: 13.0
    itl_mean_ms:
      description: Time between two tokens, mean.
      type: float
      sample: 11.5
    itl_median_ms:
      description: Time between two tokens, median.
      type: float
      sample: 11.2
    itl_p99_ms:
      description: Time between two tokens, 99th percentile.
      type: float
      sample: 35.7
    accept_length:
      description: Tokens accepted per step of speculative decoding, none when it is off.
      type: float
      sample: 2.4
    valid:
      description: Whether the figures of this point may be believed.
      type: bool
      sample: true
    reasons:
      description: Why not.
      type: list
      elements: str
      sample: []
    warnings:
      description: What a reader must know.
      type: list
      elements: str
      sample: []
    argv:
      description: Command line that gives this point by hand.
      type: list
      elements: str
      sample: [-m, sglang.bench_serving, --backend, sglang]
hardware:
  description: What the server runs on.
  returned: when there is a result
  type: str
  sample: 8x NVIDIA H200 (cc 9.0, 140 GiB)
comparison:
  description:
    - The result against the baseline, as M(tokforge.sglang.comparison_info) returns it. None when there is no
      baseline, or the result is invalid.
  returned: when there is a result
  type: dict
expectation:
  description: How what is expected was met, with C(status), C(why), C(points) and C(checklist).
  returned: when there is a result
  type: dict
fact_file:
  description: The file with the record.
  returned: always
  type: str
  sample: /opt/sglang/facts/sglang.fact
raw_dir:
  description: Directory with the raw output and the log of C(bench_serving).
  returned: when there is a result
  type: str
  sample: /opt/sglang/bench/20260314T091500Z-4f1c2a
set_aside:
  description: Where a corrupt fact file was moved to.
  returned: when the fact file was corrupt and a record was written
  type: str
  sample: /opt/sglang/facts/sglang.fact.corrupt-20260314T091509Z
log_tail:
  description: Last lines of the log of C(bench_serving).
  returned: when the result is invalid
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    bench_engines,
    bench_environment,
    bench_machine,
    bench_measure,
    bench_preflight,
    bench_record,
    bench_run,
    bench_verdict,
    benchmark,
    findings,
    result_document,
    result_store,
    rollout_lock,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import BenchmarkError, Parameters, Target
from ansible_collections.tokforge.sglang.plugins.module_utils.comparison import ComparisonError
from ansible_collections.tokforge.sglang.plugins.module_utils.expectation import ExpectationError
from ansible_collections.tokforge.sglang.plugins.module_utils.regression import RegressionError
from ansible_collections.tokforge.sglang.plugins.module_utils.result_store import CorruptError, StoreError

ARGUMENTS: dict[str, Any] = {
    "python": {"type": "path", "required": True},
    "root": {"type": "path", "required": True},
    "rollout": {"type": "str"},
    "facts_dir": {"type": "path", "required": True},
    "engine": {"type": "str", "choices": list(bench_engines.ENGINES), "default": bench_engines.BENCH_SERVING},
    "engine_python": {"type": "path"},
    "host": {"type": "str", "default": "127.0.0.1"},
    "port": {"type": "int", "default": 30000},
    "model_path": {"type": "path", "required": True},
    "served_name": {"type": "str", "required": True},
    "concurrency": {"type": "list", "elements": "int"},
    "repetitions": {"type": "int", "default": benchmark.USUAL_REPETITIONS},
    "input_len": {"type": "int", "default": 256},
    "output_len": {"type": "int", "default": 64},
    "num_prompts": {"type": "int"},
    "num_prompts_factor": {"type": "int", "default": 4},
    "warmup_requests": {"type": "int"},
    "seed": {"type": "int", "default": 1},
    "flush_cache": {"type": "bool", "default": True},
    "ignore_eos": {"type": "bool", "default": True},
    "context": {"type": "dict", "default": {}},
    "output_check": {
        "type": "dict",
        "options": {"passed": {"type": "bool", "required": True}, "reason": {"type": "str"}},
    },
    "preflight": {"type": "dict"},
    "experiment": {"type": "dict"},
    "sample_gpus": {"type": "bool", "default": True},
    "baseline": {"type": "bool", "default": False},
    "max_regression_percent": {"type": "dict", "default": {}},
    "expectation": {
        "type": "dict",
        "options": {
            "output_tok_s": {"type": "dict"},
            "roofline_share": {"type": "float"},
            "degraded_below_percent": {"type": "float"},
        },
    },
    "counts": {"type": "int"},
    "fail_on_regression": {"type": "bool", "default": True},
    "force": {"type": "bool", "default": False},
    "timeout_s": {"type": "int", "default": 7200},
    "api_key": {"type": "str", "no_log": True},
    "admin_api_key": {"type": "str", "no_log": True},
    "env": {"type": "dict", "default": {}},
}
PARAMETERS = (
    "repetitions",
    "input_len",
    "output_len",
    "num_prompts",
    "num_prompts_factor",
    "warmup_requests",
    "seed",
    "flush_cache",
    "ignore_eos",
)


def asked_parameters(given: dict[str, Any]) -> Parameters:
    """What is to be measured; without a list of its own the usual ladder, as far as the server goes."""
    wanted = given["concurrency"]
    return Parameters(
        concurrency=tuple(wanted or benchmark.LADDER), capped=not wanted, **{name: given[name] for name in PARAMETERS}
    )


def known(module: AnsibleModule) -> dict[str, Any]:
    """The document; an empty one when there is none or the fact file is corrupt (the next record sets that aside)."""
    try:
        return result_store.read(module.params["facts_dir"]) or result_document.empty()
    except CorruptError as error:
        module.warn(f"{error}; it is set aside when the next result is recorded")
        return result_document.empty()


def requested(given: dict[str, Any], asked: Parameters, machine: bench_machine.Machine) -> bench_measure.Request:
    """The run that the arguments ask for."""
    return bench_measure.Request(
        engine=bench_engines.find(given["engine"]),
        python=given["engine_python"] or given["python"],
        root=given["root"],
        target=Target(given["host"], given["port"], given["model_path"], given["served_name"]),
        parameters=asked,
        machine=machine,
        env={name: str(value) for name, value in given["env"].items()},
        **{
            name: given[name]
            for name in (
                "context",
                "timeout_s",
                "api_key",
                "admin_api_key",
                "sample_gpus",
                "output_check",
                "experiment",
            )
        },
        preflight=preflight_of(given),
    )


def preflight_of(given: dict[str, Any]) -> dict[str, Any] | None:
    """What the checks before found, as it is recorded: the worst of it, how much there is, and what was not well."""
    told = given["preflight"]
    if told is None or "findings" not in told:
        return told
    listed = told["findings"]
    found = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    every = [findings.Finding(str(entry.get("level")), "", "") for entry in found]
    summed = {"verdict": findings.verdict(every), "counts": findings.counts(every)}
    return {**summed, **told, "findings": [entry for entry in found if entry.get("level") != findings.OK]}


def wanted_of(given: dict[str, Any]) -> bench_verdict.Wanted:
    """What the measurement is held against; a trial of an experiment is compared there."""
    if given["experiment"]:
        return bench_verdict.Wanted()
    expected = {name: value for name, value in (given["expectation"] or {}).items() if value is not None}
    if "output_tok_s" in expected:
        expected["tok_s"] = expected.pop("output_tok_s")
    if expected:
        expected["findings"] = (preflight_of(given) or {}).get("findings") or ()
    return bench_verdict.Wanted(given["max_regression_percent"], expected, given["counts"])


def record_and_judge(
    given: dict[str, Any], record: dict[str, Any]
) -> tuple[result_store.Written, bench_verdict.Verdict]:
    """Add the record, and what it means, to the fact file."""
    verdicts: list[bench_verdict.Verdict] = []

    def added(document: dict[str, Any]) -> dict[str, Any]:
        verdict = bench_verdict.judge(document, record, wanted_of(given))
        verdicts.append(verdict)
        grown = result_document.append(document, record, verdict.worse_than)
        if verdict.comparison is not None and not given["experiment"]:
            grown = result_document.add(grown, "comparisons", verdict.comparison)
        return result_document.with_baseline(grown, record["id"]) if given["baseline"] and record["valid"] else grown

    written = result_store.update(given["facts_dir"], added)
    return written, verdicts[-1]


def returned(
    module: AnsibleModule, before: dict[str, Any] | None, record: dict[str, Any] | None, wanted: str
) -> dict[str, Any]:
    """What the module returns: `record` is the one that holds now, None when a run is only predicted."""
    fact_file = result_store.path_in(module.params["facts_dir"])
    changed = record is not before or record is None
    result: dict[str, Any] = {
        "changed": changed,
        "ran": changed and record is not None,
        "fingerprint": wanted,
        "fact_file": fact_file,
    }
    result.update(points=[], reasons=[])
    if record:
        kept = ("valid", "reasons", "points", "recorded_at", "raw_dir", "hardware")
        result.update({key: record[key] for key in kept}, run_id=record["id"])
    if changed:
        after = bench_record.summary_lines(record) or [f"configuration {wanted} to be measured"]
        result["diff"] = {
            "before_header": fact_file,
            "after_header": fact_file,
            "before": "".join(f"{line}\n" for line in bench_record.summary_lines(before)),
            "after": "".join(f"{line}\n" for line in after),
        }
    return result


def kept(module: AnsibleModule, document: dict[str, Any], record: dict[str, Any], wanted: str) -> dict[str, Any]:
    """The result where nothing is measured: what is asked of a result holds for the recorded one, too.

    Without that a rollout that failed for a regression would pass when it is only run again.
    """
    given = module.params
    result = returned(module, record, record, wanted)
    declared = result_document.is_declared(document, record["id"])
    if given["baseline"] and not declared:
        result["changed"] = True
        headers = {"before_header": result["fact_file"], "after_header": result["fact_file"]}
        result["diff"] = {**headers, "before": "", "after": f"baseline {record['id']}\n"}
        if not module.check_mode:
            result_store.update(
                given["facts_dir"], lambda found: result_document.with_baseline(found, str(record["id"]))
            )
    verdict = bench_verdict.judge(document, record, wanted_of(given))
    if declared or result["changed"]:
        # What others are held against is not worse than itself.
        verdict = bench_verdict.Verdict(None, verdict.expectation, "it is the baseline")
    return judged(module, verdict, result)


def judged(module: AnsibleModule, verdict: bench_verdict.Verdict, result: dict[str, Any]) -> dict[str, Any]:
    """The result with what it means; fails, or warns, when it is not good enough."""
    result.update(comparison=verdict.comparison, expectation=verdict.expectation)
    for warning in verdict.warnings():
        module.warn(warning)
    failures = verdict.failures()
    if failures and module.params["fail_on_regression"]:
        where = f"benchmark of {module.params['host']}:{module.params['port']}"
        module.fail_json(msg=f"{where}: {'; '.join(failures)}; the result is recorded", **result)
    for failure in failures:
        module.warn(failure)
    return result


def run(module: AnsibleModule) -> dict[str, Any]:
    """Decide, measure, record. An invalid run is recorded first and fails then."""
    given = module.params
    given["context"] = bench_environment.described(given["root"], given["context"])
    asked = asked_parameters(given)
    engine = bench_engines.find(given["engine"])
    identity = engine.identity(engine.version(given["engine_python"] or given["python"]))
    wanted = benchmark.fingerprint(identity, given["context"], asked)
    bench_verdict.check(wanted_of(given))
    machine = bench_measure.machine_of(given["context"])
    document = known(module)
    # A plain run after a rollout: what was checked then is still what is known of the machine.
    given["preflight"] = given["preflight"] or bench_preflight.carried(
        document, benchmark.configuration(given["context"])
    )
    request = requested(given, asked, machine)
    before = document["latest"]
    # Text that is garbage now takes a good record nowhere: the figures are made again, and are invalid.
    checked = (given["output_check"] or {}).get("passed") is not False
    if checked and not given["force"] and bench_record.same_measurement(before, wanted, machine.hardware):
        return kept(module, document, before, wanted)
    if module.check_mode:
        return returned(module, before, None, wanted)
    with bench_run.alone(given["root"], given["timeout_s"]):
        record, log_tail = bench_measure.measure(request)
    result = returned(module, before, record, wanted)
    try:
        written, verdict = record_and_judge(given, record)
    except StoreError as error:
        # The figures cost minutes: they are shown although they could not be kept.
        raise StoreError(str(error), **{**result, **error.facts, "changed": False}) from error
    if written.set_aside:
        result["set_aside"] = written.set_aside
        module.warn(f"the fact file was corrupt and is now {written.set_aside}")
    for warning in record["warnings"]:
        module.warn(warning)
    if not record["valid"]:
        module.fail_json(
            msg=f"benchmark of {given['host']}:{given['port']}: {'; '.join(record['reasons'])}; "
            f"the result is recorded as invalid, see {record['raw_dir']}/bench.log",
            log_tail=log_tail,
            **{**result, "comparison": None, "expectation": None},
        )
    return judged(module, verdict, result)


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    rollout = None if module.check_mode else module.params["rollout"]
    try:
        with rollout_lock.at_work(module.params["root"], rollout):
            result = run(module)
    except (BenchmarkError, StoreError, rollout_lock.LockError) as error:
        module.fail_json(msg=str(error), **error.facts)
    except (ComparisonError, ExpectationError, RegressionError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
