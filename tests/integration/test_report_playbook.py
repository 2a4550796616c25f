# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""report.yml over hosts with facts, without, with damaged ones, and one that cannot be reached."""

from __future__ import annotations

import html
import json
import re
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


@pytest.fixture(scope="module")
def written(folder: Path) -> Path:
    """The directory with the report of all of them."""
    play(folder)
    return folder / "out"


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


#: Run in the page, which holds no script of its own: what a person would see there goes into the title around it.
LOOK = """
<script>
addEventListener("load", () => {
  const named = (svg) => (svg.getAttribute("aria-labelledby") || "").split(" ").map(
    (id) => document.getElementById(id)?.textContent.trim()).filter(Boolean).join(" ");
  const plots = [...document.querySelectorAll("svg")];
  parent.document.title += JSON.stringify({
    width: innerWidth,
    sideways: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    ground: getComputedStyle(document.body).backgroundColor,
    ink: getComputedStyle(document.body).color,
    plots: plots.length,
    named: plots.filter(named).length,
    wide: plots.filter((svg) => svg.getBoundingClientRect().right > innerWidth).length,
  }) + "|";
});
</script>
"""
WIDTHS = (1280, 420)


def contrast(ground: str, ink: str) -> float:
    """The contrast of two colours, `rgb(r, g, b)`, by the formula of WCAG 2.1 (relative luminance)."""
    shares = []
    for colour in (ground, ink):
        parts = [int(part) / 255 for part in re.findall(r"[0-9]+", colour)[:3]]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        shares.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(shares) + 0.05) / (min(shares) + 0.05)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed, the page is not looked at in a browser")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_is_legible_in_a_browser(written: Path, tmp_path: Path, scheme: str) -> None:
    inner = html.escape((written / "report.html").read_text().replace("</body>", f"{LOOK}</body>"))
    # No window is as narrow as a telephone, but a frame is.
    frames = "".join(f'<iframe style="width:{width}px;height:9000px" srcdoc="{inner}"></iframe>' for width in WIDTHS)
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><title></title>{frames}")
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    # Blink's numbers for prefers-color-scheme.
    options += [f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}", "--window-size=1800,9000"]
    command = [str(CHROMIUM), *options, "--dump-dom", page.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    title = re.search(r"<title>(.*?)</title>", dom, re.DOTALL)
    assert title is not None
    found = [json.loads(line) for line in html.unescape(title[1]).strip("| ").split("|")]
    assert sorted(seen["width"] for seen in found) == sorted(WIDTHS)
    for seen in found:
        assert (seen["sideways"], seen["wide"]) == (0, 0)
        assert seen["plots"] == seen["named"] > 5
        # WCAG 2.1, 1.4.6.
        assert contrast(seen["ground"], seen["ink"]) > 7
        darkest = min(int(part) for part in re.findall(r"[0-9]+", seen["ground"])[:3])
        assert (darkest > 200) == (scheme == "light")
