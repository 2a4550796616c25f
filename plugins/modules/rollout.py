#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout
short_description: Hold a root for one play, and keep the way back while it switches
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - A play that changes what serves begins with O(state=begun), which makes sure that no other one is at work below the
    same root. It takes the place of a play that is over, and tells of a rollout that was cut off.
  - Before it switches, O(state=switching) writes down what serves now and copies the files that the rollout is about to
    change. O(state=undone) puts those files back, O(state=closed) writes down how it went.
  - O(state=ended) lets the next play in.
  - Nothing of this changes what serves, so it is not reported as a change; only O(state=undone) is.
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
    details:
      - Says whether another play is at work, and takes no lock.
  diff_mode:
    support: none
options:
  root:
    description: Directory that holds everything a rollout makes on the target.
    type: path
    required: true
  state:
    description:
      - V(begun) takes the lock.
      - V(held) fails when the lock was taken away from this play, before a step that does not ask by itself.
      - V(switching) opens an entry in the journal, or takes over the one that is open.
      - V(undone) puts back the files that the open entry has copies of.
      - V(closed) closes the entry, as O(outcome) says; without one it stays open. With O(failure) it fails with that,
        so that a play that went back fails all the same.
      - V(ended) gives the lock back. An entry that is open stays so, for the next play.
    type: str
    choices: [begun, held, switching, undone, closed, ended]
    required: true
  rollout:
    description:
      - Token of the play, as O(state=begun) returned it. The other states are refused to a play whose lock was taken
        away.
      - For O(state=begun) one is made up when it is not given.
    type: str
  what:
    description: What the play does, for people, such as V(deploy).
    type: str
    default: rollout
  controller:
    description: The process that runs the play. The action plugin of the same name fills it in.
    type: dict
    suboptions:
      host:
        description: Name of the controller.
        type: str
        required: true
      user:
        description: Who runs the play.
        type: str
        required: true
      boot_id:
        description: Identity of the controller's boot, empty where it has none.
        type: str
        default: ""
      pid_namespace:
        description: Namespace of O(controller.pid).
        type: str
        default: ""
      pid:
        description: Process id of the play on the controller.
        type: int
        default: 0
      start_ticks:
        description: When that process was started, in clock ticks since the boot.
        type: int
        default: 0
  target:
    description:
      - The inventory's name of this host. Several names of one root share the lock in one play, and the last one that
        ends gives it back. The action plugin fills it in.
    type: str
    default: ""
  ended_plays:
    description: Tokens of plays that the controller has seen to be over. The action plugin fills it in.
    type: list
    elements: str
    default: []
  lease_s:
    description:
      - A play whose process cannot be seen from here, since it runs on another controller, is taken for dead when it
        gave no sign of life for so many seconds. Its every step is one.
    type: float
    default: 7200
  lock_break:
    description:
      - Take the lock although another play holds it and may live. A task of it that is at work on the target stays in
        the way.
    type: bool
    default: false
  make_root:
    description: For O(state=begun), make O(root) where there is none. A directory that holds something else is refused.
    type: bool
    default: false
  wait_s:
    description: How many seconds to wait for another play to end. The action plugin does the waiting.
    type: float
    default: 0
  release:
    description: For O(state=switching), the release that is about to become current.
    type: int
  files:
    description: For O(state=switching), files that the rollout is about to change or make.
    type: list
    elements: path
    default: []
  outcome:
    description:
      - For O(state=closed). V(done) means that the new release serves, V(rolled_back) that what was before is there
        again, V(failed) that neither could be brought about.
    type: str
    choices: [done, rolled_back, failed]
  failure:
    description: For O(state=closed), why the play failed. The task fails with this message.
    type: str
seealso:
  - module: tokforge.sglang.rollout_info
  - module: tokforge.sglang.release
"""

EXAMPLES = r"""
- name: Begin, alone on this host
  tokforge.sglang.rollout:
    root: /opt/sglang
    state: begun
    what: deploy
  register: begun

- name: Write down the way back
  tokforge.sglang.rollout:
    root: /opt/sglang
    state: switching
    rollout: "{{ begun.rollout }}"
    release: 4
    files: [/etc/systemd/system/sglang.service, /opt/sglang/state/secrets.env]

- name: Note that the new release serves
  tokforge.sglang.rollout:
    root: /opt/sglang
    state: closed
    rollout: "{{ begun.rollout }}"
    outcome: done

- name: Let the next one in
  tokforge.sglang.rollout:
    root: /opt/sglang
    state: ended
    rollout: "{{ begun.rollout }}"
"""

RETURN = r"""
rollout:
  description: Token of this play.
  returned: always
  type: str
lock:
  description: Whose the lock was until now, V(free), V(mine) or V(stale).
  returned: when O(state=begun)
  type: str
  sample: free
why:
  description: Why the lock could be taken, or why not.
  returned: when O(state=begun)
  type: str
locked:
  description: Whether it failed since another play is at work here.
  returned: failure
  type: bool
holder:
  description: Who holds the lock.
  returned: when it is another's
  type: dict
  sample: {what: deploy, age_s: 312.5, silent_s: 3.1, controller: {host: ci-1, user: deploy, pid: 4711}}
unfinished:
  description: The open entry of a rollout that was cut off. Null when there is none.
  returned: when O(state=begun)
  type: dict
  sample: {what: deploy, by: deploy@ci-1, release: 4, previous: 3, began_at: 1796068800.0}
previous:
  description:
    - The release that served last before the rollout, also before rollouts that were cut off. Null when none did.
  returned: when O(state=switching)
  type: int
  sample: 3
manager:
  description: What ran the server before the rollout, V(systemd) or V(supervisor). Empty when none was started yet.
  returned: when O(state=switching)
  type: str
name:
  description: As what it ran there.
  returned: when O(state=switching)
  type: str
  sample: sglang
files:
  description: Files that were put back.
  returned: when O(state=undone)
  type: list
  elements: str
rolled_back:
  description: Whether the release of before serves again.
  returned: when O(failure) is given
  type: bool
"""

import os
import time
import uuid
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    environment_root,
    install_error,
    release_store,
    rollout_journal,
    rollout_lock,
    service,
)


def begin(given: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Take the lock; in check mode only look whether that could be done."""
    root, rollout = given["root"], given["rollout"] or uuid.uuid4().hex
    controller = rollout_lock.Controller(**(given["controller"] or {"host": "", "user": ""}))
    looks = (given["lease_s"], given["ended_plays"], given["lock_break"])
    if given["make_root"] and not check_mode:
        environment_root.claim_root(root)
    elif not given["make_root"] and not os.path.isdir(os.path.join(root, "state")):
        raise rollout_lock.LockError(f"cannot begin below {root}: nothing is deployed there; run deploy.yml first")
    if check_mode:
        verdict = rollout_lock.look(root, rollout, given["what"], controller, *looks)
    else:
        verdict = rollout_lock.take(root, rollout, given["what"], controller, *looks, given["target"])
    if verdict.shared is not None:
        return _share(root, verdict.shared, given["target"])
    try:
        journal = rollout_journal.settle(root, time.time(), check_mode)
    except Exception:
        # A play that cannot begin is in nobody's way.
        if not check_mode and verdict.kind != rollout_lock.MINE:
            rollout_lock.give_back(root, rollout)
        raise
    warnings = [*journal.warnings]
    if verdict.kind == rollout_lock.STALE:
        warnings.append(f"took the place of an earlier play below {root}: {verdict.why}")
    if journal.open is not None:
        warnings.append(f"{rollout_journal.cut_off_message(journal.open)}; this play finishes that or undoes it")
    return {
        "rollout": rollout,
        "lock": verdict.kind,
        "why": verdict.why,
        "unfinished": rollout_journal.describe(journal.open) if journal.open else None,
        "warnings": warnings,
    }


def _share(root: str, lock: rollout_lock.Lock, target: str) -> dict[str, Any]:
    """Begin under one more name, as long as the play has not begun to switch under another one."""
    journal = rollout_journal.settle(root, time.time(), True)
    if journal.open is not None and journal.open.rollout == lock.rollout and target not in lock.targets:
        rollout_lock.give_back(root, lock.rollout, target)
        raise rollout_lock.LockError(
            f"cannot begin below {root}: this play is switching it under another name of this host; name each host"
            " once, or use the strategy linear",
            locked=True,
        )
    return {
        "rollout": lock.rollout,
        "lock": rollout_lock.MINE,
        "why": "this play has it, under another name of this host",
        "unfinished": rollout_journal.describe(journal.open) if journal.open else None,
        "warnings": [],
    }


def switching(given: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Open the journal's entry."""
    root = given["root"]
    previous = release_store.last_proven(root)
    if check_mode:
        return {"previous": previous, "manager": "", "name": ""}
    with rollout_lock.at_work(root, given["rollout"]):
        return _switching(root, given, previous, rollout_lock.fence(root, given["rollout"]))


def _switching(root: str, given: dict[str, Any], previous: int | None, lock: rollout_lock.Lock) -> dict[str, Any]:
    """The same while nobody else works here."""
    opened = rollout_journal.read(root).open
    under_another_name = len(lock.targets) > 1 and opened is not None and opened.rollout == lock.rollout
    if under_another_name and opened and opened.release != given["release"]:
        raise rollout_lock.LockError(
            f"cannot switch below {root}: {', '.join(lock.targets)} are names of one host, and ask for different"
            f" releases ({opened.release} and {given['release']}); name each host once. Nothing was changed by this"
            " step"
        )
    by = f"{lock.controller.user}@{lock.controller.host}"
    record = service.read_record(service.Paths(root))
    entry = rollout_journal.Entry(
        lock.rollout,
        lock.what,
        by,
        time.time(),
        given["release"],
        previous,
        manager=record.manager if record else "",
        name=record.name if record else "",
    )
    entry = rollout_journal.begin(root, entry, given["files"])
    return {"previous": entry.previous, "manager": entry.manager, "name": entry.name}


def undo(given: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Put files back."""
    with rollout_lock.at_work(given["root"], None if check_mode else given["rollout"]):
        files = rollout_journal.undo(given["root"], check_mode)
        warning = rollout_journal.not_undone_warning(given["root"])
    return {"changed": bool(files), "files": files, "warnings": [warning] if warning else []}


def close(given: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Close the entry."""
    if not check_mode:
        with rollout_lock.at_work(given["root"], given["rollout"]):
            if given["outcome"]:
                rollout_journal.end(given["root"], given["outcome"], given["failure"] or "", time.time())
    return {}


def end(given: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Give the lock back. Nothing is wrong when it is another's by now, or went with the root."""
    if not check_mode:
        rollout_lock.give_back(given["root"], given["rollout"], given["target"])
    return {}


def hold(given: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Make sure that the lock is still this play's."""
    if not check_mode:
        rollout_lock.fence(given["root"], given["rollout"])
    return {}


STATES = {"begun": begin, "held": hold, "switching": switching, "undone": undo, "closed": close, "ended": end}


def main() -> None:
    controller = {
        "host": {"type": "str", "required": True},
        "user": {"type": "str", "required": True},
        "boot_id": {"type": "str", "default": ""},
        "pid_namespace": {"type": "str", "default": ""},
        "pid": {"type": "int", "default": 0},
        "start_ticks": {"type": "int", "default": 0},
    }
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "state": {"type": "str", "choices": list(STATES), "required": True},
            "rollout": {"type": "str"},
            "what": {"type": "str", "default": "rollout"},
            "controller": {"type": "dict", "options": controller},
            "target": {"type": "str", "default": ""},
            "ended_plays": {"type": "list", "elements": "str", "default": []},
            "lease_s": {"type": "float", "default": 7200},
            "lock_break": {"type": "bool", "default": False},
            "make_root": {"type": "bool", "default": False},
            "wait_s": {"type": "float", "default": 0},
            "release": {"type": "int"},
            "files": {"type": "list", "elements": "path", "default": []},
            "outcome": {"type": "str", "choices": list(rollout_journal.OUTCOMES)},
            "failure": {"type": "str"},
        },
        required_if=[
            ("state", "held", ["rollout"]),
            ("state", "switching", ["rollout"]),
            ("state", "undone", ["rollout"]),
            ("state", "closed", ["rollout"]),
            ("state", "closed", ["outcome", "failure"], True),
            ("state", "ended", ["rollout"]),
        ],
        supports_check_mode=True,
    )
    given = module.params
    failed: dict[str, Any] = {}
    try:
        result = {"changed": False, "rollout": given["rollout"], **STATES[given["state"]](given, module.check_mode)}
    except (
        install_error.InstallError,
        release_store.StoreError,
        rollout_journal.JournalError,
        rollout_lock.LockError,
    ) as error:
        failed = {"msg": str(error), **error.facts}
        result = {}
    except OSError as error:
        why = f"{error.strerror} ({error.filename})"
        failed = {"msg": f"cannot work below {given['root']}: {why}; make it writable and give it room"}
        result = {}
    for warning in result.pop("warnings", []):
        module.warn(warning)
    if given["state"] == "closed" and given["failure"] is not None:
        # What failed first is what a person has to read, and what could not be noted after it comes behind.
        message = given["failure"] + (f"\n{failed['msg']}" if failed else "")
        module.fail_json(**{**failed, "msg": message, "rolled_back": given["outcome"] == rollout_journal.ROLLED_BACK})
    if failed:
        module.fail_json(**failed)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
