# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What GPUs did during a benchmark, from one `nvidia-smi dmon` that runs beside it.

dmon writes a row for each GPU and second, below two header rows: names, and units. Both begin with `#` and come again
every so many rows. `-s pucmt` asks for power and temperature (p: pwr, gtemp, mtemp), utilisation (u: sm, mem, enc, dec,
and jpg, ofa with newer drivers), clocks (c: mclk, pclk), memory (m: fb, bar1, and ccpm with newer drivers) and PCIe (t:
rxpci, txpci); `-o DT` puts date and time before them. What a GPU does not tell is `-`; a GPU in MIG mode or a virtual
one tells little. Columns differ by driver, so that they are found by name, and a figure in a unit that is not known is
left out. Sources: nvidia-smi's manual page (drivers 384 to 550) and outputs of dmon of drivers from 384 to 580.

nvidia-smi counts memory in MiB under the name MB. Its PCIe rates are of a window of 20 ms (NVML's
nvmlDeviceGetPcieThroughput), so that their mean over few samples is rough.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: A row is some 120 bytes: eight GPUs for more than ten hours.
MOST_BYTES = 64 << 20
MOST_SAMPLES = 600_000
#: dmon ends by itself after so many seconds, when nobody is left to end it.
MOST_S = 24 * 3600
_MESSAGES, _MESSAGE_CHARACTERS = 5, 200
_ABSENT = ("-", "n/a", "[n/a]", "err!", "nan", "[unknown]")

#: dmon's column: our name, the factors of units that are known, the greatest value that is believed (in our unit).
_COLUMNS: dict[str, tuple[str, dict[str, float], float]] = {
    "pwr": ("power_w", {"w": 1.0, "mw": 0.001}, 10_000),
    "gtemp": ("temperature_c", {"c": 1.0}, 200),
    "temp": ("temperature_c", {"c": 1.0}, 200),
    "sm": ("utilization_percent", {"%": 1.0}, 100),
    "mem": ("memory_utilization_percent", {"%": 1.0}, 100),
    "mclk": ("memory_clock_mhz", {"mhz": 1.0}, 100_000),
    "pclk": ("sm_clock_mhz", {"mhz": 1.0}, 100_000),
    "fb": ("memory_used_bytes", {"mb": float(1 << 20), "mib": float(1 << 20), "gb": float(1 << 30)}, 1e14),
    "rxpci": ("pcie_rx_bytes_s", {"mb/s": 1e6, "kb/s": 1e3, "gb/s": 1e9}, 1e12),
    "txpci": ("pcie_tx_bytes_s", {"mb/s": 1e6, "kb/s": 1e3, "gb/s": 1e9}, 1e12),
}

#: The figures of a GPU, in the order in which a record has them.
FIGURES = (
    "power_w",
    "utilization_percent",
    "memory_utilization_percent",
    "memory_used_bytes",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "temperature_c",
    "pcie_rx_bytes_s",
    "pcie_tx_bytes_s",
)

_DATE = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})")
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.[0-9]+)?")
_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?")
_INDEX = re.compile(r"[0-9]{1,4}")

Limits = Mapping[int, "tuple[float | None, float | None]"]


@dataclass(frozen=True)
class Sample:
    """One row: what a GPU did in the second that begins at `time_s` (Unix time). What it does not tell is missing."""

    time_s: int
    index: int
    figures: Mapping[str, float]


@dataclass(frozen=True)
class Samples:
    """The rows of one dmon.

    unread: rows that are neither header nor sample. messages: the first of them, which say why there is nothing.
    clock_jumps: how often the clock went back; what was sampled at a time that came again is left out.
    truncated: the output was longer than what is kept.
    """

    samples: tuple[Sample, ...]
    unread: int = 0
    messages: tuple[str, ...] = ()
    clock_jumps: int = 0
    truncated: bool = False


def command(indices: Sequence[int] | None = None, most_s: int = MOST_S) -> list[str]:
    """The sampler: one process for all GPUs, for at most `most_s` seconds.

    :param indices: numbers of the GPUs as nvidia-smi counts; None for all, of which dmon samples the first
        16, and with older drivers the first 4.
    """
    argv = ["nvidia-smi", "dmon", "-s", "pucmt", "-o", "DT", "-d", "1", "-c", str(max(1, min(most_s, MOST_S)))]
    return argv + (["-i", ",".join(str(index) for index in indices)] if indices else [])


def environment() -> dict[str, str]:
    """What the sampler's environment has beside the usual: times without daylight saving, numbers with a point."""
    return {"TZ": "UTC0", "LC_ALL": "C"}


def read(path: str, started_s: float | None = None) -> Samples:
    """What dmon has written to a file. Raises OSError."""
    with open(path, "rb") as stream:
        data = stream.read(MOST_BYTES + 1)
    return parse(data, started_s)


def parse(source: bytes | str | Iterable[str], started_s: float | None = None) -> Samples:
    """The samples of dmon's output: all of it as bytes or text, or its lines.

    :param started_s: Unix time when dmon was started. Given, times of another zone are understood: dmon writes
        the local time, and its first row is of about that moment.
    """
    cut = False
    if isinstance(source, (bytes, str)):
        text = source.decode("utf-8", "replace") if isinstance(source, bytes) else source
        cut = len(source) > MOST_BYTES
        lines: Iterable[str] = _whole_lines(text[:MOST_BYTES])
    else:
        lines = source
    reader = _Reader(started_s)
    for line in lines:
        if len(reader.samples) >= MOST_SAMPLES:
            cut = True
            break
        reader.take(line)
    return Samples(tuple(reader.samples), reader.unread, tuple(reader.messages), reader.jumps, cut)


def _whole_lines(text: str) -> list[str]:
    """The lines without one that has no end: its last number may be cut."""
    lines = text.replace("\r", "\n").split("\n")
    return lines[:-1]


class _Reader:
    """Takes one line after another."""

    def __init__(self, started_s: float | None) -> None:
        self.samples: list[Sample] = []
        self.messages: list[str] = []
        self.unread = self.jumps = 0
        self._names: list[str] = []
        self._units: dict[str, str] = {}
        self._started_s = started_s
        self._offset_s: int | None = None if started_s is not None else 0
        self._last_s = 0

    def take(self, line: str) -> None:
        """Take a line."""
        words = line.split()
        if not words:
            return
        if words[0].startswith("#"):
            self._header([word for word in [words[0][1:], *words[1:]] if word])
            return
        sample = self._sample(words)
        if sample is None:
            self.unread += 1
            if len(self.messages) < _MESSAGES:
                self.messages.append(" ".join(words)[:_MESSAGE_CHARACTERS])
            return
        if sample.time_s < self._last_s:
            self.jumps += 1
            self.samples = [known for known in self.samples if known.time_s < sample.time_s]
        self._last_s = sample.time_s
        self.samples.append(sample)

    def _header(self, words: list[str]) -> None:
        lower = [word.lower() for word in words]
        if "gpu" in lower:
            self._names, self._units = lower, {}
        elif "idx" in lower and len(lower) == len(self._names):
            self._units = dict(zip(self._names, lower))

    def _sample(self, words: list[str]) -> Sample | None:
        if len(words) != len(self._names):
            return None
        row = dict(zip(self._names, words))
        moment = _moment(row.get("date", ""), row.get("time", ""))
        if moment is None or not _INDEX.fullmatch(row["gpu"]):
            return None
        if self._offset_s is None and self._started_s is not None:
            # Zones differ by quarters of an hour; dmon's first row comes within seconds.
            self._offset_s = 900 * round((moment - self._started_s) / 900)
        figures: dict[str, float] = {}
        for name, word in row.items():
            known = _COLUMNS.get(name)
            if known is None:
                continue
            value = _figure(word, known[1].get(self._units.get(name, "")), known[2])
            if value is not None:
                figures[known[0]] = value
        return Sample(moment - (self._offset_s or 0), int(row["gpu"]), figures)


def _moment(date: str, clock: str) -> int | None:
    """Seconds since 1970, of a time in UTC."""
    day, hour = _DATE.fullmatch(date), _TIME.fullmatch(clock)
    if day is None or hour is None:
        return None
    year, month, date_of = (int(part) for part in day.groups())
    hours, minutes, seconds = (int(part) for part in hour.groups())
    if not (year >= 1970 and 1 <= month <= 12 and 1 <= date_of <= 31 and hours < 24 and minutes < 60 and seconds < 62):
        return None
    return calendar.timegm((year, month, date_of, hours, minutes, seconds))


def _figure(word: str, factor: float | None, most: float) -> float | None:
    if factor is None or word.lower() in _ABSENT or not _NUMBER.fullmatch(word):
        return None
    value = float(word) * factor
    return value if value <= most else None


def during(samples: Iterable[Sample], begin_s: float, end_s: float) -> list[Sample]:
    """The samples that were taken wholly between two moments (Unix time): a row's second has to lie inside."""
    return [sample for sample in samples if begin_s <= sample.time_s and sample.time_s + 1 <= end_s]


def summarise(
    samples: Iterable[Sample], limits: Limits | None = None, visible: Collection[int] | None = None
) -> list[dict[str, Any]] | None:
    """Means for each GPU, by number, as a benchmark's record has them; None when there is no sample.

    :param limits: power limit (watts) and greatest SM clock (MHz) by number, for the shares; either may be None.
    :param visible: the GPUs that the server takes; None for all that were sampled.

    A figure without a sample is None. `samples` is how many rows there are.
    """
    found: dict[int, list[Sample]] = {}
    for sample in samples:
        if visible is None or sample.index in visible:
            found.setdefault(sample.index, []).append(sample)
    return [_of_gpu(index, found[index], (limits or {}).get(index)) for index in sorted(found)] or None


def _of_gpu(index: int, samples: Sequence[Sample], limit: tuple[float | None, float | None] | None) -> dict[str, Any]:
    means = {name: _mean([sample.figures[name] for sample in samples if name in sample.figures]) for name in FIGURES}
    power_limit_w, most_clock_mhz = limit or (None, None)
    used = means["memory_used_bytes"]
    return {
        "index": index,
        "power_w": means["power_w"],
        "power_share": _share(means["power_w"], power_limit_w),
        "power_limit_w": power_limit_w,
        "utilization_percent": means["utilization_percent"],
        "memory_utilization_percent": means["memory_utilization_percent"],
        "memory_used_bytes": None if used is None else int(used),
        "sm_clock_mhz": means["sm_clock_mhz"],
        "sm_clock_share": _share(means["sm_clock_mhz"], most_clock_mhz),
        "memory_clock_mhz": means["memory_clock_mhz"],
        "temperature_c": means["temperature_c"],
        "pcie_rx_bytes_s": means["pcie_rx_bytes_s"],
        "pcie_tx_bytes_s": means["pcie_tx_bytes_s"],
        "samples": len(samples),
    }


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 3) if values else None


def _share(value: float | None, limit: float | None) -> float | None:
    if value is None or limit is None or isinstance(limit, bool) or not 0 < limit < float("inf"):
        return None
    return round(value / limit, 4)
