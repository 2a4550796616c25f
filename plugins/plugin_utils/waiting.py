# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a series of looks at a starting server means, and how it reads. Pure: the clock is given, nothing is printed.

A wait has two parts. While the ranks start, each look is one of startup_info; when all of them are ready, each is one
of readiness_info, until the server truly answers.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

STARTING, READY, FAILED, STOPPED, STALLED, TIMEOUT = "starting", "ready", "failed", "stopped", "stalled", "timeout"

#: Seconds that a start may take: kernels to compile and to tune, or everything in its cache.
COLD_S, WARM_S = 3600.0, 900.0
BRISK_S = 10.0
# The failure that only what is missing in the log tells.
_SKIPPED = "autotune_skipped"
# What went wrong is often told in full only a moment later: the end of a traceback, how the process ended.
_SETTLE_S = 1.0


@dataclass(frozen=True)
class Decision:
    """After a look: look again after `pause_s` seconds, go on to the other part (`serve`), or end with success or
    failure; `line` is a progress line to show now, if any.
    """

    done: bool = False
    serve: bool = False
    failed: bool = False
    reason: str = ""
    line: str | None = None
    pause_s: float = 0.0


class Wait:
    """Judge a series of looks.

    `timeout_s` None: COLD_S or WARM_S, as the looks tell. `poll_s` None: every second at first, then every 1.5 s: what
    failed must be known within 3 s, and a look costs the controller about 0.3 s of processor time. `asks`: there is a
    server to ask, so that a log with a gap need not be believed.
    """

    def __init__(
        self,
        host: str,
        timeout_s: float | None = None,
        poll_s: float | None = None,
        every_s: float = 5.0,
        asks: bool = True,
    ) -> None:
        self.host = host
        self.timeout_s = timeout_s if timeout_s is not None else COLD_S
        self.poll_s = poll_s
        self.every_s = every_s
        self._asks = asks
        self._choose = timeout_s is None
        self._settled = False
        self._last_text = ""
        self._last_line_s = 0.0
        self._last_look_s = 0.0
        self._last_pause_s = 0.0

    def pause_s(self, elapsed_s: float) -> float:
        """Seconds between a look that ended at `elapsed_s` and the next."""
        poll_s = self.poll_s if self.poll_s is not None else (1.0 if elapsed_s < BRISK_S else 1.5)
        return max(0.0, min(poll_s, self.timeout_s - elapsed_s))

    def ranks(self, found: Mapping[str, Any], elapsed_s: float) -> Decision:
        """Decide after a look of startup_info that ended `elapsed_s` seconds after the wait began."""
        if self._choose and "cold" in found:
            self.timeout_s = COLD_S if found["cold"] and not found.get("recorded") else WARM_S
        state = found.get("state")
        if state == READY:
            return Decision(serve=True)
        # A part of the start is no longer in the log: whether the server answers is all that can be known.
        lost = self._asks and bool(found.get("gap"))
        # No process is known that could start: the manager knows why.
        if self._asks and state == STARTING and found.get("pid") == 0:
            return Decision(serve=True)
        if lost and (state == STARTING or (found.get("failure") or {}).get("reason") == _SKIPPED):
            return Decision(serve=True)
        if state == FAILED and not self._settled and not _is_told(found):
            self._settled = True
            return Decision(pause_s=_SETTLE_S)
        if state in (FAILED, STALLED):
            return self._end(str(state), found, elapsed_s)
        return self._go_on(describe_ranks(found, elapsed_s), found, elapsed_s)

    def serving(self, found: Mapping[str, Any], elapsed_s: float) -> Decision:
        """Decide after a look of readiness_info."""
        state = found.get("state")
        if state == READY:
            text = f"[{self.host}] ready after {elapsed_s:.0f} s: {describe_serving(found)}"
            return Decision(done=True, line=text)
        if state in (FAILED, STOPPED):
            return self._end(str(state), found, elapsed_s)
        return self._go_on(describe_serving(found), found, elapsed_s)

    def _end(self, reason: str, found: Mapping[str, Any], elapsed_s: float) -> Decision:
        text = f"{found.get('stage', '?')}: {found.get('detail', '')}"
        return Decision(
            done=True, failed=True, reason=reason, line=f"[{self.host}] {reason} after {elapsed_s:.0f} s: {text}"
        )

    def _go_on(self, text: str, found: Mapping[str, Any], elapsed_s: float) -> Decision:
        if elapsed_s >= self.timeout_s:
            last = f"[{self.host}] gave up after {elapsed_s:.0f} s: {text}"
            return Decision(done=True, failed=True, reason=TIMEOUT, line=last)
        look_s = max(0.0, elapsed_s - self._last_look_s - self._last_pause_s)
        pause_s = self.pause_s(elapsed_s)
        self._last_look_s, self._last_pause_s = elapsed_s, pause_s
        # Counting from when the next look will be over: a line is late by nothing rather than by a look.
        next_s = elapsed_s + pause_s + look_s
        line: str | None = None
        # A new line in the log alone shows with the next line that is due: a busy log must not fill the screen.
        if text != self._last_text or next_s - self._last_line_s > self.every_s:
            self._last_text, self._last_line_s = text, elapsed_s
            line = f"[{self.host}] {elapsed_s:.0f} s: {text}{_left(found, elapsed_s)}{_newest(found)}"
        return Decision(line=line, pause_s=pause_s)


def with_last_words(decision: Decision, start: Mapping[str, Any], server: Mapping[str, Any]) -> Decision:
    """The decision, with what the manager knows: a server that was stopped, or that nobody started, did not fail."""
    told = (start.get("failure") or {}).get("reason")
    if server.get("state") == STOPPED and told in (None, "process_exit", "stalled"):
        return replace(decision, reason=STOPPED)
    return decision


def _is_told(found: Mapping[str, Any]) -> bool:
    """Whether a failure says all that it will say: a traceback with its last line, not only that somebody is gone."""
    reason = (found.get("failure") or {}).get("reason")
    return bool(found.get("failure_is_complete")) and reason not in ("process_exit", "rank_dead")


def describe_ranks(found: Mapping[str, Any], elapsed_s: float) -> str:
    """The state of the ranks in a few words."""
    detail = str(found.get("detail", ""))
    doing = str(found.get("doing") or "")
    if doing.startswith("compiling") and doing not in detail:
        detail += f", {doing.partition(' (')[0]}"
    return detail


def describe_serving(found: Mapping[str, Any]) -> str:
    """The state of the server in a few words."""
    return f"{found.get('stage', '?')}: {found.get('detail', '')}"


def _left(found: Mapping[str, Any], elapsed_s: float) -> str:
    """How long the last start like this one had yet to go."""
    took_s = found.get("previous_s")
    if not isinstance(took_s, (int, float)) or took_s - elapsed_s < 1:
        return ""
    return f" (about {took_s - elapsed_s:.0f} s left)"


def _newest(found: Mapping[str, Any]) -> str:
    return f" | {found['log_newest']}" if found.get("log_newest") else ""


# --- what a failure says ---------------------------------------------------------------------------------------------


def failure_message(
    host: str,
    start: Mapping[str, Any],
    server: Mapping[str, Any],
    reason: str,
    elapsed_s: float,
    timeout_s: float,
    unit: str,
) -> str:
    """What failed, where, why, which ranks, the log's end, and what to do. `start` is the last look of startup_info,
    `server` the last one of readiness_info; either may be empty.
    """
    failure = start.get("failure") if start.get("state") in (FAILED, STALLED) else None
    detail, todo, stage = _why(start, server, reason, failure)
    if reason == TIMEOUT:
        first = f"The server on {host} was not ready within {timeout_s:.0f} s"
    elif reason == STOPPED:
        first = f"The server on {host} is not running"
    elif reason == STALLED:
        first = f"The server on {host} stalled; {elapsed_s:.0f} s after the wait began"
    else:
        first = f"The server on {host} failed {elapsed_s:.0f} s after the wait began"
    parts = [f"{first}: {detail} (stage {stage}); {todo}."]
    parts += _rank_lines(start)
    parts += [f"Note: {note}." for note in start.get("notes") or []]
    excerpt: Sequence[str] = (failure or {}).get("excerpt") or []
    if len(excerpt) > 2:
        who = f" of {failure['rank']}" if failure and failure.get("rank") else ""
        parts.append(f"What it said{who}:")
        parts += [f"    {line}" for line in excerpt]
    parts += _log_lines(host, start, server, whole=len(excerpt) <= 2)
    if server.get("manager"):
        also = (
            f"systemctl status {unit}" if server["manager"] == "systemd" else f"{host}:{_supervisor_log(server, start)}"
        )
        parts.append(f"Also: {also}.")
    return "\n".join(parts)


def _why(
    start: Mapping[str, Any], server: Mapping[str, Any], reason: str, failure: Mapping[str, Any] | None
) -> tuple[str, str, str]:
    """In words: what happened, what to do, and at which stage."""
    if reason == TIMEOUT:
        # As long as the ranks are not ready, what the server says of itself is only that it does not listen yet.
        asked = start.get("state") == READY or bool(start.get("gap"))
        last = (server or start) if asked else (start or server)
        todo = (
            "raise the limit (sglang_ready_timeout_s of the roles) if it was still making progress, otherwise correct"
            " what the log names"
        )
        return str(last.get("detail", "unknown")), todo, str(last.get("stage", "?"))
    if reason == STOPPED:
        return str(server.get("detail", "unknown")), "start it with role sglang_server", str(server.get("stage", "?"))
    ended = str(server.get("ended") or "")
    if failure is not None:
        detail = str(start.get("detail", "unknown"))
        if ended and failure.get("reason") == "process_exit":
            detail = f"process_exit: the server {ended} before it was ready"
        elif ended:
            detail += f" (the server {ended})"
        return detail, str(failure.get("hint") or "correct what the log names"), str(start.get("stage", "?"))
    detail = str(server.get("detail", "unknown"))
    if ended and detail.endswith(ended):
        detail += " before it was ready"
    return detail, "correct what the log names and deploy again", str(server.get("stage", "?"))


def _rank_lines(start: Mapping[str, Any]) -> list[str]:
    expected = start.get("expected_ranks") or []
    tuning = start.get("autotune") or {}
    if len(expected) < 2 and not tuning.get("ranks_started"):
        return []
    missing = start.get("missing_ranks") or []
    begun, done = len(tuning.get("ranks_started") or []), len(tuning.get("ranks_completed") or [])
    lines = [f"Ranks: {len(expected)} expected, {begun} started and {done} completed autotune"]
    if missing:
        lines[0] += f"; missing: {', '.join(missing[:32])}{' and more' if len(missing) > 32 else ''}"
    return [lines[0] + "."]


def _supervisor_log(server: Mapping[str, Any], start: Mapping[str, Any]) -> str:
    """Where supervisord writes, from where the server does: both have their directory below the same root."""
    root = posixpath.dirname(posixpath.dirname(server.get("log") or start.get("log") or ""))
    return posixpath.join(root, "state/supervisord.log")


def _log_lines(host: str, start: Mapping[str, Any], server: Mapping[str, Any], whole: bool) -> list[str]:
    log = server.get("log") or start.get("log") or "its log"
    if not whole:
        return [f"Log: {host}:{log}."]
    lines: Sequence[str] = server.get("log_tail") or start.get("log_tail") or []
    benign = int(server.get("log_benign") or 0)
    without = f" without {benign} benign line{'s' * (benign != 1)}" if benign else ""
    shown = [f"    {line}" for line in lines] or ["    (nothing was written since the start)"]
    cause = server.get("first_exception")
    also = [f"First exception: {cause}"] if cause else []
    return [*also, f"Log {host}:{log}, {len(lines)} lines since the start{without}:", *shown]
