# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run as JUnit XML, which CI systems show as tests: one case for each task on each host, one for the end."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from tokforge_rollout.evidence import Evidence
from tokforge_rollout.outcome import Outcome, Verdict, fatal_tasks

# What XML 1.0 cannot hold, not even escaped.
NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
FAILED_BY_TASKS = (Outcome.FAILED, Outcome.ROLLED_BACK, Outcome.UNREACHABLE, Outcome.LOCKED, Outcome.NO_HOST)


def render(playbook: str, evidence: Evidence, verdict: Verdict) -> str:
    """The XML text. A task that failed and was rescued is no failure; what it said is kept as output.

    It is never green when the run was not ok: the case `outcome` fails when no task tells why.
    """
    fatal = {id(task) for task in fatal_tasks(evidence)}
    suite = ET.Element("testsuite", name=f"tokforge.sglang.{playbook}")
    failures = 0
    for task in evidence.tasks:
        if task.skipped:
            continue
        case = _case(suite, task.host, f"{task.play}: {task.task}", task.seconds)
        if id(task) in fatal:
            failures += 1
            _text(case, "failure", task.message, message=_first_line(task.message), type=task.state)
        elif task.message:
            _text(case, "system-out", f"{task.state}, and the play went on: {task.message}")
    end = _case(suite, "tokforge-rollout", "outcome", 0.0)
    told = failures > 0 and verdict.outcome in FAILED_BY_TASKS
    if verdict.outcome is not Outcome.OK and not told:
        failures += 1
        _text(end, "failure", verdict.reason, message=verdict.reason, type=verdict.outcome.label)
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(failures))
    suite.set("errors", "0")
    suite.set("time", f"{sum(task.seconds for task in evidence.tasks):.3f}")
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _case(suite: ET.Element, group: str, name: str, seconds: float) -> ET.Element:
    attributes = {"classname": NOT_XML.sub("?", group), "name": NOT_XML.sub("?", name), "time": f"{seconds:.3f}"}
    return ET.SubElement(suite, "testcase", attributes)


def _text(case: ET.Element, tag: str, text: str, **attributes: str) -> None:
    clean = {key: NOT_XML.sub("?", value) for key, value in attributes.items()}
    ET.SubElement(case, tag, clean).text = NOT_XML.sub("?", text)


def _first_line(text: str) -> str:
    return text.splitlines()[0][:200] if text else ""
