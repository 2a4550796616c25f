# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of a model's config.json with the type and range that they must have, or an error that names key and value.

A config comes from somebody else. A count that is a text, a truth value or 1e30 must stop here, not become a wrong
memory figure later. A key that is null counts as absent: published configs use null for "not in this model".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole

#: The greatest size or count that is believed. The largest real ones are context lengths of ten million tokens.
GREATEST = 2**31 - 1

#: The greatest number of layers that is believed: work is done for each of them. The most that real models have is 126.
MOST_LAYERS = 1_000

#: How much of a value a message shows, in characters.
_SHOWN = 60


class ShapeError(ValueError):
    """A model's config cannot be understood; the message names the key, the value and what was expected."""


def shown(value: object) -> str:
    """A value of a config as a message shows it: as JSON has it, and never long."""
    words = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else None
    text = words or ("null" if value is None else ascii(value)[: _SHOWN + 1])
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


@dataclass(frozen=True)
class Values:
    """One object of a config. `where` is its path in messages, such as "text_config.", empty for the top."""

    data: Mapping[str, Any]
    where: str = ""

    def present(self, *keys: str) -> str:
        """The first of the keys that has a value, or ""."""
        return next((key for key in keys if self.data.get(key) is not None), "")

    def error(self, key: str, expected: str) -> ShapeError:
        """An error about the value of `key`."""
        have = f"is {shown(self.data[key])}" if key in self.data else "is missing"
        return ShapeError(f"cannot use model config: {self.where}{key} {have}; expected {expected}")

    def whole(self, key: str, least: int = 1, most: int = GREATEST) -> int:
        """The whole number of `key`. Raises ShapeError when it is absent, of another type or out of range."""
        value = self.data.get(key)
        if not is_whole(value) or not least <= value <= most:
            raise self.error(key, f"a whole number from {least} to {most}")
        return value

    def optional(self, *keys: str, default: int = 0, least: int = 0, most: int = GREATEST) -> int:
        """The whole number of the first key that has a value, or `default`. Raises ShapeError for a wrong one."""
        key = self.present(*keys)
        return self.whole(key, least, most) if key else default

    def agreed(self, *keys: str, least: int = 0) -> int | None:
        """The number that is written under one or several of the keys; None when under none.

        A list stands for a number per layer, or per modality, and counts with its greatest. Raises ShapeError when
        two keys differ.
        """
        found = [(key, self.number_or_list(key, least)) for key in keys if self.data.get(key) is not None]
        for key, value in found[1:]:
            if value != found[0][1]:
                raise self.error(key, f"the {found[0][1]} of {self.where}{found[0][0]}, which means the same")
        return found[0][1] if found else None

    def number_or_list(self, key: str, least: int = 0) -> int:
        """A whole number, or the greatest of a list of them. Raises ShapeError."""
        value = self.data[key]
        if not isinstance(value, list):
            return self.whole(key, least)
        return max(self.numbers(key, least))

    def numbers(self, key: str, least: int = 0) -> tuple[int, ...]:
        """A list of whole numbers that is not empty. Raises ShapeError."""
        value = self.data.get(key)
        if not isinstance(value, list) or not 0 < len(value) <= MOST_LAYERS:
            raise self.error(key, f"a list of 1 to {MOST_LAYERS} whole numbers")
        for item in value:
            if not is_whole(item) or not least <= item <= GREATEST:
                raise self.error(key, f"whole numbers from {least} to {GREATEST} in the list, not {shown(item)}")
        return tuple(value)

    def words(self, key: str, most: int = MOST_LAYERS) -> tuple[str, ...]:
        """A list of texts, empty when absent. Raises ShapeError."""
        value = self.data.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or len(value) > most or not all(isinstance(item, str) for item in value):
            raise self.error(key, f"a list of at most {most} texts")
        return tuple(value)

    def word(self, *keys: str) -> str:
        """The text of the first key that has a value, "" without. Raises ShapeError."""
        key = self.present(*keys)
        value = self.data[key] if key else ""
        if not isinstance(value, str):
            raise self.error(key, "a text")
        return value

    def truth(self, key: str, default: bool = False) -> bool:
        """The truth value of `key`, or `default`. Raises ShapeError."""
        value = self.data.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(key, "true or false")
        return value

    def part(self, *keys: str) -> Values | None:
        """The object below the first key that has a value, None without. Raises ShapeError."""
        key = self.present(*keys)
        if not key:
            return None
        value = self.data[key]
        if not isinstance(value, Mapping):
            raise self.error(key, "an object")
        return Values(value, f"{self.where}{key}.")
