# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the configurations of an experiment become releases with, before any of them is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml
from experimenting import BASE_ARGS, CHECKOUT, VERSION, Site

STAGE = """
- hosts: sglang
  gather_facts: false
  tasks:
    - name: Begin
      tokforge.sglang.experiment:
        root: "{{ sglang_root }}"
        action: begin
        kind: sweep
        request: {candidates: "{{ candidates }}"}
        base: "{{ base }}"
        env_pass_on: "{{ sglang_server_env_pass_on }}"
        original_release: 1
      register: begun
    - name: Write their releases
      ansible.builtin.include_role:
        name: tokforge.sglang.sglang_experiment
        tasks_from: stage
      vars:
        __sglang_experiment: "{{ begun }}"
        __sglang_experiment_base: "{{ base }}"
        __sglang_experiment_environment: "{{ sglang_environment }}"
      loop: "{{ begun.candidates }}"
      loop_control:
        loop_var: __sglang_experiment_candidate
"""


def test_servers_of_an_experiment_keep_what_the_machine_sets_and_none_varies_it(tmp_path: Path) -> None:
    site = Site(tmp_path, BASE_ARGS)
    site.play.write_text(STAGE)
    variables = site.variables(
        sglang_lane="cpu",
        sglang_model="builtin:tiny-moe",
        sglang_min_free_bytes=0,
        sglang_environment={"id": "one", "python": str(site.root / "venvs/one/bin/python"), "sglang_version": VERSION},
        sglang_model_info={"path": "/m", "served_name": "tiny", "random_weights": False, "revision": ""},
        sglang_server_env_pass_on=["NCCL_NVLS_ENABLE"],
        base={"sglang_version": VERSION, "backend": "auto", "autotune_gate": "closed", "args": {}, "env": {}},
        candidates=[
            {"name": "other", "env": {"NCCL_DEBUG": "INFO"}},
            {"name": "multicast", "env": {"NCCL_NVLS_ENABLE": "1"}},
        ],
    )
    # Not with -e, which stands above what an experiment sets.
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(yaml.safe_dump({"sglang": {"hosts": {"localhost": variables}}}))
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "-i", str(inventory), str(site.play)],
        capture_output=True,
        text=True,
        cwd=CHECKOUT,
        env={**os.environ, "NCCL_NVLS_ENABLE": "0"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    noted = {one["name"]: one for one in site.experiment()["candidates"]}
    released = {name: one["release"] for name, one in noted.items() if one["release"]}
    assert sorted(released) == ["original", "other"], yaml.safe_dump(noted)
    kept = ("NCCL_NVLS_ENABLE", "NCCL_DEBUG")
    for name, expected in (("original", ["0", None]), ("other", ["0", "INFO"])):
        launch = json.loads((site.root / f"releases/{released[name]}/launch.json").read_text())
        assert [launch["env"].get(one) for one in kept] == expected
    assert "NCCL_NVLS_ENABLE is in sglang_server_env too" in noted["multicast"]["reason"]
