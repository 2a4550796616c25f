# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets: which names have them, which values they are, and text without them.

Roles and modules mark their secrets for Ansible (`no_log`), which keeps them out of its output. This is the second
fence: the values that this command knows of are replaced wherever they turn up.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

MASK = "********"
# Shorter ones are in too many words.
SHORTEST = 4
# Settings like HF_HUB_DISABLE_IMPLICIT_TOKEN=true have a secret's name.
NO_SECRETS = frozenset({"true", "false", "null", "none", "yes", "no", "on", "off"})
# What ansible-runner's events and summary.json are read by.
KEPT = frozenset({"event", "uuid", "counter", "pid", "playbook", "outcome", "started", "private_directory"})
SECRET_NAME = re.compile(
    r"(?:^|[_-])(?:token|pass|passw(?:or)?d|passphrase|secrets?|credentials?|pat"
    r"|(?:api|private|access|secret)[_-]?key)$",
    re.IGNORECASE,
)
URL_PASSWORD = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret: `sglang_hub_token`, `HF_TOKEN`, `ansible_password`."""
    return bool(SECRET_NAME.search(name))


def secrets_of(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and text of every secret in variables: what stands below a secret's name, and passwords in addresses."""
    yield from _secrets(values, "")


def _secrets(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _secrets(inner, name if is_secret_name(name) else str(key))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _secrets(inner, name)
    elif value is not None and is_secret_name(name):
        yield name, str(value)
    elif isinstance(value, str):
        yield from ((name, password) for password in URL_PASSWORD.findall(value))


class Redactor:
    """Replaces known secrets in text and in JSON values."""

    def __init__(self, secrets: Iterable[str]) -> None:
        long = {
            secret for secret in secrets if len(secret.strip()) >= SHORTEST and secret.strip().lower() not in NO_SECRETS
        }
        # A secret of several lines is shown line by line, too, and with its characters escaped.
        long |= {line.strip() for secret in long for line in secret.splitlines() if len(line.strip()) >= 2 * SHORTEST}
        forms = long | {json.dumps(secret)[1:-1] for secret in long}
        forms |= {json.dumps(secret, ensure_ascii=False)[1:-1] for secret in long}
        ordered = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def text(self, text: str) -> str:
        """The text without secrets."""
        return self._pattern.sub(MASK, text) if self._pattern else text

    def tree(self, value: Any) -> Any:
        """A JSON value without secrets in its texts, and in its numbers below a secret's name.

        Keys stay, and so does what a run is read by: else a secret `play` would take the end of an event's name.
        """
        if isinstance(value, dict):
            return {
                key: inner if key in KEPT and isinstance(inner, (str, int)) else self._below(str(key), inner)
                for key, inner in value.items()
            }
        return self._below("", value)

    def _below(self, name: str, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self._below(str(key), inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._below(name, inner) for inner in value]
        if isinstance(value, (int, float)) and is_secret_name(name) and self.text(str(value)) == MASK:
            return MASK
        return value

    def file(self, path: Path) -> None:
        """Replace a file that holds a secret by one without. JSON stays JSON; what is no text is left alone."""
        try:
            old = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            return
        new = self._json(old) if path.suffix == ".json" or path.name == "command" else self.text(old)
        if new != old:
            scratch = path.with_name(path.name + ".new")
            scratch.touch(mode=0o600)
            scratch.write_text(new, encoding="utf-8")
            os.replace(scratch, path)

    def _json(self, text: str) -> str:
        """JSON without secrets. A half of one, which a killed process left, is taken as text."""
        try:
            parsed = json.loads(text)
        except ValueError:
            return self.text(text)
        clean = self.tree(parsed)
        return text if clean == parsed else json.dumps(clean, indent=2) + "\n"
