# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Is a starting server doing anything? Compared are two looks at its processes and at the kernels it compiles.

A start that writes nothing into its log for minutes may compile kernels, read weights, or hang. What it computes, reads
and writes tells these apart, though not whether it gets anywhere: a rank that waits for another one spins, too.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import proc as proc_fs

# Programs that compile a kernel, as the kernel names them: FlashInfer, TVM-FFI and torch extensions run ninja with nvcc
# and the host's compiler, Triton and TileLang run ptxas alone.
COMPILERS = frozenset(
    "nvcc cicc ptxas fatbinary cudafe++ nvlink ninja cc1 cc1plus c++ g++ gcc ld".split()  # noqa: SIM905
)
OBJECT_ENDINGS = (".o", ".so", ".cubin", ".ptx")
# Entries of directories that one look reads at most.
MOST_ENTRIES = 20_000
# Less is read by a server that waits: its own /proc files, answers of other processes.
READING_BYTES = 1 << 20
BUSY_SHARE = 0.1
GPU_TIMEOUT_S = 3.0
_GPU_QUERY = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")

# command, seconds it may take -> standard output; raises OSError or subprocess.SubprocessError
Run = Callable[[Sequence[str], float], str]


@dataclass(frozen=True)
class Use:
    """What one process has used since it began, with its children that ended and were waited for."""

    ppid: int
    cpu_ticks: int
    rchar: int
    read_bytes: int


@dataclass(frozen=True)
class Sample:
    """One look. `asdict` gives what JSON can hold, `from_dict` reads it.

    `alive`: the main process is there. `uses` has each process of the server as "<pid>-<start ticks>", `stopped` the
    pids that a signal or a debugger stopped, `compilers` the names of running compilers, `objects` the number of object
    files in the given directories.
    """

    alive: bool
    ticks_per_s: int
    uses: dict[str, Use]
    stopped: tuple[int, ...] = ()
    compilers: tuple[str, ...] = ()
    objects: int = 0
    rss_bytes: int = 0

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Sample:
        """The sample that `asdict` made this of, also after JSON made lists of its tuples."""
        return Sample(
            **{
                **data,
                "uses": {name: Use(**use) for name, use in data["uses"].items()},
                "stopped": tuple(data["stopped"]),
                "compilers": tuple(data["compilers"]),
            }
        )


@dataclass(frozen=True)
class Work:
    """What was done between two looks. `cpu_share` is in cores: 1.0 is one core all the time.

    `busy` is False when a process is stopped: the others then spin while they wait for it. `ended`: the main process is
    gone.
    """

    compiling: bool
    reading: bool
    busy: bool
    stopped: tuple[int, ...] = ()
    ended: bool = False
    compilers: tuple[str, ...] = ()
    objects_more: int = 0
    read_bytes: int = 0
    cpu_share: float = 0.0

    @property
    def working(self) -> bool:
        """Whether anything was done that can bring the start forward."""
        return self.compiling or self.reading or self.busy

    def describe(self) -> str:
        """In a few words, to be read after "The server is"."""
        if self.ended:
            return "gone"
        words = []
        if len(self.stopped) == 1:
            words.append(f"process {self.stopped[0]} is stopped")
        elif self.stopped:
            words.append(f"processes {', '.join(str(pid) for pid in self.stopped)} are stopped")
        if self.compiling:
            more = self.objects_more
            grown = [f"{more} object{'s' if more > 1 else ''} more"] if more > 0 else []
            words.append(f"compiling kernels ({', '.join([*grown, *dict.fromkeys(self.compilers)])})")
        if self.reading:
            words.append(f"reading files ({self.read_bytes / 1e6:.0f} MB)")
        if self.busy:
            cores = self.cpu_share
            words.append(f"busy ({cores:.1f} cores)" if cores >= 1.5 else f"busy ({cores * 100:.0f} % of a core)")
        return ", ".join(words) or "idle"


def take_sample(pid: int, start_ticks: int, directories: Iterable[str] = (), proc: str = proc_fs.PROC) -> Sample:
    """Look at the server whose main process is `pid`, and at the directories of compiled kernels."""
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    objects = count_objects(directories)
    every = {process.pid: process for process in proc_fs.processes(proc, zombies=True)}
    main = every.get(pid)
    if main is None or not main.alive or main.start_ticks != start_ticks:
        return Sample(False, ticks_per_s, {}, objects=objects)
    uses: dict[str, Use] = {}
    rss_bytes = 0
    for process in _tree(main, every.values()):
        used = proc_fs.read_usage(process.pid, proc)
        if used is None:
            continue
        rss_bytes += used.rss_bytes
        name = f"{process.pid}-{process.start_ticks}"
        uses[name] = Use(process.ppid, used.ticks + used.waited_ticks, used.rchar, used.read_bytes)
    tree = [process for process in _tree(main, every.values()) if process.alive]
    return Sample(
        alive=True,
        ticks_per_s=ticks_per_s,
        uses=uses,
        stopped=tuple(sorted(process.pid for process in tree if process.state in "Tt")),
        compilers=tuple(sorted(p.comm for p in tree if p.comm in COMPILERS and p.state not in "Tt")),
        objects=objects,
        rss_bytes=rss_bytes,
    )


def _tree(main: proc_fs.Process, every: Iterable[proc_fs.Process]) -> list[proc_fs.Process]:
    """The process, its descendants, and its group when it leads one: somebody else's group is not the server's."""
    among = list(every)
    found = {process.pid: process for process in (main, *proc_fs.descendants(main.pid, among))}
    if main.pgrp == main.pid:
        found.update({p.pid: p for p in among if p.pgrp == main.pgrp and p.session == main.session})
    return list(found.values())


def count_objects(directories: Iterable[str]) -> int:
    """Object files in and below these directories, of the first MOST_ENTRIES entries.

    Links are not followed, and what cannot be read has none. A directory inside another one counts once.
    """
    seen: set[tuple[int, int]] = set()
    queue = list(directories)
    left, objects = MOST_ENTRIES, 0
    for directory in queue:  # it grows meanwhile: those nearest to the top come first
        try:
            status = os.stat(directory)
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(directory) as entries:
                for entry in entries:
                    if left <= 0:
                        return objects
                    left -= 1
                    if entry.is_dir(follow_symlinks=False):
                        queue.append(entry.path)
                    elif entry.name.endswith(OBJECT_ENDINGS) and entry.is_file(follow_symlinks=False):
                        objects += 1
        except OSError:
            continue
    return objects


def compare(before: Sample, after: Sample, elapsed_s: float) -> Work:
    """What was done between two looks that lie `elapsed_s` seconds apart."""
    ticks = _grown(before, after, lambda use: use.cpu_ticks)
    # Reading through a mapping counts only in the second, reading what memory has already only in the first.
    read = max(_grown(before, after, lambda use: use.rchar), _grown(before, after, lambda use: use.read_bytes))
    share = ticks / after.ticks_per_s / elapsed_s if elapsed_s > 0 else 0.0
    more = max(0, after.objects - before.objects)
    return Work(
        compiling=bool(after.compilers) or more > 0,
        reading=read > READING_BYTES,
        busy=share > BUSY_SHARE and not after.stopped,
        stopped=after.stopped,
        ended=not after.alive,
        compilers=after.compilers,
        objects_more=more,
        read_bytes=read,
        cpu_share=round(share, 3),
    )


def _grown(before: Sample, after: Sample, value: Callable[[Use], int]) -> int:
    """How much more all processes used. Never below 0.

    What a child had used before it ended comes to its parent's number at once, and is not new there.
    """
    handed_up: Counter[int] = Counter()
    for name, use in before.uses.items():
        if name not in after.uses:
            handed_up[use.ppid] += value(use)
    grown = 0
    for name, use in after.uses.items():
        old = before.uses.get(name)
        more = value(use) - (value(old) if old else 0) - handed_up[int(name.partition("-")[0])]
        grown += max(0, more)
    return grown


# --- what the caller may want beside it ------------------------------------------------------------------------------


def kernel_directories(environ: Mapping[str, str]) -> list[str]:
    """Where a server with this environment keeps the kernels it compiles. They need not exist; none is in another.

    FlashInfer: `.cache/flashinfer` below FLASHINFER_WORKSPACE_BASE, by default below the home directory (jit/env.py
    of 0.6.8.post1 to 0.7.2). Triton: TRITON_CACHE_DIR, by default `.triton/cache` below TRITON_HOME or the home
    directory. torch: TORCHINDUCTOR_CACHE_DIR; TORCH_EXTENSIONS_DIR, by default `torch_extensions` below the user's
    cache directory. DeepGEMM: SGLANG_DG_CACHE_DIR, by default `deep_gemm` below `.cache` (SGLang 0.5.12.post1) or
    SGLANG_CACHE_DIR (0.5.23). SGLang's own kernels: SGLANG_JIT_CACHE_DIR, by default `.cache/sglang/jit` (0.5.23),
    before that TVM_FFI_CACHE_DIR, by default `.cache/tvm-ffi` (0.5.12.post1).
    """
    home = environ.get("HOME", "")

    def place(name: str, *default: str) -> str:
        """What the variable says, else the parts of the default; nothing when the first of these is not known."""
        return environ.get(name) or (os.path.join(*default) if default and default[0] else "")

    flashinfer = environ.get("FLASHINFER_WORKSPACE_BASE", home)
    sglang = place("SGLANG_CACHE_DIR", home, ".cache", "sglang")
    found = [
        os.path.join(flashinfer, ".cache", "flashinfer") if flashinfer else "",
        place("TRITON_CACHE_DIR", environ.get("TRITON_HOME") or home, ".triton", "cache"),
        place("TORCHINDUCTOR_CACHE_DIR"),
        place("TORCH_EXTENSIONS_DIR", environ.get("XDG_CACHE_HOME") or (home and f"{home}/.cache"), "torch_extensions"),
        place("SGLANG_DG_CACHE_DIR", home, ".cache", "deep_gemm"),
        "" if environ.get("SGLANG_DG_CACHE_DIR") else os.path.join(sglang, "deep_gemm") if sglang else "",
        place("SGLANG_JIT_CACHE_DIR", home, ".cache", "sglang", "jit"),
        place("TVM_FFI_CACHE_DIR", home, ".cache", "tvm-ffi"),
    ]
    # A relative path would be below the server's working directory, which is not known here.
    paths = list(dict.fromkeys(os.path.normpath(path) for path in found if os.path.isabs(path)))
    return [path for path in paths if not any(path.startswith(other.rstrip("/") + "/") for other in paths)]


def run_tool(command: Sequence[str], timeout_s: float) -> str:
    """Standard output of a tool that may hang for ever, as one that talks to a driver can.

    Raises OSError when it cannot be run, subprocess.SubprocessError when it fails or takes too long.
    """
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        output = child.communicate(timeout=timeout_s)[0]
    except subprocess.TimeoutExpired:
        child.kill()
        # In a hung driver call even a killed process stays, so its end is not waited for.
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=0.2)
        if child.stdout:
            child.stdout.close()
        raise
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return output.decode("utf-8", "replace")


def gpu_busy(run: Run = run_tool) -> bool | None:
    """Whether any GPU of the machine computes, somebody else's work included; None when no GPU tells.

    Takes up to GPU_TIMEOUT_S. A GPU that tells no utilization (MIG) answers "[N/A]".
    """
    try:
        output = run(_GPU_QUERY, GPU_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        return None
    numbers = [int(line) for line in map(str.strip, output.splitlines()) if line.isdigit()]
    return any(numbers) if numbers else None
