# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What everything that provisions a host raises; a class for each part says which."""

from __future__ import annotations

from typing import Any


class HostError(Exception):
    """A host cannot be looked at or set as asked: `<what failed> <where>: <why>; <what to do>`.

    `facts` has what was known, for the module's result.
    """

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts
