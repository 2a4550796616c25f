# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which model a text asks for, and what a directory must hold to be served.

A model is named by one text: ``builtin:NAME``, an absolute directory, or ``org/name@<40 hex digits>``. How the first
and the last become a directory is in ``model_store``; the built-in models are in ``builtin_models``.
"""

from __future__ import annotations

import json
import os
import pwd
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import builtin_models

HUB_ENDPOINT = "https://huggingface.co"

_BUILTIN = "builtin:"
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_FORMS = (
    f"write {' or '.join(_BUILTIN + name for name in builtin_models.CONFIGS)}, an absolute directory, or"
    " org/name@<40 hex digits>"
)

#: What SGLang's loaders look for. Any one of them makes a directory one with weights.
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")


class ModelError(Exception):
    """A model that cannot be provided; the text says what failed, where, why and what to do. `facts` goes beside it."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


@dataclass(frozen=True)
class Source:
    """What a model text asks for.

    `kind` is builtin, directory or hub. `name` is the directory's name below the models directory (builtin, hub) or the
    whole path (directory). `served_name` is what the server calls it unless told otherwise. `revision` says which
    content: the commit, the recipe's number, or nothing for a directory, whose content is its owner's business.
    """

    kind: str
    name: str
    served_name: str
    repo_id: str | None = None
    revision: str | None = None


@dataclass(frozen=True)
class Model:
    """A model that can be served: `path` of its directory and what its config.json says. Sizes in bytes."""

    path: str
    served_name: str
    random_weights: bool
    revision: str | None
    size_bytes: int
    architecture: str | None
    model_type: str | None


def parse(text: str) -> Source:
    """Read a model text. Raises ModelError when it has none of the three forms."""
    if text.startswith(_BUILTIN):
        name = text[len(_BUILTIN) :]
        if name not in builtin_models.CONFIGS:
            raise ModelError(f"cannot use model {text!r}: there is no built-in model {name!r}; {_FORMS}")
        return Source("builtin", name, name, revision=f"recipe-{builtin_models.RECIPE}")
    if text.startswith("/"):
        path = os.path.normpath(text)
        return Source("directory", path, os.path.basename(path))
    repo_id, at, revision = text.partition("@")
    if not _REPO.fullmatch(repo_id) or ".." in repo_id or "--" in repo_id:
        raise ModelError(f"cannot use model {text!r}: it is none of the known forms; {_FORMS}")
    if not _COMMIT.fullmatch(revision):
        given = f"revision {revision!r} is a branch, a tag or a short hash" if at else "it names no revision"
        raise ModelError(
            f"cannot use model {text!r}: {given}, so what is served could change without notice;"
            f" write {repo_id}@<40 hex digits> (git ls-remote {HUB_ENDPOINT}/{repo_id} shows them),"
            " or an absolute path when you meant a directory"
        )
    return Source("hub", f"{repo_id.replace('/', '--')}@{revision[:12]}", repo_id, repo_id, revision)


def check_served_name(name: str) -> str:
    """Give `name` back when a server can carry it. Raises ModelError."""
    # SGLang reserves the colon for base-model:adapter and stops with an assertion, minutes into the start.
    if not name or ":" in name or name != name.strip() or not name.isprintable():
        raise ModelError(
            f"cannot serve the model as {name!r}: the name must be printable, not empty and without a colon"
            " (SGLang reads name:adapter); set sglang_served_model_name"
        )
    return name


# --- a directory with a model -----------------------------------------------------------------------------------------


def read_config(directory: str) -> dict[str, Any]:
    """The model's config.json. Raises ModelError when there is no directory, no such file, or no JSON object in it."""
    if not os.path.isdir(directory):
        why = "it is not a directory" if os.path.exists(directory) else "there is no such directory"
        raise ModelError(
            f"cannot use model directory {directory}: {why}; give the directory that holds config.json", path=directory
        )
    path = os.path.join(directory, "config.json")
    # A pipe would be waited for.
    if os.path.exists(path) and not os.path.isfile(path):
        raise ModelError(f"cannot use model config {path}: it is no file; copy the file again", path=directory)
    try:
        with open(path, encoding="utf-8") as handle:
            config = json.load(handle)
    except FileNotFoundError:
        raise ModelError(
            f"cannot use model directory {directory}: it has no config.json; give the directory that holds config.json",
            path=directory,
        ) from None
    except OSError as error:
        raise ModelError(
            f"cannot read {path}: {error.strerror}; make it readable for the user of the server", path=directory
        ) from error
    except (ValueError, RecursionError) as error:
        raise ModelError(
            f"cannot use model config {path}: it is not JSON ({error}); copy the file again", path=directory
        ) from error
    if not isinstance(config, dict):
        raise ModelError(
            f"cannot use model config {path}: it holds {_json_kind(config)}, not an object; copy the file again",
            path=directory,
        )
    return config


def inspect_directory(
    directory: str, random_weights: bool = False, user: str | None = None
) -> tuple[dict[str, Any], int]:
    """Make sure that `directory` holds a model that `user` can read; give its config and the size of its files (bytes).

    With `random_weights` no weight files are asked for. `user` None is the user that runs this. Raises ModelError.
    """
    config = read_config(directory)
    sizes: dict[str, int] = {}
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        try:
            if os.path.isfile(path):
                sizes[name] = os.stat(path).st_size
            elif os.path.islink(path) and not os.path.exists(path):
                raise ModelError(
                    f"cannot use model directory {directory}: {name} is a link to nothing; copy the model again",
                    path=directory,
                )
        except OSError as error:
            raise ModelError(
                f"cannot read {path}: {error.strerror}; make it readable for the user of the server", path=directory
            ) from error
    if not random_weights:
        _check_weights(directory, sizes)
    _check_readable([os.path.join(directory, name) for name in sizes], user)
    return config, sum(sizes.values())


def _check_weights(directory: str, sizes: Mapping[str, int]) -> None:
    if not any(name.endswith(_WEIGHTS) and size for name, size in sizes.items()):
        raise ModelError(
            f"cannot use model directory {directory}: it has no weights (no {', '.join('*' + end for end in _WEIGHTS)}"
            " with anything in it); finish the download, or set"
            " sglang_model_random_weights to serve random ones",
            path=directory,
        )
    index = "model.safetensors.index.json"
    if index not in sizes:
        return
    try:
        with open(os.path.join(directory, index), encoding="utf-8") as handle:
            shards = set(json.load(handle)["weight_map"].values())
        if not shards or not all(isinstance(shard, str) for shard in shards):
            raise ValueError("weight_map must name files, and at least one")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(
            f"cannot read {os.path.join(directory, index)}: {error!r}; copy the file again", path=directory
        ) from error
    missing = sorted(shard for shard in shards if not _size(os.path.join(directory, shard)))
    if missing:
        raise ModelError(
            f"cannot use model directory {directory}: {len(missing)} of {len(shards)} weight files are missing or"
            f" empty, {missing[0]} first; finish the copy",
            path=directory,
            missing=missing,
        )


def _size(path: str) -> int:
    """Size of a file in bytes, 0 when there is none."""
    return os.path.getsize(path) if os.path.isfile(path) else 0


def _check_readable(paths: list[str], user: str | None) -> None:
    unreadable = first_unreadable(paths, user)
    if unreadable:
        name = user or _own_name()
        raise ModelError(
            f"cannot use model file {unreadable}: user {name} cannot read it; give {name} read access to the file"
            " and search access to the directories above it",
            path=unreadable,
            user=name,
        )


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        # A container may run as a number that no account has.
        return str(os.geteuid())


def first_unreadable(paths: list[str], user: str | None) -> str | None:
    """The first of `paths` that `user` cannot open, or None.

    Another user's view is taken by becoming that user in a child process, which is right also with access lists and
    mounts that permission bits know nothing of. Only root can; for anybody else the answer is about the caller itself.
    Raises ModelError when there is no such user.
    """
    if user is None or os.geteuid() != 0:
        return _first_closed(paths)
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        raise ModelError(
            f"cannot check the model for user {user}: there is no such user; create it, or set sglang_user", user=user
        ) from None
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups(os.getgrouplist(user, account.pw_gid))
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)
            os.write(writer, (_first_closed(paths) or "").encode("utf-8", "surrogateescape"))
        finally:
            # Not exit: the child must run none of the module's cleanup.
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        found = answer.read().decode("utf-8", "surrogateescape")
    os.waitpid(child, 0)
    return found or None


def _first_closed(paths: list[str]) -> str | None:
    for path in paths:
        try:
            with open(path, "rb"):
                pass
        except OSError:
            return path
    return None


def expected_config(source: Source) -> dict[str, Any]:
    """What is known of a model's config.json before the model is there."""
    return dict(builtin_models.CONFIGS[source.name]) if source.kind == "builtin" else {}


def describe(
    path: str, source: Source, served_name: str, config: Mapping[str, Any], size_bytes: int, random_weights: bool
) -> Model:
    """The facts of a model for the roles that follow."""
    architectures = config.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else None
    return Model(path, served_name, random_weights, source.revision, size_bytes, first, config.get("model_type"))


def _json_kind(value: object) -> str:
    return {list: "a list", str: "a text", bool: "a truth value", type(None): "null"}.get(type(value), "a number")
