# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logs of starting servers: real ones from tests/fixtures/startup, and ones written here as the releases write them.

The texts were read in the releases that a style names; see `Style`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.startup_log import Report, StartupLog

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "startup"
#: Name -> the tags of its ranks, and whether they tuned.
REAL: dict[str, tuple[tuple[str, ...], bool]] = {
    "h200-tp1-0.5.12.post1-cold": (("main",), True),
    "h200-tp1-0.5.12.post1-moe-30b-cold": (("main",), True),
    "h200-tp1-0.5.12.post1-gate-closed": (("main",), False),
    "h200x2-tp2-0.5.12.post1-cold": (("TP0", "TP1"), True),
    "h200x2-tp2-0.5.12.post1-cold-piecewise": (("TP0", "TP1"), True),
    "h200x2-tp2-0.5.12.post1-cleared": (("TP0", "TP1"), True),
    "h200x2-tp2-0.5.12.post1-mixed": (("TP0", "TP1"), True),
    "h200x2-tp2-0.5.12.post1-stale-kept": (("TP0", "TP1"), True),
    "h200x2-tp2-0.5.12.post1-gate-closed": (("TP0", "TP1"), False),
}

#: Real starts that failed: reason and rank of the failure, and the stage; None where the log alone tells of none.
FAILED: dict[str, tuple[str, str, str] | None] = {
    "h200x2-tp2-0.5.12.post1-rank-killed": ("rank_dead", "TP1", "autotune"),
    "h200x2-tp2-0.5.12.post1-rank-stopped": None,
    "h200x2-tp2-0.5.12.post1-low-memory": ("oom_cuda", "TP0", "kv_cache"),
}
FIRED_UP = "The server is fired up and ready to roll!"
COMPLETED = "FlashInfer autotune completed."
RUNNING = "Running FlashInfer autotune..."


def real(name: str) -> bytes:
    return (FIXTURES / f"{name}.log").read_bytes()


def read(*pieces: bytes, not_before: str = "", cursor: bool = False) -> StartupLog:
    """A log after these pieces; with `cursor` it goes through JSON after each of them."""
    log = StartupLog(not_before)
    for piece in pieces:
        log.feed(piece)
        if cursor:
            log = StartupLog.from_dict(json.loads(json.dumps(log.to_dict())))
    return log


def report(*pieces: bytes, not_before: str = "") -> Report:
    return read(*pieces, not_before=not_before).report()


def state(log: StartupLog) -> dict[str, Any]:
    """A copy of everything that a log remembers."""
    return json.loads(json.dumps(log.to_dict()))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Style:
    """How a release writes. `order` is that of the tags."""

    release: str
    order: tuple[str, ...] = ("DP", "PP", "ATTN_CP", "MOE_DP", "TP", "EP")
    ms: bool = False
    running: str = "Running FlashInfer autotune with cache: /opt/cache/{key}/rank_tp{number}_pp0_dp0.json"
    weights_end: str = (
        "Load weight end. elapsed=0.13 s, type=Qwen3MoeForCausalLM, avail mem=138.13 GB, mem usage=0.15 GB."
    )
    kv_cache: str = "KV Cache is allocated. #tokens: 9042836, K size: 34.50 GB, V size: 34.50 GB"
    begin: str = "Capture cuda graph begin. This can take up to several minutes. avail mem=68.33 GB"
    end: str = "Capture cuda graph end. Time elapsed: 24.05 s. mem usage=0.25 GB. avail mem=68.08 GB."
    tuned_in_capture: bool = False
    sized_after_capture: bool = False
    dict_arguments: bool = False
    init: str = "Init torch distributed"


_DECODE = "Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1{bs}, avail mem=68.33 GB"
_DECODED = "Capture target decode CUDA graph end. {bs}elapsed=24.05 s, mem usage=0.25 GB, avail mem=68.08 GB."
V0_5_5 = Style("0.5.5", ("DP", "TP", "EP", "PP"), running="")
V0_5_8 = Style(
    "0.5.8",
    ("DP", "PP", "TP", "EP"),
    running=RUNNING,
    weights_end="Load weight end. type=Qwen3MoeForCausalLM, dtype=torch.bfloat16, avail mem=1.1 GB, mem usage=0.1 GB.",
)
V0_5_12 = Style("0.5.12")
V0_5_18 = Style(
    "0.5.18",
    ms=True,
    kv_cache="{label}KV Cache is allocated. dtype: torch.bfloat16, #tokens: 9042836, K size: 3.50 GB, V size: 3.50 GB",
    begin=_DECODE.format(bs=", bs=[1, 2, 4]"),
    end=_DECODED.format(bs=""),
    tuned_in_capture=True,
)
V0_5_23 = Style(
    "0.5.23",
    kv_cache="{label}KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 9042836, KV size: 69.00 GB",
    begin=_DECODE.format(bs=""),
    end=_DECODED.format(bs="bs=[1, 2, 4], "),
    tuned_in_capture=True,
    sized_after_capture=True,
    dict_arguments=True,
    init="Init parallel",
)
STYLES = (V0_5_8, V0_5_12, V0_5_18, V0_5_23)


@dataclass
class Writer:
    """A log that is written line by line; its clock goes on one second with each record."""

    style: Style = V0_5_12
    clock: int = 0
    parts: list[str] = field(default_factory=list)

    def time(self) -> str:
        self.clock += 1
        minutes, seconds = divmod(self.clock, 60)
        return f"2026-11-29 {16 + minutes // 60:02}:{minutes % 60:02}:{seconds:02}" + (".042" if self.style.ms else "")

    def head(self, tags: str = "") -> str:
        return f"[{self.time()}{' ' * bool(tags)}{tags}] "

    def record(self, message: str, tags: str = "") -> Writer:
        self.parts.append(f"{self.head(tags)}{message}\n")
        return self

    def raw(self, text: str) -> Writer:
        self.parts.append(text)
        return self

    def each(self, tags: Iterable[str], message: str, label: str = "") -> Writer:
        for number, tag in enumerate(tags):
            self.record(message.format(number=number, key="89d529c1", label=label), tag)
        return self

    def bars(self, op: str = "trtllm::fused_moe::gemm1", total: int = 9, done: Sequence[int] = (0, 6, 9)) -> Writer:
        for step in done:
            part = 100 * step // total
            drawn = "\u2588" * (part // 10) + " " * (10 - part // 10)
            self.raw(
                f"\r[AutoTuner]: Tuning {op}: {part:3}%|{drawn}| {step}/{total} [00:0{step}<00:01,  1.79profile/s]"
            )
        return self

    @property
    def data(self) -> bytes:
        return "".join(self.parts).encode()


def arguments(style: Style, **sizes: Any) -> str:
    """`server_args=...` as the release writes it."""
    values: dict[str, Any] = {
        "model_path": "/opt/models/qwen, tp_size=99",
        "api_key": None,
        "device": "cuda",
        "tp_size": 1,
        "pp_size": 1,
        "dp_size": 1,
        "ep_size": 1,
        "nnodes": 1,
        "node_rank": 0,
        "enable_dp_attention": False,
        "moe_runner_backend": "flashinfer_cutlass",
        "disable_flashinfer_autotune": False,
        **sizes,
    }
    if style.dict_arguments:
        return f"server_args={values!r}"
    return "server_args=ServerArgs({})".format(", ".join(f"{name}={value!r}" for name, value in values.items()))


def tags_of(style: Style, ranks: Iterable[dict[str, int]]) -> list[str]:
    """The tags of ranks as the release orders them."""
    return [" ".join(f"{name}{rank[name]}" for name in style.order if name in rank) for rank in ranks]


def loaded(style: Style, tags: Sequence[str], **sizes: Any) -> Writer:
    """A start up to the KV cache of every rank."""
    writer = Writer(style).record(arguments(style, **sizes))
    writer.each(tags, f"{style.init} begin.")
    writer.each(tags, f"{style.init} ends. elapsed=16.04 s")
    writer.each(tags, "Load weight begin. avail mem=138.28 GB")
    if tags[0]:
        writer.raw("\rLoading safetensors checkpoint shards:  50% Completed | 1/2 [00:03<00:03,  3.10s/it]\n")
    writer.each(tags, style.weights_end)
    return writer.each(tags, style.kv_cache)


def tuning(writer: Writer, started: Sequence[str], completed: Sequence[str]) -> Writer:
    """Autotune of some ranks, inside of the capture where the release has it there."""
    style = writer.style
    if style.tuned_in_capture:
        writer.each(started, style.begin)
    writer.each(started, style.running).bars()
    writer.bars("trtllm::fused_moe::gemm2", 9, (0, 9)).raw("\n")
    if style is V0_5_18 and started:
        writer.record("FlashInfer autotune: extra EXTEND pass at 8192 tokens (1 seqs x 8192 tokens).", started[0])
    return writer.each(completed, COMPLETED)


def served(writer: Writer, tags: Sequence[str]) -> Writer:
    """What comes after autotune, up to the ready line."""
    style = writer.style
    if not style.tuned_in_capture:
        writer.each(tags, style.begin)
    writer.raw("\rCapturing batches (bs=1 avail_mem=67.90 GB): 100%|\u2588| 3/3 [00:01<00:00, 2.00it/s]")
    writer.each(tags, style.end)
    if style.sized_after_capture:
        writer.each(
            tags,
            "Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 9, KV size: 69.00 GB,"
            " avail mem=1.00 GB",
        )
    writer.record("max_total_num_tokens=9042836, chunked_prefill_size=8192, context_len=8192", tags[0])
    writer.record("INFO:     Application startup complete.")
    writer.record("INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)")
    writer.record('INFO:     127.0.0.1:34794 - "GET /model_info HTTP/1.1" 200 OK')
    return writer.record(FIRED_UP)


def good(style: Style, tags: Sequence[str], tuned: bool = True, **sizes: Any) -> bytes:
    """The log of a whole start in which all went well."""
    writer = loaded(style, tags, **sizes)
    if tuned:
        tuning(writer, tags, tags)
    return served(writer, tags).data


TP8 = [f"TP{number}" for number in range(8)]


def synthetic() -> dict[str, tuple[bytes, tuple[str, ...]]]:
    """Name -> a good start's log, and its ranks' tags as the newest releases order them."""
    found: dict[str, tuple[bytes, tuple[str, ...]]] = {}
    for style in STYLES:
        found[f"tp1-{style.release}"] = good(style, [""]), ("main",)
        found[f"tp8-{style.release}"] = good(style, TP8, tp_size=8), tuple(TP8)
        ep8 = tags_of(style, ({"TP": n, "EP": n} for n in range(8)))
        found[f"tp8-ep8-{style.release}"] = good(style, ep8, tp_size=8, ep_size=8), tuple(ep8)
        pp2 = tags_of(style, ({"PP": p, "TP": t} for p in range(2) for t in range(2)))
        found[f"pp2-tp2-{style.release}"] = good(style, pp2, tp_size=2, pp_size=2), tuple(pp2)
        dp2 = tags_of(style, ({"DP": d, "TP": t} for d in range(2) for t in range(2)))
        found[f"dp2-tp2-{style.release}"] = good(style, dp2, tp_size=2, dp_size=2), tuple(dp2)
        dp4 = tags_of(style, ({"DP": n // 2, "TP": n} for n in range(8)))
        attention = {"attn_dp_size": 4} if style is V0_5_23 else {"dp_size": 4}
        data = good(style, dp4, tp_size=8, enable_dp_attention=True, **attention)
        found[f"dp4-attention-tp8-{style.release}"] = data, tuple(dp4)
    return found


SHAPES_DIFFER = (
    "Scheduler hit an exception: Traceback (most recent call last):\n"
    '  File "site-packages/sglang/srt/managers/scheduler.py", line 3105, in run_scheduler_process\n'
    "    scheduler = Scheduler(\n"
    "                ^^^^^^^^^^\n"
    '  File "site-packages/sglang/srt/model_executor/model_runner.py", line 2551, in _flashinfer_autotune\n'
    "    self._dummy_run(batch_size=self.req_to_token_pool.size)\n"
    '  File "site-packages/torch/distributed/distributed_c10d.py", line 2931, in all_reduce\n'
    "    work = group.allreduce([tensor], opts)\n"
    "RuntimeError: The size of tensor a (4096) must match the size of tensor b (2048) at non-singleton dimension 0\n"
)
SIGQUIT = "Received sigquit from a child process. It usually means the child failed."


def one_of_eight_fails(style: Style = V0_5_12) -> bytes:
    """tp 8: all began to tune, TP2's own exception ends the server, the other seven were done."""
    writer = loaded(style, TP8, tp_size=8)
    tuning(writer, TP8, [tag for tag in TP8 if tag != "TP2"])
    writer.record(SHAPES_DIFFER, "TP2")
    return writer.record(SIGQUIT).data
