# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Environment variables that the machine itself sets and that its server has to keep.

What a server is started by hands on nothing of the machine's environment. Some of it may be there for the sake of
others: where hosts share NVLink, a server that uses multicast all the same puts the GPUs of other people out of
service, and NCCL_NVLS_ENABLE=0 is what keeps it from doing so. So each name on the list is required.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import launch_plan

#: The variable that holds the list.
VARIABLE = "sglang_server_env_pass_on"


def passed_on(
    names: Iterable[str], environ: Mapping[str, str], given: Mapping[str, Any]
) -> tuple[dict[str, str], list[str]]:
    """The values by name, in the order of the list, and every problem in words. What has a problem has no value.

    A variable that is set to the empty text is set.

    :param names: those that the machine has to set.
    :param environ: the environment that modules have on the machine.
    :param given: what the inventory sets for the server (sglang_server_env).
    """
    values: dict[str, str] = {}
    problems: list[str] = []
    missing: list[str] = []
    for name in dict.fromkeys(names):
        value = environ.get(name)
        problem = _problem(name, value or "", given)
        if problem:
            problems.append(f"{VARIABLE}: {problem}")
        elif value is None:
            missing.append(name)
        else:
            values[name] = value
    if missing:
        problems.append(
            f"{VARIABLE}: this machine does not set {', '.join(missing)}, which its server has to keep; set that in "
            "the environment that modules have there (/etc/environment, for example; sudo drops what env_keep in "
            "sudoers does not name), or take the name off the list"
        )
    return values, problems


def merged(names: Iterable[str], environ: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, Any]:
    """What the inventory sets and what the machine sets together, for `launch_plan.Request`. Raises PlanError."""
    values, problems = passed_on(names, environ, given)
    if problems:
        raise launch_plan.PlanError(
            "cannot hand the machine's own environment variables to the server:\n"
            + "\n".join(f"- {line}" for line in problems),
            problems=problems,
        )
    return {**given, **values}


def unlike(names: Iterable[str], environ: Mapping[str, str], env: Mapping[str, str]) -> list[str]:
    """Why a release whose server has the environment `env` would not keep what the machine sets, in words."""
    values, problems = passed_on(names, environ, {})
    for name, value in values.items():
        if env.get(name) != value:
            has = f"{name}={env[name]}" if name in env else "none"
            problems.append(f"{VARIABLE}: this machine sets {name}={value}, and the release has {has}")
    return problems


def _problem(name: str, value: str, given: Mapping[str, Any]) -> str | None:
    if name in launch_plan.FIXED:
        return f"{name} is set by the collection and cannot be changed; take it off the list"
    problem = launch_plan.env_problem(name, value, {})
    if problem:
        return problem
    if name in given:
        return f"{name} is in sglang_server_env too, and only one of the two can decide; leave one of them out"
    try:
        value.encode()
    except UnicodeEncodeError:
        # Python stands for such bytes with characters that no file and no answer can hold.
        return f"the value of {name} is no UTF-8 text; set it to some"
    return None
