# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report as JUnit XML: what a CI job shows as tests.

A test case is one concurrency of the newest run of a configuration on a host, a candidate of the newest sweep that
failed, or its winner that does not serve. A case failed when its figures may not be believed or the regression gate
failed, and is skipped when the run cannot be compared. A host that could not be read is one case with an error, a host
without results one that is skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from xml.sax.saxutils import escape, quoteattr

from ansible_collections.tokforge.sglang.plugins.module_utils import report_types as types
from ansible_collections.tokforge.sglang.plugins.module_utils import sweep_choice
from ansible_collections.tokforge.sglang.plugins.module_utils.report_tables import rate

PASSED, FAILURE, ERROR, SKIPPED = "passed", "failure", "error", "skipped"


@dataclass(frozen=True)
class Case:
    """One test case. `kind` tells for a failure what failed: invalid, regression, sweep."""

    suite: str
    group: str
    name: str
    outcome: str = PASSED
    kind: str = ""
    message: str = ""


def cases(report: types.Report) -> tuple[Case, ...]:
    """All test cases, in the order of the hosts."""
    return tuple(_distinct(case for host in report.hosts for case in _of_host(host)))


def _distinct(found: Iterable[Case]) -> Iterator[Case]:
    """CI takes cases of one name for one test, and long names are cut: those that came out alike are counted."""
    seen: Counter[tuple[str, str, str]] = Counter()
    for case in found:
        key = (case.suite, case.group, case.name)
        seen[key] += 1
        yield case if seen[key] == 1 else replace(case, name=f"{case.name} ({seen[key]})")


def _of_host(host: types.Host) -> Iterator[Case]:
    if host.state == types.UNREADABLE:
        yield Case(host.name, "facts", "read the facts", ERROR, "unreadable", host.why)
    elif host.state == types.EMPTY:
        yield Case(host.name, "facts", "read the facts", SKIPPED, "empty", host.why)
    for one in host.configurations:
        group = f"{one.latest.workload.words}, {one.label}"
        for point in one.latest.points:
            yield _of_point(host.name, group, one, point)
        if not one.latest.points:
            message = "; ".join(one.latest.reasons) or "the run has no points"
            yield Case(host.name, group, "run", FAILURE, "invalid", message)
    # What failed in an older sweep would fail the job for ever.
    for sweep in host.sweeps[-1:]:
        if sweep.verdict == sweep_choice.DOES_NOT_SERVE:
            yield Case(host.name, f"sweep {sweep.id}", "the winner serves", FAILURE, "sweep", sweep.why)
        for candidate in sweep.candidates:
            if candidate.state in ("failed", "invalid"):
                message = candidate.reason or "no reason is on record"
                yield Case(host.name, f"sweep {sweep.id}", candidate.name, FAILURE, "sweep", message)


def _of_point(host: str, group: str, one: types.Configuration, point: types.Point) -> Case:
    name = f"concurrency {point.concurrency}"
    run, found = one.latest, one.comparison
    if not run.valid or not point.valid:
        reasons = point.reasons or run.reasons or ("no reason is on record",)
        return Case(host, group, name, FAILURE, "invalid", "; ".join(reasons))
    if found is not None and found.failed_gate and _concerns(found, point):
        told = found.regression.failures if found.regression else ()
        return Case(host, group, name, FAILURE, "regression", "; ".join(told) or found.why)
    if found is not None and found.verdict == types.NOT_COMPARABLE:
        return Case(host, group, name, SKIPPED, "not_comparable", found.why)
    return Case(host, group, name, message=f"{rate(point.output_tok_s.median)} output tok/s")


def _concerns(found: types.Comparison, point: types.Point) -> bool:
    """Whether the gate's failure is one of this point: of those that are slower, and of all when none is."""
    slower = {one.concurrency for one in found.points if one.verdict == types.SLOWER}
    return not slower or point.concurrency in slower


def render(report: types.Report) -> str:
    """The XML text, with a newline at its end."""
    found = cases(report)
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f'<testsuites name="tokforge.sglang"{_counts(found)}>']
    for host in report.hosts:
        own = [case for case in found if case.suite == host.name]
        lines.append(f"  <testsuite name={quoteattr(host.name)}{_counts(own)}>")
        lines += [line for case in own for line in _case(case)]
        lines.append("  </testsuite>")
    return "\n".join([*lines, "</testsuites>"]) + "\n"


def counts(found: tuple[Case, ...] | list[Case]) -> dict[str, int]:
    """How many test cases there are, and how many of each outcome that is none of success."""
    outcomes = [case.outcome for case in found]
    return {
        "tests": len(outcomes),
        "failures": outcomes.count(FAILURE),
        "errors": outcomes.count(ERROR),
        "skipped": outcomes.count(SKIPPED),
    }


def _counts(found: tuple[Case, ...] | list[Case]) -> str:
    return "".join(f' {name}="{count}"' for name, count in counts(found).items())


def _case(case: Case) -> Iterator[str]:
    head = f"    <testcase classname={quoteattr(f'{case.suite}.{case.group}')} name={quoteattr(case.name)}"
    if case.outcome == PASSED:
        yield f"{head}>"
        yield f"      <system-out>{escape(case.message)}</system-out>"
    elif case.outcome == SKIPPED:
        yield f"{head}>"
        yield f"      <skipped message={quoteattr(case.message)}/>"
    else:
        yield f"{head}>"
        attributes = f"type={quoteattr(case.kind)} message={quoteattr(case.message)}"
        yield f"      <{case.outcome} {attributes}>{escape(case.message)}</{case.outcome}>"
    yield "    </testcase>"
