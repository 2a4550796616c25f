# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The autotune gate of one SGLang: which state it is in, how it is opened, and how the release's own state comes back.

The states a gate can be in, as `Gate.kind`:

closed                the release has the gate and the backend is not in its collection
open_by_patch         somebody put the backend there: this module (enabled_by patch) or another hand (foreign_patch)
open_upstream         the release itself tunes the backend
unsupported_release   the release has no autotune at all (up to 0.5.5.post3)
other_gate            the release decides by the attention backend (0.5.6 to 0.5.6.post2)
unknown_structure     anything else; it is never edited
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    gate_edit,
    gate_syntax,
    gate_write,
    sglang_tree,
    source_text,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.gate_note import Note, edit_between, read_note, undone
from ansible_collections.tokforge.sglang.plugins.module_utils.gate_search import (
    Found,
    Search,
    UnclearError,
    meaning,
    parsed,
    same_but_for,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.gate_syntax import Collection, Definition
from ansible_collections.tokforge.sglang.plugins.module_utils.sglang_tree import Original, Tree

CLOSED = "closed"
OPEN_BY_PATCH = "open_by_patch"
OPEN_UPSTREAM = "open_upstream"
UNSUPPORTED = "unsupported_release"
OTHER = "other_gate"
UNKNOWN = "unknown_structure"

PATCH, UPSTREAM, FOREIGN = "patch", "upstream", "foreign_patch"

_UP_TO_21 = (
    "flashinfer_trtllm",
    "flashinfer_trtllm_routed",
    "flashinfer_mxfp4",
    "flashinfer_cutedsl",
    "flashinfer_cutlass",
)
#: What the releases themselves tune, from their wheels: first release -> kind of gate, backends in its collection.
RELEASES: Sequence[tuple[str, str, tuple[str, ...]]] = (
    ("0", UNSUPPORTED, ()),
    ("0.5.6", OTHER, ()),
    ("0.5.7", CLOSED, ("flashinfer_trtllm", "flashinfer_mxfp4")),
    ("0.5.11", CLOSED, ("flashinfer_trtllm", "flashinfer_mxfp4", "flashinfer_cutedsl")),
    ("0.5.13", CLOSED, _UP_TO_21),
    ("0.5.22", CLOSED, (*_UP_TO_21, "flashinfer_megamoe")),
)
#: The newest release that RELEASES was read from.
NEWEST_READ = "0.5.23"

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")


class GateError(Exception):
    """What was asked cannot be done; nothing was changed. `facts` go beside the message."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


class MeanwhileError(GateError):
    """Somebody else changed the file after it was read. Looking again may find that nothing is left to do."""


@dataclass(frozen=True)
class Gate:
    """What a gate is for one backend. `line` is 1-based, None when there is no gate; `why` explains kinds without one.

    `backends` are the names in the collection, in the file's order. `enabled_by` is None unless the gate is open.
    """

    kind: str
    backend: str
    version: str | None
    file: str | None = None
    line: int | None = None
    backends: tuple[str, ...] = ()
    enabled_by: str | None = None
    why: str = ""


@dataclass(frozen=True)
class Source:
    """The file with the gate, as it was read."""

    tree: Tree
    path: str
    data: bytes
    text: str
    encoding: str
    definition: Definition
    collection: Collection
    note: Note | None
    original: Original | None

    @property
    def sha256(self) -> str:
        """Digest of the bytes."""
        return source_text.sha256(self.data)

    def encoded(self, text: str) -> bytes:
        """The bytes of a text in this file's encoding, with its byte order mark."""
        return source_text.encoded(text, self.encoding, self.data)


@dataclass(frozen=True)
class Change:
    """What will be done. `data` and `note` are None when the file stays; an empty note is removed."""

    message: str
    after: Gate
    data: bytes | None = None
    note: Note | None = None

    @property
    def changed(self) -> bool:
        """Whether the file gets other bytes."""
        return self.data is not None


# --- looking ---------------------------------------------------------------------------------------------------------


def expected(version: str, backend: str) -> str | None:
    """The kind of gate a release has for a backend as it comes; None for a release newer than was read.

    :param version: a release name such as 0.5.12.post1.
    """
    key = _version_key(version)
    # A build without tags calls itself 0.0.0.dev0, which says nothing.
    if key is None or key < (0, 1) or key > (_version_key(NEWEST_READ) or ()):
        return None
    kind, backends = next(
        (kind, names) for first, kind, names in reversed(RELEASES) if key >= (_version_key(first) or ())
    )
    return OPEN_UPSTREAM if backend in backends else kind


def _version_key(version: str) -> tuple[int, int, int, int, int] | None:
    """Orders release names; a release candidate comes before its release, and a local part does not count."""
    match = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:\.?(a|b|rc|dev)(\d+))?(?:\.post(\d+))?", version)
    if match is None:
        return None
    major, minor, micro, stage, _count, post = match.groups()
    return int(major), int(minor or 0), int(micro or 0), -1 if stage else 0, int(post or 0)


def check_name(backend: str) -> None:
    """Refuse what cannot be a backend's name. Raises GateError."""
    if not _NAME.fullmatch(backend):
        shown = backend if len(backend) <= 100 else f"{backend[:100]} ..."
        raise GateError(
            f"reading the backend {shown!r}: a name is at most 100 letters, digits and _ . - only; give a "
            "--moe-runner-backend",
            backend=shown,
        )
    if backend == "auto":
        raise GateError(
            "reading the backend 'auto': SGLang replaces it by another name before the gate sees it; name the backend "
            "that is to be tuned",
            backend=backend,
        )


def examine(tree: Tree, backend: str) -> tuple[Gate, Source | None]:
    """The gate of an SGLang for a backend, and its file when there is a collection. Changes nothing.

    Raises GateError for a backend that the release does not have, and for files that cannot be read.
    """
    check_name(backend)
    try:
        found = Search(tree).definition()
    except UnclearError as unclear:
        return Gate(UNKNOWN, backend, tree.version, unclear.path, unclear.line, why=str(unclear)), None
    except OSError as error:
        raise _unreadable(error) from error
    if found is None:
        why = f"{tree.short(tree.executor)} has no function {gate_syntax.GATE_NAMES[0]}"
        if tree.version and expected(tree.version, backend) not in (UNSUPPORTED, None):
            return Gate(UNKNOWN, backend, tree.version, why=f"{why}, and this release came with one"), None
        return Gate(UNSUPPORTED, backend, tree.version, why=why), None
    path, definition = found[0], found[-1]
    base = Gate(UNKNOWN, backend, tree.version, path, definition.test_line, why=definition.problem)
    if definition.subject == "attention":
        return replace(base, kind=OTHER), None
    if definition.collection is None:
        return base, None
    collection = definition.collection
    _check_choice(tree, backend)
    why = meaning(tree, found[2], definition, backend)
    if why:
        return replace(base, backends=collection.names, why=why), None
    source = _source_of(tree, found, collection)
    return _gate(source, collection, backend, definition.test_line), source


@dataclass(frozen=True)
class Tuned:
    """What a gate lets be tuned, for no backend in particular: its file, and who put each backend there."""

    file: str
    enabled_by: Mapping[str, str]


def tuned(tree: Tree) -> Tuned | None:
    """What the gate of an SGLang lets be tuned, or None where there is no gate that is known. Raises GateError."""
    try:
        found = Search(tree).definition()
    except UnclearError:
        return None
    except OSError as error:
        raise _unreadable(error) from error
    if found is None or found[-1].collection is None:
        return None
    source = _source_of(tree, found, found[-1].collection)
    return Tuned(source.path, {name: _enabled_by(source, name) for name in source.collection.names})


def _unreadable(error: OSError) -> GateError:
    return GateError(f"reading {error.filename}: {error.strerror}; make it readable, or run as a user who may read it")


def _source_of(tree: Tree, found: Found, collection: Collection) -> Source:
    path, data, text, encoding, definition = found
    original = sglang_tree.original(tree, path)
    note = read_note(path)
    if note and undone(note, data, text, encoding) is None:
        note = None
    return Source(tree, path, data, text, encoding, definition, collection, note, original)


def _gate(source: Source, collection: Collection, backend: str, test_line: int) -> Gate:
    live = [element.line for element in collection.elements if element.value == backend]
    if not live:
        return Gate(CLOSED, backend, source.tree.version, source.path, test_line, collection.names)
    by = _enabled_by(source, backend)
    kind = OPEN_UPSTREAM if by == UPSTREAM else OPEN_BY_PATCH
    return Gate(kind, backend, source.tree.version, source.path, live[0], collection.names, by)


def _enabled_by(source: Source, backend: str) -> str:
    applied = source.note.applied(source.sha256) if source.note else ()
    if any(edit.backend == backend for edit in applied):
        return PATCH
    before = undone(source.note, source.data, source.text, source.encoding) if applied and source.note else None
    if _is_original(source, before[1] if before else source.data):
        return UPSTREAM
    own = _original_names(source)
    if own is not None:
        return _since(source, backend, UPSTREAM if backend in own else FOREIGN)
    for name in source.collection.names if source.original else ():
        # What differs from the original by one name only tells about all of them.
        if _original_without(source, name) is not None:
            return FOREIGN if name == backend else UPSTREAM
    # The file was changed in other places too, or nothing says what it was: what the release is known for decides.
    kind = expected(source.tree.version, backend) if source.tree.version else None
    if kind is not None:
        return _since(source, backend, UPSTREAM if kind == OPEN_UPSTREAM else FOREIGN)
    return _since(source, backend, FOREIGN if source.original else UPSTREAM, sure=False)


def _since(source: Source, backend: str, by: str, sure: bool = True) -> str:
    """The same, unless the note says that this module opened the gate and the file was changed since."""
    noted = source.note is not None and any(edit.backend == backend for edit in source.note.edits)
    return PATCH if noted and (by == FOREIGN or not sure) else by


def _is_original(source: Source, data: bytes) -> bool:
    """Whether bytes are what the file was when it came; git may have changed the line ends on the way."""
    original = source.original
    if original is None:
        return False
    return source_text.sha256(data) == original.sha256 or (
        original.data is not None and data.replace(b"\r\n", b"\n") == original.data.replace(b"\r\n", b"\n")
    )


def _original_names(source: Source) -> tuple[str, ...] | None:
    """The names that the gate's collection held when the file came, where its text is at hand."""
    if source.original is None or source.original.data is None:
        return None
    try:
        text = source_text.decoded(source.original.data)[0]
        found = parsed(source.tree, source.path, text, (source.definition.name,))
    except (UnclearError, SyntaxError, UnicodeError, LookupError):
        return None
    collections = [one.collection for one in found if one.collection]
    return collections[0].names if len(collections) == 1 else None


def _original_without(source: Source, backend: str) -> bytes | None:
    """The original bytes, when the file differs from them only by this backend."""
    for text in gate_edit.without_name(source.text, source.collection, backend):
        data = source.encoded(text)
        if _is_original(source, data):
            return data
    return None


def _check_choice(tree: Tree, backend: str) -> None:
    choices = sglang_tree.moe_backends(tree)
    if choices is not None and backend not in choices:
        message = unknown_backend(backend, tree.version, choices)
        raise GateError(message, backend=backend, choices=list(choices))


def unknown_backend(backend: str, version: str | None, choices: Sequence[str]) -> str:
    """That a release has no such backend, with the one that may have been meant."""
    near = difflib.get_close_matches(backend, choices, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}? " if near else ""
    return (
        f"reading the backend {backend!r}: SGLang {version or 'there'} has no such --moe-runner-backend; "
        f"{hint}choices there: {', '.join(choices)}"
    )


# --- deciding --------------------------------------------------------------------------------------------------------


def plan(gate: Gate, source: Source | None, state: str) -> Change:
    """What has to be done for a state, `open` or `closed` (the release's own). Changes nothing; raises GateError."""
    if source is None:
        raise GateError(refusal(gate), gate=gate.kind)
    return _opened(gate, source) if state == "open" else _closed(gate, source)


def refusal(gate: Gate) -> str:
    """Why there is no gate to open or to close, and what to do; one text for each kind."""
    release = f"SGLang {gate.version or 'of unknown version'}"
    where = f" {gate.file}" + (f" line {gate.line}" if gate.line else "") if gate.file else ""
    why = f" ({gate.why})" if gate.why else ""
    if gate.kind == UNSUPPORTED:
        return (
            f"tuning {gate.backend} in {release}: this release has no FlashInfer autotune at all{why}; use 0.5.7 or "
            "newer"
        )
    if gate.kind == OTHER:
        return (
            f"tuning {gate.backend} in {release}: its gate{where} looks at the attention backend, not at the MoE "
            f"runner{why}; use 0.5.7 or newer"
        )
    return (
        f"reading the autotune gate of {release}{':' + where if where else ''}: {gate.why}; nothing was changed, since "
        "this structure is not known: see what the file says, restore it if it was edited, or report this release"
    )


def _opened(gate: Gate, source: Source) -> Change:
    place = f"{gate.file} line {gate.line}"
    if gate.kind == OPEN_UPSTREAM:
        return Change(f"SGLang {gate.version or ''} tunes {gate.backend} by itself ({place})".replace("  ", " "), gate)
    if gate.kind == OPEN_BY_PATCH:
        hand = "by this module" if gate.enabled_by == PATCH else "by another hand, which is left as it is"
        return Change(f"the gate was opened for {gate.backend} before, {hand} ({place})", gate)
    _check_unchanged_since(source, f"opening the gate in {place}")
    text = gate_edit.with_name(source.text, source.collection, gate.backend)
    definition = _definition_in(source, text)
    collection = definition.collection if definition else None
    if (
        collection is None
        or sorted(collection.names) != sorted((*source.collection.names, gate.backend))
        or not same_but_for(source.tree, source.text, text, gate.backend, source.collection.start)
    ):
        raise GateError(
            f"opening the gate in {place}: the edit would not give what was meant, nothing was changed; report this "
            "file's gate",
            gate=UNKNOWN,
        )
    data = source.encoded(text)
    applied = source.note.applied(source.sha256) if source.note else ()
    original = source.note.original_sha256 if applied and source.note else source.sha256
    note = Note(original, (*applied, edit_between(source.text, text, gate.backend, source_text.sha256(data))))
    line = next(element.line for element in collection.elements if element.value == gate.backend)
    opened = replace(gate, kind=OPEN_BY_PATCH, line=line, backends=collection.names, enabled_by=PATCH)
    return Change(f"opened the gate for {gate.backend} in {gate.file} line {line}", opened, data, note)


def _check_unchanged_since(source: Source, what: str) -> None:
    """Refuse to go on where the way back would be lost or is lost already. Raises GateError."""
    if source.note is None or source.note.applied(source.sha256):
        return
    ours = [name for name in source.collection.names if _enabled_by(source, name) == PATCH]
    if ours:
        raise GateError(
            f"{what}: the file was changed after this module opened it for {', '.join(ours)}, so the way back to its "
            "original bytes would be lost; undo that change, or restore the file from its release",
            gate=OPEN_BY_PATCH,
            enabled_by=PATCH,
        )


def _definition_in(source: Source, text: str) -> Definition | None:
    """The gate in another state of its file; edits never move the start of its collection."""
    try:
        definitions = parsed(source.tree, source.path, text, (source.definition.name,))
    except UnclearError:
        return None
    found = (one for one in definitions if one.collection and one.collection.start == source.collection.start)
    return next(found, None)


def _closed(gate: Gate, source: Source) -> Change:
    place = f"{gate.file} line {gate.line}"
    _check_unchanged_since(source, f"closing the gate in {place}")
    applied = source.note.applied(source.sha256) if source.note else ()
    back, said = source, ""
    before = undone(source.note, source.data, source.text, source.encoding) if applied and source.note else None
    if before is not None:
        back = _source_with(source, *before)
        others = sorted({edit.backend for edit in applied} - {gate.backend})
        said = f"; it was open for {', '.join(others)} too" if others else ""
    foreign = [name for name in back.collection.names if _enabled_by(back, name) == FOREIGN]
    for name in foreign:
        original = _original_without(back, name)
        if original is not None:
            back, foreign = _source_with(back, source_text.decoded(original)[0], original), []
            said = f"; another hand had opened it for {name}{said}"
            break
    if gate.backend in foreign:
        raise GateError(
            f"closing the gate in {place}: another hand opened it and the file is neither the original nor this "
            "module's work, so what it was is not known; restore the file from its release, or make another "
            "environment",
            gate=gate.kind,
            enabled_by=gate.enabled_by,
        )
    if foreign:
        said += f"; another hand opened it for {', '.join(foreign)}, which is left as it is"
    if back is source:
        own = "does not tune" if gate.kind == CLOSED else "tunes"
        return Change(f"the gate is as the release has it, which {own} {gate.backend} ({place}){said}", gate)
    after = _gate(back, back.collection, gate.backend, back.definition.test_line)
    proved = source.original is None or _is_original(source, back.data)
    whole = "the original bytes are back" if proved else "the bytes from before it was opened are back"
    message = f"closed the gate in {gate.file}: {whole}{said}"
    return Change(message, after, back.data, Note(back.sha256, ()))


def _source_with(source: Source, text: str, data: bytes) -> Source:
    """The file with other bytes, which no note describes."""
    definition = _definition_in(source, text) or source.definition
    collection = definition.collection or source.collection
    return replace(source, data=data, text=text, definition=definition, collection=collection, note=None)


# --- doing -----------------------------------------------------------------------------------------------------------


def apply(source: Source, change: Change, check_mode: bool = False) -> None:
    """Write what was planned, or in check mode only see whether it could be written.

    Raises GateError; the file then has its old bytes. It is a MeanwhileError when somebody else changed the file.
    """
    if change.data is None or change.note is None:
        # Nothing is to be done, so that it cannot be done is no failure.
        if not check_mode:
            with contextlib.suppress(OSError):
                gate_write.tidy(source.path, source.data)
        return
    try:
        if check_mode:
            gate_write.check(source.path)
        else:
            gate_write.write(source.path, source.data, change.data, change.note, source.tree.version)
    except gate_write.ChangedError as error:
        raise MeanwhileError(
            f"writing {source.path}: it was changed by somebody else after it was read; nothing was written, run again"
        ) from error
    except OSError as error:
        hints = {
            errno.EROFS: "the file system is read-only: edit the environment while it is built, or remount it",
            errno.ENOSPC: "free disk space there and run again",
            errno.EACCES: "run as the user who owns it",
            errno.EPERM: "run as the user who owns it, and see whether it is marked immutable (lsattr)",
        }
        raise GateError(
            f"writing {source.path}: {error.strerror}; {hints.get(error.errno or 0, 'look at it and run again')}",
            file=source.path,
        ) from error
