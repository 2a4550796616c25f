# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two looks at real processes that compute, wait, read, compile or are stopped."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import proc, startup_work

Start = Callable[..., "subprocess.Popen[bytes]"]

BUSY = "while True: pass"
# Each waits for a line before it does its work and says when that is done.
PROMPT = "import subprocess, sys\nprint('here', flush=True)\nsys.stdin.readline()\n"
DONE = "\nprint('done', flush=True)\nsys.stdin.readline()\n"


@pytest.fixture
def start() -> Iterator[Start]:
    groups: list[subprocess.Popen[bytes]] = []

    def begin(program: str, *arguments: str) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [sys.executable, "-S", "-c", program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        groups.append(child)
        return child

    yield begin
    for child in groups:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def sample(child: subprocess.Popen[bytes], *directories: str) -> startup_work.Sample:
    found = proc.read_process(child.pid)
    assert found
    return startup_work.take_sample(child.pid, found.start_ticks, directories)


def watch(child: subprocess.Popen[bytes], seconds: float) -> startup_work.Work:
    before, began = sample(child), time.monotonic()
    time.sleep(seconds)
    return startup_work.compare(before, sample(child), time.monotonic() - began)


def work_of(child: subprocess.Popen[bytes], *directories: str) -> startup_work.Work:
    """What was done between the two lines that the program says."""
    assert child.stdin and child.stdout
    assert child.stdout.readline() == b"here\n"
    before, began = sample(child, *directories), time.monotonic()
    child.stdin.write(b"\n")
    child.stdin.flush()
    assert child.stdout.readline() == b"done\n"
    return startup_work.compare(before, sample(child, *directories), time.monotonic() - began)


def test_loop_is_busy_also_in_a_child(start: Start) -> None:
    loop = start(f"import subprocess, sys\nsubprocess.run([sys.executable, '-S', '-c', {BUSY!r}])")
    assert proc.wait_until(lambda: len(sample(loop).uses) == 2, 5)
    work = watch(loop, 0.5)
    assert work.busy and 0.1 < work.cpu_share < 1.5
    assert work.describe().startswith("busy (") and not work.stopped


def test_sleeper_is_idle(start: Start) -> None:
    sleeper = start("import time; time.sleep(60)")
    assert proc.wait_until(lambda: proc.cmdline(sleeper.pid) != "?", 5)
    time.sleep(0.2)  # Python begins
    work = watch(sleeper, 0.4)
    assert work.describe() == "idle" and not work.working
    assert sample(sleeper).rss_bytes > 1_000_000


def test_stopped_child_is_named_and_what_spins_meanwhile_does_not_count(start: Start) -> None:
    child_of = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'input()'])\n{BUSY}"
    spinning = start(child_of)
    assert proc.wait_until(lambda: len(sample(spinning).uses) == 2, 5)
    (child,) = proc.descendants(spinning.pid, proc.processes())
    os.kill(child.pid, signal.SIGSTOP)
    assert proc.wait_until(lambda: sample(spinning).stopped != (), 5)
    work = watch(spinning, 0.4)
    assert work.cpu_share > 0.1 and not work.working
    assert work.describe() == f"process {child.pid} is stopped"
    os.kill(child.pid, signal.SIGCONT)
    assert proc.wait_until(lambda: sample(spinning).stopped == (), 5)


def test_compiler_is_known_by_its_name(start: Start, tmp_path: Path) -> None:
    compiler = tmp_path / "cicc"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", compiler)
    compiling = start("import subprocess, sys; subprocess.run([sys.argv[1], '60'])", str(compiler))
    assert proc.wait_until(lambda: sample(compiling).compilers == ("cicc",), 5)
    assert watch(compiling, 0.05).describe() == "compiling kernels (cicc)"


def test_objects_that_a_compiler_left_are_counted(start: Start, tmp_path: Path) -> None:
    write = "for n in range(3): open(f'{sys.argv[1]}/{n}.o', 'w').close()"
    work = work_of(start(PROMPT + write + DONE, str(tmp_path)), str(tmp_path))
    assert work.compiling and work.objects_more == 3


@pytest.mark.parametrize("by_child", [False, True])
def test_file_that_was_read_is_told(start: Start, tmp_path: Path, by_child: bool) -> None:
    weights = tmp_path / "weights"
    weights.write_bytes(b"x" * 5_000_000)
    read = "open(sys.argv[1], 'rb').read()"
    if by_child:  # it has ended before the second look
        read = f"subprocess.run([sys.executable, '-S', '-c', {'import sys; ' + read!r}, sys.argv[1]])"
    work = work_of(start(PROMPT + read + DONE, str(weights)))
    assert work.reading and 5_000_000 <= work.read_bytes < 8_000_000
    assert "reading files (5 MB)" in work.describe()


def test_server_that_ended_is_gone(start: Start) -> None:
    child = start("input()")
    before = sample(child)
    found = proc.read_process(child.pid)
    assert found and child.stdin
    child.stdin.write(b"\n")
    child.stdin.flush()
    child.wait(5)
    after = startup_work.take_sample(child.pid, found.start_ticks)
    assert startup_work.compare(before, after, 1).describe() == "gone"
