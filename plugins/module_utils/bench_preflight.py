# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the checks before a rollout found, for a measurement that was made later without them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import findings
from ansible_collections.tokforge.sglang.plugins.module_utils.comparison_units import mapping

_LEVELS = (findings.OK, findings.WARN, findings.FAIL)


def carried(document: Mapping[str, Any], configuration: str) -> dict[str, Any] | None:
    """The newest preflight that a fact file has for a configuration, and in `from` the id of the record that it was
    made for; None when there is none.

    A shape that preflight never gives is passed over: nobody could tell what it says.
    """
    for record in _newest_first(document):
        found = mapping(record.get("preflight"))
        if record.get("configuration") != configuration or not _is_preflight(found):
            continue
        # One that was carried over itself names where it is from.
        whence = found.get("from") if _is_name(found.get("from")) else record.get("id")
        if _is_name(whence):
            return {**found, "from": whence}
    return None


def _newest_first(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The records of a document: the history from its end, then what it does not hold any more."""
    history, results = document.get("history"), document.get("results")
    for record in reversed(history if isinstance(history, list) else []):
        yield mapping(record)
    yield mapping(document.get("latest"))
    for entry in reversed(results if isinstance(results, list) else []):
        for name in ("latest", "baseline"):
            yield mapping(mapping(entry).get(name))


def _is_preflight(found: Mapping[str, Any]) -> bool:
    """Whether it is what is recorded of preflight: a level, counts in words, and findings where there were any."""
    listed = found.get("findings", [])
    return (
        found.get("verdict") in _LEVELS
        and isinstance(found.get("counts"), str)
        and isinstance(listed, list)
        and all(isinstance(one, Mapping) and isinstance(one.get("level"), str) for one in listed)
    )


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value != ""
