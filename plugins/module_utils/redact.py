# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Take secrets out of what is shown: values that are known, and values that a text itself calls secret."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

REDACTED = "<redacted>"
# A shorter value would be found inside ordinary words and numbers.
SHORTEST = 8

#: `api_key='...'` and `'password': "..."`, as a server logs its arguments. A value may go on in the log's next piece.
ARGUMENT = re.compile(rb"((?:api_key|password)['\"]?[=:] ?(['\"]))(?:\\.|(?!\2)[^\\\r\n])*")
_ARGUMENT_TEXT = re.compile(ARGUMENT.pattern.decode())
# The same on a command line, in an environment, in a request's head, and the hub's tokens by their own look.
_WORD = re.compile(
    r"(?i)(--[a-z-]{0,40}(?:key|token|password|secret)[ =]|\b[A-Z_]{0,40}(?:_KEY|TOKEN|PASSWORD|SECRET)=|\bBearer )"
    r"[^\s'\"]{4,}"
    r"|\bhf_[A-Za-z0-9]{8,}"
)


def hide_told(text: str) -> str:
    """The text without the values of keys, tokens and passwords, as far as the text tells that they are some."""
    text = _ARGUMENT_TEXT.sub(rf"\1{REDACTED}", text)
    return _WORD.sub(lambda match: f"{match[1] or ''}{REDACTED}", text)


def hide_values(value: Any, secrets: Iterable[str]) -> Any:
    """Plain data (texts, lists, dictionaries) without these values in any text of it, keys included."""
    hidden = sorted((secret for secret in secrets if len(secret) >= SHORTEST), key=len, reverse=True)
    return _hide(value, hidden) if hidden else value


def _hide(value: Any, hidden: list[str]) -> Any:
    if isinstance(value, str):
        for secret in hidden:
            value = value.replace(secret, REDACTED)
        return value
    if isinstance(value, dict):
        return {_hide(key, hidden): _hide(item, hidden) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_hide(item, hidden) for item in value]
    return value
