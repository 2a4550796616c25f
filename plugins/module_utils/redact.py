# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Take secrets out of what is shown: values that are known, and values that a text itself calls secret."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import url_password

REDACTED = "<redacted>"
# A shorter value would be found inside ordinary words and numbers.
SHORTEST = 8

#: `api_key='...'` and `'password': "..."`, as a server logs its arguments. A value may go on in the log's next piece.
ARGUMENT = re.compile(rb"((?:api_key|password)['\"]?[=:] ?(['\"]))(?:\\.|(?!\2)[^\\\r\n])*")
_ARGUMENT_TEXT = re.compile(ARGUMENT.pattern.decode())
# The same on a command line, in an environment, in a request's head, and the hub's tokens by their own look.
_TOLD = (
    r"(--[a-z0-9-]{0,40}(?:key|token|password|secret)[ =]"
    r"|\b[A-Z0-9_]{0,40}(?:_KEY|TOKEN|PASSWORD|PASSWD|SECRET)=|\bBearer )"
    r"(?:(['\"])(?:\\.|(?!\2)[^\\\r\n])+|[^\s'\"]{4,})"
)
_WORD = re.compile(rf"(?i){_TOLD}|\bhf_[A-Za-z0-9]{{8,}}")
# The hub's tokens have 34 characters behind the mark. What is shorter is hidden, but may be part of a path as well.
_SURE = re.compile(rf"(?i){_TOLD}|\bhf_[A-Za-z0-9]{{30,}}")
# Special tokens of a tokenizer: </s>, [PAD].
_MARK = re.compile(r"<.*>|\[.*\]")
_WORD_BEGINS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")


def hide_told(text: str) -> str:
    """The text without the values of keys, tokens and passwords, as far as the text tells that they are some."""
    text = _ARGUMENT_TEXT.sub(rf"\1{REDACTED}", text)
    return _WORD.sub(lambda match: f"{match[1] or ''}{match[2] or ''}{REDACTED}", text)


def is_secret(name: str, names: re.Pattern[str]) -> bool:
    """Whether a name, written in any way (apiKey, api-key), is one that a pattern for API_KEY finds."""
    return names.search(_WORD_BEGINS.sub("_", name).upper()) is not None


def holds_secret(value: Any, names: re.Pattern[str], told: bool = True) -> bool:
    """Whether plain data, or JSON in a text of it, holds an address with a password, a value under a name that `names`
    finds (see `is_secret`), or (with `told`) what `hide_told` hides for certain.

    A special token of a tokenizer is none, nor is the number of one.
    """
    rest: list[tuple[str, Any]] = [("", value)]
    while rest:
        name, one = rest.pop()
        if isinstance(one, Mapping):
            rest += [("", key) for key in one if isinstance(key, str)]
            rest += [(str(key), item) for key, item in one.items()]
        elif isinstance(one, (list, tuple)):
            rest += [(name, item) for item in one]
        elif isinstance(one, str):
            inner = _json_in(one)
            if inner is not None:
                rest.append((name, inner))
            elif (
                url_password.holds_password(one)
                or (told and _tells(one))
                or (one.strip() and is_secret(name, names) and not _MARK.fullmatch(one.strip()))
            ):
                return True
        elif _is_number(one) and is_secret(name, names) and "token" not in name.lower():
            return True
    return False


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _tells(text: str) -> bool:
    return any(found.search(text) for found in (_ARGUMENT_TEXT, _SURE))


def _json_in(text: str) -> Any:
    """The object or the list that a text is; None for any other text."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


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
