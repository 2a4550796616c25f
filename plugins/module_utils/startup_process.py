# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The processes of a starting server from one look to the next: is the main process the same one, are all ranks there,
do they work?
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import proc, startup_work
from ansible_collections.tokforge.sglang.plugins.module_utils.ranks import parse_tags
from ansible_collections.tokforge.sglang.plugins.module_utils.service import Run, ServiceError
from ansible_collections.tokforge.sglang.plugins.module_utils.startup import Process, Quiet
from ansible_collections.tokforge.sglang.plugins.module_utils.systemd_manager import show_unit, systemd_seen

# SGLang names its rank processes like this, with the tags of the log (setproctitle in run_scheduler_process, 0.5.0 on).
_RANK_TITLE = re.compile(r"sglang::scheduler(?P<tags>(?:_[A-Z][A-Z_]*?\d+)*)$")


@dataclass
class Watch:
    """What is remembered between looks; JSON-able with asdict. Times are seconds since the machine's boot.

    `pid` 0: nobody knows a process. `ranks` are rank processes that were seen ("<pid>-<start ticks>" -> tag).
    """

    pid: int = 0
    start_ticks: int = 0
    unit: str = ""
    ended: str = ""
    looked_at: float = 0.0
    grew_at: float = 0.0
    traced_at: float = 0.0
    any_at: float = 0.0
    compiling_s: float = 0.0
    sample: dict[str, Any] | None = None
    objects_at_first: int = 0
    directories: list[str] = field(default_factory=list)
    ranks: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Watch:
        """The inverse of asdict. Raises ValueError."""
        try:
            watch = cls(**data)
            _check_kinds(watch)
            if watch.sample is not None:
                startup_work.Sample.from_dict(watch.sample)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"it is not what an earlier look returned ({type(error).__name__}: {error})") from error
        return watch


def _check_kinds(watch: Watch) -> None:
    """Raises TypeError for a value of another kind than a look gives."""
    numbers = (watch.looked_at, watch.grew_at, watch.traced_at, watch.any_at, watch.compiling_s)
    if not all(isinstance(number, (int, float)) for number in (*numbers, watch.pid, watch.start_ticks)):
        raise TypeError("a time or a process id is no number")
    if (
        not isinstance(watch.unit, str)
        or not isinstance(watch.ended, str)
        or not isinstance(watch.ranks, dict)
        or not isinstance(watch.directories, list)
    ):
        raise TypeError("unit, ranks or directories are of another kind")


def begin(process: str, run: Run, now: float, start_ticks: int = 0) -> Watch:
    """Begin to watch a process: a pid, or the name of a systemd unit. Raises ServiceError."""
    watch = Watch(looked_at=now, grew_at=now, traced_at=now, any_at=now)
    if not process:
        return watch
    if process.isdigit():
        watch.pid = int(process)
        found = proc.read_process(watch.pid)
        watch.start_ticks = start_ticks or (found.start_ticks if found else 0)
    else:
        watch.unit = process if "." in process else f"{process}.service"
        _follow_unit(watch, run)
    return watch


def follow(watch: Watch, run: Run) -> bool:
    """Take over the process that a unit has now. True when another one than before runs. Raises ServiceError."""
    before = watch.pid
    if watch.unit:
        _follow_unit(watch, run)
    return bool(before) and watch.pid != before


def look(
    watch: Watch,
    run: Run,
    now: float,
    grew: bool,
    stall_timeout_s: float,
    gpu_busy: Callable[[], bool | None],
    environment: Mapping[str, str] | None = None,
) -> tuple[Process | None, Quiet, dict[str, str]]:
    """Look again, and remember. `grew`: the log has new bytes, `environment` is what the server is given beside that
    of the process that becomes it. Returns the process, the quiet, and dead ranks (tag -> how it is known). Raises
    ServiceError.
    """
    elapsed_s = max(0.0, now - watch.looked_at)
    watch.looked_at = now
    if grew:
        watch.grew_at = now
    if not watch.pid and not watch.ended:
        watch.traced_at = watch.any_at = watch.grew_at
        return None, _quiet(watch, now), {}
    main = proc.read_process(watch.pid) if watch.pid else None
    if main is None or not main.alive or main.start_ticks != watch.start_ticks:
        return Process(watch.pid, False, watch.ended or "is gone"), _quiet(watch, now), {}
    directories = startup_work.kernel_directories({**proc.environ(watch.pid), **(environment or {})})
    sample = startup_work.take_sample(watch.pid, watch.start_ticks, directories)
    before = startup_work.Sample.from_dict(watch.sample) if watch.sample else sample
    if directories != watch.directories:
        # Other directories hold other kernels: what they hold now is no work of this start.
        before = replace(before, objects=sample.objects)
        watch.directories = directories
    work = startup_work.compare(before, sample, elapsed_s)
    if watch.sample is None:
        watch.objects_at_first = sample.objects
    watch.sample = asdict(sample)
    if work.compiling:
        watch.compiling_s += elapsed_s
    if work.compiling or work.reading:
        watch.traced_at = now
    if work.working:
        watch.any_at = now
    watch.traced_at = max(watch.traced_at, watch.grew_at)
    watch.any_at = max(watch.any_at, watch.traced_at)
    doing = work.describe()
    # Asking the driver takes time, so only when it decides.
    if now - watch.any_at >= stall_timeout_s and not work.stopped and gpu_busy():
        watch.any_at, doing = now, "a GPU computes"
    dead = _dead_ranks(watch, sample)
    stopped = {str(pid) for pid in work.stopped}
    names = tuple(sorted(tag for name, tag in watch.ranks.items() if name.partition("-")[0] in stopped))
    return Process(watch.pid, True, "", work.stopped, names, doing), _quiet(watch, now), dead


def _quiet(watch: Watch, now: float) -> Quiet:
    return Quiet(now - watch.grew_at, now - watch.traced_at, now - watch.any_at)


def _follow_unit(watch: Watch, run: Run) -> None:
    """The unit's main process, and how the last one ended when none runs."""
    shown = show_unit(run, watch.unit)
    seen = systemd_seen(shown, stopped_on_request=False)
    if seen.phase == "absent":
        raise ServiceError(f"cannot look at {watch.unit}: systemd knows no such unit; correct its name")
    if seen.pid and seen.pid != watch.pid:
        found = proc.read_process(seen.pid)
        watch.pid, watch.start_ticks = seen.pid, found.start_ticks if found else 0
        watch.sample, watch.ranks = None, {}
    # Before its main process is started, nothing of the unit has ended.
    coming = seen.phase == "restarting" and shown.get("ExecMainCode", "0") == "0"
    if seen.phase == "running" or coming:
        watch.ended = ""
    else:
        watch.ended = seen.ended or ("was never started" if seen.phase == "stopped" else "ended")


def _dead_ranks(watch: Watch, sample: startup_work.Sample) -> dict[str, str]:
    living: dict[str, int] = {}
    for name in sample.uses:
        number, _dash, ticks = name.partition("-")
        process = proc.read_process(int(number))
        if process is not None and process.alive and str(process.start_ticks) == ticks:
            living[name] = process.pid
    dead = {tag: f"process {name.partition('-')[0]} is gone" for name, tag in watch.ranks.items() if name not in living}
    titles = {pid: rank_of_title(" ".join(proc.argv(pid)).strip()) for pid in living.values()}
    for name, pid in living.items():
        # What a rank forks has its title until it becomes something else, and ends when it is done.
        if titles[pid] and not titles.get(sample.uses[name].ppid):
            watch.ranks.setdefault(name, titles[pid])
    return dead


def rank_of_title(title: str) -> str:
    """The tag of the rank whose process has this title, empty for another process."""
    match = _RANK_TITLE.match(title)
    if match is None:
        return ""
    words = re.findall(r"_([A-Z][A-Z_]*?\d+)", match["tags"])
    rank = parse_tags("".join(f" {word}" for word in words))
    return rank.tag if rank is not None else ""


def age_s(watch: Watch) -> float | None:
    """Seconds since the main process began; None when none is known to run."""
    main = proc.read_process(watch.pid) if watch.pid else None
    if main is None or not main.alive or main.start_ticks != watch.start_ticks:
        return None
    return time.clock_gettime(time.CLOCK_BOOTTIME) - watch.start_ticks / os.sysconf("SC_CLK_TCK")


def started_text(pid: int, start_ticks: int) -> str:
    """The local time at which a process began, like a log's times of whole seconds; empty when nobody knows.

    Local is what the process takes for it: its own time zone, otherwise that of the system, and not ours.
    """
    if not pid or not start_ticks:
        return ""
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / os.sysconf("SC_CLK_TCK")
    zone, ours = proc.environ(pid).get("TZ"), os.environ.get("TZ")
    _set_zone(zone)
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - age_s))
    finally:
        _set_zone(ours)


def _set_zone(zone: str | None) -> None:
    if zone is None:
        os.environ.pop("TZ", None)
    else:
        os.environ["TZ"] = zone
    time.tzset()
