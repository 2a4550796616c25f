# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write docs/example-report.html, the report of the runs that were recorded on a real GPU.

python tools/example_report.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.tokforge.sglang.plugins.module_utils import comparison, report_data, result_document
from ansible_collections.tokforge.sglang.plugins.plugin_utils import report_html

FACTS = ROOT / "tests" / "fixtures" / "facts"
PAGE = ROOT / "docs" / "example-report.html"


def document(history: list[dict[str, Any]]) -> dict[str, Any]:
    """The fact file that these runs leave: a ladder, and the trials of one A/B run of the autotune gate."""
    grown = result_document.empty()
    sides: dict[str, list[dict[str, Any]]] = {"A": [], "B": []}
    for record in history:
        grown = result_document.append(grown, record)
        if record["experiment"]:
            sides[record["experiment"]["candidate"]].append(record)
    trials = [*sides["A"], *sides["B"]]
    compared = comparison.compare(
        sides["A"],
        sides["B"],
        kind=comparison.AB,
        restarts=True,
        labels=("gate closed", "gate open"),
        recorded_at=max(record["recorded_at"] for record in trials),
    )
    return result_document.add(grown, "comparisons", {**compared, "id": trials[0]["experiment"]["id"]})


def main() -> None:
    recorded, explained = (json.loads((FACTS / name).read_text()) for name in ("h200.json", "h200-explanation.json"))
    found = {**document(recorded["history"]), "explanations": explained["explanations"]}
    PAGE.write_text(report_html.render(report_data.make({"gpu-box-1": found})), encoding="utf-8")


if __name__ == "__main__":
    main()
