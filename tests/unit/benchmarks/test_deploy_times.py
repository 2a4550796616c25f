# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The measurement of deploys: what counts as unchanged, and what the page says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "deploy_times.py"


@pytest.fixture(scope="module")
def deploy_times() -> ModuleType:
    spec = importlib.util.spec_from_file_location("deploy_times", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["deploy_times"] = module
    spec.loader.exec_module(module)
    return module


def recap(changed: int, failed: int = 0) -> str:
    return f"PLAY RECAP ***\nlocalhost   : ok=9    changed={changed}    unreachable=0    failed={failed}    skipped=1\n"


def test_one_change_on_one_host_is_a_change(deploy_times: ModuleType) -> None:
    assert deploy_times.unchanged(recap(0))
    assert not deploy_times.unchanged(recap(0) + recap(1).splitlines()[1] + "\n")
    assert not deploy_times.unchanged(recap(0, failed=1))


def test_no_recap_is_not_unchanged(deploy_times: ModuleType) -> None:
    assert not deploy_times.unchanged("skipping: no hosts matched\n")


def test_ratio_is_of_medians(deploy_times: ModuleType) -> None:
    times = deploy_times.Times(cold_s=100.0, no_op_s=[10.0, 12.0, 50.0], stock_s=[4.0, 3.0, 5.0])
    assert times.ratio == 3.0
    page = deploy_times.report(times, {"processor": "P"})
    assert "**3.00** times" in page
    assert "| deploy that changes nothing | 3 | 12.0 | 10.0 | 50.0 |" in page
    assert "| processor | P |" in page


def test_copy_holds_what_a_clone_would_and_no_more(deploy_times: ModuleType, tmp_path: Path) -> None:
    deploy_times.copy_checkout(tmp_path)
    assert (tmp_path / "Makefile").exists()
    assert (tmp_path / "collections" / "ansible_collections" / "tokforge" / "sglang").is_symlink()
    assert not (tmp_path / ".venv").exists()
    assert not (tmp_path / ".tokforge").exists()


def test_new_figures_of_deploys_leave_the_sections_of_others(deploy_times: ModuleType) -> None:
    page = "# Old\n\nold text\n\n## Gate\n\ntable\n\n## GPU\n\nby hand\n"
    assert deploy_times.with_head(page, "# New\n\nnew text\n") == (
        "# New\n\nnew text\n\n## Gate\n\ntable\n\n## GPU\n\nby hand\n"
    )
    assert deploy_times.with_head("# Old\n", "# New\n") == "# New\n"
    assert deploy_times.with_head("", "# New\n") == "# New\n"
