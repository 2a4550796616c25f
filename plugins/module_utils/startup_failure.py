# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why a start failed: the reasons, how a text tells them, and what to do about each.

The texts are those of SGLang 0.5.6 to 0.5.23, FlashInfer, PyTorch, uvicorn, huggingface_hub and the CUDA compiler.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

EXCEPTION = "exception"
OOM_CUDA, OOM_HOST = "oom_cuda", "oom_host"
COMPILE_FAILURE = "compile_failure"
UNSUPPORTED_ARCHITECTURE = "unsupported_architecture"
ILLEGAL_INSTRUCTION = "illegal_instruction"
GRAPH_CAPTURE_FAILURE = "graph_capture_failure"
RANK_DEAD = "rank_dead"
PROCESS_EXIT = "process_exit"
HUB_OFFLINE = "hub_offline"
PORT_IN_USE = "port_in_use"
AUTOTUNE_SKIPPED = "autotune_skipped"
STALLED = "stalled"

#: Whose record `<name> hit an exception: Traceback ...` may be (0.5.0 to 0.5.23).
PROCESSES = (
    "Scheduler",
    "DataParallelController",
    "TokenizerManager",
    "DetokenizerManager",
    "MultiTokenizerRouter",
    "MultiDetokenizerRouter",
    "TpModelWorkerClient",
    "GrpcRequestManager",
)

HINTS = {
    EXCEPTION: "correct what the last line of the excerpt names",
    OOM_CUDA: "lower mem-fraction-static or the CUDA graphs' sizes, take more GPUs, or end what else holds GPU memory",
    OOM_HOST: "give the host or container more memory; while kernels are compiled a lower MAX_JOBS needs less",
    COMPILE_FAILURE: "look for the compiler's first error; CUDA toolkit, ninja and FlashInfer must fit together",
    UNSUPPORTED_ARCHITECTURE: "this GPU cannot run the chosen kernels: choose another backend (SM120 runs"
    " flashinfer_cutlass)",
    ILLEGAL_INSTRUCTION: "a kernel does not fit this GPU: retry with autotune disabled (disable-flashinfer-autotune) or"
    " another backend",
    GRAPH_CAPTURE_FAILURE: "try smaller CUDA graphs, or none (disable-cuda-graph), to see whether the model runs",
    RANK_DEAD: "look at what the dead rank wrote last, and in the kernel's log for the OOM killer",
    PROCESS_EXIT: "look at the end of the log; a server that ended by itself has failed, also with exit code 0",
    HUB_OFFLINE: "the server is offline on purpose: fetch every file of the model before it starts (role sglang_model)",
    PORT_IN_USE: "end what holds the port, or choose another sglang_port",
    AUTOTUNE_SKIPPED: "the gate of this release may be closed for the backend: open it (sglang_autotune_gate), or do"
    " not expect autotune",
    STALLED: "look at what the missing ranks do; tuning results that only some ranks find make them wait for each"
    " other, so clear the set and start again",
}

# Searched in the whole text of a failure, in this order: what names the cause comes before what names the stage.
_CAUSES: Sequence[tuple[str, re.Pattern[str]]] = (
    (ILLEGAL_INSTRUCTION, re.compile(r"illegal[ _]?instruction", re.IGNORECASE)),
    (
        UNSUPPORTED_ARCHITECTURE,
        re.compile(
            r"Unsupported architecture|No supported CUDA architectures found|\bGot SM\d+"
            r"|no kernel image is available|(?:is )?not supported on (?:this )?(?:SM|compute capability|sm_)\s?\d+",
            re.IGNORECASE,
        ),
    ),
    (
        OOM_HOST,
        re.compile(
            r"\b[Ee]xit code:? -9\b|\bcrashed with exit code -9\b|\bdied due to signal 9\b|DefaultCPUAllocator: "
            r"|\bMemoryError\b|Cannot allocate memory|: fatal error: Killed signal"
            r"|\bKilled\s{1,20}\S{0,400}(?:cicc|nvcc|cc1plus|ptxas)"
            r"|returned non-zero exit status 137|exit status 137\b|^FAILED: \[code=137\]|^Killed\s*$|\boom-kill\b"
            r"|No space left on device.{0,400}/dev/shm|/dev/shm.{0,400}No space left on device|\bterminated with -9\b"
        ),
    ),
    (
        COMPILE_FAILURE,
        re.compile(
            r"Ninja build failed|Command '\[.{0,400}ninja|\bninja: build stopped|(?:nvcc|ptxas) fatal\s"
            r"|CompilationError|PTXASError|\bNVRTC\b|NVCC compilation failed|Error building extension|CppCompileError"
            r"|InductorError|No such file or directory: 'ninja'|Could not find nvcc"
        ),
    ),
    (
        OOM_CUDA,
        re.compile(
            r"CUDA out of memory|OutOfMemoryError|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED"
            r"|Not enough memory\. Please try to increase --mem-fraction-static|cudaErrorMemoryAllocation"
        ),
    ),
    (
        HUB_OFFLINE,
        re.compile(
            r"OfflineModeIsEnabled|offline mode is enabled|outgoing traffic has been disabled|LocalEntryNotFoundError"
            r"|couldn't connect to 'https://huggingface\.co'|Cannot access .{0,400} offline",
            re.IGNORECASE,
        ),
    ),
    (
        PORT_IN_USE,
        re.compile(
            r"\[Errno 98\]|address already in use|EADDRINUSE|(?:\b|_)port (?:\d+ )?is (?:already in use|not available)"
            r"|failed to listen on any local network address|\bat \d+ is not available in \d+ seconds",
            re.IGNORECASE,
        ),
    ),
    (RANK_DEAD, re.compile(r"\bRank \d{1,5} scheduler (?:is dead|died)\b")),
    (GRAPH_CAPTURE_FAILURE, re.compile(r"Capture [\w -]{1,60} failed:|[Pp]iecewise CUDA graph failed")),
)
# What a rank says when another one broke off: it is not the cause.
_CONSEQUENCE = re.compile(
    r"there are other ranks that didn't finish loading|Connection (?:closed by peer|reset by peer|was likely closed)"
    r"|remote process exited|Broken pipe|DistBackendError|Socket closed|\bEOFError\b"
    r"|Timed out waiting \d+ ?ms for (?:recv|send)|ncclRemoteError"
    r"|\bprocess group\b.{0,200}aborted"
)


@dataclass(frozen=True)
class Failure:
    """A start that failed. `rank` is a tag, `main` for the main process or a single rank, empty when nobody is named.

    `stage` is what the rank was at (`autotune` for a failure inside autotune), `excerpt` the traceback up to its last
    line, shortened in its middle.
    """

    reason: str
    rank: str = ""
    stage: str = ""
    excerpt: tuple[str, ...] = ()
    hint: str = ""


def reason_of(text: str, default: str = EXCEPTION) -> str:
    """The reason that a failure's text tells."""
    return next((reason for reason, pattern in _CAUSES if pattern.search(text)), default)


def nearer_cause(one: str, other: str) -> str:
    """Which of two reasons that texts told is nearer to the cause; an empty one is none."""
    order = [reason for reason, _pattern in _CAUSES if reason in (one, other)]
    return order[0] if order else one or other


def is_consequence(text: str) -> bool:
    """Whether a rank's last words only say that another one is gone."""
    return bool(_CONSEQUENCE.search(text))
