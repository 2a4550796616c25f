# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""report.yml over hosts with facts, without, with damaged ones, and one that cannot be reached."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "report"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def play(folder: Path, *options: str) -> str:
    """Run report.yml for the hosts below a folder; the play must succeed."""
    hosts = {path.name: {"sglang_facts_dir": str(path)} for path in sorted(folder.glob("*-box"))}
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    # Nothing listens on the discard port of this machine.
    gone = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9, "ansible_ssh_retries": 0}
    inventory = {"sglang": {"hosts": {**{n: {**local, **v} for n, v in hosts.items()}, "gone-box": gone}}}
    inventory["sglang"]["hosts"]["gone-box"]["sglang_root"] = "/nonexistent"
    (folder / "hosts.json").write_text(json.dumps(inventory))
    command = [shutil.which("ansible-playbook") or "ansible-playbook", "report.yml", "-i", str(folder / "hosts.json")]
    command += ["-e", f"sglang_report_dir={folder / 'out'}", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fact directories of five hosts."""
    made = tmp_path_factory.mktemp("report")
    for name in ("gpu-box", "cpu-box"):
        (made / name).mkdir()
        shutil.copy(FIXTURES / f"{name}.json", made / name / "sglang.fact")
    (made / "damaged-box").mkdir()
    (made / "damaged-box" / "sglang.fact").write_text('{"schema_version": 2,')
    (made / "fresh-box").mkdir()
    return made


def test_one_report_of_all_hosts_whatever_state_they_are_in(folder: Path) -> None:
    told = play(folder, "--check")
    assert "changed: [localhost]" in told and not (folder / "out").exists()
    first = play(folder)
    assert "changed: [localhost]" in first
    again = play(folder)
    assert "changed: [localhost]" not in again and "ok: [localhost]" in again
    root = ET.parse(folder / "out" / "report.xml").getroot()  # noqa: S314
    outcomes = {suite.get("name"): {child.tag for case in suite for child in case} for suite in root}
    assert outcomes == {
        "cpu-box": {"system-out", "failure"},
        "damaged-box": {"error"},
        "fresh-box": {"skipped"},
        "gpu-box": {"system-out", "failure"},
        "gone-box": {"error"},
    }
    text = (folder / "out" / "report.md").read_text()
    assert "it could not be reached" in text and "it is not JSON" in text and "no benchmark is on record" in text


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed, the page is not looked at in a browser")
def test_page_is_drawn_by_a_browser(folder: Path, tmp_path: Path) -> None:
    play(folder)
    picture, page = tmp_path / "page.png", (folder / "out" / "report.html").as_uri()
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command = [str(CHROMIUM), *options, "--window-size=420,2000", f"--screenshot={picture}", page]
    subprocess.run(command, capture_output=True, timeout=60, check=True)
    # One colour would be a few kB.
    assert picture.stat().st_size > 50_000
