# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines that look like something else: quotations, formats of users, caught exceptions, errors that are none."""

from __future__ import annotations

import pytest
from startup_logs import report

from ansible_collections.tokforge.sglang.plugins.module_utils import redact, startup
from ansible_collections.tokforge.sglang.plugins.module_utils.ranks import World
from ansible_collections.tokforge.sglang.plugins.module_utils.startup import Verdict
from ansible_collections.tokforge.sglang.plugins.module_utils.startup_expect import Expectation

T = "2026-11-29 16:25:22"
FIRED_UP = "The server is fired up and ready to roll!"
RUNNING, COMPLETED = "Running FlashInfer autotune...", "FlashInfer autotune completed."
TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n'


def judge(*lines: str, tp: int = 2, expected: str = "expected") -> Verdict:
    text = "".join(f"{line}\n" for line in lines)
    return startup.judge(report(text.encode()), World(tp=tp), Expectation(expected, "as asked"))


@pytest.mark.parametrize(
    "line",
    [
        f"Nov 30 00:00:00 host python3[5]: ansible-wait_for Invoked with search_regex={FIRED_UP}",
        f"Nov 30 00:00:00 host python3[5]: ansible-x Invoked with search_regex={FIRED_UP} path=/x",
        f'INFO sglang: Model said: "{FIRED_UP}"',
        f"INFO sglang: the words {FIRED_UP} were said",
        f"words={FIRED_UP}",
        f'{{"message": "He said: {FIRED_UP}", "level": "INFO"}}',
    ],
)
def test_quotation_in_another_format_is_no_milestone(line: str) -> None:
    assert judge(line, tp=1, expected="not_expected").state == "starting"


@pytest.mark.parametrize(
    "form",
    [
        "INFO 2026-11-29 sglang {}",
        "[2026-11-29 16:25:22,123] INFO {}",
        "[2026-11-29 16:25:22] [INFO] {}",
        "[2026-11-29 16:25:22,001] [sglang.srt] {}",
        "INFO [2026-11-29 16:25:22] {}",
        "[2026-11-29 16:25:22] {}",
        '{{"message": "{}", "level": "INFO"}}',
        '{{"level": "INFO", "logger": "sglang", "event": "{}"}}',
    ],
)
def test_format_without_tags_is_counted_and_says_so(form: str) -> None:
    said = [form.format(text) for text in (RUNNING, RUNNING, COMPLETED)]
    before = judge(*said)
    assert before.state == "starting" and "2 ranks started and 1 completed" in before.notes[0]
    assert judge(*said, form.format(FIRED_UP)).state == "failed"
    whole = judge(*said, form.format(COMPLETED), form.format(FIRED_UP))
    assert (whole.state, whole.failure) == ("ready", None)


@pytest.mark.parametrize("form", ["INFO sglang: {}", "[2026-11-29 16:25:22,123] ERROR {}"])
def test_failure_in_another_format_is_seen(form: str) -> None:
    text = f"Scheduler hit an exception: {TRACE}torch.OutOfMemoryError: CUDA out of memory."
    found = judge(form.format(text), form.format("Received sigquit from a child process."))
    assert found.failure and found.failure.reason == "oom_cuda"


@pytest.mark.parametrize(
    "later", [f"[{T} TP1] something else", "[AutoTuner]: Tuning gemm1:  67%|##  | 6/9 [00:07<00:02, 1.1profile/s]"]
)
def test_caught_traceback_is_no_failure_once_a_rank_goes_on(later: str) -> None:
    caught = f"[{T} TP0] Could not load x\n{TRACE}KeyError: 'x'"
    assert judge(f"[{T} TP0] {RUNNING}", caught).state == "failed"  # nothing came after it, and no process is known
    assert judge(f"[{T} TP0] {RUNNING}", caught, later).state == "starting"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            ["RuntimeError: Ninja build failed. Ninja output:", "FAILED: [code=137] a.cuda.o", "nvcc x", "Killed"],
            "oom_host",
        ),
        (["RuntimeError: Ninja build failed. Ninja output:", "FAILED: [code=1] a.cuda.o"], "compile_failure"),
        (["triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error"], "compile_failure"),
        (["FileNotFoundError: [Errno 2] No such file or directory: 'ninja'"], "compile_failure"),
        (["RuntimeError: NCCL: /dev/shm/nccl-abc: No space left on device (28)"], "oom_host"),
    ],
)
def test_cause_is_told_by_the_text_of_the_exception(lines: list[str], reason: str) -> None:
    found = judge(f"[{T} TP1] Scheduler hit an exception: {TRACE}{lines[0]}", *lines[1:])
    assert found.failure and (found.failure.reason, found.failure.rank) == (reason, "TP1")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "ERROR:    [Errno 98] error while attempting to bind on address ('::', 1): address already in use",
            "port_in_use",
        ),
        ("[Errno 98] Address already in use", "port_in_use"),
        ("ERROR:    [Errno 99] error while attempting to bind on address ('1.2.3.4', 1): cannot assign", "exception"),
        ("ERROR:    [Errno 13] error while attempting to bind on address ('::', 80): permission denied", "exception"),
    ],
)
def test_only_a_port_that_is_taken_is_in_use(text: str, reason: str) -> None:
    found = judge(f"[{T}] {text}")
    assert found.failure and found.failure.reason == reason


def test_traceback_that_torch_prefixes_with_the_rank_is_read() -> None:
    lines = [f"[rank1]: {line}" for line in f"{TRACE}ValueError: this is why".splitlines()]
    found = judge(*lines, f"[{T}] Subprocess scheduler_1 (pid=9) crashed with exit code 1. Triggering SIGQUIT")
    assert found.failure and (found.failure.rank, found.failure.excerpt[-1]) == ("TP1", "ValueError: this is why")


def test_watchdog_names_its_rank_unless_it_is_soft() -> None:
    text = "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft={})"
    quit_line = f"[{T}] Received sigquit from a child process. It usually means the child failed."
    found = judge(f"[{T} TP1] {text.format(False)}", quit_line)
    assert found.failure and found.failure.rank == "TP1"
    assert judge(f"[{T} TP1] {text.format(True)}").failure is None


def test_words_about_illegal_instructions_are_no_error() -> None:
    assert judge(f"[{T} TP0] Disable AMX: this CPU raises Illegal instruction (SIGILL) in it").failure is None
    found = judge(f"[{T} TP0] RuntimeError: illegal instruction")
    assert found.failure and found.failure.reason == "illegal_instruction"


def test_record_before_a_bar_or_around_another_one_is_whole() -> None:
    drawn = "[AutoTuner]: Tuning gemm2:   0%|   | 0/9 [00:00<?, ?profile/s]"
    ready = f"[{T}] {FIRED_UP}"
    assert judge(f"[{T} TP0] {COMPLETED}{drawn}", f"[{T} TP1] {COMPLETED}", ready).state == "ready"
    cut = f"[{T} TP0] FlashInfer auto[{T} TP1] {COMPLETED}tune completed."
    assert judge(cut, ready).state == "ready"


@pytest.mark.parametrize(
    "text",
    [
        "server_args={'api_key': 'sk-SECRETKEY123'}",
        "python x --api-key sk-SECRETKEY123",
        "export HF_TOKEN=sk-SECRETKEY123",
        "Authorization: Bearer sk-SECRETKEY123",
        "hf_SECRETKEY123456789",
    ],
)
def test_secrets_are_hidden_where_they_can_be_told(text: str) -> None:
    assert "SECRETKEY" not in redact.hide_told(text)
    assert redact.hide_told("max_total_num_tokens=5, tokenizer_path='x'").endswith("tokenizer_path='x'")


def test_known_values_are_hidden_in_keys_and_lists_too() -> None:
    data = {"a": ["x canary-value y"], "canary-value": {"b": 1}, "short": "abc"}
    assert redact.hide_values(data, ["canary-value", "abc"]) == {
        "a": ["x <redacted> y"],
        "<redacted>": {"b": 1},
        "short": "abc",
    }
