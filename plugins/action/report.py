# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the report of all hosts on the controller. Hosts are not asked: what they have was read before."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    report_data,
    report_junit,
    report_markdown,
    report_prometheus,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic
from ansible_collections.tokforge.sglang.plugins.module_utils.report_types import ReportError
from ansible_collections.tokforge.sglang.plugins.plugin_utils import report_html

OPTIONS: dict[str, dict[str, Any]] = {
    "dir": {"type": "str", "required": True},
    "facts": {"type": "dict", "required": True},
    "prometheus": {"type": "str"},
}
# A plot in a difference is thousands of lines that nobody reads.
_PLOT = re.compile(r"(<svg [^>]*>).*?</svg>", re.DOTALL)


class ActionModule(ActionBase):
    """Make the four files and write those that differ."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        given = ArgumentSpecValidator(OPTIONS).validate(dict(self._task.args))
        options = given.validated_parameters
        problems = given.error_messages or (
            [] if options["dir"] else ["dir is empty: name a directory of the controller"]
        )
        if problems:
            return {**result, "failed": True, "msg": "; ".join(problems)}
        folder = os.path.abspath(os.path.expanduser(options["dir"]))
        prometheus = os.path.abspath(
            os.path.expanduser(options["prometheus"] or os.path.join(folder, "tokforge_sglang.prom"))
        )
        if prometheus in {os.path.join(folder, name) for name in ("report.html", "report.md", "report.xml")}:
            return {**result, "failed": True, "msg": f"prometheus is {prometheus}, which is another file of the report"}
        for host, answer in options["facts"].items():
            if isinstance(answer, Mapping) and answer.get("unreachable"):
                self._display.warning(f"the report lacks {host}, which could not be reached: {answer.get('msg')}")
        report = report_data.make({host: found(answer) for host, answer in options["facts"].items()})
        try:
            files = {
                os.path.join(folder, "report.html"): report_html.render(report),
                os.path.join(folder, "report.md"): report_markdown.render(report),
                os.path.join(folder, "report.xml"): report_junit.render(report),
                prometheus: report_prometheus.render(report),
            }
            changes = [path for path, text in files.items() if _content(path) != text]
            diff = [_difference(path, files[path]) for path in changes]
            if not self._task.check_mode:
                for path in changes:
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    write_atomic(path, files[path].encode())
        except ReportError as error:
            return {**result, "failed": True, "msg": str(error)}
        except OSError as error:
            where = error.filename or folder
            msg = f"cannot write the report to {where}: {error.strerror}; give places that can be written"
            return {**result, "failed": True, "msg": msg}
        return {
            **result,
            "changed": bool(changes),
            "diff": diff,
            "files": list(files),
            "hosts": {host.name: {"state": host.state, "why": host.why} for host in report.hosts},
            "recorded_at": report.recorded_at,
            # Not beside the others: `skipped` would make the task one that was skipped.
            "cases": report_junit.counts(report_junit.cases(report)),
        }


def found(answer: Any) -> Mapping[str, Any] | str | None:
    """What the task that read a host's fact file found: a document, None for no file, or why nobody knows."""
    if not isinstance(answer, Mapping) or not answer:
        return "it was not asked: it was left out, or a task before failed"
    if answer.get("unreachable"):
        # The connection's own words differ from run to run, and the report must not.
        return "it could not be reached"
    stat = answer.get("stat")
    if answer.get("skipped") or (isinstance(stat, Mapping) and not stat.get("exists")):
        return None
    if "content" not in answer:
        return f"its fact file could not be read: {answer.get('msg') or 'no reason was given'}"
    where = str(answer.get("source") or "its fact file")
    try:
        return report_data.document_of(base64.b64decode(str(answer["content"])), where)
    except binascii.Error as error:
        return f"its fact file could not be read: {error}"
    except ReportError as error:
        return str(error)


def _content(path: str) -> str | None:
    """What a file holds now, None when there is none; what is no text is different from any text."""
    try:
        with open(path, "rb") as stream:
            return stream.read().decode(errors="replace")
    except FileNotFoundError:
        return None


def _difference(path: str, after: str) -> dict[str, str]:
    before = _content(path)
    return {
        "before_header": path if before is not None else "/dev/null",
        "after_header": path,
        "before": _PLOT.sub(r"\1</svg>", before or ""),
        "after": _PLOT.sub(r"\1</svg>", after),
    }
