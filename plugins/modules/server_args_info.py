#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: server_args_info
short_description: Check, render and read back the arguments of an SGLang server
version_added: 0.1.0
description:
  - Checks a mapping of arguments against the command line of one SGLang release, one by one and together, and renders
    it as an argument list.
  - Reads the arguments that a running or past server says it uses from its log, and compares them with others.
  - What each release accepts is part of this collection, read from the release's own sources. Nothing of SGLang has to
    be installed where the module runs. Of a release that is not part of it, the sources on the target are read.
author:
  - tokforge.sglang contributors (@tokforge)
extends_documentation_fragment:
  - tokforge.sglang.attributes
  - tokforge.sglang.attributes.info_module
options:
  args:
    description:
      - The arguments, one key for each flag, with dashes or underscores and without leading dashes.
      - V(true) gives the flag alone. V(false) and V(null) leave it out, except that V(false) on a flag that can be
        negated gives C(--no-FLAG). A list gives its items after the flag, a mapping its JSON text.
      - Needs O(sglang_version) or O(source).
    type: dict
  env:
    description: The environment the server is to have. A few rules about several arguments look at it.
    type: dict
    default: {}
  sglang_version:
    description:
      - The release whose command line counts, as the package index names it, for example V(0.5.23).
      - Without O(source) it must be one of the locked releases.
    type: str
  source:
    description:
      - An SGLang on the target whose own sources say what its command line takes, instead of the data of this
        collection. For releases that are not locked, and for checkouts.
      - A directory that holds C(sglang/srt) (site-packages, a checkout), an environment or its interpreter, or a
        C(server_args.py) in its place. SGLang is not imported.
    type: path
  log:
    description:
      - Path of a server's log on the target. The arguments of one start in it are read.
      - A log that Docker or journald wrote as JSON is read too.
    type: path
  start:
    description:
      - Which start in O(log) and O(compare_with_log) counts.
      - V(last), V(first), or a number counted from 1; a negative one counts from the end.
    type: str
    default: last
  compare_with:
    description:
      - Arguments to compare with those of O(log), or with O(args) when no log is given.
      - Usually the RV(effective) of another server or of an earlier look.
      - A mapping with fewer than 100 arguments counts as what was asked for. Compared with all that a server runs with,
        what it does not name is no difference.
    type: dict
  compare_with_log:
    description: Path of another server's log on the target, instead of O(compare_with).
    type: path
  compare_with_file:
    description:
      - Path of a JSON file on the target, instead of O(compare_with), such as a recorded good run.
      - A release's C(launch.json), a saved result of this module, or a mapping of arguments.
    type: path
seealso:
  - module: tokforge.sglang.benchmark
"""

EXAMPLES = r"""
- name: Check the arguments before anything is installed
  tokforge.sglang.server_args_info:
    sglang_version: 0.5.23
    args:
      tp-size: 8
      moe-runner-backend: flashinfer_cutlass
  register: checked

- name: Refuse what the release does not take
  ansible.builtin.assert:
    that: checked.problems | length == 0
    fail_msg: "{{ checked.problems | map(attribute='message') | join('; ') }}"

- name: Check them against the SGLang of an environment, whatever release that is
  tokforge.sglang.server_args_info:
    source: /opt/sglang/current/venv
    args:
      tp-size: 8

- name: See what differs between the running server and a good run, the most telling first
  tokforge.sglang.server_args_info:
    log: /opt/sglang/log/server.log
    compare_with_log: /opt/sglang/log/server.log.good
  register: good

- name: See what differs between the running server and the recorded arguments
  tokforge.sglang.server_args_info:
    log: /opt/sglang/log/server.log
    compare_with: "{{ recorded_args }}"
  register: compared
"""

RETURN = r"""
argv:
  description: The rendered arguments, sorted by flag. Made even when there are problems. V(null) without O(args).
  returned: success
  type: list
  elements: str
  sample: ["--moe-runner-backend", "flashinfer_cutlass", "--tp-size", "8"]
problems:
  description:
    - What the release would not accept, alone or together, and what another variable decides. Empty when all is well.
    - A release that is not locked, or a checkout, is told as its sources have it.
  returned: success
  type: list
  elements: dict
  contains:
    flag:
      description: The flag, without leading dashes.
      type: str
      sample: moe-runner-backend
    message:
      description: What is wrong and what to write instead.
      type: str
      sample: "--moe-runner-backend does not take triton_kernels in SGLang 0.5.23 (did you mean triton_kernel?)..."
    level:
      description: V(fail) when the server would not start or do something else, V(warn) when it starts.
      type: str
      sample: fail
release:
  description: What O(args) was checked against. V(null) without O(args).
  returned: success
  type: dict
  contains:
    version:
      description: The release. V(unknown) when the sources do not say it.
      type: str
      sample: 0.5.23
    source:
      description: The file that was read, V(null) when the data of this collection was used.
      type: str
      sample: /opt/sglang/current/venv/lib/python3.11/site-packages/sglang/srt/server_args.py
    flags:
      description: How many flags the release has.
      type: int
      sample: 531
    unread:
      description: What could not be read of single flags, and is not checked. Empty for the data of this collection.
      type: list
      elements: str
      sample: []
effective:
  description:
    - All arguments the server in O(log) runs with, defaults and its own decisions included.
    - Secrets are replaced by V((hidden\)). V(null) when no log was given.
  returned: success
  type: dict
  sample: {"attention_backend": "torch_native", "tp_size": 1}
starts:
  description: The starts in O(log). Empty when no log was given.
  returned: success
  type: list
  elements: dict
  contains:
    line:
      description: The line, counted from 1.
      type: int
      sample: 4
    time:
      description: The time as the log has it.
      type: str
      sample: "2026-11-29 16:24:36"
    complete:
      description: Whether the whole line is there. Of a line that was cut, the arguments before the cut are read.
      type: bool
      sample: true
    arguments:
      description: How many arguments were read.
      type: int
      sample: 546
differences:
  description:
    - The arguments that differ, the most telling first. V((absent\)) stands for the side that does not have the
      argument.
    - A flag that only has another name on the other side is no difference, nor is what is off on the one side and
      absent on the other.
    - Empty when nothing was given to compare with.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The argument, with underscores.
      type: str
      sample: tp_size
    left:
      description: The value in O(log), or in O(args) when no log was given.
      type: raw
      sample: 1
    right:
      description: The value in O(compare_with), O(compare_with_log) or O(compare_with_file).
      type: raw
      sample: 8
    weight:
      description:
        - V(decides_speed) or V(decides_output) for what is known to decide about it, V(may_matter) for what is not
          known, V(incidental) for what never does, such as a port.
      type: str
      sample: decides_speed
    rank:
      description: The place of the argument in the order of telling, the least first.
      type: int
      sample: 11
    hint:
      description: What the argument does, as one clause. Empty where nothing is to be said.
      type: str
      sample: each GPU reads another share of the weights
    left_name:
      description: What the left side calls the argument. Empty when it does not have it.
      type: str
      sample: tp_size
    right_name:
      description: What the right side calls the argument. Empty when it does not have it.
      type: str
      sample: tensor-parallel-size
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    argument_conflicts,
    release_source,
    releases,
    server_args,
    server_args_diff,
    server_args_log,
)


class RefusedError(Exception):
    """Something that was given cannot be read; `facts` go beside the message."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


def read_log(module: AnsibleModule, path: str) -> tuple[dict[str, Any], list[server_args_log.Start]]:
    """The arguments of the start that is meant in the log at `path`, and all starts. Raises RefusedError."""
    which = module.params["start"]
    try:
        wanted = which if which in ("first", "last") else int(which)
        with open(path, encoding="utf-8", errors="replace") as lines:
            found = server_args_log.starts(lines)
    except ValueError as exc:
        raise RefusedError(f"reading the log {path}: start is {which!r}; give last, first or a number") from exc
    except OSError as exc:
        message = f"reading the log {path}: {exc.strerror}; give the path of a server's log"
        raise RefusedError(message, log=path) from exc
    if not found:
        raise RefusedError(
            f"reading the log {path}: no server says its arguments in it; give the log of a started SGLang server",
            log=path,
        )
    start = server_args_log.chosen(found, wanted)
    if start is None:
        raise RefusedError(
            f"reading the log {path}: it has {len(found)} starts, and none is number {which}; give another start",
            log=path,
        )
    if not start.complete:
        module.warn(f"the arguments in line {start.line} of {path} are cut off; those before the cut are read")
    return dict(start.args), found


def read_release(module: AnsibleModule) -> tuple[releases.Release, dict[str, Any]]:
    """The release that counts, and what is told about it. Raises RefusedError."""
    version, source = module.params["sglang_version"], module.params["source"]
    if version is None and source is None:
        raise RefusedError("args needs sglang_version or source, which say what release the arguments are for")
    try:
        if source is None:
            release = releases.get(version)
            return release, {"version": version, "source": None, "flags": len(release.flags), "unread": []}
        read = release_source.read(source)
    except releases.ReleaseError as exc:
        hint = "" if source is not None else "; or give source, an SGLang on the target to read its flags from"
        raise RefusedError(f"{exc}{hint}", **exc.facts) from exc
    if version is not None and read.release.version not in (version, release_source.UNKNOWN):
        module.warn(f"the SGLang in {source} is {read.release.version}, not {version}; its own sources count")
    return read.release, {
        "version": read.release.version,
        "source": read.path,
        "flags": len(read.release.flags),
        "unread": list(read.unread),
    }


def other_side(module: AnsibleModule) -> dict[str, Any] | None:
    """What there is to compare with; None when nothing. Raises RefusedError."""
    if module.params["compare_with_log"] is not None:
        return read_log(module, module.params["compare_with_log"])[0]
    path = module.params["compare_with_file"]
    if path is None:
        given: dict[str, Any] | None = module.params["compare_with"]
        return given
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return server_args_diff.recorded(stream.read())
    except OSError as exc:
        raise RefusedError(f"reading {path}: {exc.strerror}; give the path of recorded arguments", file=path) from exc
    except server_args_diff.RecordError as exc:
        raise RefusedError(f"reading {path}: {exc}", file=path) from exc


def check(args: Mapping[str, Any], release: releases.Release, env: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Everything that is wrong with the arguments, one by one and together, sorted by flag."""
    problems = [*server_args.check(args, release), *argument_conflicts.find(args, release, env)]
    return [asdict(problem) for problem in sorted(problems, key=lambda problem: problem.flag)]


def main() -> None:
    """Check, render, read back and compare; never changes anything."""
    module = AnsibleModule(
        argument_spec={
            "args": {"type": "dict"},
            "env": {"type": "dict", "default": {}},
            "sglang_version": {"type": "str"},
            "source": {"type": "path"},
            "log": {"type": "path"},
            "start": {"type": "str", "default": "last"},
            "compare_with": {"type": "dict"},
            "compare_with_log": {"type": "path"},
            "compare_with_file": {"type": "path"},
        },
        required_one_of=[("args", "log")],
        mutually_exclusive=[("compare_with", "compare_with_log", "compare_with_file")],
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **look(module))
    except RefusedError as exc:
        module.fail_json(msg=str(exc), **exc.facts)


def look(module: AnsibleModule) -> dict[str, Any]:
    """What the module returns. Raises RefusedError."""
    args, compared = module.params["args"], module.params["compare_with"]
    # They are refused below; until they are gone from the inventory they must not be printed either.
    secrets = [*server_args.secret_values(args or {}), *server_args.secret_values(compared or {})]
    module.no_log_values.update(value for value in secrets if value != server_args_log.HIDDEN)
    found: dict[str, Any] = {
        "argv": None, "problems": [], "release": None, "effective": None, "starts": [], "differences": [],
    }  # fmt: skip
    if args is not None:
        release, found["release"] = read_release(module)
        found["argv"] = server_args.render(args, release)
        found["problems"] = check(args, release, module.params["env"])
    if module.params["log"] is not None:
        found["effective"], starts = read_log(module, module.params["log"])
        found["starts"] = [
            {"line": start.line, "time": start.time, "complete": start.complete, "arguments": len(start.args)}
            for start in starts
        ]
    other = other_side(module)
    if other is not None:
        mine = args if found["effective"] is None else found["effective"]
        found["differences"] = [asdict(entry) for entry in server_args_diff.diff(mine, other)]
    return found


if __name__ == "__main__":
    main()
