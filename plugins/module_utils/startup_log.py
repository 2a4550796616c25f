# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a starting server's log says: bytes in, the state of every rank out.

`StartupLog.feed` takes the log in pieces of any size and gives the same state for any cut: only whole lines count, and
what is not whole yet is kept. `StartupLog.report` is the state now. It knows nothing of files, clocks and processes.

A log is hostile. Progress bars end without a newline, so several bars and records share a physical line, and a record
of one rank can stand inside that of another. A prompt that is logged can quote a milestone. So a record counts only
with its whole head, its message must begin with the milestone's words, and nothing inside quotes counts.

Memory is bounded: of a line that is longer than _LONGEST only its two ends are kept, of a traceback its first line and
its last ones. Time goes with the new bytes: a line is looked at only when it holds one of a few words.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import log_noise, redact, startup_failure
from ansible_collections.tokforge.sglang.plugins.module_utils.ranks import Rank, parse_tags
from ansible_collections.tokforge.sglang.plugins.module_utils.startup_failure import Failure

# In the order in which a rank reaches them.
WEIGHTS_BEGUN, WEIGHTS_LOADED, KV_CACHE = "weights_begun", "weights_loaded", "kv_cache"
AUTOTUNE_STARTED, AUTOTUNE_COMPLETED = "autotune_started", "autotune_completed"
GRAPHS_BEGUN, GRAPHS_CAPTURED, LOADED = "cuda_graphs_begun", "cuda_graphs_captured", "loaded"
# Of the main process.
ARGUMENTS, LISTENING, READY, NODE_READY = "arguments", "listening", "ready", "node_ready"

NONE, STARTED, COMPLETED = "none", "started", "completed"
# How the records look: as SGLang writes them by itself, or another way, in which no rank can be told.
UNKNOWN, STANDARD, CUSTOM = "unknown", "standard", "custom"

SCHEMA = 1
# server_args=... is the longest line that is read (12 kB in 0.5.12.post1).
_LONGEST = 64 * 1024
# So much is searched at a time; less after a line that changed what is searched for.
_LEAST_PART, _PART = 256, 128 * 1024
_LINE_CHARACTERS = 400
_TRACE_FIRST, _TRACE_LAST = 2, 40
# A traceback with more lines than that is closed as it is: it would never end.
_TRACE_LINES = 2000
_FAILURES = 16
_FRAGMENTS = 4
# So many lines after a broken record the rest of it is still waited for.
_FRAGMENT_LINES = 20
# Above the largest server there is; a hostile log must not fill the memory with ranks.
_RANKS = 4096
_OPERATIONS = 64

_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,6})?"
_HEAD = re.compile(rf"\[(?P<time>{_TIME})(?P<tags>(?: [A-Z][A-Z_]*\d{{1,6}}){{0,6}})\] ")
_TAGGED_BYTES = re.compile(rb"\[20\d\d-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,6})? [A-Z][^\[\]\r\n]{0,90}\] ")
_HEAD_BYTES = re.compile(rb"\[20\d\d-\d\d-\d\d \d\d:\d\d:\d\d[^\[\]\r\n]{0,90}\] ")
# The beginning of a head that the next record cut off.
_HALF_HEAD = re.compile(r"\[20\d\d-\d\d-\d\d[^\[\]]{0,60}\]?$")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# uvicorn's records have SGLang's head, whatever format SGLang's own records have.
_UVICORN = re.compile(r"(?:INFO|WARNING|ERROR|CRITICAL|DEBUG|TRACE): ")
# What is logged of requests: it quotes what users wrote.
_REQUEST = re.compile(
    r"\s{0,20}(?:Receive|Finish|Request|Abort)\b.{0,40}?obj=|[{].{0,200}\"event\": ?\"request\.|\b\w+ReqInput\("
)

# Beginnings of messages that are looked at. The bytes come first, since most lines of a log hold none of them.
_MESSAGES = (
    "Load weight ",
    "KV Cache ",
    "Post-capture KV sizing: KV cache allocated",
    "Running FlashInfer autotune",
    "FlashInfer autotune completed",
    "Capture ",
    "max_total_num_tokens=",
    "server_args=",
    "INFO:     Uvicorn running on ",
    "INFO:     The server is fired up",
    "The server is fired up",
    "Starting dummy health check server",
    "Dummy health check server ",
    "ERROR:    [",
    "[Errno ",
    "[errno ",
    "Port is already in use",
    "Received sigquit from a child process",
    "SIGQUIT received",
    "Initialization failed",
    "Rank ",
    "Subprocess ",
    "Scheduler or DataParallelController ",
    "Exit code: ",
    "Ignore import error when loading ",
    *(f"{name} hit an exception" for name in startup_failure.PROCESSES),
)
_MESSAGE_BYTES = re.compile(rb"\] (?:" + b"|".join(re.escape(text.encode()) for text in _MESSAGES) + rb")")
# From 0.5.17 on a label stands before it (a draft's).
_LABELLED_BYTES = (b" KV Cache is allocated", b" KV Cache VA upper bound")
_FAILED_BYTES = (
    b"Traceback",
    b"Exception ignored ",
    b"Error in atexit.",
    b"Error in sys.exitfunc",
    b"Fatal Python error: ",
    b"terminate called after",
    b"llegal instruction",
    b"atchdog timeout (",
)
_BAR_BYTES = (b"%|", b"% Completed |")
_LAUNCHER_BYTES = b"tokforge: "
# All of the tuner's noise names a tactic.
_NOISE_BYTES = b"tactic"
# With another format than SGLang's own: words that are counted wherever they stand in a line.
_ANYWHERE = {
    ARGUMENTS: "server_args=",
    AUTOTUNE_STARTED: "Running FlashInfer autotune",
    AUTOTUNE_COMPLETED: "FlashInfer autotune completed",
    WEIGHTS_LOADED: "Load weight end",
    READY: "The server is fired up and ready to roll!",
}
_ANYWHERE_BYTES = (*(text.encode() for text in _ANYWHERE.values()), b"Received sigquit from a child process")
# Where a program logs with which arguments it looks at a log.
_INVOKED = "Invoked with "
_FAILED_ANYWHERE = re.compile(
    "(?:" + "|".join(startup_failure.PROCESSES) + r") hit an exception\b|Received sigquit from a child process"
)

# Written so that none looks at the same blanks twice: a line can hold 64 kB of them.
# Behind it may stand a bar, figures, or the end of a record that it broke off, but no sentence that goes on.
_COMPLETED = re.compile(r"FlashInfer autotune completed\.(?:\s*$|(?=[^\s'\"])|\s+(?=\w+=|\[))")
_STARTED = re.compile(
    r"Running FlashInfer autotune(?:(?:\.\.\.)?\s*$|\s+with cache: (?P<cache>\S.*)|\s+\(cache reuse )"
)
# With several tokenizer workers it has uvicorn's form.
_FIRED_UP = re.compile(r"(?:INFO:\s+)?The server is fired up and ready to roll!\s*$")
# The last words of a node other than the first, which serves nobody.
_NODE_READY = re.compile(
    r"(?:Starting dummy health check server|Dummy health check server (?:scheduled on existing loop|started in"
    r" background thread)) at "
)
_KV_CACHE = re.compile(
    r"(?:[\w.:()-]+ ){0,4}?KV Cache (?:is allocated|VA upper bound|skipped)|Post-capture KV sizing: KV cache"
)
_GRAPHS = re.compile(r"Capture (?P<name>[\w() -]{1,60}?) (?P<what>begin|end)(?: \(step \d+\))?\.")
_ELAPSED = re.compile(r"\b(?:elapsed=|Time elapsed: |capture in )(?P<s>\d{1,7}(?:\.\d{1,6})?) ?s\b")
_EXCEPTION_HEAD = re.compile("(?:" + "|".join(startup_failure.PROCESSES) + r") hit an exception\b")
_RANK_DEAD = re.compile(
    r"\bRank (?P<rank>\d{1,5}) scheduler (?:is dead|died)\b|Subprocess scheduler_(?P<process>\d{1,5}) .{0,60}?crashed\b"
)
_CRASHED = re.compile(r"Subprocess \S+ .{0,60}?crashed\b|Scheduler or DataParallelController \d+ terminated with ")
_BIND = re.compile(
    r"(?:ERROR:\s+)?\[Errno \d+\] (?:error while attempting to bind on address|Address already in use)"
    r"|Port is already in use\.",
    re.IGNORECASE,
)
_GRAPH_FAILED = re.compile(r"Capture [\w -]{1,60} failed:")
_RAW_FATAL = re.compile(r"(?:Fatal Python error: |terminate called after throwing )")
_ILLEGAL = re.compile(r"\billegal instruction\b", re.IGNORECASE)
_TORCH_RANK = re.compile(r"\[rank(?P<rank>\d{1,5})\]: ?")
_WATCHDOG = re.compile(r"(?:\w+ )?[Ww]atchdog timeout \((?!.*soft=True)")
_ERROR = re.compile(r"[Ee]rror|encountered|[Ff]atal|core dumped")
_TRACEBACK = "Traceback (most recent call last):"
# Tracebacks that end nothing.
_HARMLESS = re.compile(r"Exception ignored (?:in|on)\b|Error in atexit\._run_exitfuncs|Error in sys\.exitfunc")
_FINAL = re.compile(r"[A-Za-z_][\w.]*(?:: .*|:)?$")
_CHAINED = re.compile(r"(?:During handling of the above exception|The above exception was the direct cause)")
# tqdm's bar behind its description: `: 67%|###   | 6/9 [00:07<00:02, ...]`, also `: 50% Completed | 2/4 [...]`.
_BAR = re.compile(
    r"(?<!\d)\d{1,3}%(?:\|[^|\r\n]{0,400}\|| Completed \|) *(?P<done>\d{1,9})/(?P<total>\d{1,9})"
    r" \[(?P<elapsed>(?:\d{1,4}:)?\d{1,3}:\d\d)<[^\]\r\n]{0,80}\]?"
)
_DESCRIPTION = 160
# What the launcher found of the ranks' tuning results, before it started the server.
_CACHE = re.compile(r"tokforge: (?P<what>autotune cache.*)")
_LAUNCH = re.compile(r"tokforge: starting release \S+ as process \d+\s*$")
_OPERATION_STAGES = (
    ("autotune", re.compile(r"\[AutoTuner\]")),
    ("weights", re.compile(r"shards|[Ll]oading|[Cc]heckpoint")),
    ("cuda_graphs", re.compile(r"Captur|num tokens|num_tokens|[Cc]ompil|\bbs=")),
)
# What a rank is doing after it reached a milestone.
_AFTER = {
    WEIGHTS_BEGUN: "weights",
    WEIGHTS_LOADED: "kv_cache",
    KV_CACHE: "kv_cache",
    AUTOTUNE_STARTED: "autotune",
    AUTOTUNE_COMPLETED: "autotune",
    GRAPHS_BEGUN: "cuda_graphs",
    GRAPHS_CAPTURED: "warmup",
    LOADED: "warmup",
}


# --- the state -------------------------------------------------------------------------------------------------------


@dataclass
class RankState:
    """What one rank has reached. Times are those of the log (`YYYY-MM-DD HH:MM:SS[.mmm]`, the target's local time).

    `started` and `completed` count lines of autotune: with a draft model or an extra pass a rank has several pairs.
    `latest` is the milestone that came last: up to 0.5.13 autotune comes before the capture of CUDA graphs, from 0.5.14
    on in the middle of it.
    """

    milestones: dict[str, str] = field(default_factory=dict)
    latest: str = ""
    started: int = 0
    completed: int = 0
    weights_s: float | None = None
    cache: str = ""

    @property
    def autotune(self) -> str:
        if not self.started and not self.completed:
            return NONE
        return COMPLETED if self.completed >= max(1, self.started) else STARTED

    @property
    def stage(self) -> str:
        """What the rank is at: boot, weights, kv_cache, autotune, cuda_graphs or warmup."""
        if self.latest == AUTOTUNE_COMPLETED and self.autotune == COMPLETED:
            return "autotuned"
        return _AFTER.get(self.latest, "boot")


@dataclass
class Broken:
    """A failure while it is read. `total` counts its lines, `lines` holds the first and the last of them.

    `reason` is what the first line stands for, `told` what the text tells, also in a line that is not kept. `output`:
    the exception's own text goes on over lines, like a compiler's output.
    """

    reason: str
    rank: str
    stage: str
    lines: list[str] = field(default_factory=list)
    total: int = 0
    open: bool = False
    consequence: bool = False
    # A traceback that nobody's record announced. It ends a process, or it was caught: what follows tells.
    raw: bool = False
    age: int = 0
    told: str = ""
    output: bool = False

    @property
    def unfinished(self) -> bool:
        """Whether the last line of its traceback has not come yet."""
        return self.open and not self.output and not (self.total > 1 and _ended(self.lines[-1]))

    def add(self, line: str) -> None:
        self.total += 1
        self.told = startup_failure.nearer_cause(self.told, startup_failure.reason_of(line, ""))
        line = redact.hide_told(line)
        self.lines.append(line if len(line) <= _LINE_CHARACTERS else line[: _LINE_CHARACTERS - 4] + " ...")
        if len(self.lines) > _TRACE_FIRST + _TRACE_LAST:
            del self.lines[_TRACE_FIRST]

    def failure(self) -> Failure:
        lines = list(self.lines)
        left_out = self.total - len(lines)
        if left_out > 0:
            lines.insert(_TRACE_FIRST, f"... {left_out} lines left out ...")
        text = "\n".join(self.lines)
        reason = self.told or self.reason
        dead = _RANK_DEAD.search(text)
        rank = f"rank {dead['rank'] or dead['process']}" if dead else self.rank
        return Failure(reason, rank, self.stage, tuple(lines), startup_failure.HINTS[reason])


@dataclass
class Bar:
    """A progress bar's last state: `op` names it, `stage` is what it belongs to, `elapsed_s` is its own count."""

    op: str
    stage: str
    done: int
    total: int
    elapsed_s: float


@dataclass(frozen=True)
class Report:
    """The state that a log tells. `main` are milestones of the main process, `counted` those of a custom format.

    `failure` is the cause; `consequence`: it only says that another process broke off. `broke` are the tags of
    all ranks that wrote a failure. `suspect` is a traceback after which nothing came that would show that the server
    lived on.
    `older` counts records that were left out because of their time. `cache` is what the launcher said of the tuning
    results before it started the server.
    `profiling_s` adds up the bars of FlashInfer's autotuner, the longest of each operation.
    """

    format: str
    ranks: Mapping[Rank, RankState]
    main: Mapping[str, str]
    arguments: Mapping[str, Any]
    counted: Mapping[str, int]
    failure: Failure | None
    consequence: bool
    broke: frozenset[str]
    suspect: Failure | None
    incomplete: bool
    progress: Bar | None
    profiling_s: float
    noise: Mapping[str, int]
    restarts: int
    older: int
    cache: str


class StartupLog:
    """One start after another, as a log tells them; the last one counts.

    `not_before` (a time like those in the log, or empty): records of an earlier time belong to another start.
    """

    def __init__(self, not_before: str = "") -> None:
        self.not_before = not_before
        self.older = 0
        self.pending = b""
        self.restarts = 0
        self._begin()

    def _begin(self) -> None:
        self.standard = False
        self.current = not self.not_before
        self.ranks: dict[Rank, RankState] = {}
        self.main: dict[str, str] = {}
        self.arguments: dict[str, Any] = {}
        self.counted: dict[str, int] = {}
        self.broken: list[Broken] = []
        self.fragments: list[str] = []
        self.fragment_lines = 0
        self.bars: dict[str, Bar] = {}
        self.last_bar = ""
        self.profiled: dict[str, float] = {}
        self.noise: dict[str, int] = {}
        self.launcher = False
        self.cache = ""

    # --- in and out of a cursor --------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Everything, fit for JSON; bounded."""
        return {
            "schema": SCHEMA,
            "not_before": self.not_before,
            "older": self.older,
            "pending": base64.b64encode(redact.ARGUMENT.sub(rb"\1<redacted>", self.pending)).decode("ascii"),
            "restarts": self.restarts,
            "standard": self.standard,
            "current": self.current,
            "ranks": {rank.tag: asdict(state) for rank, state in self.ranks.items()},
            "main": self.main,
            "arguments": self.arguments,
            "counted": self.counted,
            "broken": [asdict(one) for one in self.broken],
            "fragments": self.fragments,
            "fragment_lines": self.fragment_lines,
            "bars": {name: asdict(one) for name, one in self.bars.items()},
            "last_bar": self.last_bar,
            "profiled": self.profiled,
            "noise": self.noise,
            "launcher": self.launcher,
            "cache": self.cache,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> StartupLog:
        """The inverse of to_dict. Raises ValueError for what to_dict never gave."""
        try:
            if data["schema"] != SCHEMA:
                raise ValueError(f"schema {data['schema']!r} is not {SCHEMA}")
            log = cls(str(data["not_before"]))
            log.older = int(data["older"])
            log.pending = base64.b64decode(data["pending"], validate=True)
            log.restarts = int(data["restarts"])
            log.standard, log.current = bool(data["standard"]), bool(data["current"])
            for tag, state in data["ranks"].items():
                rank = parse_tags("" if tag == "main" else f" {tag}")
                if rank is None:
                    raise ValueError(f"{tag!r} is no rank")
                log.ranks[rank] = RankState(**state)
            log.main, log.arguments = dict(data["main"]), dict(data["arguments"])
            log.counted, log.noise = dict(data["counted"]), dict(data["noise"])
            log.broken = [Broken(**one) for one in data["broken"]]
            log.fragments, log.fragment_lines = list(data["fragments"]), int(data["fragment_lines"])
            log.bars = {name: Bar(**one) for name, one in data["bars"].items()}
            log.last_bar, log.profiled = str(data["last_bar"]), dict(data["profiled"])
            log.launcher, log.cache = bool(data["launcher"]), str(data["cache"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is not what an earlier look returned ({type(error).__name__}: {error})") from error
        return log

    # --- bytes in ----------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """The next bytes of the log."""
        text = self.pending + data
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        self.pending = _shortened(text[end:])
        if end:
            self._lines(text[:end])

    def _lines(self, text: bytes) -> None:
        """Whole lines. Only those that hold a word of interest are looked at, and those after a half-read failure."""
        at, part = 0, _LEAST_PART
        while at < len(text):
            at = self._one_by_one(text, at)
            if at >= len(text):
                break
            # The words depend on the state, so they are asked for again after each line that changed it.
            begin, at = at, self._jump(text, at, part)
            part = min(2 * part, _PART) if at - begin >= part else _LEAST_PART

    def _one_by_one(self, text: bytes, at: int) -> int:
        while at < len(text) and (self.fragments or self._reading()):
            end = _end_of_line(text, at)
            self._line(_shortened(text[at:end]))
            self._age()
            at = end + 1
        return at

    def _jump(self, text: bytes, at: int, part: int) -> int:
        """Look at the lines of interest from `at` on; stop when the state asks for every line, or at the end."""
        before = self._words_state()
        # A part at a time: what is found behind a line that changed the state is asked for again.
        stop = _end_of_line(text, min(at + part, len(text)))
        positions = self._positions(text, at, stop)
        done = at
        for position in positions:
            if position < done:
                continue
            begin = max(text.rfind(b"\n", done, position), text.rfind(b"\r", done, position), done - 1) + 1
            end = _end_of_line(text, position)
            line = _shortened(text[begin:end])
            # In the middle of a long line nothing counts, and it is not kept when the line comes in pieces.
            if end - begin <= _LONGEST or self._positions(line, 0, len(line)):
                self._line(line)
            done = end + 1
            if self.fragments or self._words_state() != before or self._reading():
                return done
        return stop + 1

    def _reading(self) -> bool:
        return any(one.open for one in self.broken)

    def _words_state(self) -> tuple[bool, bool, int]:
        return self.standard, READY in self.main, self.restarts

    def _positions(self, text: bytes, at: int, stop: int) -> list[int]:
        """Where words of interest stand, in order."""
        found = [match.start() for match in _MESSAGE_BYTES.finditer(text, at, stop)]
        literals = [*_FAILED_BYTES, _NOISE_BYTES, _LAUNCHER_BYTES, b"\x1b"]
        if any(one.raw for one in self.broken):
            # What a rank writes after a traceback that nobody announced shows that it ended nothing.
            found += [match.start() for match in islice(_TAGGED_BYTES.finditer(text, at, stop), 1)]
        if READY not in self.main:
            literals += [*_BAR_BYTES, *_LABELLED_BYTES]
            found += _records_inside_lines(text, at, stop)
        if not self.standard:
            # A record with tags shows that the format is SGLang's own. Until then its words count wherever they stand.
            found += [match.start() for match in _TAGGED_BYTES.finditer(text, at, stop)]
            literals += _ANYWHERE_BYTES
        for literal in literals:
            found += _all(literal, text, at, stop)
        return sorted(found)

    # --- one line ----------------------------------------------------------------------------------------------------

    def _line(self, raw: bytes) -> None:
        if _NOISE_BYTES in raw and not self.not_before and _is_plain(raw):
            # A quick way for what comes by the thousand.
            noise = log_noise.kind(raw.decode("latin-1"))
            if noise:
                self.noise[noise[0]] = self.noise.get(noise[0], 0) + noise[1]
                return
        text = raw.decode("utf-8", "replace").replace("\0", "")
        if "\x1b" in text:
            text = _ANSI.sub("", text)
        pieces = list(_pieces(text))
        for number, piece in enumerate(pieces):
            if self._noise(piece):
                continue
            self._rest(piece)
            last = number == len(pieces) - 1
            if piece.head is None:
                self._raw(piece.message, begins_line=number == 0)
            else:
                self._record(piece.head, piece.message)
            if not last:
                self._keep_fragment(piece)

    def _rest(self, piece: _Piece) -> None:
        """What stands behind a whole record on its line: the end of one that it broke off, or a bar."""
        found = _COMPLETED.match(piece.message) if piece.head is not None else None
        rest = piece.message[found.end() :] if found else ""
        if rest.strip() and not (self.fragments and self._joined(rest)):
            self._bars(rest)

    def _noise(self, piece: _Piece) -> bool:
        noise = log_noise.kind(piece.text)
        if noise is None or _REQUEST.match(piece.message):
            return False
        if piece.head is not None and self.not_before:
            self.current = piece.head["time"].replace(",", ".") >= self.not_before
        if self.current:
            self.noise[noise[0]] = self.noise.get(noise[0], 0) + noise[1]
        return True

    def _record(self, head: re.Match[str], message: str) -> None:
        self._close_ended()
        if _REQUEST.match(message):
            return
        # Without tags it may be of uvicorn, of the logger of requests or of the time before the format was set.
        self.standard = self.standard or bool(head["tags"])
        stamp = head["time"].replace(",", ".")
        if self.not_before:
            self.current = stamp >= self.not_before
            if not self.current:
                self.older += 1
                return
        tags = head["tags"]
        rank = parse_tags(tags)
        if tags and rank is not None:
            self._lived_on()
        if message.startswith("server_args=") and not tags:
            self._arguments(message, stamp)
            self._lived_on()
        elif self._milestone(rank, stamp, message) or (not tags and self._main_milestone(stamp, message)):
            self._lived_on()
        else:
            failed = self._failed_record("main" if rank is None or not tags else rank.tag, rank, message)
            if not failed and not self.standard:
                self._count(message)

    def _arguments(self, message: str, stamp: str) -> None:
        # The second such record is another start, by a service manager or by hand.
        if ARGUMENTS in self.main:
            self._restart()
        self.main[ARGUMENTS] = stamp
        self.standard = self.current = True
        self.arguments = _told(message)

    def _restart(self) -> None:
        self.restarts += 1
        self._begin()

    def begin_again(self, not_before: str) -> None:
        """Somebody else saw that another start began at this time; forget the one before."""
        self.not_before = not_before
        self._restart()

    def _milestone(self, rank: Rank | None, stamp: str, message: str) -> bool:
        name = _rank_milestone(message)
        if name is None or rank is None:
            return False
        self.standard = True
        state = self.ranks.get(rank)
        if state is None:
            if len(self.ranks) >= _RANKS:
                return True
            state = self.ranks[rank] = RankState()
        if name == AUTOTUNE_STARTED:
            state.started += 1
            found = _STARTED.match(message)
            # Another process may have written its arguments into this line.
            told = redact.hide_told((found["cache"] or "").rstrip()) if found else ""
            state.cache = told[:_LINE_CHARACTERS]
            state.milestones.setdefault(name, stamp)
        elif name == AUTOTUNE_COMPLETED:
            state.completed += 1
            state.milestones[name] = stamp  # the last of several is when it was over
        elif name in (WEIGHTS_LOADED, GRAPHS_CAPTURED):
            state.milestones[name] = stamp
            took = _ELAPSED.search(message)
            if name == WEIGHTS_LOADED and took:
                state.weights_s = round((state.weights_s or 0.0) + float(took["s"]), 3)
        else:
            state.milestones.setdefault(name, stamp)
        state.latest = name
        return True

    def _main_milestone(self, stamp: str, message: str) -> bool:
        if _FIRED_UP.match(message):
            self.standard = self.standard or not _UVICORN.match(message)
            self.main.setdefault(READY, stamp)
            return True
        if message.startswith("INFO:     Uvicorn running on "):
            self.main.setdefault(LISTENING, stamp)
            return True
        if _NODE_READY.match(message):
            self.standard = True
            self.main.setdefault(NODE_READY, stamp)
            return True
        return False

    # --- failures ----------------------------------------------------------------------------------------------------

    def _failed_record(self, tag: str, rank: Rank | None, message: str) -> bool:
        """Take a record that tells of a failure; False for another one."""
        if message.startswith("Exit code: ") and self.broken and _RANK_DEAD.search(self.broken[-1].lines[0]):
            self.broken[-1].add(message)  # up to 0.5.10rc0 a record of its own
            return True
        found = _failed(message)
        if found is None or (found[0] == startup_failure.ILLEGAL_INSTRUCTION and READY in self.main):
            return False
        reason, consequence = found
        stage = self._stage_of(rank)
        self._open(Broken(reason, tag, stage, consequence=consequence), message, "Traceback" in message)
        return True

    def _stage_of(self, rank: Rank | None) -> str:
        state = self.ranks.get(rank) if rank is not None else None
        if state is None:
            # The main process speaks for the rank that is least far.
            states = list(self.ranks.values())
            return min((one.stage for one in states), key=STAGES.index) if states else "boot"
        return state.stage

    def _open(self, broken: Broken, line: str, goes_on: bool) -> None:
        if READY in self.main and broken.raw:
            return  # a request that failed, not the start
        broken.add(line)
        broken.open = goes_on
        if len(self.broken) >= _FAILURES:
            # The first failures are the ones that tell; what was never announced may go.
            self.broken = [one for one in self.broken if not one.raw]
        if len(self.broken) < _FAILURES:
            self.broken.append(broken)

    def _raw(self, text: str, begins_line: bool) -> None:
        """A piece of a line without a record's head."""
        if _LAUNCH.search(text) and not _in_quotes(text[: _at(_LAUNCH, text)]):
            if self.launcher or self.main or self.ranks or self.counted or self.broken:
                self._restart()
            self.launcher = self.current = True
            return
        cache = _CACHE.match(text)
        if cache and begins_line and self.current:
            self.cache = redact.hide_told(cache["what"])[:_LINE_CHARACTERS]
            return
        if begins_line and self.fragments and self._joined(text):
            return
        if not self.current:
            return
        if not self.standard:
            self._count(text)
        prefix = _TORCH_RANK.match(text)
        rank = f"rank {prefix['rank']}" if prefix else ""
        if prefix:  # of every line of a traceback that torch lets a process end with
            text = text[prefix.end() :]
        after = self._bars(text)
        if after:
            # No part of a traceback; but one can begin behind a bar.
            text = text[after:]
            if not text.strip():
                return
        opened = [one for one in reversed(self.broken) if one.open]
        open_one = opened[0] if opened else None
        if _HARMLESS.search(text):
            self._open(Broken(startup_failure.EXCEPTION, "", "", consequence=True, raw=True), text, True)
        elif open_one is not None and not _TRACEBACK_START.match(text):
            # What is none of the last one's may be of one that it interrupted.
            next((one for one in opened if self._continue(one, text)), None)
        elif open_one is not None and (text.startswith((" ", "|")) or _CHAINED.match(open_one.lines[-1].strip())):
            open_one.add(text)  # nested in a group of exceptions, or the next of a chain
        elif _TRACEBACK_START.match(text):
            if open_one is not None and open_one.raw and open_one.total == 1:
                open_one.add(text)  # the line before only announced it
            else:
                self._open(Broken(startup_failure.EXCEPTION, rank, self._stage_of(None), raw=True), text, True)
        elif _RAW_FATAL.match(text):
            self._open(Broken(startup_failure.RANK_DEAD, "", self._stage_of(None), raw=True), text, True)
        elif READY not in self.main and _illegal(text):
            self._open(Broken(startup_failure.ILLEGAL_INSTRUCTION, "", self._stage_of(None)), text, False)

    def _close_ended(self) -> None:
        """A record after a traceback's last line: it had been the last one."""
        for one in self.broken:
            if one.open and not one.unfinished:
                one.open = False

    def _continue(self, broken: Broken, text: str) -> bool:
        """Whether a line is taken as the next one of a traceback; one that had its last line is closed instead."""
        stripped = text.strip(" |+-")
        if not stripped:
            # An empty line stands between the parts of a chain, and after the end.
            return True
        previous = broken.lines[-1]
        if _CHAINED.match(stripped):
            broken.output = False
        elif not broken.output and broken.total > 1 and _ended(previous) and not _continues(text):
            if not previous.endswith(":"):
                broken.open = False
                return False
            broken.output = True
        broken.add(text)
        return True

    def _lived_on(self) -> None:
        """A milestone came: a traceback that nobody announced before it ended no process."""
        self.broken = [one for one in self.broken if not one.raw]

    # --- pieces of broken records ------------------------------------------------------------------------------------

    def _keep_fragment(self, piece: _Piece) -> None:
        text = piece.text
        if piece.head is None:
            half = _HALF_HEAD.search(text)
            if half is None:
                return
            text = text[half.start() :]
        elif _rank_milestone(piece.message) or _FIRED_UP.match(piece.message) or _REQUEST.match(piece.message):
            return
        else:
            half = _HALF_HEAD.search(piece.message)
            text = piece.message[half.start() :] if half else text
        text = redact.hide_told(text[: 4 * _LINE_CHARACTERS])
        self.fragments = [*self.fragments, text][-_FRAGMENTS:]
        self.fragment_lines = 0

    def _joined(self, rest: str) -> bool:
        """Whether the rest of a line completes a record that another one broke off."""
        for fragment in reversed(self.fragments):
            head = _HEAD.match(fragment + rest)
            if head is None:
                continue
            message = (fragment + rest)[head.end() :]
            rank = parse_tags(head["tags"])
            known = _rank_milestone(message) is not None and rank is not None
            if known or (not head["tags"] and _FIRED_UP.match(message)):
                self.fragments.remove(fragment)
                self._record(head, message)
                return True
        return False

    def _age(self) -> None:
        for one in self.broken:
            if one.open:
                one.age += 1
                one.open = one.age < _TRACE_LINES
        if self.fragments:
            self.fragment_lines += 1
            if self.fragment_lines > _FRAGMENT_LINES:
                self.fragments, self.fragment_lines = [], 0

    # --- bars and counting -------------------------------------------------------------------------------------------

    def _bars(self, text: str) -> int:
        """Take the bars of a piece; where the last one ends, 0 without one."""
        after = 0
        for match in _BAR.finditer(text):
            self._bar(text[max(after, match.start() - _DESCRIPTION) : match.start()], match)
            after = match.end()
        return after

    def _bar(self, description: str, match: re.Match[str]) -> None:
        op = " ".join(description.split()).rstrip(":")
        name = re.sub(r"^.*\[AutoTuner\]: (?:Tuning )?", "", op)
        stage = next((stage for stage, pattern in _OPERATION_STAGES if pattern.search(op)), "")
        # The description may change with every step (`Capturing batches (bs=8 ...)`).
        key = re.sub(r"\s*\(.*", "", name)[:120]
        if not key:
            return
        progress = Bar(name[:120], stage, int(match["done"]), int(match["total"]), _clock_s(match["elapsed"]))
        if key not in self.bars and len(self.bars) >= _OPERATIONS:
            return
        self.bars[key] = progress
        self._lived_on()
        self.last_bar = key
        if stage == "autotune":
            self.profiled[key] = max(self.profiled.get(key, 0.0), progress.elapsed_s)

    def _count(self, text: str) -> None:
        """Look for the words of a milestone or of a failure in a line of another format."""
        if _REQUEST.search(text) or _INVOKED in text:
            return
        message = _own_message(text)
        for name, words in _ANYWHERE.items():
            if words in text and _says(message, name, words):
                if name == ARGUMENTS and name in self.counted:
                    self._restart()
                self.counted[name] = self.counted.get(name, 0) + 1
        failed = _FAILED_ANYWHERE.search(message)
        if failed and not _in_quotes(message[: failed.start()]):
            self._failed_record("", None, message[failed.start() :])

    # --- out ---------------------------------------------------------------------------------------------------------

    def report(self) -> Report:
        """The state now. A last line without an end counts as if it ended here."""
        if self.pending.strip(b"\0"):
            whole = StartupLog.from_dict(self.to_dict())
            whole.feed(b"\n")
            return whole.report()
        causes = [one for one in self.broken if not one.raw]
        cause = next((one for one in causes if not one.consequence and not _only_consequence(one)), None)
        # Of those that only say that another one is gone, the one that says which tells more.
        cause = cause or next((one for one in causes if one.told), None) or next(iter(causes), None)
        consequence = cause is not None and (cause.consequence or _only_consequence(cause))
        suspects = [one for one in self.broken if one.raw and not one.consequence and not _only_consequence(one)]
        if cause is not None and consequence and suspects and cause.told in ("", startup_failure.RANK_DEAD):
            # "A child failed", and what the child wrote before it did.
            cause = replace(suspects[-1], rank=cause.failure().rank)
        return Report(
            format=STANDARD if self.standard else CUSTOM if self.counted else UNKNOWN,
            ranks=self.ranks,
            main=self.main,
            arguments=self.arguments,
            counted={} if self.standard else self.counted,
            failure=cause.failure() if cause else None,
            consequence=bool(consequence and cause and not cause.told and not cause.raw),
            broke=frozenset(one.rank for one in causes),
            suspect=suspects[-1].failure() if suspects else None,
            incomplete=bool(cause and cause.unfinished),
            progress=self.bars.get(self.last_bar),
            profiling_s=round(sum(self.profiled.values(), 0.0), 1),
            noise=self.noise,
            restarts=self.restarts,
            older=self.older,
            cache=self.cache,
        )


STAGES = ("boot", "weights", "kv_cache", "autotune", "autotuned", "cuda_graphs", "warmup")
_TRACEBACK_START = re.compile(r"[\s|+]*" + re.escape(_TRACEBACK))


# --- pieces of a line ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Piece:
    """A part of a physical line: a record (`head` is its head's match), or what stands before the first one."""

    text: str
    head: re.Match[str] | None = None

    @property
    def message(self) -> str:
        return self.text[self.head.end() - self.head.start() :] if self.head else self.text


def _pieces(line: str) -> Iterator[_Piece]:
    if line.find("[20", 1) < 0:  # most lines: one record, or none
        if line:
            yield _Piece(line, _HEAD.match(line))
        return
    begin = read = 0
    head, quote, request = None, "", False
    for match in _HEAD.finditer(line):
        # What users wrote is content, whatever it looks like.
        quote = _quote(line, read, match.start(), quote)
        request = request or bool(_REQUEST.match(line, read))
        read = match.start()
        if request or quote:
            continue
        if begin < match.start():
            yield _Piece(line[begin : match.start()], head)
        begin, head, read = match.start(), match, match.end()
    rest = line[begin:]
    if rest or head is not None:
        yield _Piece(rest, head)


_QUOTE = re.compile(r"\\.|['\"]", re.DOTALL)


def _quote(text: str, begin: int, end: int, quote: str = "") -> str:
    """The quotation mark whose quotation is open at `end`, empty when none is. An apostrophe (`can't`) opens none."""
    for match in _QUOTE.finditer(text, begin, end):
        char = match.group()
        if quote:
            if char == quote:
                quote = ""
        elif char == '"' or (char == "'" and not (match.start() > 0 and text[match.start() - 1].isalnum())):
            quote = char
    return quote


def _in_quotes(text: str) -> bool:
    """Whether the text ends inside a quotation."""
    return bool(_quote(text, 0, len(text)))


def _at(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.search(text)
    return found.start() if found else 0


def _own_message(text: str) -> str:
    """The message of a line of another format: of a JSON object the text that begins with what counts, otherwise the
    line.
    """
    if not text.lstrip().startswith("{"):
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    values = found.values() if isinstance(found, dict) else ()
    begins = (*_ANYWHERE.values(), "Received sigquit")
    for value in values:
        if isinstance(value, str) and (value.startswith(begins) or _EXCEPTION_HEAD.match(value)):
            return value
    return ""


def _says(message: str, name: str, words: str) -> bool:
    """Whether a line is such a message and does not only quote it: nothing stands behind it where nothing belongs
    there, and before it only what a format puts there."""
    at = message.find(words)
    if at < 0 or _in_quotes(message[:at]):
        return False
    if at and not (message[at - 1].isspace() or message[at - 1] in "]|>)"):
        return False
    rest = message[at + len(words) :]
    return name not in (READY, AUTOTUNE_COMPLETED) or not rest.strip(" .\t\r\n")


def _rank_milestone(message: str) -> str | None:
    if _COMPLETED.match(message):
        return AUTOTUNE_COMPLETED
    if message.startswith("Running FlashInfer autotune"):
        return AUTOTUNE_STARTED if _STARTED.match(message) else None
    for begin, name in _BEGINNINGS:
        if message.startswith(begin):
            return name
    if _KV_CACHE.match(message):
        return KV_CACHE
    graphs = _GRAPHS.match(message)
    if graphs:
        return GRAPHS_BEGUN if graphs["what"] == "begin" else GRAPHS_CAPTURED
    return None


_BEGINNINGS = (
    ("Load weight begin", WEIGHTS_BEGUN),
    ("Load weight end", WEIGHTS_LOADED),
    ("max_total_num_tokens=", LOADED),
)


def _failed(message: str) -> tuple[str, bool] | None:
    """Reason (before its text is looked at) and whether it only says that another process failed."""
    if _EXCEPTION_HEAD.match(message) or message.startswith("Initialization failed"):
        return startup_failure.EXCEPTION, False
    if _BIND.match(message) or _WATCHDOG.match(message):
        return startup_failure.EXCEPTION, False
    if _GRAPH_FAILED.match(message):
        return startup_failure.GRAPH_CAPTURE_FAILURE, False
    if message.startswith(("Received sigquit from a child process", "SIGQUIT received")):
        return startup_failure.RANK_DEAD, True
    if _RANK_DEAD.match(message) or _CRASHED.match(message):
        return startup_failure.RANK_DEAD, True
    if _illegal(message):
        return startup_failure.ILLEGAL_INSTRUCTION, False
    return None


def _illegal(text: str) -> bool:
    """Whether a text says that an instruction was illegal as an error, and is neither a quotation nor a warning."""
    found = _ILLEGAL.search(text)
    if found is None or "Warning: " in text or _in_quotes(text[: found.start()]):
        return False
    return bool(_ERROR.search(text)) or text.strip(" .").lower() == "illegal instruction"


def _only_consequence(broken: Broken) -> bool:
    return not broken.told and startup_failure.is_consequence("\n".join(broken.lines))


def _ended(line: str) -> bool:
    """Whether a traceback's line is its last: not indented, and the name of an exception."""
    return bool(_FINAL.match(line.lstrip("|+ -"))) and not line.startswith((" ", "\t")) and _TRACEBACK not in line


def _continues(text: str) -> bool:
    """Whether a line after an exception's name still belongs to its message: indented, or of a frame."""
    return text.startswith((" ", "\t", "|", "  +", "^"))


def _told(message: str) -> dict[str, Any]:
    """The arguments of a `server_args=` message that matter here, as plain values."""
    found: dict[str, Any] = {}
    read, quote = 0, ""
    for match in _ARGUMENT.finditer(message):
        # A path or a template can hold what looks like an argument.
        quote = _quote(message, read, match.start(), quote)
        read = match.start()
        if quote or match["name"] in found:
            continue
        value = match["value"]
        plain = {"None": None, "True": True, "False": False}
        found[match["name"]] = (
            plain[value] if value in plain else int(value) if value.lstrip("-").isdigit() else value[1:-1]
        )
    return found


_ARGUMENT_NAMES = (
    "device",
    "tp_size",
    "pp_size",
    "dp_size",
    "ep_size",
    "nnodes",
    "node_rank",
    "attn_dp_size",
    "enable_prefill_context_parallel",
    "enable_nsa_prefill_context_parallel",
    "enable_dsa_prefill_context_parallel",
    "enable_prefill_cp",
    "enable_dp_attention",
    "attn_cp_size",
    "moe_dp_size",
    "moe_runner_backend",
    "disable_flashinfer_autotune",
    "speculative_algorithm",
    "quantization",
)
_ARGUMENT = re.compile(
    rf"(?<![\w'])'?(?P<name>{'|'.join(_ARGUMENT_NAMES)})'?(?:=|: )"
    r"(?P<value>'(?:[^'\\]|\\.){0,200}'|None|True|False|-?\d{1,15})"
)


# --- bytes -----------------------------------------------------------------------------------------------------------


_SEAM = b"\x1e"


def _shortened(line: bytes) -> bytes:
    """The line, or the two ends of a line that is too long to keep."""
    if len(line) <= _LONGEST:
        return line
    # Not a word of interest can arise across the seam. A line that is shortened again gives the same.
    return line[: _LONGEST // 2] + _SEAM + line[-(_LONGEST // 2) + len(_SEAM) :]


def _is_plain(line: bytes) -> bool:
    """Whether it is one record at most, and none of a request."""
    return line.rfind(b"[20") <= 0 and b"obj=" not in line and b"event" not in line and b"ReqInput(" not in line


def _end_of_line(text: bytes, at: int) -> int:
    newline, carriage = text.find(b"\n", at), text.find(b"\r", at, at + _LONGEST)
    if newline < 0:
        newline = len(text)
    if carriage < 0 and newline - at > _LONGEST:
        carriage = text.find(b"\r", at, newline)
    return newline if carriage < 0 else min(newline, carriage)


def _all(literal: bytes, text: bytes, begin: int, end: int) -> Iterator[int]:
    at = text.find(literal, begin, end)
    while at >= 0:
        yield at
        at = text.find(literal, at + 1, end)


def _records_inside_lines(text: bytes, at: int, stop: int) -> Iterator[int]:
    heads = text.count(b"[20", at, stop)
    if heads == text.count(b"\n[20", at, stop) + text.count(b"\r[20", at, stop) + text.startswith(b"[20", at):
        return
    for match in _HEAD_BYTES.finditer(text, at, stop):
        if match.start() > 0 and text[match.start() - 1] not in b"\r\n":
            yield match.start()


def _clock_s(text: str) -> float:
    """Seconds of a bar's clock (MM:SS or H:MM:SS)."""
    seconds = 0.0
    for part in text.split(":"):
        seconds = seconds * 60 + int(part)
    return seconds


def seconds_between(first: str, last: str) -> float | None:
    """Seconds between two times of a log; None when one of them is none."""
    try:
        return round((datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds(), 3)
    except ValueError:
        return None
