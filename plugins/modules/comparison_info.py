#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: comparison_info
short_description: Tell whether one recorded benchmark is faster than another, or whether it is noise
version_added: 0.1.0
description:
  - Compares runs that M(tokforge.sglang.benchmark) has recorded, by an exact permutation test with the noise of both
    sides, and tells what else differs between them.
  - Holds a run against limits of how much worse it may be, and against what is expected of the machine.
  - Runs that were not measured in the same way, on the same hardware and model, are V(not_comparable), with the reason.
author:
  - tokforge.sglang contributors (@tokforge)
extends_documentation_fragment:
  - tokforge.sglang.attributes
  - tokforge.sglang.attributes.info_module
options:
  facts_dir:
    description: Directory of the fact file.
    type: path
    required: true
  a:
    description:
      - The side that is compared with. V(latest), V(baseline), V(best), V(previous), the id of a run, or a fingerprint,
        which means all its valid runs.
      - V(baseline), V(best) and V(previous) are of the model, the hardware and the engine of the other side.
    type: str
    default: baseline
  b:
    description: The side that is judged, named like O(a).
    type: str
    default: latest
  metric:
    description: The figure that is compared. A verdict of V(faster) always means better, also where less is better.
    type: str
    default: output_tok_s
    choices:
      - output_tok_s
      - input_tok_s
      - total_tok_s
      - request_s
      - ttft_median_ms
      - ttft_p99_ms
      - tpot_median_ms
      - tpot_p99_ms
      - itl_median_ms
      - itl_p99_ms
  concurrency:
    description: The concurrency that counts. All points that both sides have when it is not given.
    type: int
  tie_percent:
    description: A change that is certain but smaller than this is no measurable gain.
    type: float
    default: 1.0
  restarts:
    description: The server was started anew before each run, also where a run does not name its start.
    type: bool
    default: false
  max_regression_percent:
    description: How much worse O(b) may be than O(a), in percent by figure (the names of O(metric)).
    type: dict
    default: {}
  expectation:
    description: What is expected of the newest run of O(b). Nothing when it is not given.
    type: dict
    suboptions:
      output_tok_s:
        description: Expected output tokens a second by concurrency.
        type: dict
      roofline_share:
        description: Expected share of the ceiling, V(0.3) for 30 %.
        type: float
      baseline:
        description: Expect what the newest run of O(a) gave.
        type: bool
        default: false
      degraded_below_percent:
        description: Below this share of what is expected a run is V(degraded).
        type: float
        default: 70.0
  findings:
    description: Findings of M(tokforge.sglang.preflight). What warned or failed there is on the checklist.
    type: list
    elements: dict
    default: []
seealso:
  - module: tokforge.sglang.benchmark
"""

EXAMPLES = r"""
- name: Is the newest run faster than the baseline?
  tokforge.sglang.comparison_info:
    facts_dir: /opt/sglang/facts
  register: compared

- name: Fail when decoding became slower by more than 5 %, or when that cannot be told
  tokforge.sglang.comparison_info:
    facts_dir: /opt/sglang/facts
    max_regression_percent:
      output_tok_s: 5
      ttft_p99_ms: 20
  register: gate
  failed_when: not gate.comparison.regression.passed

- name: Is the machine as fast as its like?
  tokforge.sglang.comparison_info:
    facts_dir: /opt/sglang/facts
    expectation:
      output_tok_s:
        "1": 130
        "32": 1900
  register: speed
"""

RETURN = r"""
comparison:
  description: The comparison of O(b) with O(a).
  returned: success
  type: dict
  contains:
    verdict:
      description: V(faster), V(slower), V(no_measurable_gain) or V(not_comparable).
      type: str
      sample: faster
    why:
      description: The reason in one sentence, with figures.
      type: str
      sample: "faster: output tok/s +20.1 %, band +17.0 to +23.4 %, p = 0.0079 at concurrency 8; 5 against 5 starts"
    a:
      description: C(label), C(fingerprint), C(ids) of the runs and number of C(starts) of the side.
      type: dict
    b:
      description: Likewise.
      type: dict
    metric:
      description: O(metric).
      type: str
      sample: output_tok_s
    unit:
      description: What counts once, V(start) or V(repetition).
      type: str
      sample: start
    points:
      description: One entry a concurrency that both sides have.
      type: list
      elements: dict
      contains:
        concurrency:
          description: Requests in flight.
          type: int
          sample: 8
        a:
          description: C(n), C(median), C(least) and C(most) of the units.
          type: dict
        b:
          description: Likewise.
          type: dict
        change_percent:
          description: Estimate of the change from a to b. V(null) where nothing can be tested.
          type: float
          sample: 20.1
        band_percent:
          description: Least and greatest change that the test does not exclude.
          type: list
          elements: float
          sample: [17.0, 23.4]
        p_value:
          description: Chance of so great a difference at any point when there is none.
          type: float
          sample: 0.0079
        verdict:
          description: As above, for this point.
          type: str
          sample: faster
        why:
          description: The reason.
          type: str
    differences:
      description: What else differs, the most telling first, as C(what), C(name), C(a) and C(b).
      type: list
      elements: dict
    regression:
      description:
        - C(judged), C(passed), C(limits), C(failures) and C(reasons) why it cannot be judged. V(null) without
          O(max_regression_percent). What cannot be judged has not passed.
      type: dict
    notes:
      description: What a reader must know.
      type: list
      elements: str
expectation:
  description: V(null) without O(expectation).
  returned: success
  type: dict
  contains:
    status:
      description: V(ok), V(degraded) or V(unknown).
      type: str
      sample: degraded
    why:
      description: The reason, with figures.
      type: str
      sample: 41.0 output tok/s at concurrency 1 are 32 % of the expected 130.0
    points:
      description: Measured and expected output tokens a second of each point.
      type: list
      elements: dict
    checklist:
      description: Where to look when it is degraded, the most telling first, as C(name), C(seen) and C(remedy).
      type: list
      elements: dict
"""

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    comparison,
    comparison_units,
    expectation,
    record_selection,
    regression,
    result_store,
)

ARGUMENTS: dict[str, Any] = {
    "facts_dir": {"type": "path", "required": True},
    "a": {"type": "str", "default": "baseline"},
    "b": {"type": "str", "default": "latest"},
    "metric": {"type": "str", "default": "output_tok_s", "choices": list(comparison_units.METRICS)},
    "concurrency": {"type": "int"},
    "tie_percent": {"type": "float", "default": 1.0},
    "restarts": {"type": "bool", "default": False},
    "max_regression_percent": {"type": "dict", "default": {}},
    "expectation": {
        "type": "dict",
        "options": {
            "output_tok_s": {"type": "dict"},
            "roofline_share": {"type": "float"},
            "baseline": {"type": "bool", "default": False},
            "degraded_below_percent": {"type": "float", "default": expectation.DEGRADED_BELOW_PERCENT},
        },
    },
    "findings": {"type": "list", "elements": "dict", "default": []},
}


def look(params: dict[str, Any], now: str) -> dict[str, Any]:
    """What the module returns. Raises the errors of the cores, which say what to give."""
    document = result_store.read(params["facts_dir"]) or {}
    concurrency = params["concurrency"]
    a, b, missing = record_selection.both(document, params["a"], params["b"], concurrency)
    found = comparison.compare(
        a,
        b,
        kind=comparison.BASELINE if "baseline" in (params["a"], params["b"]) else comparison.AB,
        metric=params["metric"],
        concurrency=concurrency,
        tie_percent=params["tie_percent"],
        restarts=params["restarts"],
        recorded_at=now,
    )
    if missing:
        found["why"] = f"cannot be compared: {'; '.join(missing)}"
    found["regression"] = regression.judge(
        a, b, params["max_regression_percent"], concurrency=concurrency, restarts=params["restarts"]
    )
    return {"comparison": found, "expectation": expected(params, a, b)}


def expected(params: dict[str, Any], a: list[Any], b: list[Any]) -> dict[str, Any] | None:
    """The newest run of b against what is expected of it; None when nothing is."""
    given = params["expectation"]
    if given is None:
        return None
    return expectation.judge(
        b[-1] if b else {},
        tok_s=given["output_tok_s"],
        roofline_share=given["roofline_share"],
        baseline=a[-1] if a and given["baseline"] else None,
        degraded_below_percent=given["degraded_below_percent"],
        findings=params["findings"],
    )


def main() -> None:
    """Compare what is on record; never changes anything."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    try:
        module.exit_json(changed=False, **look(module.params, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())))
    except result_store.CorruptError as error:
        module.fail_json(msg=f"{error}; repair it, or measure anew: the next benchmark sets it aside")
    except result_store.StoreError as error:
        module.fail_json(msg=str(error), **error.facts)
    except (comparison.ComparisonError, regression.RegressionError, expectation.ExpectationError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
