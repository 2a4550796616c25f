# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""preflight.yml as a person runs it, against what nvidia-smi printed elsewhere: table, JSON, exit code, time."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
FIXTURES = CHECKOUT / "tests" / "fixtures"
NVFP4 = {"quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["*self_attn*", "lm_head"]}}
#: Seconds that the checks of one host may take.
LIMIT_S = 5.0
# What the recording printed for each question, and for a driver that went away its error.
NVIDIA_SMI = """#!/bin/sh
case "$*" in
  *topo*-m*) cat "{folder}/topo.txt" ;;
  *topo*) cat "{folder}/p2p.txt" ;;
  *compute_cap*) cat "{folder}/capabilities.csv" ;;
  *) cat "{folder}/smi.xml" ;;
esac
exit {code}
"""


def eight(recorded: str) -> str:
    """The recording of one GPU as one of eight of its kind."""
    head, tail = recorded.split("<gpu id=", 1)
    body, end = tail.rsplit("</gpu>", 1)
    one = f"<gpu id={body}</gpu>"
    [address] = set(re.findall(r"<gpu id=\"([0-9A-Fa-f:.]+)\"", one))
    bus = address.split(":")[1]
    copies = [one.replace(f":{bus}:", f":{16 + index:02X}:").replace("GPU-", f"GPU-{index}") for index in range(8)]
    return re.sub(r"<attached_gpus>\d+<", "<attached_gpus>8<", head) + "".join(copies) + end


@dataclass(frozen=True)
class Doctor:
    """One run: exit code, what was printed, and the report of each host."""

    code: int
    output: str
    report: dict[str, Any]

    def failing(self, host: str) -> set[str]:
        return {finding["check"] for finding in self.report[host]["findings"] if finding["level"] == "fail"}

    def told(self, host: str, check: str) -> list[str]:
        return [finding["message"] for finding in self.report[host]["findings"] if finding["check"] == check]


def machine(folder: Path, smi: str, code: int = 0) -> dict[str, str]:
    """An environment in which nvidia-smi prints this."""
    folder.mkdir()
    (folder / "smi.xml").write_text(smi)
    for name, source in (("topo.txt", "topo-m"), ("p2p.txt", "topo-p2p-r")):
        (folder / name).write_text((FIXTURES / f"gpu/590-pro6000x8-{source}.txt").read_text())
    (folder / "capabilities.csv").write_text("")
    program = folder / "nvidia-smi"
    program.write_text(NVIDIA_SMI.format(folder=folder, code=code))
    program.chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def run(folder: Path, hosts: Mapping[str, Mapping[str, Any]], env: Mapping[str, str], *options: str) -> Doctor:
    shared = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    listed = {name: {**shared, "sglang_root": str(folder / "root"), **own} for name, own in hosts.items()}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"sglang": {"hosts": listed}}))
    report = folder / "report.json"
    command = [
        str(Path(sys.executable).with_name("ansible-playbook")),
        "-i",
        str(folder / "hosts.yml"),
        "preflight.yml",
    ]
    done = subprocess.run(
        [*command, "-e", f"sglang_preflight_json={report}", *options],
        capture_output=True,
        text=True,
        cwd=CHECKOUT,
        env={**os.environ, **env},
        check=False,
    )
    return Doctor(done.returncode, done.stdout + done.stderr, json.loads(report.read_text()) if report.exists() else {})


@pytest.fixture(scope="module")
def glm(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The configuration of GLM-5 in NVFP4, with random weights."""
    path = tmp_path_factory.mktemp("glm")
    (path / "config.json").write_bytes((FIXTURES / "models/glm-5.json").read_bytes())
    (path / "hf_quant_config.json").write_text(json.dumps(NVFP4))
    return str(path)


@pytest.fixture(scope="module")
def blackwell(tmp_path_factory: pytest.TempPathFactory, glm: str) -> Doctor:
    """The headline request on hosts with eight RTX PRO 6000, one of them asked otherwise, one not to be reached."""
    folder = tmp_path_factory.mktemp("blackwell")
    recorded = (FIXTURES / "gpu/590-pro6000.xml").read_text()
    env = machine(folder / "smi", eight(recorded))
    common = {
        "model": glm,
        "sglang_model_random_weights": True,
        "sglang_lane": "auto",
        "sglang_server_args": {"tp-size": 8, "kv-cache-dtype": "bf16", "mem-fraction-static": 0.9},
        "sglang_port": 31998,
    }
    hosts = {
        "auto": {**common, "sglang_version": "auto"},
        "newest": {**common, "sglang_version": "0.5.23"},
        "forced": {**common, "sglang_version": "0.5.23", "force_backend": True},
        "gone": {**common, "ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1},
    }
    return run(folder, hosts, env, "-e", "backend=flashinfer_cutedsl")


def test_headline_command_takes_the_release_in_which_the_backend_runs(blackwell: Doctor) -> None:
    choice = blackwell.report["auto"]["choice"]
    assert (choice["version"], choice["lane"]) == ("0.5.10.post1", "cuda12")
    assert "0.5.23: unsupported" in choice["reason"] and "cutlass_moe_fp4" in choice["reason"]
    assert blackwell.report["auto"]["backend"]["verdict"] == "supported_but"
    assert blackwell.failing("auto") <= {"toolkit"}, blackwell.report["auto"]
    assert blackwell.told("auto", "gpu")[0].startswith("8 x NVIDIA RTX PRO 6000 Blackwell Server Edition")


def test_refusal_names_a_command_that_works_here(blackwell: Doctor) -> None:
    assert "backend" in blackwell.failing("newest")
    [message] = [told for told in blackwell.told("newest", "backend") if "Got SM120" in told]
    assert "ansible-playbook deploy.yml -e backend=flashinfer_cutlass" in message


def test_forced_backend_is_a_warning_and_on_record(blackwell: Doctor) -> None:
    assert "backend" not in blackwell.failing("forced")
    assert blackwell.report["forced"]["backend"]["forced"] is True


def test_host_that_cannot_be_reached_is_in_the_report(blackwell: Doctor) -> None:
    gone = blackwell.report["gone"]
    assert (gone["verdict"], "could not be reached" in gone["reason"]) == ("not_checked", True)
    assert blackwell.code != 0


def test_table_has_a_remedy_below_each_failure(blackwell: Doctor) -> None:
    table = blackwell.output
    assert re.search(r"newest: [1-9]\d* failed, \d+ to look at, \d+ well", table)
    assert "-> add -e force_backend=true to try it all the same" in table
    assert "newest is not fit for this rollout" in table


def test_nothing_is_changed(blackwell: Doctor) -> None:
    assert "changed=0" in blackwell.output and not re.search(r"changed=[1-9]", blackwell.output)


def test_report_of_an_earlier_run_does_not_stay(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text('{"old": {"verdict": "ok"}}')
    gone = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    found = run(tmp_path, {"gone": gone}, {})
    assert (found.code, set(found.report), found.report["gone"]["verdict"]) == (4, {"gone"}, "not_checked")


def test_report_without_a_directory_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    found = run(tmp_path, {"box": {}}, {}, "-e", f"sglang_preflight_json={tmp_path}/none/report.json")
    assert found.code == 2 and found.report == {}
    assert f"{tmp_path}/none is no directory on the controller" in " ".join(found.output.split())
    assert "Look at everything" not in found.output


def test_driver_that_went_away_is_told_at_once(tmp_path: Path, glm: str) -> None:
    gone = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.82\n"
    env = machine(tmp_path / "smi", gone, 18)
    asked = {"model": glm, "sglang_model_random_weights": True, "sglang_lane": "cuda13", "sglang_port": 31998}
    found = run(tmp_path, {"box": asked}, env)
    assert found.code == 2
    assert "gpu" in found.failing("box")
    assert any("580.82" in message for message in found.told("box", "gpu"))
    assert found.report["box"]["elapsed_s"] < LIMIT_S
