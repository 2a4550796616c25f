# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The releases below one root, and the link ``current`` to one of them.

A release is the directory ``releases/<n>`` with ``venv`` (a link to its environment), ``launch.json`` and
``manifest.json``.

A release never changes once it has its number, but for the empty file ``proven`` that it gets when it was seen to
serve. It is written as ``releases/.<n>.partial`` and gets its number by one
rename; ``current`` is switched by one rename; a removed release first loses its number the same way. So whatever moment
a run is killed at, what is left is an old or a new state, and the next run clears the partial directories away. Numbers
are never given twice: the highest one is kept in ``state/releases.json``.

What served last is in that file too, and in the time of ``proven``: when the file is damaged, the releases still tell.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole

SCHEMA_VERSION = 1
LAUNCH = "launch.json"
MANIFEST = "manifest.json"
PROVEN = "proven"
_DIRECTORY_MODE = 0o755
_LARGEST_FILE = 16 << 20

_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
_PARTIAL = re.compile(r"\.\d+\.partial")
_NEW_LINK = ".current.partial"

#: The variable that says where FlashInfer compiles its kernels, and the names that the collection gives such places.
ENV_JIT_CACHE = "FLASHINFER_WORKSPACE_BASE"
_JIT_CACHE = re.compile(r"flashinfer-[0-9A-Za-z.+_-]+-cuda[0-9A-Za-z.+_-]+")
_JIT_PARTIAL = re.compile(rf"\.{_JIT_CACHE.pattern}\.partial")


class StoreError(Exception):
    """A store that is not as it should be, or a request that it cannot meet; `facts` goes beside the text."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


@dataclass(frozen=True)
class Content:
    """What makes a release: the environment's id and how the server in it is started. `args` only explains `argv`."""

    environment: str
    sglang_version: str
    backend: str
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    model: Mapping[str, Any]
    args: Mapping[str, Any] = field(default_factory=dict)

    def launch(self) -> dict[str, Any]:
        """launch.json, all that the launcher reads."""
        return {"schema_version": SCHEMA_VERSION, "argv": list(self.argv), "env": dict(self.env), "cwd": self.cwd}

    def content_id(self) -> str:
        """16 hex digits that are equal exactly when two releases start the same server.

        The time of making is not part of it.
        """
        what = {
            "launch": self.launch(),
            "environment": self.environment,
            "sglang_version": self.sglang_version,
            "backend": self.backend,
            "model": dict(self.model),
        }
        return hashlib.sha256(json.dumps(what, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Release:
    """A numbered release on disk.

    `broken` says why it must not be used (then `content` may be None); None when it is sound.
    """

    number: int
    path: str
    content: Content | None
    broken: str | None = None


@dataclass(frozen=True)
class Staged:
    """Outcome of `stage`. `current` is what serves now (None: nothing).

    `broken` lists releases that were passed over, with reasons.
    """

    release: int
    path: str
    content_id: str
    reused: bool
    current: int | None
    broken: list[dict[str, Any]]
    warnings: list[str]


@dataclass(frozen=True)
class Switched:
    """Outcome of `switch`: what the link pointed to before, and what it points to now. None stands for no link."""

    changed: bool
    previous: int | None
    current: int | None


@dataclass(frozen=True)
class Proved:
    """Outcome of `prove`: `before` served last until now, `proven` does now."""

    changed: bool
    before: int | None
    proven: int


@dataclass(frozen=True)
class Pruned:
    """Outcome of `prune`: removed releases, ids of environments that no release uses any more (they stay), and removed
    directories with kernels that no release would load."""

    removed: list[int]
    unused_environments: list[str]
    removed_jit_caches: list[str] = field(default_factory=list)


# --- looking ----------------------------------------------------------------------------------------------------------


def read_current(root: str) -> int | None:
    """The number of the release that `current` points to; None when there is no link.

    Raises StoreError for anything else.
    """
    link = os.path.join(root, "current")
    try:
        target = os.readlink(link)
    except FileNotFoundError:
        return None
    except OSError:
        kind = "a directory" if os.path.isdir(link) else "a file"
        raise StoreError(
            f"cannot use {link}: it is {kind}, not a link to a release; move it away, then run again", path=link
        ) from None
    match = re.fullmatch(r"(?:.*/)?releases/([1-9]\d*)/?", target)
    expected = os.path.join(root, "releases", match[1]) if match else ""
    # Where the releases really lie: an absolute link and the root may be spelled through different links.
    folder = os.path.realpath(os.path.join(root, os.path.dirname(target.rstrip("/"))))
    if not match or folder != os.path.realpath(os.path.join(root, "releases")):
        raise StoreError(
            f"cannot use {link}: it points to {target}, which is no release below {root}/releases; remove the link,"
            " then run again",
            path=link,
            target=target,
        )
    if not os.path.isdir(expected):
        raise StoreError(
            f"cannot use {link}: it points to release {match[1]}, which does not exist any more; remove the link,"
            " then run again",
            path=link,
            target=target,
        )
    return int(match[1])


def list_releases(root: str) -> list[Release]:
    """Every numbered release, lowest first, sound or broken."""
    return [load(root, number) for number in _numbers(root)]


def load(root: str, number: int) -> Release:
    """One release as it lies on disk.

    What is damaged, incomplete or from a newer collection comes back as broken, never as an error.
    """
    path = os.path.join(root, "releases", str(number))
    try:
        manifest, launch = _read_object(path, MANIFEST), _read_object(path, LAUNCH)
        content = Content(
            environment=_text(manifest, "environment"),
            sglang_version=_text(manifest, "sglang_version"),
            backend=_text(manifest, "backend"),
            argv=[str(word) for word in launch["argv"]],
            env={str(name): str(value) for name, value in launch["env"].items()},
            cwd=_text(launch, "cwd"),
            model=dict(manifest["model"]),
            args=dict(manifest["args"]),
        )
        recorded = _text(manifest, "content_id")
    except StoreError as error:
        return Release(number, path, None, str(error))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return Release(number, path, None, f"{MANIFEST} or {LAUNCH} lacks what a release has ({error!r})")
    return Release(number, path, content, _defect(root, path, content, recorded))


def describe_current(root: str, release: int | None = None) -> dict[str, Any]:
    """The current release, or the one of that number, with what is installed in its environment, as plain data.

    Raises StoreError when nothing is current, or the release is damaged.
    """
    number = read_current(root) if release is None else release
    if number is None:
        raise StoreError(
            f"nothing is deployed below {root}: there is no current release; run deploy.yml first", root=root
        )
    content = _must_be_sound(root, number)
    environment = os.path.join(root, "venvs", content.environment)
    return {
        "release": number,
        "path": os.path.join(root, "releases", str(number)),
        "content_id": content.content_id(),
        "sglang_version": content.sglang_version,
        "backend": content.backend,
        "args": dict(content.args),
        "env": dict(content.env),
        "model": dict(content.model),
        "environment": {
            "id": content.environment,
            "path": environment,
            "python": os.path.join(environment, "bin", "python"),
            "versions": _read_object(environment, "environment.json").get("versions", {}),
        },
    }


def _defect(root: str, path: str, content: Content, recorded: str) -> str | None:
    if content.content_id() != recorded:
        return f"{LAUNCH} is not what {MANIFEST} was made for (content {content.content_id()}, recorded {recorded})"
    try:
        target = os.readlink(os.path.join(path, "venv"))
    except OSError:
        return "venv is not a link"
    if target != _environment_link(content.environment):
        return f"venv points to {target}, not to environment {content.environment}"
    if not environment_complete(root, content.environment):
        return f"environment {content.environment} is not there any more, or not complete"
    return None


def environment_complete(root: str, environment: str) -> bool:
    """Whether the environment has its marker, which is written last."""
    return os.path.isfile(os.path.join(root, "venvs", environment, "environment.json"))


# --- changing ---------------------------------------------------------------------------------------------------------


def stage(root: str, content: Content, created: str, check_mode: bool = False) -> Staged:
    """Give `content` a numbered release, the one that has it already (then nothing is written), or a new one.


    `created` is the time to record, ISO 8601. Of several equal releases the current one is taken, else the newest.
    Raises StoreError, before anything is written, when the environment is not complete (in check mode it may still be
    missing) or `current` is not a link to a release.
    """
    if not check_mode and not environment_complete(root, content.environment):
        raise StoreError(
            f"cannot make a release below {root}: environment {content.environment} is not there or not complete;"
            " install it first"
            " (role sglang_install)",
            environment=content.environment,
        )
    if not check_mode:
        read_current(root)
        _make_directory(os.path.join(root, "releases"))
    with _opened(root, check_mode):
        current = read_current(root)
        state = _read_state(root)
        existing = list_releases(root)
        broken = [{"release": release.number, "reason": release.broken} for release in existing if release.broken]
        wanted = content.content_id()
        equal = [
            release
            for release in existing
            if not release.broken and release.content and release.content.content_id() == wanted
        ]
        if equal:
            best = next((release for release in equal if release.number == current), equal[-1])
            return Staged(best.number, best.path, wanted, True, current, broken, [])
        number = _next_number(root, state)
        path = os.path.join(root, "releases", str(number))
        if not check_mode:
            _write_release(root, number, content, created)
        return Staged(number, path, wanted, False, current, broken, state.warnings)


def switch(root: str, number: int | None, check_mode: bool = False) -> Switched:
    """Point `current` to release `number`, or remove it for None.

    Raises StoreError for a release that is missing or broken.

    In check mode a release that is not there yet passes, since the run would have made it before.
    """
    with _opened(root, check_mode):
        return _switch(root, number, check_mode)


def _switch(root: str, number: int | None, check_mode: bool, mends: bool = False) -> Switched:
    """`switch` for one who holds the lock. `mends`: a link that points nowhere is in nobody's way."""
    state = _read_state(root)
    if (number is None or mends) and _is_dangling(os.path.join(root, "current")):
        # There is no release to remember.
        previous = None
    else:
        previous = read_current(root)
        if previous == number:
            return Switched(False, previous, number)
    if number is not None and not (check_mode and not os.path.isdir(os.path.join(root, "releases", str(number)))):
        _must_be_sound(root, number)
    if not check_mode:
        _write_state(root, replace(state, previous=previous))
        _point(root, number)
    return Switched(True, previous, number)


def last_proven(root: str) -> int | None:
    """The release that was noted last as serving, None when none was. Raises StoreError when it cannot be read."""
    return _read_state(root).proven


def proven_before(root: str) -> int:
    """The release that served last before the current one: what somebody means who goes back without saying where to.

    Raises StoreError when no other release that can be used has served.
    """
    current = read_current(root)
    served = [number for number in _by_proof(root) if number != current]
    for number in served:
        if load(root, number).broken is None:
            return number
    there = ", ".join(map(str, _numbers(root))) or "none"
    damaged = f"; {', '.join(map(str, served))} served and cannot be used any more" if served else ""
    raise StoreError(
        f"cannot go back below {root}: no other release than the current one, {current or 'none'}, has"
        f" served{damaged}; the releases are {there}, and -e release=N chooses one of them",
        current=current,
    )


def prove(root: str, number: int, check_mode: bool = False) -> Proved:
    """Note that release `number`, the current one, serves: `restore` goes back to it. Raises StoreError for another."""
    with _opened(root, check_mode):
        current = read_current(root)
        if current != number and not check_mode:
            raise StoreError(
                f"cannot note that release {number} below {root} serves: {current or 'none'} is current; switch first",
                release=number,
                current=current,
            )
        state = _read_state(root)
        proof = os.path.join(root, "releases", str(number), PROVEN)
        changed = state.proven != number or not os.path.isfile(proof)
        if changed and not check_mode:
            # Written anew also when it is there: its time says which release served last.
            write_atomic(proof, b"")
            _write_state(root, replace(state, proven=number, forgotten=False))
    return Proved(changed, state.proven, number)


def restore(root: str, failed: int | None = None, fallback: int | None = None, check_mode: bool = False) -> Switched:
    """Go back to the release that served last; remove `current` when none ever did. Raises StoreError.

    What `current` pointed to before the failed rollout is no guide: a rollout that was killed after its switch leaves
    `current` at a release that never served. When the current release is the one that served last, nothing changes.

    With `failed`, the release to go back from, nothing changes when another one is current: it belongs to another
    rollout. A link that points nowhere is nobody's, and is put back. `fallback` is gone back to only when nothing on
    disk tells any more what served last; without it that is an error, and nothing changes.
    """
    with _opened(root, check_mode):
        state = _read_state(root)
        if failed is not None and not _is_dangling(os.path.join(root, "current")):
            current = read_current(root)
            if current != failed:
                return Switched(False, current, current)
        if not state.forgotten:
            return _switch(root, state.proven, check_mode, mends=True)
        if fallback is None:
            raise StoreError(
                f"cannot tell which release below {root} served last: {_state_path(root)} was damaged or lost, and no"
                " release is marked as proven; current was left as it is, deploy a release that works",
                root=root,
            )
        return _switch(root, fallback, check_mode, mends=True)


def remove(root: str, number: int, check_mode: bool = False) -> bool:
    """Remove release `number` and say whether there was one. Raises StoreError when it is the current one."""
    with _opened(root, check_mode):
        if read_current(root) == number:
            raise StoreError(
                f"cannot remove release {number} below {root}: it is the current one; switch to another one first",
                release=number,
            )
        if number not in _numbers(root):
            return False
        if not check_mode:
            _remember_highest(root)
            _remove(root, number)
    return True


def prune(root: str, keep: int, check_mode: bool = False, fastest: str | None = None) -> Pruned:
    """Remove all but the newest `keep` releases, the current one, the one before it, the one that served last and the
    one whose content id is `fastest`.

    Environments stay, since the next release may ask for one again; those that no release is linked to are named.
    Kernels that were compiled for a pair of FlashInfer and CUDA go when no release is left that has this pair.
    """
    if keep < 0:
        raise StoreError(f"cannot keep {keep} releases below {root}: give 0 or more (sglang_keep_releases)", keep=keep)
    with _opened(root, check_mode):
        numbers, state = _numbers(root), _read_state(root)
        newest = numbers[len(numbers) - keep :] if keep else []
        kept = {*newest, read_current(root), state.previous, state.proven, _of_content(root, numbers, fastest)}
        removed = [number for number in numbers if number not in kept]
        if not check_mode and removed:
            _remember_highest(root)
            for number in removed:
                _remove(root, number)
        jit_caches = _unused_jit_caches(root, [number for number in numbers if number not in removed])
        if not check_mode:
            _remove_jit_caches(root, jit_caches)
        used = {os.path.basename(_venv_target(root, number)) for number in numbers if number not in removed}
        venvs = os.path.join(root, "venvs")
        there = [name for name in _names(venvs) if environment_complete(root, name)]
    return Pruned(removed, [name for name in there if name not in used], jit_caches)


# --- pieces -----------------------------------------------------------------------------------------------------------


@contextmanager
def _opened(root: str, check_mode: bool) -> Iterator[None]:
    """Hold the store's lock, with what an earlier run left half done cleared away.

    Without a store there is nothing to hold.
    """
    releases = os.path.join(root, "releases")
    if check_mode or not os.path.lexists(releases):
        yield
        return
    try:
        # The directory itself is the lock file: nothing to leave behind, and it ends with the process.
        descriptor = os.open(releases, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            _clear_partial(root)
            yield
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _io_error(root, error) from error


def _of_content(root: str, numbers: Sequence[int], content_id: str | None) -> int | None:
    """The newest sound release with this content."""
    for number in reversed(numbers) if content_id else ():
        content = load(root, number).content
        if content and content.content_id() == content_id:
            return number
    return None


def _unused_jit_caches(root: str, numbers: Sequence[int]) -> list[str]:
    """Directories with compiled kernels that none of these releases compiles in. None when that cannot be told."""
    folder = os.path.join(root, "cache", "jit")
    there = [name for name in _jit_names(root) if _JIT_CACHE.fullmatch(name)]
    named = _jit_workspaces(root, numbers) if there else None
    if named is None:
        return []
    real = {name: os.path.realpath(os.path.join(folder, name)) for name in there}
    return [
        os.path.join(folder, name)
        for name in there
        if not any(place == real[name] or place.startswith(real[name] + os.sep) for place in named)
    ]


def _jit_workspaces(root: str, numbers: Sequence[int]) -> set[str] | None:
    """Where these releases may compile kernels. None when there are no releases, or one of them cannot be read."""
    if not numbers:
        return None
    try:
        given = _jit_workspaces_in_secrets(root)
        named = set()
        for number in numbers:
            launch = _read_object(os.path.join(root, "releases", str(number)), LAUNCH)
            values = [*given, str(launch["env"].get(ENV_JIT_CACHE, root))]
            # The server reads a relative one from where it works.
            tops = (root, os.path.join(root, str(launch.get("cwd", ""))))
            named |= {os.path.realpath(os.path.join(top, value)) for top in tops for value in values}
    except (StoreError, OSError, ValueError, KeyError, AttributeError):
        return None
    return named


def _jit_workspaces_in_secrets(root: str) -> list[str]:
    """The launcher reads this file after launch.json. Raises OSError, ValueError."""
    try:
        text = _read_text(os.path.join(root, "state", "secrets.env"))
    except FileNotFoundError:
        return []
    lines = [line.partition("=") for line in text.split("\n")]
    return [value for name, _equals, value in lines if name == ENV_JIT_CACHE]


def _remove_jit_caches(root: str, paths: Sequence[str]) -> None:
    """Remove these, and what an earlier run left half removed."""
    folder = os.path.join(root, "cache", "jit")
    for path in paths:
        # Out of the way first: kernels of which some are gone would be taken for all of them.
        partial = os.path.join(folder, f".{os.path.basename(path)}.partial")
        _discard(partial)
        os.rename(path, partial)
    for name in _jit_names(root) if _numbers(root) else []:
        if _JIT_PARTIAL.fullmatch(name):
            _discard(os.path.join(folder, name))


def _jit_names(root: str) -> list[str]:
    """Directories below cache/jit. The server's user may put a link in its place, and the cache may lie on another
    disk, where other roots use it: what is not below the root is not looked at."""
    folder = os.path.join(root, "cache", "jit")
    if os.path.islink(folder) or not os.path.realpath(folder).startswith(os.path.realpath(root).rstrip("/") + "/"):
        return []
    try:
        return [name for name in _names(folder) if _is_directory(folder, name)]
    except OSError:
        return []


def _clear_partial(root: str) -> None:
    for name in _names(os.path.join(root, "releases")):
        if _PARTIAL.fullmatch(name):
            _discard(os.path.join(root, "releases", name))
    _discard(os.path.join(root, _NEW_LINK))
    state, name = os.path.split(_state_path(root))
    for left in _names(state):
        if left.startswith(f".{name}.") and left.endswith(".tmp"):
            _discard(os.path.join(state, left))


def _make_directory(path: str) -> None:
    """Make a directory that the server's user can enter, whatever the umask; one that is there is left as it is."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        os.mkdir(path)
    except FileExistsError:
        return
    except OSError as error:
        raise _io_error(os.path.dirname(path), error) from error
    os.chmod(path, _DIRECTORY_MODE)


def _io_error(root: str, error: OSError) -> StoreError:
    return StoreError(
        f"cannot change the releases below {root}: {error.strerror} ({error.filename}); make it writable and give it"
        " room",
        root=root,
    )


def _write_release(root: str, number: int, content: Content, created: str) -> None:
    # Taken before anything else: a number that was begun once is not given again, whatever happens now.
    _write_state(root, replace(_read_state(root), highest=number))
    releases = os.path.join(root, "releases")
    partial = os.path.join(releases, f".{number}.partial")
    _make_directory(partial)
    os.symlink(_environment_link(content.environment), os.path.join(partial, "venv"))
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "environment": content.environment,
        "sglang_version": content.sglang_version,
        "backend": content.backend,
        "model": dict(content.model),
        "args": dict(content.args),
        "env": dict(content.env),
        "content_id": content.content_id(),
        "created": created,
    }
    for name, value in ((LAUNCH, content.launch()), (MANIFEST, manifest)):
        write_atomic(os.path.join(partial, name), _json_bytes(value))
    os.rename(partial, os.path.join(releases, str(number)))
    _sync(releases)


def _point(root: str, number: int | None) -> None:
    link = os.path.join(root, "current")
    if number is None:
        _discard(link)
    else:
        new = os.path.join(root, _NEW_LINK)
        os.symlink(os.path.join("releases", str(number)), new)
        os.replace(new, link)
    _sync(root)


def _must_be_sound(root: str, number: int) -> Content:
    """What release `number` holds. Raises StoreError when it is missing or damaged."""
    if number not in _numbers(root):
        there = ", ".join(map(str, _numbers(root))) or "none"
        raise StoreError(
            f"cannot use release {number} below {root}: there is none; the releases are {there}", release=number
        )
    release = load(root, number)
    if release.broken or release.content is None:
        raise StoreError(
            f"cannot use release {number} below {root}: {release.broken}; choose another release", release=number
        )
    return release.content


def _remove(root: str, number: int) -> None:
    releases = os.path.join(root, "releases")
    partial = os.path.join(releases, f".{number}.partial")
    os.rename(os.path.join(releases, str(number)), partial)
    _discard(partial)


def _next_number(root: str, state: _State) -> int:
    number = max([state.highest or 0, *_numbers(root)]) + 1
    # Something else that has the name of a release is passed over, not overwritten.
    while os.path.lexists(os.path.join(root, "releases", str(number))):
        number += 1
    return number


def _remember_highest(root: str) -> None:
    state = _read_state(root)
    _write_state(root, replace(state, highest=max([state.highest or 0, *_numbers(root)])))


@dataclass(frozen=True)
class _State:
    """state/releases.json: the highest number ever given, the release before the current one, what served last.

    `forgotten`: the file was damaged or lost, and nothing tells what served last. Not the same as that nothing did.
    """

    highest: int | None = None
    previous: int | None = None
    proven: int | None = None
    forgotten: bool = False
    warnings: list[str] = field(default_factory=list)


def _read_state(root: str) -> _State:
    """What is on record, without what a damaged file had. Raises StoreError when a newer collection wrote it."""
    path = _state_path(root)
    try:
        with open(path, encoding="utf-8") as handle:
            state = _parse_state(json.load(handle), path)
    except FileNotFoundError:
        # Every release is written after this file.
        state = _State(forgotten=bool(_numbers(root)))
    except (ValueError, TypeError, RecursionError):
        warning = (
            f"{path} was damaged; numbers go on above the releases that are there, so a removed one may come again"
        )
        state = _State(forgotten=True, warnings=[warning])
    except OSError as error:
        raise _io_error(root, error) from error
    if state.proven is not None:
        return state
    proven = _last_proven(root)
    return state if proven is None else replace(state, proven=proven, forgotten=False)


def _parse_state(data: Any, path: str) -> _State:
    if not isinstance(data, dict):
        raise TypeError("not an object")
    version = data.get("schema_version")
    if not is_whole(version) or version < 1:
        raise TypeError("no schema")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} was written with schema {version}, this version of tokforge.sglang knows {SCHEMA_VERSION}; use the"
            " newer version of the collection, or another root",
            schema_version=version,
        )
    highest, previous, proven = (data.get(name) for name in ("highest", "previous", "proven"))
    # Not 1.0 and not true either: this collection does not write them.
    if any(value is not None and not is_whole(value) for value in (highest, previous, proven)):
        raise TypeError("not a number")
    return _State(highest, previous, proven, forgotten=data.get("forgotten") is True)


def _last_proven(root: str) -> int | None:
    """The release that was marked last as serving."""
    return next(iter(_by_proof(root)), None)


def _by_proof(root: str) -> list[int]:
    """Releases that were marked as serving, the last one first."""
    marked = []
    for number in _numbers(root):
        with suppress(OSError):
            marked.append((os.stat(os.path.join(root, "releases", str(number), PROVEN)).st_mtime_ns, number))
    return [number for _when, number in sorted(marked, reverse=True)]


def _write_state(root: str, state: _State) -> None:
    _make_directory(os.path.join(root, "state"))
    values = {"highest": state.highest, "previous": state.previous, "proven": state.proven}
    forgotten = {"forgotten": True} if state.forgotten else {}
    write_atomic(_state_path(root), _json_bytes({"schema_version": SCHEMA_VERSION, **values, **forgotten}))


def _state_path(root: str) -> str:
    return os.path.join(root, "state", "releases.json")


def _numbers(root: str) -> list[int]:
    """Of real directories only: a file or a link with the name of a release is none."""
    releases = os.path.join(root, "releases")
    return sorted(int(name) for name in _names(releases) if _NUMBER.fullmatch(name) and _is_directory(releases, name))


def _is_directory(folder: str, name: str) -> bool:
    path = os.path.join(folder, name)
    return os.path.isdir(path) and not os.path.islink(path)


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []


def _environment_link(environment: str) -> str:
    return os.path.join("..", "..", "venvs", environment)


def _venv_target(root: str, number: int) -> str:
    try:
        return os.readlink(os.path.join(root, "releases", str(number), "venv"))
    except OSError:
        return ""


def _read_object(directory: str, name: str) -> dict[str, Any]:
    try:
        value = json.loads(_read_text(os.path.join(directory, name)))
    except FileNotFoundError:
        raise StoreError(f"{name} is missing") from None
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"{name} is damaged ({error})") from error
    if not isinstance(value, dict):
        raise StoreError(f"{name} is damaged (not an object)")
    if value.get("schema_version") != SCHEMA_VERSION:
        raise StoreError(f"{name} has schema {value.get('schema_version')}, this collection writes {SCHEMA_VERSION}")
    return value


def _read_text(path: str) -> str:
    """The text of a regular file that is not too large. Raises OSError, ValueError; a pipe is not waited for."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
        found = os.fstat(stream.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST_FILE:
            raise ValueError(f"not a plain file of at most {_LARGEST_FILE >> 20} MiB")
        return stream.read(_LARGEST_FILE).decode("utf-8")


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is not a text")
    return value


def _json_bytes(value: object) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode()


def _is_dangling(link: str) -> bool:
    return os.path.islink(link) and not os.path.exists(link)


def _sync(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _discard(path: str) -> None:
    """Remove whatever is at the path, a link itself and not what it points to; nothing there is fine."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)
