# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a good rollout says at its end, to a person."""

from __future__ import annotations

DOCUMENTATION = r"""
name: rollout_summary
short_description: Sum up a rollout for a person
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Says what serves where, with which versions, how fast it was measured to be, where log and facts are, and what to
    run next.
options:
  _input:
    description:
      - What the roles left behind, with the keys C(url), C(host), C(inventory), C(log), C(environment), C(model),
        C(release), C(backend) and C(benchmark), C(nodes), the hosts that make the server, C(downtime_s), the seconds
        from the stop of what served before until it served, C(start), which M(tokforge.sglang.wait_for_ranks)
        returned, and C(choice) and C(backend_info) of M(tokforge.sglang.preflight).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Summary
  ansible.builtin.debug:
    msg: "{{ facts_of_the_rollout | tokforge.sglang.rollout_summary }}"
"""

RETURN = r"""
_value:
  description: The summary, several lines.
  type: str
"""

import shlex
from collections.abc import Mapping
from typing import Any, Callable

from ansible_collections.tokforge.sglang.plugins.module_utils.release_choice import AS_ASKED


def rollout_summary(facts: Mapping[str, Any]) -> str:
    """Say what runs, where, how fast it was measured to be and what to run next.

    :param facts: ``url``, ``host``, ``inventory``, ``log``, ``environment``, ``model``, ``release``, ``backend`` and
        ``benchmark`` as the roles leave them; ``benchmark`` is empty when nothing was measured. ``check_mode`` says
        that nothing was done.
    """
    environment, model, release = facts["environment"], facts["model"], facts["release"]
    versions = environment.get("versions") or {}
    torch = (environment.get("torch") or {}).get("version") or versions.get("torch")
    named = [("SGLang", versions.get("sglang")), ("torch", torch), ("FlashInfer", versions.get("flashinfer-python"))]
    inventory = shlex.quote(facts["inventory"])
    weights = "random weights: speed and mechanics are real, the text is not" if model.get("random_weights") else ""
    lines = [
        f"SGLang {'would serve' if facts.get('check_mode') else 'serves'} on {facts['host']} at {facts['url']}",
        f"  model      {model.get('served_name')} ({model.get('path')})",
        f"  backend    {facts['backend']}",
        f"  versions   {', '.join(f'{name} {version}' for name, version in named if version)}",
        f"  release    {release.get('release')} ({release.get('path')})",
    ]
    lines += [f"  chosen     {line}" for line in _chosen(facts.get("choice"), facts.get("backend_info"))]
    lines += [f"  autotune   {line}" for line in _autotune(environment.get("autotune_gate"))]
    lines += [f"  ranks      {line}" for line in _ranks(facts.get("start"), release.get("autotune_fallback"))]
    lines += [f"  nodes      {line}" for line in _nodes(facts.get("nodes"), facts["host"])]
    if facts.get("downtime_s"):
        lines.append(f"  downtime   {facts['downtime_s']} s, from the stop of what served before until it served")
    if weights:
        lines.insert(2, f"             {weights}")
    lines += [f"  measured   {line}" for line in _points(facts["benchmark"])]
    lines += [
        f"  log        {facts['log']}",
        f"  facts      {facts['benchmark'].get('fact_file') or 'none'}",
        "Next:",
        f"  ask it     curl {facts['url']}/v1/completions -H 'Content-Type: application/json' -d "
        f'\'{{"model": "{model.get("served_name")}", "prompt": "Hello", "max_tokens": 16}}\'',
        f"  verify     make verify INVENTORY={inventory}",
        f"  measure    make benchmark INVENTORY={inventory}",
        f"  remove     make destroy INVENTORY={inventory}",
    ]
    return "\n".join(lines)


def _chosen(choice: Mapping[str, Any] | None, backend: Mapping[str, Any] | None) -> list[str]:
    """Why this release, when nobody asked for it by name, and that a backend was forced."""
    reason = (choice or {}).get("reason")
    lines = [reason] if reason and reason != AS_ASKED else []
    if (backend or {}).get("forced"):
        lines.append(f"forced against: {(backend or {}).get('reason')}")
    return lines


def _autotune(gate: Mapping[str, Any] | None) -> list[str]:
    """What FlashInfer tunes, for a backend that was asked for by name."""
    if not gate or not gate.get("backend"):
        return []
    who = {"patch": "edited into the release", "upstream": "by the release itself"}.get(gate.get("enabled_by") or "")
    state = "gate open" if gate.get("enabled_by") else "gate closed"
    return [f"{state} for {gate['backend']}" + (f", {who}" if who else "")]


def _ranks(start: Mapping[str, Any] | None, fallback: bool | None) -> list[str]:
    """How many ranks there are, and how many of them were tuned."""
    expected = len((start or {}).get("expected_ranks") or [])
    if not start or not expected:
        return []
    if fallback:
        return [f"{expected}, autotune disabled since a start failed inside it"]
    tuning = start.get("autotune") or {}
    tuned = len(tuning.get("ranks_completed") or [])
    if not tuned:
        return [f"{expected}, not tuned: {tuning.get('reason') or 'nobody knows why'}"]
    seconds = (start.get("durations") or {}).get("autotune_s")
    took = f" in {seconds:.0f} s" if isinstance(seconds, (int, float)) else ""
    return [f"{tuned} of {expected} tuned by FlashInfer{took}"]


def _nodes(nodes: Mapping[str, Any] | None, host: str) -> list[str]:
    """Which hosts make the server together; nothing for a server of one host."""
    names = list((nodes or {}).get("names") or [])
    if len(names) < 2:
        return []
    return [f"{', '.join(names)}; {names[0]} serves, {host} is node {names.index(host)}"]


def _points(benchmark: Mapping[str, Any]) -> list[str]:
    points = benchmark.get("points") or []
    if not points:
        return ["nothing yet"]
    reused = "" if benchmark.get("changed") else " (recorded earlier for this very configuration)"
    return [
        f"{point['output_tok_s']:.1f} tok/s output at concurrency {point['concurrency']}, "
        f"TTFT {point['ttft_median_ms']:.0f} ms, TPOT {point['tpot_median_ms']:.1f} ms (medians){reused}"
        for point in points
    ]


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"rollout_summary": rollout_summary}
