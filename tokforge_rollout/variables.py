# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Extra variables of a run: from `-e`, from files, and from the environment of a CI job or a survey.

Values reach Ansible in a file that only this user can read. An argument can be read by everyone on the machine, so a
secret is refused there.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tokforge_rollout.redaction import is_secret_name, secrets_of

PREFIX = "TOKFORGE_VAR_"
UNSAFE = "__ansible_unsafe"
# Keys by which Ansible reads more than plain values from JSON. One that it cannot read makes it read YAML instead,
# which has none of them.
ANSIBLES_KEY = "__ansible_"


class UsageError(Exception):
    """What was asked for cannot be; the text says what, why and what to do."""


@dataclass(frozen=True)
class Variables:
    """Extra variables: values for Ansible's file of them, files that Ansible reads itself, and the secrets in both."""

    values: dict[str, Any] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    secrets: frozenset[str] = frozenset()


class _Tolerant(yaml.SafeLoader):
    """Reads Ansible's own tags (`!vault`, `!unsafe`) as nothing: what they hold is no plain value."""


_Tolerant.add_multi_constructor("!", lambda _loader, _suffix, _node: None)


def gather(arguments: Sequence[str], environment: MutableMapping[str, str]) -> Variables:
    """Read all extra variables; `-e name=value` wins over the environment, and that over files.

    Those of the environment are taken out of it, so that no process has them in its own. UsageError for what is wrong.
    """
    from_environment = dict(take(environment))
    values: dict[str, Any] = {}
    files: list[Path] = []
    known: dict[str, Any] = {}
    for argument in arguments:
        if argument.startswith("@"):
            files.append(_file(argument[1:]))
            known.update(_plain(files[-1]))
        else:
            values.update(_given(argument))
    secrets = {text for found in (known, from_environment) for _name, text in secrets_of(found)}
    secrets |= {text for name, text in secrets_of(environment)}
    literals = {name: literal(value) for name, value in from_environment.items()}
    return Variables(literals | values, tuple(files), frozenset(secrets))


def literal(value: Any) -> Any:
    """A value whose texts Ansible does not take for templates: what a person types into a CI's form runs nothing.

    Ansible reads `__ansible_unsafe` in JSON (ansible-core 2.19, _internal/_json/_profiles/_legacy.py).
    """
    if isinstance(value, str):
        return {UNSAFE: value}
    if isinstance(value, dict):
        return {name: literal(inner) for name, inner in value.items()}
    return [literal(inner) for inner in value] if isinstance(value, list) else value


def take(environment: MutableMapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Take every TOKFORGE_VAR_<name> out of the environment. Names are lower case; `{` or `[` begins JSON.

    A secret that begins so and is no JSON is a text.

    An empty one is a question of a survey that was left open: the variable stays as the inventory has it.
    """
    for key in [key for key in environment if key.startswith(PREFIX)]:
        text, name = environment.pop(key), key[len(PREFIX) :].lower()
        if not name.isidentifier():
            raise UsageError(f"cannot read {key} of the environment: {name!r} is no variable's name; rename it")
        if text.strip():
            yield name, _value(key, name, text)


def _value(key: str, name: str, text: str) -> Any:
    if text.lstrip()[0] not in "{[":
        return text
    try:
        value = json.loads(text)
    except ValueError as error:
        if is_secret_name(name):
            return text
        raise UsageError(f"cannot read {key} of the environment: it is no JSON: {_why(error)}; correct it") from None
    if any(inner.startswith(ANSIBLES_KEY) for inner in _keys(value)):
        raise UsageError(f"cannot take {key} of the environment: it has a key {ANSIBLES_KEY}...; give it in a file")
    return value


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _keys(inner)


def _why(error: ValueError) -> str:
    """Where JSON breaks, without the text, which may be a secret."""
    return f"{error.msg} in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else type(error).__name__


def _given(argument: str) -> dict[str, Any]:
    values = _parse(argument)
    for name, value in values.items():
        if is_secret_name(name) or any(secrets_of({name: value})):
            raise UsageError(
                f"cannot take {name} from -e: everyone on this machine could read the secret in an argument; "
                f"set {PREFIX}{name} in the environment, or give a file with -e @FILE"
            )
    return values


def _parse(argument: str) -> dict[str, Any]:
    if argument.lstrip().startswith("{"):
        try:
            parsed = yaml.safe_load(argument)
        except yaml.YAMLError:
            parsed = None
        if isinstance(parsed, dict):
            return {str(name): _json(value) for name, value in parsed.items()}
        raise UsageError("cannot read an argument of -e: it begins with { and is no JSON object; correct it")
    try:
        words = shlex.split(argument)
    except ValueError as error:
        raise UsageError(f"cannot read an argument of -e: {error}; close the quotes") from None
    pairs = [word.partition("=") for word in words]
    if not pairs or not all(name.isidentifier() and equals for name, equals, _value in pairs):
        raise UsageError("cannot read an argument of -e: it is no name=value, no JSON object and no @FILE; correct it")
    return {name: value for name, _equals, value in pairs}


def _json(value: Any) -> Any:
    """YAML as JSON can hold it: keys become text. Dates as values do so when it is written."""
    if isinstance(value, dict):
        return {str(name): _json(inner) for name, inner in value.items()}
    return [_json(inner) for inner in value] if isinstance(value, list) else value


def _file(name: str) -> Path:
    path = Path(name).expanduser().absolute()
    if not path.is_file():
        raise UsageError(f"cannot read the variables in {name}: there is no such file; correct -e @{name}")
    return path


def _plain(path: Path) -> dict[str, Any]:
    """What a file says in plain text, so that its secrets are known here. Ansible reads it itself, with its vault."""
    try:
        parsed = yaml.load(path.read_text(encoding="utf-8"), _Tolerant)  # noqa: S506 - a SafeLoader
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return parsed if isinstance(parsed, dict) else {}
