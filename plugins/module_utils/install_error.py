# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one exception of everything that makes environments."""

from __future__ import annotations

from typing import Any


class InstallError(Exception):
    """An environment cannot be made as asked: `<what failed> <where>: <why>; <what to do>`.

    `facts` has what was known: `path`, `id`, `found` and `needed` interpreters, `problems` and `versions`, the `log`.
    """

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts
