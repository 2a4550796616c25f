# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A failure's reason is told by its text, the cause before the stage, and each reason has a hint."""

from __future__ import annotations

import time

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import startup_failure as core


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("torch.AcceleratorError: CUDA error: an illegal instruction was encountered", "illegal_instruction"),
        ("CUDA_ERROR_ILLEGAL_INSTRUCTION", "illegal_instruction"),
        ("Fatal Python error: Illegal instruction", "illegal_instruction"),
        ("CUDA error: an illegal memory access was encountered", "exception"),
        ("RuntimeError: [FP4 gemm Runner] Unsupported architecture", "unsupported_architecture"),
        ("ValueError: cutedsl wants SM100. Got SM120", "unsupported_architecture"),
        ("RuntimeError: No supported CUDA architectures found for major versions [10]", "unsupported_architecture"),
        ("CUDA error: no kernel image is available for execution on the device", "unsupported_architecture"),
        ("trtllm moe is not supported on SM120", "unsupported_architecture"),
        ("not supported on compute capability 12", "unsupported_architecture"),
        ("Rank 3 scheduler died during initialization (exit code: -9).", "oom_host"),
        ("Rank 3 scheduler died (exit code: 1). If exit code is -9 (SIGKILL), a common cause is", "rank_dead"),
        ("[t] Exit code: -9", "oom_host"),
        ("exit code: -99", "exception"),
        ("Subprocess scheduler_1 (pid=7) crashed with exit code -9", "oom_host"),
        ("nvcc error   : 'cicc' died due to signal 9 (Kill signal)\nninja: build stopped", "oom_host"),
        ("c++: fatal error: Killed signal terminated program cc1plus", "oom_host"),
        ("OSError: [Errno 12] Cannot allocate memory", "oom_host"),
        ("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory", "oom_host"),
        ("MemoryError", "oom_host"),
        ("RuntimeError: Ninja build failed. Ninja output:\nFAILED: x.o", "compile_failure"),
        ("CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1", "compile_failure"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_120a'", "compile_failure"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "oom_cuda"),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current", "oom_cuda"),
        ("Exception: Capture cuda graph failed: CUDA out of memory", "oom_cuda"),
        ("Exception: Capture cuda graph failed: operation not permitted when stream is capturing",
         "graph_capture_failure"),
        ("Capture single-CG draft extend failed: x", "graph_capture_failure"),
        ("Piecewise CUDA graph failed with error", "graph_capture_failure"),
        ("OSError: We couldn't connect to 'https://huggingface.co' to load", "hub_offline"),
        ("huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files", "hub_offline"),
        ("OfflineModeIsEnabled: Cannot reach https://x: offline mode is enabled.", "hub_offline"),
        ("[Errno 98] error while attempting to bind on address ('::', 1): address already in use", "port_in_use"),
        ("[errno 98] Address already in use", "port_in_use"),
        ("zmq.error.ZMQError: Address already in use", "port_in_use"),
        ("ValueError: detokenizer_port at 30001 is not available in 30 seconds. x", "port_in_use"),
        ("RuntimeError: engine_info_bootstrap_port 6789 is already in use. x", "port_in_use"),
        ("Rank 3 scheduler is dead. Please check if there are relevant logs.", "rank_dead"),
        ("ValueError: x", "exception"),
        ("", "exception"),
    ],
)  # fmt: skip
def test_a_text_tells_its_reason(text: str, reason: str) -> None:
    assert core.reason_of(text) == reason


def test_a_text_that_tells_nothing_has_the_reason_that_was_known() -> None:
    assert core.reason_of("hello", core.PORT_IN_USE) == core.PORT_IN_USE


def test_the_cause_is_nearer_than_the_stage_in_either_order() -> None:
    pairs = [(core.OOM_CUDA, core.GRAPH_CAPTURE_FAILURE), (core.OOM_HOST, core.COMPILE_FAILURE),
             (core.ILLEGAL_INSTRUCTION, core.OOM_CUDA), (core.OOM_HOST, core.RANK_DEAD)]  # fmt: skip
    for near, far in pairs:
        assert core.nearer_cause(near, far) == core.nearer_cause(far, near) == near
    assert core.nearer_cause("", core.OOM_CUDA) == core.nearer_cause(core.OOM_CUDA, "") == core.OOM_CUDA
    assert core.nearer_cause("", "") == ""


def test_every_reason_has_a_hint() -> None:
    reasons = {value for name, value in vars(core).items() if name.isupper() and isinstance(value, str)}
    assert set(core.HINTS) == reasons
    assert len(reasons) == 13


@pytest.mark.parametrize(
    ("text", "consequence"),
    [
        ("torch.distributed.DistBackendError: NCCL error in: x", True),
        ("RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.1]:1", True),
        ("ConnectionResetError: [Errno 104] Connection reset by peer", True),
        ("BrokenPipeError: [Errno 32] Broken pipe", True),
        ("EOFError", True),
        ("RuntimeError: The size of tensor a must match", False),
    ],
)
def test_a_lost_peer_is_a_consequence(text: str, consequence: bool) -> None:
    assert core.is_consequence(text) is consequence


def test_a_long_text_is_judged_at_once() -> None:
    begun = time.process_time()
    words = "No space left on device ", "Killed ", "Command '[", "Cannot access ", "not supported on ", "process group "
    for text in (
        *(word * (60_000 // len(word)) for word in words),
        "Killed " + "x" * 60_000,
        "Capture " + "a " * 30_000,
    ):
        core.reason_of(text)
        core.is_consequence(text)
    assert time.process_time() - begun < 1
