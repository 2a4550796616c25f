# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What two looks at a starting server say about its work, from a /proc that the test writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import proc, startup_work
from ansible_collections.tokforge.sglang.plugins.module_utils.startup_work import (
    Sample,
    Work,
    compare,
    count_objects,
    gpu_busy,
    kernel_directories,
)

HZ = os.sysconf("SC_CLK_TCK")
MAIN, START = 100, 7


class FakeProc:
    """A /proc with the server's main process, which leads its group, and what the test adds."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self.set(MAIN, ppid=1)

    def set(
        self,
        pid: int,
        ppid: int = MAIN,
        state: str = "S",
        comm: str = "python",
        ticks: int = 0,
        waited: int = 0,
        group: int = MAIN,
        start: int = START,
        read: tuple[int, int] | None = None,
        pages: int = 1,
    ) -> None:
        (self.root / str(pid)).mkdir(exist_ok=True)
        fields = [state, ppid, group, group, *[0] * 7, ticks, 0, 0, waited, *[0] * 4, start, 0, pages, *[0] * 28]
        (self.root / str(pid) / "stat").write_text(f"{pid} ({comm}) " + " ".join(str(field) for field in fields))
        if read:
            (self.root / str(pid) / "io").write_text(f"rchar: {read[0]}\nwchar: 9\nread_bytes: {read[1]}\n")

    def end(self, pid: int) -> None:
        for file in (self.root / str(pid)).iterdir():
            file.unlink()
        (self.root / str(pid)).rmdir()

    def look(self, directories: Sequence[str] = ()) -> Sample:
        """Through JSON, as between two runs."""
        sample = startup_work.take_sample(MAIN, START, directories, str(self.root))
        return Sample.from_dict(json.loads(json.dumps(asdict(sample))))


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


def test_tree_is_descendants_and_the_own_group(fake: FakeProc) -> None:
    fake.set(101, pages=10)
    fake.set(102, ppid=101, group=102, pages=100)  # a descendant in a group of its own
    fake.set(103, ppid=1, pages=1000)  # of the group, its parent is gone
    fake.set(104, ppid=1, group=1, pages=10000)  # somebody else's
    found = fake.look()
    assert sorted(found.uses) == ["100-7", "101-7", "102-7", "103-7"]
    assert found.rss_bytes == 1111 * os.sysconf("SC_PAGE_SIZE")
    assert found.alive and found.ticks_per_s == HZ


def test_group_that_the_server_does_not_lead_is_not_its_own(fake: FakeProc) -> None:
    fake.set(MAIN, ppid=1, group=50)
    fake.set(103, ppid=1, group=50)
    assert sorted(fake.look().uses) == ["100-7"]


def test_main_process_that_is_gone_or_another_one(fake: FakeProc) -> None:
    before = fake.look()
    fake.set(MAIN, start=START + 1, ticks=1000)
    work = compare(before, fake.look(), 1)
    assert work.ended and not work.working and work.describe() == "gone"
    fake.set(MAIN, state="Z")
    assert not fake.look().alive


@pytest.mark.parametrize(("ticks", "busy"), [(0.1, False), (0.11, True), (0.98, True)])
def test_busy_is_more_than_a_tenth_of_a_core(fake: FakeProc, ticks: float, busy: bool) -> None:
    fake.set(101, ticks=500)
    before = fake.look()
    fake.set(101, ticks=500 + int(ticks * 10 * HZ))
    work = compare(before, fake.look(), 10)
    assert work.busy == work.working == busy
    assert work.cpu_share == pytest.approx(ticks)
    assert work.describe() == (f"busy ({ticks * 100:.0f} % of a core)" if busy else "idle")


def test_several_cores_in_words(fake: FakeProc) -> None:
    before = fake.look()
    fake.set(101, ticks=16 * HZ)
    fake.set(102, ticks=16 * HZ)
    assert compare(before, fake.look(), 10).describe() == "busy (3.2 cores)"


def test_child_that_ended_is_neither_lost_nor_counted_twice(fake: FakeProc) -> None:
    fake.set(101, ticks=100 * HZ, read=(5_000_000, 0))
    fake.set(102, ticks=40 * HZ)
    before = fake.look()
    # Waited for by its parent, which it hands its numbers; half a second of them is new.
    fake.end(101)
    fake.set(MAIN, ppid=1, waited=100 * HZ + HZ // 2, read=(5_000_009, 0))
    work = compare(before, fake.look(), 1)
    assert work.cpu_share == pytest.approx(0.5) and work.read_bytes == 9
    # Nobody waited for this one: its numbers are gone, those of the others still count.
    before = fake.look()
    fake.end(102)
    fake.set(103, ticks=HZ // 4)
    assert compare(before, fake.look(), 1).cpu_share == pytest.approx(0.25)


def test_child_that_came_and_ended_between_two_looks_counts(fake: FakeProc) -> None:
    before = fake.look()
    fake.set(MAIN, ppid=1, waited=HZ)
    assert compare(before, fake.look(), 1).cpu_share == 1


def test_zombie_still_has_its_numbers(fake: FakeProc) -> None:
    fake.set(101, ticks=100 * HZ)
    before = fake.look()
    fake.set(101, ticks=100 * HZ, state="Z", comm="cicc")
    after = fake.look()
    assert compare(before, after, 1).describe() == "idle"
    fake.end(101)
    fake.set(MAIN, ppid=1, waited=100 * HZ)
    assert compare(after, fake.look(), 1).describe() == "idle"


@pytest.mark.parametrize("column", [0, 1])
def test_reading_is_more_than_a_mebibyte_by_call_or_from_a_disk(fake: FakeProc, column: int) -> None:
    fake.set(101, read=(0, 0))
    before = fake.look()
    more = [0, 0]
    for read, reading in ((1 << 20, False), ((1 << 20) + 1, True), (120_000_000, True)):
        more[column] = read
        fake.set(101, read=(more[0], more[1]))
        work = compare(before, fake.look(), 1)
        assert work.reading == reading and work.read_bytes == read
    assert work.describe() == "reading files (120 MB)"


def test_stopped_process_makes_spinning_no_work(fake: FakeProc) -> None:
    before = fake.look()
    fake.set(101, ticks=HZ)
    fake.set(102, state="T")
    work = compare(before, fake.look(), 1)
    assert work.stopped == (102,) and not work.busy and not work.working
    assert work.describe() == "process 102 is stopped"
    fake.set(103, state="t", comm="cicc")
    work = compare(before, fake.look(), 1)
    assert not work.compiling  # a stopped compiler compiles nothing
    assert work.describe() == "processes 102, 103 are stopped"


def test_compilers_and_new_objects(fake: FakeProc, tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    before = fake.look([str(kernels)])
    assert before.objects == 0
    kernels.mkdir()
    (kernels / "a.o").touch()
    grown = fake.look([str(kernels)])
    assert compare(before, grown, 1).describe() == "compiling kernels (1 object more)"
    fake.set(101, comm="cicc")
    fake.set(102, ppid=101, comm="cicc")
    fake.set(103, comm="gccx")
    work = compare(grown, fake.look([str(kernels)]), 1)
    assert work.compiling and work.compilers == ("cicc", "cicc") and work.objects_more == 0
    assert work.describe() == "compiling kernels (cicc)"
    for number in range(12):
        (kernels / f"{number}.cubin").touch()
    assert compare(grown, fake.look([str(kernels)]), 1).describe() == "compiling kernels (12 objects more, cicc)"


def test_objects_are_counted_in_the_directories_and_not_behind_links(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    (inside / "deep/er").mkdir(parents=True)
    outside.mkdir()
    for name in ("in/a.o", "in/deep/b.so", "in/deep/er/c.ptx", "in/d.cu", "in/o", "out/e.o"):
        (tmp_path / name).touch()
    (inside / "link").symlink_to(outside)
    (inside / "loop").symlink_to(inside)
    (inside / "f.o").symlink_to(outside / "e.o")
    (tmp_path / "given").symlink_to(inside)
    missing = str(tmp_path / "missing")
    assert count_objects([str(inside), missing]) == 3
    assert count_objects([str(inside), str(inside / "deep"), str(tmp_path / "given"), str(outside)]) == 4


def test_counting_objects_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        (tmp_path / f"{number}.o").touch()
    monkeypatch.setattr(startup_work, "MOST_ENTRIES", 20)
    assert count_objects([str(tmp_path), str(tmp_path.parent)]) == 20


def test_time_that_did_not_pass_is_no_work(fake: FakeProc) -> None:
    before = fake.look()
    fake.set(101, ticks=HZ)
    assert compare(before, fake.look(), 0) == Work(False, False, False)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, []),
        (
            {"HOME": "/h"},
            [
                "/h/.cache/flashinfer",
                "/h/.triton/cache",
                "/h/.cache/torch_extensions",
                "/h/.cache/deep_gemm",
                "/h/.cache/sglang/deep_gemm",
                "/h/.cache/sglang/jit",
                "/h/.cache/tvm-ffi",
            ],
        ),
        # What is inside another one is left out; relative paths mean nothing here.
        (
            {
                "FLASHINFER_WORKSPACE_BASE": "/r/cache/jit/x",
                "TRITON_CACHE_DIR": "/r/cache/triton/",
                "TRITON_HOME": "/not/used",
                "TORCHINDUCTOR_CACHE_DIR": "/r/cache/triton/inductor",
                "XDG_CACHE_HOME": "/r/cache",
                "SGLANG_CACHE_DIR": "/r/cache/sglang",
                "SGLANG_JIT_CACHE_DIR": "jit",
            },
            [
                "/r/cache/jit/x/.cache/flashinfer",
                "/r/cache/triton",
                "/r/cache/torch_extensions",
                "/r/cache/sglang/deep_gemm",
            ],
        ),
        (
            {"SGLANG_DG_CACHE_DIR": "/dg", "SGLANG_CACHE_DIR": "/s", "TRITON_HOME": "/t", "TORCH_EXTENSIONS_DIR": "/e"},
            ["/t/.triton/cache", "/e", "/dg"],
        ),
        ({"FLASHINFER_WORKSPACE_BASE": "", "TVM_FFI_CACHE_DIR": "/f"}, ["/f"]),
    ],
)
def test_kernel_directories(environ: Mapping[str, str], expected: list[str]) -> None:
    assert kernel_directories(environ) == expected


@pytest.mark.parametrize(
    ("output", "busy"),
    [("0\n0\n", False), ("0\n37\n", True), ("[N/A]\n", None), ("[N/A]\n5\n", True), ("", None), ("No devices\n", None)],
)
def test_gpu_busy_is_what_the_numbers_say(output: str, busy: bool | None) -> None:
    asked: list[tuple[Sequence[str], float]] = []

    def run(command: Sequence[str], timeout_s: float) -> str:
        asked.append((command, timeout_s))
        return output

    assert gpu_busy(run) is busy
    assert asked == [(("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"), 3.0)]


def test_gpu_busy_is_unknown_without_the_tool_and_when_it_fails_or_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_busy() is None
    tool = tmp_path / "nvidia-smi"
    for line, busy in (("print(12)", True), ("print(12); exit(9)", None), ("import time; time.sleep(60)", None)):
        tool.write_text(f"#!{sys.executable} -S\n{line}\n")
        tool.chmod(0o755)
        monkeypatch.setattr(startup_work, "GPU_TIMEOUT_S", 3.0 if busy or "exit" in line else 0.3)
        began = time.monotonic()
        assert gpu_busy() is busy
        assert time.monotonic() - began < 3


def test_tool_that_takes_too_long_is_ended() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        startup_work.run_tool([sys.executable, "-c", "import time; time.sleep(61.25)"], 0.3)
    left = [process.pid for process in proc.processes() if "time.sleep(61.25)" in " ".join(proc.argv(process.pid))]
    assert [pid for pid in left if pid != os.getpid()] == []
