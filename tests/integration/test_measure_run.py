# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""benchmark.yml over a server that runs: what it writes is checked before it is measured, as a rollout does."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError

from experimenting import BASE_ARGS, CHECKOUT, FAKE, Site, changed

QUICK: dict[str, Any] = {
    "sglang_benchmark_concurrency": [4],
    "sglang_benchmark_num_prompts_factor": 1,
    "sglang_benchmark_repetitions": 1,
}


@contextlib.contextmanager
def serving(site: Site, *faults: str) -> Iterator[None]:
    """A server on the site's port that writes sound sentences, or what its faults make of them."""
    command = [sys.executable, str(FAKE), "--port", str(site.port), "--token-s", "0.005", *faults]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                with contextlib.suppress(URLError):
                    if site.serves():
                        break
                time.sleep(0.05)
            yield
        finally:
            server.terminate()


def test_fluent_garbage_is_recorded_as_invalid_and_sound_text_is_kept_for_later_plays(tmp_path: Path) -> None:
    site = Site(tmp_path, BASE_ARGS)
    # Every answer reads well, and no two to the same prompt are alike.
    with serving(site, "--changing"):
        code, output = site.run(playbook="benchmark.yml", **QUICK)
    assert code == 2, output
    bad = site.facts()["history"][-1]
    assert (bad["valid"], bad["output_check"]["passed"]) == (False, False)
    assert any(reason.startswith("output check failed: ") for reason in bad["reasons"]), bad["reasons"]
    # It is nothing that later ones are held against.
    assert [(one["baseline"], one["best"]) for one in site.facts()["results"]] == [(None, [])]
    cache = tmp_path / "cache"
    kept = {"ANSIBLE_CACHE_PLUGIN": "ansible.builtin.jsonfile", "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(cache)}
    with serving(site):
        before = site.facts()
        code, output = site.run("--check", playbook="benchmark.yml", **QUICK)
        assert (code, changed(output), site.facts()) == (0, 1, before), output
        code, output = site.run(playbook="benchmark.yml", env=kept, sglang_benchmark_cacheable=True, **QUICK)
    assert code == 0, output
    good = site.facts()["latest"]
    assert good["valid"] and good["output_check"]["passed"] is True
    assert "4 at once" in good["output_check"]["reason"]
    # A later play on another day finds it there, without asking the host.
    command = [sys.executable, "-m", "ansible", "adhoc", "-i", str(site.inventory), "localhost"]
    command += ["-m", "ansible.builtin.debug", "-a", "var=ansible_facts.sglang_benchmark_result.run_id"]
    later = subprocess.run(
        command, env={**os.environ, **kept}, cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert f"sglang_benchmark_result.run_id: {good['id']}" in later.stdout, later.stdout
