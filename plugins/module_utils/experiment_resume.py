# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is true after a play that died: what served before it, and what it noted that is not there any more.

A play that is killed while a candidate serves leaves that candidate as the current release. The next play, of the same
experiment or another, must not take it for what served before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import experiment_run, experiment_state

_LONGEST_REASON = 2000
_GIVEN_UP = "it was given up before it served"


def served(document: Mapping[str, Any], failure: str = "") -> dict[str, Any]:
    """The document when what is to serve after the experiment does, or does not: then what served before does."""
    return {**document, "served": not failure, "not_served": failure[:_LONGEST_REASON]}


def is_served(document: Mapping[str, Any]) -> bool:
    """Whether what is to serve after the experiment was seen to serve. Files of before this was noted count as such."""
    return document["finished"] is True and document.get("served", True) is True


def is_open(document: Mapping[str, Any]) -> bool:
    """Whether a play died in it and nobody gave it up. A winner that was told not to serve is an end."""
    told = document["finished"] is True and bool(document.get("not_served"))
    return not (document["abandoned"] is True or told or is_served(document))


def given_up(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document when nobody goes on with it, until the same is asked for again.

    A winner that came out already and was not seen to serve is told not to serve: what served before does.
    """
    found = {**document, "abandoned": True}
    chosen = document["result"] is not None and experiment_run.serves(document) != document["original_release"]
    if document["finished"] is True and chosen and is_open(document):
        found["not_served"] = _GIVEN_UP
    return found


def served_before(documents: Iterable[Mapping[str, Any]], current: int | None, proven: int | None) -> int | None:
    """The release that served before the experiments: `current`, unless it is a candidate that a dead play left.

    :param documents: all experiments, oldest first.
    :param proven: the release that was noted last as one that serves, which no trial is.
    """
    if current is None or current == proven:
        return current
    for document in reversed(list(documents)):
        original = document.get("original_release")
        if original in (None, current) or is_served(document):
            continue
        if current in {entry.get("release") for entry in document["candidates"]}:
            return int(original)
    return current


def reconciled(
    document: Mapping[str, Any],
    original_release: int | None,
    has_record: Callable[[str], bool],
    has_release: Callable[[int], bool],
) -> tuple[dict[str, Any], list[str]]:
    """An experiment that is taken up, without what is lost, and what was lost in sentences.

    A release that is gone is written again. A record that the comparison in the end needs and that is gone is measured
    again. A release that was deployed since becomes the original.
    """
    found, told = dict(document), list[str]()
    known = {found["original_release"], *(entry.get("release") for entry in found["candidates"])}
    deployed_since = original_release is not None and original_release not in known
    if found["finished"]:
        if deployed_since and not is_served(found):
            found["served"] = True
        return found, told
    if deployed_since:
        told.append(f"release {original_release} was deployed since, so it serves again in the end")
        found["original_release"] = original_release
    gone = {
        entry["name"]
        for entry in found["candidates"]
        if entry["state"] == experiment_state.STAGED and not has_release(entry["release"])
    }
    if gone:
        told.append(f"the releases of {', '.join(sorted(gone))} are gone and are written again")
        change = {"release": None, "state": experiment_state.WAITING}
        found["candidates"] = [{**entry, **change} if entry["name"] in gone else entry for entry in found["candidates"]]
    compared = experiment_run.comparable(found)
    wanted = [one for side in ("a", "b") for one in (compared.get(side) or {}).get("ids") or []]
    lost = {one for one in wanted if not has_record(str(one))}
    if lost:
        told.append(f"{len(lost)} records are not in the fact file any more, so their trials are made again")
        again = {"state": experiment_state.WAITING, "record_id": None, "figures": None, "ended_at": None}
        found["trials"] = [{**trial, **again} if trial["record_id"] in lost else trial for trial in found["trials"]]
    return found, told
