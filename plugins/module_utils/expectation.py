# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is a run as fast as it should be, and where to look when it is not although nothing is wrong?

What it should be is told: tokens a second by concurrency, a share of the roofline, or a baseline. A server can answer
every request, with every GPU at 100 %, and give a third of what the machine can: then the figures of the GPUs tell
most. A GPU that is always busy and uses little of its power waits for something else while its kernels run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import json_types
from ansible_collections.tokforge.sglang.plugins.module_utils.comparison_units import figure, mapping, points
from ansible_collections.tokforge.sglang.plugins.module_utils.record_differences import power_share

OK, DEGRADED, UNKNOWN = "ok", "degraded", "unknown"
#: Below this share of what is expected a run is degraded (percent).
DEGRADED_BELOW_PERCENT = 70.0
# When a GPU counts as busy, as using little power, as held at its limit, as slow, as hot. Percent, shares, degrees.
_BUSY_PERCENT = 90.0
_IDLE_PERCENT = 70.0
_LITTLE_POWER = 0.5
_AT_LIMIT = 0.95
_SLOW_CLOCK = 0.8
_HOT = 85.0
# A link of PCIe 3.0 x16 carries 15.75e9 bytes a second (PCI-SIG base specification 3.0); half of it is much for decode.
_MUCH_PCIE_BYTES_S = 8e9
# On average one drafted token less than this is accepted a step: the draft costs more than it gives.
_FEW_ACCEPTED = 1.5
# Requests in flight below this share of what was asked for: the server lets fewer run.
_FEW_IN_FLIGHT = 0.6


class ExpectationError(Exception):
    """An expectation that is none; the text says what to give."""


@dataclass(frozen=True)
class Hint:
    """One place to look at: what was `seen` there ("" when the record does not tell), and what to do."""

    name: str
    seen: str
    remedy: str


def judge(
    record: Mapping[str, Any],
    *,
    tok_s: Mapping[Any, Any] | None = None,
    roofline_share: float | None = None,
    baseline: Mapping[str, Any] | None = None,
    degraded_below_percent: float = DEGRADED_BELOW_PERCENT,
    findings: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """`status` (ok, degraded, unknown), `why`, `points` and, when degraded, `checklist`, the most telling first.

    :param tok_s: expected output tokens/s by concurrency.
    :param roofline_share: expected share of the ceiling, 0 to 1, at each point that has a ceiling.
    :param baseline: a record that was as it should be.
    :param degraded_below_percent: below this share of what is expected a point is degraded.
    :param findings: of preflight, about GPUs and the host; what warned or failed there is on the checklist.
    Each point is held against the greatest of what is expected of it.
    Raises ExpectationError for an expectation that is none.
    """
    threshold = _between("degraded_below_percent", degraded_below_percent, 100.0)
    wanted = {} if tok_s is None else _wanted(tok_s)
    share = None if roofline_share is None else _between("roofline_share", roofline_share, 1.0)
    measured = points(record)
    judged = [
        entry
        for concurrency, point in sorted(measured.items())
        if (entry := _point(concurrency, point, wanted, share, baseline, threshold))
    ]
    found: dict[str, Any] = {"status": UNKNOWN, "why": "", "points": judged, "checklist": []}
    if record.get("valid") is not True:
        return {**found, "points": [], "why": "the run is invalid, its figures say nothing"}
    if not judged:
        return {**found, "why": "nothing is expected at a point that was measured"}
    worst = min(judged, key=lambda entry: float(entry["percent"]))
    why = (
        f"{worst['measured_tok_s']:.1f} output tok/s at concurrency {worst['concurrency']} are "
        f"{worst['percent']:.0f} % of the expected {worst['expected_tok_s']:.1f}"
    )
    if worst["status"] == OK:
        missed = sorted(value for value in wanted if value not in {entry["concurrency"] for entry in judged})
        if missed:
            where = ", ".join(map(str, missed))
            return {**found, "why": f"{why}, but nothing was measured at concurrency {where}"}
        return {**found, "status": OK, "why": why}
    # The worst point may have been too short for a sample of its GPUs: another slow one tells about them then.
    slow = [entry for entry in judged if entry["status"] == DEGRADED]
    told = min(slow, key=lambda entry: (not measured[entry["concurrency"]].get("gpu"), float(entry["percent"])))
    hints = checklist(record, measured[told["concurrency"]], findings)
    return {**found, "status": DEGRADED, "why": why, "checklist": [asdict(hint) for hint in hints]}


def checklist(
    record: Mapping[str, Any], point: Mapping[str, Any], findings: Sequence[Mapping[str, Any]] = ()
) -> list[Hint]:
    """Where to look for what makes a point slow: first what its record shows, then what it does not tell."""
    gpus = [gpu for gpu in _list(point.get("gpu")) if isinstance(gpu, Mapping)]
    seen = [*_configured(record, point), *_gpus(point, gpus), *_found(findings)]
    told = {hint.name for hint in seen}
    return [*seen, *(hint for hint in _GENERAL if hint.name not in told and (gpus or not hint.name.startswith("gpu")))]


_GENERAL = (
    Hint("gpu_p2p", "", "`nvidia-smi topo -p2p r`: GPUs without P2P pass every sum through the host's memory"),
    Hint("gpu_pcie", "", "`nvidia-smi -q -d PCIE` under load: width and generation must be the link's best"),
    Hint("gpu_power", "", "`nvidia-smi -q -d POWER`: the current limit must be the default one"),
    Hint("cpu_governor", "", "cpufreq/scaling_governor in /sys/devices/system/cpu/cpu0 must say performance"),
)


def _wanted(tok_s: Mapping[Any, Any]) -> dict[int, float]:
    found = {}
    for key, value in tok_s.items():
        # Keys of JSON and of YAML mappings in a play are texts.
        text = str(key)
        number = figure(json_types.number(value))
        if isinstance(key, bool) or not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):
            raise ExpectationError(f"expected tok/s at {key!r}: no concurrency; use whole numbers of requests")
        if number is None:
            raise ExpectationError(f"expected tok/s at concurrency {text} are {value!r}; use a number above 0")
        found[int(text)] = number
    return found


def _between(name: str, value: Any, most: float) -> float:
    number = figure(value)
    if number is None or number > most:
        raise ExpectationError(f"{name} is {value!r}; use a number above 0 and at most {most:g}")
    return number


def _point(
    concurrency: int,
    point: Mapping[str, Any],
    wanted: Mapping[int, float],
    share: float | None,
    baseline: Mapping[str, Any] | None,
    threshold: float,
) -> dict[str, Any] | None:
    """A point against the greatest of what is expected of it; None when nothing is, or when it has no figure."""
    measured = figure(point.get("output_tok_s"))
    ceiling = figure(mapping(point.get("roofline")).get("ceiling_tok_s"))
    before = points(baseline).get(concurrency, {}) if baseline is not None and baseline.get("valid") is True else {}
    expected = [
        wanted.get(concurrency),
        ceiling * share if ceiling is not None and share is not None else None,
        figure(before.get("output_tok_s")),
    ]
    most = max((value for value in expected if value is not None), default=None)
    if measured is None or most is None:
        return None
    percent = measured / most * 100
    return {
        "concurrency": concurrency,
        "expected_tok_s": most,
        "measured_tok_s": measured,
        "percent": percent,
        "status": DEGRADED if percent < threshold else OK,
    }


def _configured(record: Mapping[str, Any], point: Mapping[str, Any]) -> Iterator[Hint]:
    """What the record says of how the server was set up and how its start went."""
    asked, in_flight = figure(point.get("concurrency")), figure(point.get("measured_concurrency"))
    if asked and in_flight and in_flight < _FEW_IN_FLIGHT * asked:
        yield Hint(
            "in_flight",
            f"{in_flight:.1f} of {asked:g} requests were in flight on average",
            "raise max-running-requests, or give the cache more room (mem-fraction-static)",
        )
    args = {
        str(name).replace("-", "_"): value
        for name, value in mapping(mapping(record.get("context")).get("args")).items()
    }
    if args.get("disable_cuda_graph") is True or args.get("cuda_graph_backend_decode") == "disabled":
        yield Hint("cuda_graph", "CUDA graphs are off", "without them each step launches its kernels one by one")
    start = mapping(record.get("start"))
    outcome = start.get("autotune_outcome") or mapping(start.get("autotune")).get("outcome")
    if outcome in ("incomplete", "disabled_fallback"):
        yield Hint("autotune", f"autotune is {outcome}", "clear its results and start the server anew")
    accepted = figure(point.get("accept_length"))
    if accepted is not None and accepted < _FEW_ACCEPTED:
        yield Hint(
            "accept_length",
            f"{accepted:.2f} tokens are accepted a step",
            "the draft model does not fit these prompts: measure with real text, or without speculation",
        )


def _gpus(point: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]]) -> Iterator[Hint]:
    """What the GPUs' figures say, the most telling first."""
    busy, power = _mean(gpus, "utilization_percent"), power_share(point)
    watts, clock = _mean(gpus, "power_w"), _mean(gpus, "sm_clock_share")
    limit = _mean(gpus, "power_limit_w")
    figures = f"{watts:.0f} W of {limit:.0f} W" if watts and limit else f"{(power or 0) * 100:.0f} % of the power limit"
    if busy is not None and power is not None and busy >= _BUSY_PERCENT and power < _LITTLE_POWER:
        yield Hint(
            "gpu_waits",
            f"GPUs are busy {busy:.0f} % of the time with {figures}",
            "kernels wait for other GPUs or run badly: look at P2P and the all-reduce, the MoE backend and its tuning, "
            "and CUDA graphs",
        )
    if power is not None and power >= _AT_LIMIT and clock is not None and clock < _SLOW_CLOCK:
        yield Hint(
            "gpu_power",
            f"{figures}, clocks at {clock * 100:.0f} % of the highest",
            "the power limit holds the clocks down: set the default one (`nvidia-smi -q -d POWER`) unless it is meant",
        )
    elif clock is not None and clock < _SLOW_CLOCK:
        yield Hint(
            "gpu_clocks",
            f"clocks at {clock * 100:.0f} % of the highest with {figures}",
            "see `nvidia-smi -q -d PERFORMANCE,CLOCK` for what holds them down",
        )
    hot = [gpu for gpu in gpus if (figure(gpu.get("temperature_c")) or 0) >= _HOT]
    if hot:
        yield Hint(
            "gpu_heat",
            f"{len(hot)} of {len(gpus)} GPUs are at {_HOT:.0f} C or above",
            "see to fans and inlet temperature",
        )
    yield from _uneven(gpus)
    rates = [figure(gpu.get(name)) or 0.0 for gpu in gpus for name in ("pcie_rx_bytes_s", "pcie_tx_bytes_s")]
    if max(rates, default=0.0) >= _MUCH_PCIE_BYTES_S:
        yield Hint(
            "gpu_pcie",
            f"up to {max(rates) / 1e9:.1f} GB/s over PCIe",
            "the link may be the limit: see its width and generation (`nvidia-smi -q -d PCIE`) and whether P2P works",
        )
    if busy is not None and busy < _IDLE_PERCENT:
        yield Hint(
            "cpu_governor",
            f"GPUs are busy {busy:.0f} % of the time only",
            "they wait for the host: see the CPU's governor, its cores, and what else runs there",
        )


def _uneven(gpus: Sequence[Mapping[str, Any]]) -> Iterator[Hint]:
    """One GPU that is not as the others sets the pace of all."""
    for key, words in (("power_limit_w", "power limit"), ("sm_clock_share", "share of the highest clock")):
        known = [(number, gpu.get("index")) for gpu in gpus if (number := figure(gpu.get(key))) is not None]
        least, most = min(known, default=(0, 0), key=_first), max(known, default=(0, 0), key=_first)
        if least[0] < most[0] * 0.9:
            yield Hint(
                "gpu_uneven",
                f"{words} from {least[0]:g} (GPU {least[1]}) to {most[0]:g} (GPU {most[1]})",
                "the slowest GPU sets the pace: see to the one with the least",
            )


def _first(pair: tuple[float, Any]) -> float:
    return pair[0]


def _found(findings: Sequence[Mapping[str, Any]]) -> Iterator[Hint]:
    for entry in findings:
        if isinstance(entry, Mapping) and entry.get("level") in ("warn", "fail"):
            yield Hint(
                f"preflight_{entry.get('check') or 'check'}",
                str(entry.get("message") or ""),
                str(entry.get("remedy") or ""),
            )


def _mean(gpus: Sequence[Mapping[str, Any]], key: str) -> float | None:
    # 0 is a figure here: a GPU that does nothing.
    known = [
        float(value)
        for gpu in gpus
        if isinstance(value := gpu.get(key), (int, float)) and not isinstance(value, bool) and 0 <= value < 1e15
    ]
    return mean(known) if known and all(map(math.isfinite, known)) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
