# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes and sockets as /proc shows them, and signals that reach only who was meant."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import proc


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    # exec closes the pipe that Popen waits for a moment before the arguments are in place.
    assert proc.wait_until(lambda: proc.cmdline(child.pid) != "?", 5)
    yield child
    child.kill()
    child.wait()


def fake_proc(directory: Path, pid: int, stat: str) -> str:
    (directory / str(pid)).mkdir()
    (directory / str(pid) / "stat").write_text(stat)
    return str(directory)


def test_name_with_spaces_and_parentheses_does_not_shift_the_fields(tmp_path: Path) -> None:
    fields = " ".join(str(number) for number in range(4, 53))
    root = fake_proc(tmp_path, 77, f"77 (a) b (c)) S {fields}\n")
    found = proc.read_process(77, root)
    assert found == proc.Process(77, start_ticks=22, ppid=4, pgrp=5, session=6, state="S", comm="a) b (c)")


def test_zombie_is_not_among_the_living(tmp_path: Path) -> None:
    fake_proc(tmp_path, 5, "5 (x) Z " + " ".join(["1"] * 49))
    assert proc.processes(str(tmp_path)) == []
    assert [process.pid for process in proc.processes(str(tmp_path), zombies=True)] == [5]


def test_usage_of_a_process(tmp_path: Path) -> None:
    # Number N - 4 stands in field N.
    root = fake_proc(tmp_path, 77, "77 (a b) S " + " ".join(str(number) for number in range(49)))
    page = os.sysconf("SC_PAGE_SIZE")
    assert proc.read_usage(77, root) == proc.Usage(ticks=10 + 11, waited_ticks=12 + 13, rss_bytes=20 * page)
    (tmp_path / "77/io").write_text("rchar: 5\nwchar: 6\nsyscr: 7\nread_bytes: 8\ncancelled_write_bytes: 9\n")
    found = proc.read_usage(77, root)
    assert found and (found.rchar, found.read_bytes) == (5, 8)
    assert proc.read_usage(78, root) is None


def test_usage_counts_what_was_read_and_computed() -> None:
    before = proc.read_usage(os.getpid())
    with open(sys.executable, "rb") as stream:
        count = len(stream.read())
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    after = proc.read_usage(os.getpid())
    assert before and after and count > 0 and after.rss_bytes > 1_000_000
    assert after.rchar - before.rchar >= count
    assert 5 <= after.ticks - before.ticks <= 100


def test_missing_process_is_none() -> None:
    assert proc.read_process(2**22 + 1) is None


def test_signal_reaches_the_process(sleeper: subprocess.Popen[bytes]) -> None:
    found = proc.read_process(sleeper.pid)
    assert found and proc.send(found, signal.SIGTERM)
    assert sleeper.wait(5) == -signal.SIGTERM


def test_reused_pid_is_not_signalled(sleeper: subprocess.Popen[bytes]) -> None:
    found = proc.read_process(sleeper.pid)
    assert found
    assert proc.send(replace(found, start_ticks=found.start_ticks - 1), signal.SIGKILL) is False
    time.sleep(0.1)
    assert sleeper.poll() is None


def test_without_pidfd_the_start_time_is_still_checked(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    found = proc.read_process(sleeper.pid)
    assert found
    assert proc.send(replace(found, start_ticks=1), signal.SIGKILL) is False
    assert proc.send(found, signal.SIGTERM) is True
    assert sleeper.wait(5) == -signal.SIGTERM


def test_signal_to_a_gone_process_is_false(sleeper: subprocess.Popen[bytes]) -> None:
    found = proc.read_process(sleeper.pid)
    sleeper.kill()
    sleeper.wait()
    assert found and proc.send(found, signal.SIGTERM) is False


def test_kill_all_ends_those_forked_meanwhile_and_those_that_ignore_the_first_signal() -> None:
    program = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: os.fork())\n"  # every SIGTERM makes one more
        "while True: time.sleep(1)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    try:
        time.sleep(0.3)
        left = proc.kill_all(lambda: [p for p in proc.processes() if p.pgrp == child.pid], timeout_s=0.5)
        assert left == []
    finally:
        child.wait()


def test_kill_all_without_a_first_signal_only_waits(sleeper: subprocess.Popen[bytes]) -> None:
    began = time.monotonic()
    assert proc.kill_all(lambda: [p for p in proc.processes() if p.pid == sleeper.pid], 0.4, first=None) == []
    assert time.monotonic() - began >= 0.4
    assert sleeper.wait() == -signal.SIGKILL


def test_descendants_are_found_through_dead_ends_and_not_beyond() -> None:
    def one(pid: int, ppid: int) -> proc.Process:
        return proc.Process(pid, 1, ppid, pid, pid, "S", "x")

    among = [one(1, 0), one(10, 1), one(11, 10), one(12, 11), one(20, 1)]
    assert {process.pid for process in proc.descendants(10, among)} == {11, 12}


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::1")]
)
def test_listener_is_found_with_its_address_and_owner(family: socket.AddressFamily, address: str) -> None:
    with socket.socket(family) as server:
        try:
            server.bind((address, 0))
        except OSError:
            pytest.skip(f"no {address} on this machine")
        port = server.getsockname()[1]
        assert proc.listeners(port) == []  # bound only
        server.listen()
        assert proc.listeners(port) == [proc.Listener(address, port, os.getuid(), (os.getpid(),))]
    assert proc.listeners(port) == []


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["s", "--api-key", "abc", "--port", "1"], "s --api-key <redacted> --port 1"),
        (["s", "--api-key=a=b"], "s --api-key=<redacted>"),
        (["s", "--hf-token", "abc"], "s --hf-token <redacted>"),
        (["s", "--password", "--token", "x"], "s --password <redacted> x"),
        (
            ["s", "--token=x", "--HF_TOKEN", "y", "--admin-api-keys", "z"],
            "s --token=<redacted> --HF_TOKEN <redacted> --admin-api-keys <redacted>",
        ),
        (
            ["s", "--ssl-keyfile-password", "x", "--token-file", "y"],
            "s --ssl-keyfile-password <redacted> --token-file <redacted>",
        ),
        # Numbers and paths that only have such a word inside.
        (
            ["s", "--max-total-tokens", "8192", "--max-prefill-tokens=9"],
            "s --max-total-tokens 8192 --max-prefill-tokens=9",
        ),
        (["s", "--tokenizer-path", "/m", "--tokenizer-mode=auto"], "s --tokenizer-path /m --tokenizer-mode=auto"),
        (["s", "--ssl-keyfile", "/k", "--keyboard", "de"], "s --ssl-keyfile /k --keyboard de"),
        (["monkey", "key", "value"], "monkey key value"),
        (["env", "HF_TOKEN=hf_abcdefgh1", "API_KEY=x y", "s"], "env HF_TOKEN=<redacted> API_KEY=<redacted> s"),
        (
            ["s", "--url=u?t=hf_abcdefgh1&x", "MAX_TOKENS=5", "hf_cache"],
            "s --url=u?t=<redacted>&x MAX_TOKENS=5 hf_cache",
        ),
    ],
)
def test_secrets_in_a_command_line_are_hidden(words: list[str], shown: str) -> None:
    assert " ".join(proc.hide_secrets(words)) == shown


def test_long_command_line_is_cut(sleeper: subprocess.Popen[bytes]) -> None:
    text = proc.cmdline(sleeper.pid, limit=20)
    assert len(text) == 20 and text.endswith("...")
    assert proc.cmdline(2**22 + 1) == "?"


def test_environment_of_a_process(sleeper: subprocess.Popen[bytes]) -> None:
    assert proc.environ(sleeper.pid)["PATH"] == os.environ["PATH"]
    assert proc.environ(2**22 + 1) == {}


def test_restarted_container_is_another_boot_although_the_kernel_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("0d5f\n")
    stat = "1 (systemd) S " + " ".join(["1"] * 18) + " {} " + " ".join(["1"] * 30)
    root = fake_proc(tmp_path, 1, stat.format(500))
    first = proc.boot_id(root)
    (tmp_path / "1/stat").write_text(stat.format(900))
    assert proc.boot_id(root) != first


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (proc.exited(0), "exited with code 0"),
        (proc.killed(9), "was killed by signal 9 (SIGKILL)"),
        (proc.killed(signal.SIGSEGV, dumped_core=True), "was killed by signal 11 (SIGSEGV) and dumped core"),
        (proc.killed(40), "was killed by signal 40"),
    ],
)
def test_end_of_a_process_in_words(words: str, expected: str) -> None:
    assert words == expected
