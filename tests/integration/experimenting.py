# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Experiments with the role's own tasks over small servers whose speed is real: they make their clients wait.

A server that the arguments make slow lets one request in at a time, and what measures it sends real requests and reads
the clock. That takes a second where SGLang takes a minute; the same experiments with SGLang are in test_rollout.py.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import managers, release_store, result_store, service

CHECKOUT = Path(__file__).resolve().parents[2]
FAKE = Path(__file__).with_name("fake_server.py")
SUPERVISORD = Path(sys.executable).with_name("supervisord")
RECORDING = CHECKOUT / "tests/unit/plugins/module_utils/fixtures/bench_serving/0.5.23.jsonl"
VERSION = "0.5.23"
# What serves before an experiment.
BASE_ARGS = {"max-running-requests": 2}

# What `python -m sglang.launch_server` finds, since a server works in its root.
LAUNCH_SERVER = f"""
import runpy
import sys


def value(name, default):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


words = ["--port", value("--port", ""), "--name", "tiny", "--token-s", value("--token-s", "0.04")]
words += ["--at-once", value("--max-running-requests", "64")]
if "--crash" in sys.argv:
    words += ["--exit-code", "1"]
if "--garbage" in sys.argv:
    words += ["--text", "!" * 32, "--token-s", "0.0"]
sys.argv = [{str(FAKE)!r}, *words]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

# What `python -m sglang.bench_serving` finds: it sends the requests that it is asked for and reads the clock.
BENCH_SERVING = f"""
import argparse, json, pathlib, statistics, time, urllib.request
from concurrent.futures import ThreadPoolExecutor

parser = argparse.ArgumentParser()
for name in ("base-url", "output-file"):
    parser.add_argument("--" + name)
for name in ("random-input-len", "random-output-len", "num-prompts", "max-concurrency", "warmup-requests"):
    parser.add_argument("--" + name, type=int)
asked, _rest = parser.parse_known_args()


def request(_number):
    body = json.dumps({{"text": "Hello", "sampling_params": {{"max_new_tokens": asked.random_output_len}}}}).encode()
    began = time.monotonic()
    headers = {{"Content-Type": "application/json"}}
    with urllib.request.urlopen(urllib.request.Request(asked.base_url + "/generate", body, headers)) as answer:
        text = json.load(answer)["text"]
    return time.monotonic() - began, text


with ThreadPoolExecutor(asked.max_concurrency) as pool:
    list(pool.map(request, range(asked.warmup_requests)))
    print("Starting main benchmark run...")
    began = time.monotonic()
    found = list(pool.map(request, range(asked.num_prompts)))
took = time.monotonic() - began
waited = [1000 * seconds for seconds, _text in found]
n, out, prompt = asked.num_prompts, asked.random_output_len, asked.random_input_len
result = json.loads(pathlib.Path({str(RECORDING)!r}).read_text())
result.update(
    completed=n, duration=took, total_input_tokens=prompt * n, total_output_tokens=out * n,
    input_lens=[prompt] * n, output_lens=[out] * n, errors=[""] * n, generated_texts=[text for _time, text in found],
    output_throughput=out * n / took, input_throughput=prompt * n / took, total_throughput=(out + prompt) * n / took,
    request_throughput=n / took, max_concurrency=asked.max_concurrency, concurrency=sum(waited) / 1000 / took,
    mean_ttft_ms=statistics.mean(waited), median_ttft_ms=statistics.median(waited), p99_ttft_ms=max(waited),
    random_input_len=prompt, random_output_len=out,
)
with open(asked.output_file, "a") as handle:
    handle.write(json.dumps(result) + "\\n")
"""

PLAY = """
- name: Experiment
  hosts: localhost
  gather_facts: true
  gather_subset: ["!all", "!min", "python", "platform", "service_mgr", "user"]
  tasks:
    # What can run on a host is judged and installed elsewhere: here each configuration has its release already.
    - name: Plan
      ansible.builtin.include_role:
        name: tokforge.sglang.sglang_experiment
        tasks_from: plan
        public: true
    - name: Give each its release, or the reason why it has none
      tokforge.sglang.experiment:
        root: "{{ sglang_root }}"
        action: staged
        id: "{{ __sglang_experiment.id }}"
        candidate: "{{ item.name }}"
        release: "{{ releases[item.name] | default(omit) }}"
        reason: "{{ omit if item.name in releases else '64 ranks need 64 GPUs, and the machine has 0' }}"
      loop: "{{ __sglang_experiment.candidates | rejectattr('staged') }}"
    # Planned anew, what was not supported would be looked at again.
    - name: Take what they are now for what was planned
      tokforge.sglang.experiment:
        root: "{{ sglang_root }}"
        action: next
        id: "{{ __sglang_experiment.id }}"
      register: given
      when: __sglang_experiment.candidates | rejectattr('staged') | length > 0
    - name: Keep it
      ansible.builtin.set_fact:
        __sglang_experiment: "{{ given }}"
      when: given is not skipped
    - name: Try
      ansible.builtin.include_role:
        name: tokforge.sglang.sglang_experiment
        tasks_from: carry_out
"""


class Site:
    """A root with one environment and a release that is current, and nothing that runs yet."""

    def __init__(self, directory: Path, args: dict[str, Any]) -> None:
        self.args = args
        self.root, self.play = directory / "r", directory / "play.yml"
        self.inventory = directory / "hosts"
        self.inventory.write_text("[sglang]\nlocalhost\n")
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        python = self.root / "venvs/one/bin/python"
        python.parent.mkdir(parents=True)
        python.symlink_to(sys.executable)
        (self.root / "venvs/one/environment.json").write_text(
            json.dumps({"schema_version": 1, "versions": {"sglang": VERSION}})
        )
        package = self.root / "sglang"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "launch_server.py").write_text(LAUNCH_SERVER)
        (package / "bench_serving.py").write_text(BENCH_SERVING)
        (self.root / "model").mkdir()
        self.play.write_text(PLAY)
        self.original = self.stage(args)
        release_store.switch(str(self.root), self.original)

    def stage(self, args: dict[str, Any]) -> int:
        """The release with these launch arguments; its number."""
        every = {"host": "127.0.0.1", "port": self.port, "device": "cpu", **args}
        argv = ["-m", "sglang.launch_server"]
        for name, value in every.items():
            argv += [f"--{name}"] if value is True else [f"--{name}", str(value)]
        model = {
            "path": str(self.root / "model"),
            "served_name": "tiny",
            "revision": None,
            "random_weights": False,
        }
        content = release_store.Content("one", VERSION, "auto", argv, {}, str(self.root), model, every)
        return release_store.stage(str(self.root), content, "2026-11-30T00:00:00Z").release

    def experiment(self) -> dict[str, Any]:
        """The only experiment as it is noted; nothing before it has begun."""
        files = list((self.root / "state/experiments").glob("*.json"))
        found: dict[str, Any] = json.loads(files[0].read_text()) if files else {}
        return found

    def trials(self) -> list[dict[str, Any]]:
        """The trials of the only experiment; none before it has begun."""
        found: list[dict[str, Any]] = self.experiment().get("trials", [])
        return found

    def variables(self, **more: Any) -> dict[str, Any]:
        return {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "sglang_root": str(self.root),
            "sglang_port": self.port,
            "sglang_service_manager": "supervisor",
            "sglang_supervisord": str(SUPERVISORD),
            "sglang_server_args": self.args,
            "sglang_stop_timeout_s": 2,
            "sglang_ready_output_tokens": 8,
            "sglang_ready_output_repeats": 2,
            "sglang_benchmark_concurrency": [8],
            "sglang_benchmark_input_len": 8,
            "sglang_benchmark_output_len": 8,
            "sglang_benchmark_num_prompts_factor": 2,
            "sglang_benchmark_env": {"PYTHONPATH": str(self.root)},
            "sglang_experiment_repetitions": 1,
            **more,
        }

    def start(
        self, *options: str, playbook: str | None = None, env: Mapping[str, str] | None = None, **more: Any
    ) -> subprocess.Popen[str]:
        """A play that has begun, in a process group of its own: that of this file, or a playbook of the collection."""
        command = [sys.executable, "-m", "ansible", "playbook", "-i", str(self.inventory)]
        play = self.play if playbook is None else CHECKOUT / "playbooks" / playbook
        command += ["-e", json.dumps(self.variables(**more)), *options, str(play)]
        environment = {**os.environ, "ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml"}
        environment.update(env or {})
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=CHECKOUT,
            env=environment,
            start_new_session=True,
        )

    def run(
        self, *options: str, playbook: str | None = None, env: Mapping[str, str] | None = None, **more: Any
    ) -> tuple[int, str]:
        """A play to its end: its exit status and what it printed."""
        process = self.start(*options, playbook=playbook, env=env, **more)
        output, _none = process.communicate(timeout=540)
        return process.returncode, output

    def current(self) -> int | None:
        return release_store.read_current(str(self.root))

    def facts(self) -> dict[str, Any]:
        found = result_store.read(str(self.root / "facts"))
        assert found is not None
        return found

    def arguments(self) -> dict[str, Any]:
        """The launch arguments of the release that is current, by name."""
        found: dict[str, Any] = json.loads((self.root / "current/manifest.json").read_text())["args"]
        return found

    def serves(self) -> bool:
        """Whether the server answers."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/models", timeout=10) as answer:
            return bool(answer.status == 200)

    def end(self) -> None:
        paths = service.Paths(str(self.root))
        manager = managers.make_manager("supervisor", paths, "sglang")
        service.carry_out(service.Service(paths, manager, "sglang", "127.0.0.1", self.port, 1), "absent", False, True)


def changed(output: str) -> int:
    """How many tasks the recap of a play counts as changed."""
    return int(re.findall(r"changed=(\d+)", output.rsplit("PLAY RECAP", 1)[1])[0])


def with_releases(site: Site, variables: dict[str, Any], **args: dict[str, Any]) -> dict[str, Any]:
    """The variables, and a release for each configuration by name."""
    releases = {name: site.stage({**BASE_ARGS, **own}) for name, own in args.items()}
    return {**variables, "releases": releases}
