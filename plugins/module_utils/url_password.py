# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Passwords inside addresses, `scheme://user:password@host`: what a look at the name of a setting does not find."""

from __future__ import annotations

import re

# RFC 3986, section 3.2.1: the user's part ends at the last @ before the path.
_PASSWORD = re.compile(r"://[^/?#\s@:]*:([^/?#\s]+)@")
_USER = re.compile(r"(?<=://)[^/?#\s]+@")
_QUERY = re.compile(r"(?<=\?)\S+")


def holds_password(text: str) -> bool:
    """Whether an address in `text` has a password; a user alone is none."""
    return _PASSWORD.search(text) is not None


def passwords(text: str) -> set[str]:
    """The passwords of the addresses in `text`."""
    return set(_PASSWORD.findall(text))


def shown(text: str) -> str:
    """The text as a message may have it: addresses without user, password and query, which may hold a token."""
    return _QUERY.sub("...", _USER.sub("...@", text))
