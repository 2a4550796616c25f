# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever breaks at whatever step of a rollout: what is left is true, and the same request, run again, comes through.

Release 1 serves with one API key. A rollout to release 2 with another key runs through the playbook's own tasks, from
the written release on, and one thing breaks at the start of one task: a line of FAULTS. Kills before each change that
the core makes to the disk are in tests/unit/plugins/module_utils/test_rollout_crash_points.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faulting
import pytest
import yaml
from faulting import Scene
from full_only import IN_FULL
from small_site import CHECKOUT, SUPERVISORD, Site, include, play_environment, tasks_of

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    managers,
    release_store,
    rollout_journal,
    rollout_lock,
    service,
)

pytestmark = pytest.mark.skipif(not SUPERVISORD.exists(), reason=f"no supervisord at {SUPERVISORD}")

KEYS = {1: "the-key-of-release-1-0123", 2: "the-key-of-release-2-0123"}
TEXTS = {1: "Paris, says release one.", 2: "Paris, says release two."}
PLAY_LIMIT_S = 900
# What a server that never gets ready is waited for, and one that may be slow since the machine is busy.
HANGS_S, START_LIMIT_S = 6, 120

# --- the steps, by the names of the tasks they begin with -------------------------------------------------------------

BEGIN = "Make sure that nobody else is at work here"
KEEP = "Write down what serves now, and how"
ACTIVATE = "Switch to the release"
ACTIVATED = "Keep what was switched"
RUN = "Run what current describes"  # 1: looks only, 2: runs release 2, 3: release 1 again
CONFIGURE = "Make sure that nobody took over"
SECRETS = "Write the secrets"
STOP = "Stop the server"
WAIT = "Wait until every rank is ready and the server serves"  # 2: for release 1 again
MEASURE = "Measure it"
PROVE = "Note that this release serves"
CLOSE = "Note that this rollout is done"
PRUNE = "Remove old releases"
END = "Let the next play in"
RESTORE = "Go back to the release that served last"
UNDO = "Put back the files of what served before"

JOURNAL, LOCK, SERVER = "state/rollout/journal.json", "state/rollout/lock", "state/server.json"
LAUNCH = "releases/2/launch.json"

# --- how a play ends --------------------------------------------------------------------------------------------------

KILLED, DONE, BACK, NOT_BACK, FAILED, UNREACHABLE = "killed", "done", "back", "not back", "failed", "unreachable"

ONE, TWO, NONE = (1, 1), (2, 2), (2, None)


@dataclass(frozen=True)
class Fault:
    """What breaks where, and what must be there then.

    `do` (see faulting.py) happens at the start of the task `at`, the `nth` of that name; nothing in it: only release 2
    is at fault. Release 2's server is started with `two`, its measurement fails when it is `unfit`, and it is waited
    for only briefly when it `hangs`.

    `ends`: how the play ends, and `words` that it says. `left`: which release is `current` then, and which one's server
    runs, None for none. `open`: whether the journal says that a rollout was cut off. `secrets`: whose the server has
    when release 1 is back. `mend`: what a person does then, or time. `again`: how the next run ends, with
    `again_words`. `thrice`: one more run has nothing to change.
    """

    kind: str
    at: str
    do: Sequence[tuple[str, ...]]
    ends: str
    left: tuple[int | None, int | None]
    nth: int = 1
    words: str = ""
    open: bool = True
    secrets: int = 1
    two: tuple[str, ...] = ()
    unfit: bool = False
    hangs: bool = False
    mend: Sequence[tuple[str, ...]] = ()
    again: str = DONE
    again_words: str = ""
    over_ssh: bool = False
    small_disk: bool = False
    thrice: bool = False

    @property
    def name(self) -> str:
        which = f" ({self.nth})" if self.nth > 1 else ""
        return f"{self.kind} at {self.at}{which}" if self.at else self.kind


def server_of_two(*arguments: str) -> Fault:
    """Nothing breaks but release 2 itself."""
    return Fault(
        f"release 2 started with {' '.join(arguments)}", "", [], BACK, ONE, open=False, two=arguments, again=BACK
    )


KILL, POWER_CUT = [("kill_controller",)], [("lose_power",), ("kill_controller",)]
NO_SERVER, UNTOUCHED = (1, None), {"left": ONE, "open": False}
FAILED_MEASUREMENT = {"unfit": True}
SMALL_DISK = {"small_disk": True, "mend": [("empty_disk",)]}
NEWER = "has schema 99, this version of tokforge.sglang knows 1; use the newer version of the collection"
DAMAGED = "is damaged, so nothing is known of a rollout that may have been cut off"

FAULTS = [
    # The controller, at every step on the way there, and then on the way back.
    *(Fault("controller killed", at, KILL, KILLED, **UNTOUCHED) for at in (BEGIN, KEEP)),
    Fault("controller killed", ACTIVATE, KILL, KILLED, ONE),
    Fault("controller killed", ACTIVATED, KILL, KILLED, (2, 1), thrice=True),
    *(Fault("controller killed", at, KILL, KILLED, (2, 1)) for at in (CONFIGURE, STOP)),
    Fault("controller killed", RUN, KILL, KILLED, NONE, nth=2),
    *(Fault("controller killed", at, KILL, KILLED, TWO) for at in (WAIT, MEASURE, PROVE, CLOSE)),
    *(Fault("controller killed", at, KILL, KILLED, TWO, open=False) for at in (PRUNE, END)),
    Fault("controller killed", RESTORE, KILL, KILLED, TWO, **FAILED_MEASUREMENT),
    Fault("controller killed", UNDO, KILL, KILLED, (1, 2), **FAILED_MEASUREMENT),
    Fault("controller killed", RUN, KILL, KILLED, (1, 2), nth=3, **FAILED_MEASUREMENT),
    Fault("controller killed", WAIT, KILL, KILLED, ONE, nth=2, **FAILED_MEASUREMENT),
    # The server: 1 until it is stopped, then 2.
    Fault("server killed", MEASURE, [("kill_server",)], BACK, ONE, open=False),
    # It was seen to serve. What happens later is not the rollout's, and the next one starts it.
    Fault("server killed", CLOSE, [("kill_server",)], DONE, NONE, open=False),
    Fault("server killed", WAIT, [("kill_server",)], NOT_BACK, NO_SERVER, nth=2, **FAILED_MEASUREMENT),
    Fault("server stopped", STOP, [("stop_server",)], DONE, TWO, open=False),
    Fault("server stopped", WAIT, [("stop_server",)], BACK, ONE, open=False, hangs=True),
    Fault("supervisord killed", STOP, [("kill_supervisord",)], DONE, TWO, open=False),
    Fault("supervisord killed", WAIT, [("kill_supervisord",)], BACK, ONE, open=False),
    Fault("supervisord killed", MEASURE, [("kill_supervisord",)], DONE, TWO, open=False),
    Fault("supervisord killed", WAIT, [("kill_supervisord",)], NOT_BACK, ONE, nth=2, **FAILED_MEASUREMENT),
    # The host.
    Fault("power cut", CLOSE, POWER_CUT, KILLED, NONE),
    Fault("power cut", UNDO, POWER_CUT, KILLED, NO_SERVER, **FAILED_MEASUREMENT),
    Fault("host rebooted", MEASURE, [("lose_power",)], BACK, ONE, open=False),
    Fault("host rebooted and not back", WAIT, [("lose_power",), ("drop",)], UNREACHABLE, NONE, over_ssh=True),
    # The connection, between two tasks and in the middle of one, which goes on by itself.
    Fault("connection dropped", ACTIVATE, [("drop",)], UNREACHABLE, ONE, over_ssh=True),
    Fault("connection dropped", WAIT, [("drop",)], UNREACHABLE, TWO, over_ssh=True),
    Fault("connection dropped", RESTORE, [("drop",)], UNREACHABLE, TWO, over_ssh=True, **FAILED_MEASUREMENT),
    Fault("connection dropped in the middle", RUN, [("at_work", "drop")], UNREACHABLE, TWO, nth=2, over_ssh=True),
    Fault("task killed in the middle", STOP, [("at_work", "kill")], BACK, ONE, open=False),
    Fault("task killed in the middle", RUN, [("at_work", "kill")], BACK, ONE, nth=2, open=False),
    Fault(
        "task killed in the middle",
        RUN,
        [("at_work", "kill between")],
        NOT_BACK,
        NO_SERVER,
        nth=3,
        **FAILED_MEASUREMENT,
    ),
    # The disk.
    *(
        Fault("disk full", at, [("fill_disk",)], NOT_BACK, left, words=words, open=open, **SMALL_DISK)
        for at, left, words, open in (
            (KEEP, ONE, "cannot keep the way back", False),
            (SECRETS, (2, 1), "No space left on device", True),
            (PROVE, TWO, "No space left on device", True),
            (CLOSE, TWO, "No space left on device", True),
        )
    ),
    # The port.
    Fault("port taken", RUN, [("take_port",)], NOT_BACK, NO_SERVER, nth=2, words="which is not this server"),
    Fault(
        "port taken",
        RUN,
        [("kill_server",), ("take_port",)],
        NOT_BACK,
        NO_SERVER,
        nth=3,
        words="which is not this server",
        **FAILED_MEASUREMENT,
    ),
    # Files: the journal and the lock.
    *(
        Fault(f"journal {how}", MEASURE, [(how, JOURNAL), *KILL], KILLED, TWO, open=False, again_words=DAMAGED)
        for how in ("garble", "empty", "halve")
    ),
    Fault("journal garble", CLOSE, [("garble", JOURNAL)], DONE, TWO, open=False, again_words=DAMAGED),
    Fault(
        "journal garble",
        RESTORE,
        [("garble", JOURNAL)],
        BACK,
        ONE,
        words="is damaged, so the files of before were not put back",
        open=False,
        secrets=2,
        again_words=DAMAGED,
        **FAILED_MEASUREMENT,
    ),
    Fault(
        "journal a directory",
        KEEP,
        [("make_directory", JOURNAL)],
        NOT_BACK,
        ONE,
        open=False,
        words=f"{JOURNAL}: it is a directory; move it away, then run again",
        mend=[("remove", JOURNAL)],
    ),
    Fault("journal newer", KEEP, [("age", JOURNAL)], NOT_BACK, **UNTOUCHED, words=NEWER, mend=[("remove", JOURNAL)]),
    Fault(
        "lock garble", ACTIVATE, [("garble", LOCK)], NOT_BACK, ONE, words="lock was taken away, and nobody has it now"
    ),
    Fault("lock newer", KEEP, [("age", LOCK)], NOT_BACK, **UNTOUCHED, words=NEWER, mend=[("remove", LOCK)]),
    Fault("state/rollout removed", ACTIVATE, [("remove", "state/rollout")], NOT_BACK, ONE, open=False),
    Fault("copies removed", RESTORE, [("remove", "state/rollout/kept")], NOT_BACK, (1, 2), **FAILED_MEASUREMENT),
    # Files: what is current and the releases.
    Fault("current removed", RUN, [("remove", "current")], NOT_BACK, (None, None), open=False),
    Fault("current dangling", RUN, [("dangle", "current")], BACK, ONE, open=False),
    Fault(
        "current a directory",
        RUN,
        [("make_directory", "current")],
        NOT_BACK,
        (None, None),
        words="current: it is a directory, not a link to a release; move it away, then run again",
        mend=[("remove", "current")],
    ),
    Fault("launch.json garble", RUN, [("garble", LAUNCH)], BACK, **UNTOUCHED, nth=2, again=NOT_BACK),
    Fault("environment of 1 removed", RESTORE, [("remove", "venvs/one")], NOT_BACK, TWO, **FAILED_MEASUREMENT),
    Fault("releases.json garble", PROVE, [("garble", "state/releases.json")], DONE, TWO, open=False),
    # Files: of the server and its manager.
    Fault(
        "secrets.env a directory",
        RUN,
        [("make_directory", "state/secrets.env")],
        NOT_BACK,
        NO_SERVER,
        nth=2,
        words="state/secrets.env: Is a directory",
        mend=[("remove", "state/secrets.env")],
    ),
    Fault("supervisord.conf garble", RUN, [("garble", "state/supervisord.conf")], BACK, **UNTOUCHED, nth=2),
    Fault("supervisor.sock removed", STOP, [("remove", "state/supervisor.sock")], DONE, TWO, open=False),
    Fault("launcher removed", RUN, [("remove", "bin/launch.py")], BACK, ONE, nth=2, open=False),
    Fault("log removed", RUN, [("remove", "log")], NOT_BACK, NO_SERVER, nth=2),
    Fault("server.json garble", WAIT, [("garble", SERVER)], DONE, TWO, open=False),
    Fault("fact file garble", PRUNE, [("garble", "facts/sglang.fact")], DONE, TWO, open=False),
    # Release 2 itself.
    server_of_two("--exit-code", "3"),
    server_of_two("--hang"),
    server_of_two("--name", "another"),
]

CASES = [pytest.param(fault, id=fault.name, marks=IN_FULL) for fault in FAULTS]

#: Each in what the one before left.
SERIES = [
    Fault("controller killed", ACTIVATED, KILL, KILLED, (2, 1)),
    Fault("server killed", WAIT, [("kill_server",)], BACK, ONE, open=False),
    Fault("connection dropped in the middle", STOP, [("at_work", "drop")], UNREACHABLE, NONE, over_ssh=True),
    Fault("power cut", WAIT, POWER_CUT, KILLED, NONE),
    Fault("port taken", RUN, [("take_port",)], NOT_BACK, NO_SERVER, nth=2, words="which is not this server"),
    Fault("journal halve", BEGIN, [("halve", JOURNAL)], DONE, TWO, open=False, words=DAMAGED),
]


# --- the rollout ------------------------------------------------------------------------------------------------------


def steps_of_deploy(request: int) -> list[dict[str, Any]]:
    """The tasks of deploy.yml from the written release on. The measurement is a request that release 2 must answer."""
    facts = {"release": request, "current": None, "previous": None, "activated": False}
    measured = {
        "name": MEASURE,
        "ansible.builtin.uri": {
            "url": "http://127.0.0.1:{{ sglang_port }}/v1/models",
            "headers": {"Authorization": "Bearer {{ sglang_server_api_key }}"},
            "return_content": True,
            "timeout": 10,
        },
        "register": "measured",
        "failed_when": "measured.status != 200 or unfit",
    }
    switch = []
    for task in yaml.safe_load((CHECKOUT / "playbooks/tasks/switch.yml").read_text()):
        brought = task.get("ansible.builtin.include_tasks")
        switch.append(measured if task["name"] == MEASURE else tasks_of(Path(brought).stem) if brought else task)
    assert measured in switch
    begin = {**include("sglang_rollout", "main"), "vars": {"sglang_rollout_what": "deploy"}}
    around = {
        "block": [
            {
                "block": [{"name": "Write it", "ansible.builtin.set_fact": {"sglang_release_info": facts}}, *switch],
                "rescue": [tasks_of("go_back")],
            },
            include("sglang_release", "prune"),
            include("sglang_drain", "join"),
        ],
        "always": [include("sglang_rollout", "end")],
    }
    return [begin, around]


class Place:
    """A root on which release 1 served and is proven, made anew for each fault, and what is done with it."""

    def __init__(self, directory: Path) -> None:
        self.site = Site(directory)
        self.scene = Scene(self.site.root, self.site.port)
        self.kept = directory / "kept"
        self.site.stage("one", "--text", TEXTS[1])
        code, output = self.play(1)
        assert code == 0, output
        self.site.end()
        shutil.copytree(self.site.root, self.kept, symlinks=True)

    @contextlib.contextmanager
    def serving(self, fault: Fault) -> Iterator[None]:
        """Release 1 serves below the root of before, and release 2 is written."""
        shutil.rmtree(self.site.root)
        for left in (self.scene.happened, self.scene.dropped, self.scene.foreign):
            left.unlink(missing_ok=True)
        self.site.root.mkdir()
        if fault.small_disk:
            mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(self.site.root)]
            subprocess.run(mount, check=True, capture_output=True)
        try:
            shutil.copytree(self.kept, self.site.root, symlinks=True, dirs_exist_ok=True)
            assert self.site.stage("two", "--text", TEXTS[2], *fault.two) == 2
            paths = service.Paths(str(self.site.root))
            manager = managers.make_manager("supervisor", paths, "sglang", str(SUPERVISORD))
            one = service.Service(paths, manager, "sglang", "127.0.0.1", self.site.port, 1)
            service.carry_out(one, "started", check_mode=False, start_if=True)
            wait_for(lambda: self.answers() == (1, 1))
            yield
        finally:
            self.mend([("connect",), ("free_port",)])
            for pid, _words in faulting.belonging(self.site.root):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            wait_for(lambda: not faulting.belonging(self.site.root))
            if fault.small_disk:
                subprocess.run(["umount", "-l", str(self.site.root)], check=True)

    def play(self, request: int, fault: Fault | None = None, **variables: Any) -> tuple[int, str]:
        """The return code, negative for a signal, and all that was printed, in one line."""
        environment = {**play_environment(), "TOKFORGE_DROPPED": str(self.scene.dropped)}
        if fault and fault.do:
            order = {"at": fault.at, "nth": fault.nth, "do": fault.do, "root": str(self.scene.root)}
            environment[faulting.ORDER] = json.dumps({**order, "port": self.scene.port})
            environment["ANSIBLE_CALLBACK_PLUGINS"] = str(Path(__file__).with_name("callbacks"))
            environment["ANSIBLE_CALLBACKS_ENABLED"] = "inject_fault"
        over_ssh = {
            "ansible_connection": "ssh",
            "ansible_ssh_executable": str(self.site.root.parent / "ssh"),
            "ansible_ssh_args": "",
            "ansible_ssh_transfer_method": "piped",
        }
        (self.site.root.parent / "ssh").write_text(
            f'#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name("stand_in_ssh.py")} "$@"\n'
        )
        (self.site.root.parent / "ssh").chmod(0o755)
        command = self.site.command(
            steps_of_deploy(request),
            **(over_ssh if fault and fault.over_ssh else {}),
            sglang_server_api_key=KEYS[request],
            sglang_stop_timeout_s=3,
            sglang_ready_timeout_s=HANGS_S if fault and fault.hangs else START_LIMIT_S,
            unfit=bool(fault and fault.unfit),
            **variables,
        )
        with open(self.site.root.parent / "output", "w+") as output:
            started = subprocess.Popen(
                command,
                cwd=CHECKOUT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = started.wait(PLAY_LIMIT_S)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(started.pid, signal.SIGKILL)
            output.seek(0)
            return code, " ".join(output.read().split())

    def answers(self) -> tuple[int, int] | None:
        """Which release answers on the port, and to which one's key; None when nobody listens."""
        if not faulting.listens(self.site.port):
            return None
        request = {"sampling_params": {"max_new_tokens": 1}}
        for number, key in KEYS.items():
            asked = urllib.request.Request(
                f"http://127.0.0.1:{self.site.port}/generate",
                json.dumps(request).encode(),
                {"Authorization": f"Bearer {key}"},
            )
            try:
                with urllib.request.urlopen(asked, timeout=30) as answer:
                    text = json.load(answer)["text"]
            except urllib.error.HTTPError as error:
                assert error.code == 401
                continue
            return {text: release for release, text in TEXTS.items()}[text], number
        raise AssertionError("it answers to no key")

    def runs(self) -> int | None:
        """The release that the server's process was started as, whoever looks after it."""
        own = self.scene.observed().own
        found = {os.path.basename(faulting.proc.environ(one.pid)[service.ENV_RELEASE]) for one in own}
        assert len(found) <= 1
        return int(found.pop()) if found else None

    def current(self) -> int | None:
        try:
            return int(os.path.basename(os.readlink(self.site.root / "current")))
        except OSError:
            return None

    def cut_off(self) -> bool:
        """Whether the journal says that a rollout was cut off, as far as it can be read."""
        with contextlib.suppress(rollout_journal.JournalError):
            return rollout_journal.read(str(self.site.root)).open is not None
        return False

    def wait_for_work(self) -> None:
        """Until the task that the lock names has ended: one goes on when its connection drops."""

        def rests() -> bool:
            with contextlib.suppress(rollout_lock.LockError):
                lock = rollout_lock.read(str(self.site.root))
                return lock is None or not rollout_lock.runs(lock.worker_pid, lock.worker_start_ticks)
            return True

        wait_for(rests)

    def mend(self, steps: Sequence[tuple[str, ...]]) -> None:
        """What a person does, or time."""
        for name, *arguments in steps:
            if name == "remove":
                faulting.remove(self.scene, *arguments)
            elif name == "empty_disk":
                self.scene.filler.unlink()
            elif name == "connect":
                self.scene.dropped.unlink(missing_ok=True)
            elif name == "free_port" and self.scene.foreign.exists():
                pid = int(self.scene.foreign.read_text())
                self.scene.foreign.unlink()
                os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)
                wait_for(lambda: not faulting.listens(self.site.port))


def wait_for(condition: Callable[[], bool], limit_s: float = 60) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("faults"))


# --- what must be true ------------------------------------------------------------------------------------------------


def how_it_ended(code: int, output: str) -> str:
    if code == -signal.SIGKILL:
        return KILLED
    if code in (0, 4):
        return DONE if code == 0 else UNREACHABLE
    assert code == 2, output
    if "rolled_back: true" in output:
        return BACK
    return NOT_BACK if "rolled_back: false" in output else FAILED


def stray_files(root: Path) -> list[str]:
    """What a write that was cut off leaves, and copies of files that nobody goes back to."""
    names = [*root.glob(".*"), *root.glob("state/.*"), *root.glob("state/rollout/*"), *root.glob("state/rollout/.*")]
    names += [*root.glob("releases/.*"), *root.glob("releases/*/.*"), *root.glob("bin/.*")]
    known = {root / ".tokforge-sglang", root / JOURNAL}
    return sorted(str(name.relative_to(root)) for name in names if name not in known)


def check_whole(place: Place, serves: int, secrets: int, broken: str = "") -> None:
    """At rest: this release serves, with the secrets of that one, nobody else runs, nothing is open or left over, and
    all but a `broken` journal are whole.
    """
    root = place.site.root
    assert (place.current(), place.runs(), place.answers()) == (serves, serves, (serves, secrets))
    main, daemon = place.scene.server(), place.scene.supervisord()
    assert daemon is not None
    assert sorted(pid for pid, _words in faulting.belonging(root)) == sorted([main.pid, daemon.pid])
    assert release_store.last_proven(str(root)) == serves
    assert KEYS[secrets] in (root / "state/secrets.env").read_text()
    record = service.read_record(service.Paths(str(root)))
    assert record and (record.pid, record.stopped, os.path.basename(record.release)) == (main.pid, False, str(serves))
    journal = rollout_journal.read(str(root))
    assert (journal.open, bool(journal.warnings)) == (None, JOURNAL in broken)
    assert rollout_lock.read(str(root)) is None and not os.path.exists(rollout_lock.path(str(root)))
    # A journal that tells nothing leaves the copies for whoever can tell what they are.
    assert stray_files(root) == (["state/rollout/kept"] if JOURNAL in broken else [])


def check_left(place: Place, broken: str) -> None:
    """What a fault may leave: nobody but the server and its supervisord, one that serves or nobody on the port, no
    server of a release that is not current unless the journal tells why, and whole files but the `broken` ones.
    """
    root, runs = place.site.root, place.runs()
    daemon = place.scene.supervisord()
    ours = {one.pid for one in place.scene.observed().own} | ({daemon.pid} if daemon else set())
    assert [words for pid, words in faulting.belonging(root) if pid not in ours] == []
    if runs is not None:
        wait_for(lambda: (place.answers() or [None])[0] == runs)
    else:
        assert faulting.listens(place.site.port) == place.scene.foreign.exists()
    assert place.cut_off() or runs in (None, place.current())
    for name in (JOURNAL, LOCK, SERVER, "state/releases.json", "state/starts.json"):
        if name not in broken and (root / name).exists():
            assert json.loads((root / name).read_text())["schema_version"] == 1


def check_fault(place: Place, fault: Fault) -> None:
    """Roll out release 2 with this fault, and see that what is left is what the table says, and true."""
    code, output = place.play(2, fault)
    assert how_it_ended(code, output) == fault.ends, output
    assert not fault.do or place.scene.happened.exists(), output
    assert fault.words in output
    place.wait_for_work()
    assert (place.current(), place.runs(), place.cut_off()) == (*fault.left, fault.open), output
    check_left(place, str(fault.do))
    if fault.ends == BACK:
        check_whole(place, 1, fault.secrets, str(fault.do))
    place.mend([*fault.mend, ("connect",), ("free_port",)])


@pytest.mark.parametrize("fault", CASES)
def test_what_is_left_is_true_and_next_run_comes_through(place: Place, fault: Fault) -> None:
    if fault.small_disk and os.geteuid() != 0:
        pytest.skip("only root can mount the small disk that is to be full")
    with place.serving(fault):
        check_fault(place, fault)
        # What is wrong with release 2 itself is so again.
        code, output = place.play(2, None if fault.do else fault)
        assert how_it_ended(code, output) == fault.again, output
        assert fault.again_words in output
        serves = 2 if fault.again == DONE else 1
        check_whole(place, serves, serves)
        if fault.thrice:
            code, output = place.play(2)
            assert code == 0 and "changed=0" in output, output
            check_whole(place, 2, 2)


def test_faults_one_after_the_other_lose_neither_what_served_nor_the_way_there(place: Place) -> None:
    """Each run finds what the one before left, and breaks elsewhere; the last one comes through all the same."""
    with place.serving(SERIES[0]):
        for fault in SERIES:
            place.scene.happened.unlink(missing_ok=True)
            check_fault(place, fault)
        check_whole(place, 2, 2)
