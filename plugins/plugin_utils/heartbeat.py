# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A sign of life while a module works: one line every few seconds, printed by the controller.

A module can print nothing before it ends, and Ansible prints nothing while it waits. An install or a benchmark of
minutes then looks like a hang, and a CI runner that wants output kills it. The action plugin of a long module runs it
through `run_with_heartbeat`.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

EVERY_S = 5.0
_PATIENCE_S = 1.0


class _Display(Protocol):
    def display(self, msg: str) -> object: ...


@contextmanager
def heartbeat(
    display: _Display, host: str, what: str, every_s: float = EVERY_S, detail: Callable[[], str] | None = None
) -> Iterator[None]:
    """While the block runs, show `[host] what: 15 s elapsed` every `every_s` seconds.

    `detail` says more than the seconds, "" when it has nothing to say yet; it runs in the thread. A block that is
    shorter shows nothing. `display` is Ansible's Display. In a worker process it hands the line to the
    main process, which prints whole lines only, so lines of several hosts never run into each other. The thread has
    ended when the block is left, also by an exception: a worker that exits while a thread still writes to the queue
    would block the main process.
    """
    done = threading.Event()
    thread = threading.Thread(
        target=_beat, args=(display.display, f"[{host}] {what}", every_s, done, detail), name="heartbeat", daemon=True
    )
    _start_without_signals(thread)
    try:
        with _ended_before_signals(thread, done):
            yield
    finally:
        done.set()
        thread.join()


def _start_without_signals(thread: threading.Thread) -> None:
    """Start a thread that the kernel hands no signal to.

    Python runs signal handlers in the main thread. A signal that interrupts this thread instead leaves the main thread
    in its wait for the module, and Ctrl-C would have no effect until the module ends.
    """
    # A new thread inherits the mask of its creator; a signal that arrives meanwhile is delivered when the mask is back.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _ended_before_signals(thread: threading.Thread, done: threading.Event) -> Iterator[None]:
    """Let the handlers of SIGINT and SIGTERM run only when the thread has ended.

    A worker's own handler ends the process on the spot. If the thread holds the lock of the queue to the main process
    at that moment, nobody ever releases it, and the main process hangs instead of ending.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def first_the_thread(number: int, frame: FrameType | None) -> None:
        done.set()
        # Bounded: the thread waits for a main process that no longer reads, and then only ending helps.
        thread.join(_PATIENCE_S)
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    # What the kernel does by itself, or nothing, needs no help from us.
    ours = [number for number, handler in before.items() if callable(handler)]
    for number in ours:
        signal.signal(number, first_the_thread)
    try:
        yield
    finally:
        for number in ours:
            # A handler that ran may have put another one in place, and it stays.
            if signal.getsignal(number) is first_the_thread:
                signal.signal(number, before[number])


def _beat(
    show: Callable[[str], object],
    prefix: str,
    every_s: float,
    done: threading.Event,
    detail: Callable[[], str] | None = None,
) -> None:
    started = time.monotonic()
    beat = 1
    # Waiting for a point in time, not for a span: lines do not drift away from the seconds they name.
    while not done.wait(max(0.0, started + beat * every_s - time.monotonic())):
        said = detail() if detail else ""
        if done.is_set():
            break
        show(f"{prefix}: {said or f'{beat * every_s:.0f} s elapsed'}")
        beat += 1


def run_with_heartbeat(
    action: ActionBase,
    tmp: str | None,
    task_vars: Mapping[str, Any] | None,
    what: str,
    every_s: float = EVERY_S,
    detail: Callable[[], str] | None = None,
) -> dict[str, Any]:
    """Run the module that has the action plugin's name, with the task's own arguments, and show that it is alive.

    The body of an action plugin's `run`. In check mode the module runs without the lines (it only predicts, so it is
    short), and so does an asynchronous task, whose start returns at once.
    """
    result: dict[str, Any] = ActionBase.run(action, tmp, task_vars)
    wrap_async = bool(action._task.async_val and not action._connection.has_native_async)
    variables = dict(task_vars or {})

    def module() -> dict[str, Any]:
        returned: dict[str, Any] = action._execute_module(task_vars=variables, wrap_async=wrap_async)
        return returned

    try:
        if action._task.check_mode or wrap_async:
            result.update(module())
        else:
            with heartbeat(Display(), variables.get("inventory_hostname", "localhost"), what, every_s, detail):
                result.update(module())
    finally:
        if not wrap_async:
            action._remove_tmp_path(action._connection._shell.tmpdir)
    return result
