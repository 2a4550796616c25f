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

import codecs
import contextlib
import difflib
import errno
import fcntl
import glob
import hashlib
import io
import json
import os
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import gate_edit, gate_syntax, sglang_tree
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic
from ansible_collections.tokforge.sglang.plugins.module_utils.gate_syntax import DELEGATE, GATE, Collection, Definition
from ansible_collections.tokforge.sglang.plugins.module_utils.sglang_tree import Tree

CLOSED = "closed"
OPEN_BY_PATCH = "open_by_patch"
OPEN_UPSTREAM = "open_upstream"
UNSUPPORTED = "unsupported_release"
OTHER = "other_gate"
UNKNOWN = "unknown_structure"

PATCH, UPSTREAM, FOREIGN = "patch", "upstream", "foreign_patch"

#: What the releases themselves tune, from their wheels: first release -> kind of gate, backends in its collection.
RELEASES: Sequence[tuple[str, str, tuple[str, ...]]] = (
    ("0", UNSUPPORTED, ()),
    ("0.5.6", OTHER, ()),
    ("0.5.7", CLOSED, ("flashinfer_trtllm", "flashinfer_mxfp4")),
    ("0.5.11", CLOSED, ("flashinfer_trtllm", "flashinfer_mxfp4", "flashinfer_cutedsl")),
    (
        "0.5.13",
        CLOSED,
        (
            "flashinfer_trtllm",
            "flashinfer_trtllm_routed",
            "flashinfer_mxfp4",
            "flashinfer_cutedsl",
            "flashinfer_cutlass",
        ),
    ),
    (
        "0.5.22",
        CLOSED,
        (
            "flashinfer_trtllm",
            "flashinfer_trtllm_routed",
            "flashinfer_mxfp4",
            "flashinfer_cutedsl",
            "flashinfer_cutlass",
            "flashinfer_megamoe",
        ),
    ),
)
#: The newest release that RELEASES was read from.
NEWEST_READ = "0.5.23"

_NOTE_SCHEMA = 1
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")
_WORD = "flashinfer_autotune"
_HOPS = 5


class GateError(Exception):
    """What was asked cannot be done; nothing was changed. `facts` go beside the message."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


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
class Edit:
    """One opening: what `now` replaced at `start` (in characters), and the file's sha256 after it."""

    backend: str
    start: int
    was: str
    now: str
    sha256: str


@dataclass(frozen=True)
class Note:
    """What this module did to a file, kept beside it: the way back."""

    original_sha256: str
    edits: tuple[Edit, ...]

    def applied(self, sha256: str) -> tuple[Edit, ...]:
        """The edits that are in a file with this digest. Empty when the file is not one that this note describes."""
        for count in range(len(self.edits), 0, -1):
            if self.edits[count - 1].sha256 == sha256:
                return self.edits[:count]
        return ()


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
    original_sha256: str | None

    @property
    def sha256(self) -> str:
        """Digest of the bytes."""
        return _sha256(self.data)

    def encoded(self, text: str) -> bytes:
        """The bytes of a text in this file's encoding, with its byte order mark."""
        return _encoded(text, self.encoding, self.data)


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
        found = _Search(tree).definition()
    except _UnclearError as unclear:
        return Gate(UNKNOWN, backend, tree.version, unclear.path, unclear.line, why=str(unclear)), None
    except OSError as error:
        raise _unreadable(error) from error
    if found is None:
        why = f"{tree.short(tree.executor)} has no function {gate_syntax.GATE_NAMES[0]}"
        return Gate(UNSUPPORTED, backend, tree.version, why=why), None
    path, definition = found[0], found[-1]
    base = Gate(UNKNOWN, backend, tree.version, path, definition.test_line, why=definition.problem)
    if definition.subject == "attention":
        return replace(base, kind=OTHER), None
    if definition.collection is None:
        return base, None
    collection = definition.collection
    _check_choice(tree, backend)
    shut_out = dict(definition.shut_out)
    if backend in shut_out:
        why = f"it answers for {backend} by itself, whatever its collection holds"
        return replace(base, line=shut_out[backend], backends=collection.names, why=why), None
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
        found = _Search(tree).definition()
    except _UnclearError:
        return None
    except OSError as error:
        raise _unreadable(error) from error
    if found is None or found[-1].collection is None:
        return None
    source = _source_of(tree, found, found[-1].collection)
    return Tuned(source.path, {name: _enabled_by(source, name) for name in source.collection.names})


def _unreadable(error: OSError) -> GateError:
    return GateError(f"reading {error.filename}: {error.strerror}; make it readable, or run as a user who may read it")


def _source_of(tree: Tree, found: _Found, collection: Collection) -> Source:
    path, data, text, encoding, definition = found
    original = sglang_tree.original_sha256(tree, path)
    note = _read_note(path)
    if note and _undone(note, data, text, encoding) is None:
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
    original = source.original_sha256
    before = source.note.original_sha256 if applied and source.note else source.sha256
    if before == original:
        return UPSTREAM
    for name in source.collection.names if original else ():
        # What differs from the original by one name only tells about all of them.
        if _original_without(source, name) is not None:
            return FOREIGN if name == backend else UPSTREAM
    # The file was changed in other places too, or nothing says what it was: what the release is known for decides.
    kind = expected(source.tree.version, backend) if source.tree.version else None
    if kind is not None:
        return UPSTREAM if kind == OPEN_UPSTREAM else FOREIGN
    return FOREIGN if original else UPSTREAM


def _original_without(source: Source, backend: str) -> bytes | None:
    """The original bytes, when the file differs from them only by this backend."""
    for text in gate_edit.without_name(source.text, source.collection, backend):
        data = source.encoded(text)
        if _sha256(data) == source.original_sha256:
            return data
    return None


def _check_choice(tree: Tree, backend: str) -> None:
    choices = sglang_tree.moe_backends(tree)
    if choices is None or backend in choices:
        return
    near = difflib.get_close_matches(backend, choices, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}? " if near else ""
    raise GateError(
        f"reading the backend {backend!r}: SGLang {tree.version or 'there'} has no such --moe-runner-backend; "
        f"{hint}choices there: {', '.join(choices)}",
        backend=backend,
        choices=list(choices),
    )


class _UnclearError(Exception):
    """No structure that is known; the text says what was found."""

    def __init__(self, message: str, path: str | None = None, line: int | None = None) -> None:
        super().__init__(message)
        self.path, self.line = path, line


_Found = tuple[str, bytes, str, str, Definition]
#: By the real path and the line, so that a file with two names counts once: path and definition.
_Definitions = dict[tuple[str, int], tuple[str, Definition]]


class _Search:
    """Finds the one real definition of the gate function below srt/model_executor."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.read: dict[str, tuple[bytes, str, str]] = {}

    def definition(self) -> _Found | None:
        """The one definition, or None when the release has no autotune. Raises _UnclearError."""
        if not os.path.isdir(self.tree.executor):
            raise _UnclearError(f"there is no {self.tree.short(self.tree.executor)}, so this is no whole SGLang")
        found = list(self.named(self.tree.executor))
        real: _Definitions = {}
        for path, one in found:
            if one.kind == GATE:
                real[os.path.realpath(path), one.line] = path, one
        for path, one in found:
            if one.kind == DELEGATE:
                target = self.follow(path, one, _HOPS)
                if not target:
                    what = f"calls {one.target[1]}, whose definition was not found"
                    raise _UnclearError(f"{self.tree.short(path)} line {one.line}: {one.name} {what}", path, one.line)
                for key, reached in target.items():
                    real.setdefault(key, reached)
        if len(real) > 1:
            where = sorted((path, one.line) for path, one in real.values())
            places = ", ".join(f"{self.tree.short(path)} line {line}" for path, line in where)
            raise _UnclearError(f"{len(real)} definitions of the gate were found: {places}", *where[0])
        for path, definition in real.values():
            return (path, *self.read[path], self.private(path, definition))
        for path, one in found:
            raise _UnclearError(f"{self.tree.short(path)} line {one.line}: {one.name} does nothing", path, one.line)
        self.no_other_autotune()
        return None

    def private(self, path: str, definition: Definition) -> Definition:
        """The definition, without its collection when that is a constant which other files use too."""
        name = definition.constant
        if not definition.collection or not name:
            return definition
        for other in sglang_tree.python_files(self.tree.srt):
            data = _bytes_of(other)
            if os.path.realpath(other) == os.path.realpath(path) or name.encode() not in data:
                continue
            lines = self.identifiers(other, data, "brings", name)
            if lines:
                problem = (
                    f"the collection {name} is used in {self.tree.short(other)} line {lines[0]} too, so an edit would "
                    "change more"
                )
                return replace(definition, collection=None, subject="", problem=problem)
        return definition

    def identifiers(self, path: str, data: bytes, function: str, word: str) -> list[int]:
        """Lines of a file that `mentions` or `brings` of gate_syntax finds. Raises _UnclearError."""
        text = self.decoded(path, data)[0]
        try:
            return list(getattr(gate_syntax, function)(text, word))
        except gate_syntax.UnreadableError as error:
            return list(_asked(self.tree, path, error, function, {"text": text, "word": word}))

    def named(self, folder: str) -> Iterator[tuple[str, Definition]]:
        for path in sglang_tree.python_files(folder):
            data = _bytes_of(path)
            if any(name.encode() in data for name in gate_syntax.GATE_NAMES):
                yield from ((path, one) for one in self.scan(path, data, gate_syntax.GATE_NAMES))

    def scan(self, path: str, data: bytes, names: tuple[str, ...]) -> list[Definition]:
        text, encoding = self.decoded(path, data)
        self.read[path] = (data, text, encoding)
        return parsed(self.tree, path, text, names)

    def decoded(self, path: str, data: bytes) -> tuple[str, str]:
        try:
            text, encoding = _decoded(data)
            exact = _encoded(text, encoding, data) == data
        except (SyntaxError, UnicodeError, LookupError) as error:
            raise _UnclearError(f"{self.tree.short(path)} is not text: {error}", path) from error
        if not exact:
            raise _UnclearError(f"{self.tree.short(path)} is not the only way to write its text in {encoding}", path)
        return text, encoding

    def follow(self, path: str, delegate: Definition, hops: int) -> _Definitions:
        """The real definitions behind a delegate."""
        module, name = delegate.target
        target = self.module_file(path, module) if module else path
        if target is None and module.rpartition(".")[0].strip("."):
            # What was imported may be a class of that module.
            target = self.module_file(path, module.rpartition(".")[0])
        if target is None or not hops:
            return {}
        data = _bytes_of(target)
        reached: _Definitions = {}
        for one in self.scan(target, data, (name,)) if name.encode() in data else []:
            if (target, one.line) == (path, delegate.line):
                continue
            if one.kind == GATE:
                reached[os.path.realpath(target), one.line] = target, one
            elif one.kind == DELEGATE:
                reached.update(self.follow(target, one, hops - 1))
        return reached

    def module_file(self, path: str, module: str) -> str | None:
        """The file of a module that `path` imports, when it belongs to this SGLang."""
        dots = len(module) - len(module.lstrip("."))
        parts = [part for part in module.split(".") if part]
        if dots:
            folder = path
            for _level in range(dots):
                folder = os.path.dirname(folder)
        elif parts[:1] == ["sglang"]:
            folder, parts = os.path.dirname(self.tree.srt), parts[1:]
        else:
            return None
        base = os.path.join(folder, *parts)
        return next((one for one in (f"{base}.py", os.path.join(base, "__init__.py")) if os.path.isfile(one)), None)

    def no_other_autotune(self) -> None:
        """Hold that the release has no autotune, and did not merely move it. Raises _UnclearError."""
        if not os.path.isfile(os.path.join(self.tree.executor, "model_runner.py")):
            raise _UnclearError(
                f"{self.tree.short(self.tree.executor)} holds no model_runner.py, so this is no whole SGLang"
            )
        for path in sglang_tree.python_files(self.tree.srt):
            data = _bytes_of(path)
            if _WORD.encode() not in data:
                continue
            lines = self.identifiers(path, data, "mentions", _WORD)
            if lines:
                raise _UnclearError(
                    f"{self.tree.short(path)} line {lines[0]} speaks of {_WORD}, but no function "
                    f"{gate_syntax.GATE_NAMES[0]} is below {self.tree.short(self.tree.executor)}",
                    path,
                    lines[0],
                )


def parsed(tree: Tree, path: str, text: str, names: tuple[str, ...]) -> list[Definition]:
    """The definitions in a file, read by the release's own interpreter when this one is too old for its grammar."""
    try:
        return gate_syntax.scan(text, names)
    except gate_syntax.UnreadableError as error:
        return gate_syntax.from_json(_asked(tree, path, error, "scan", {"text": text, "names": list(names)}))


def _asked(
    tree: Tree, path: str, error: gate_syntax.UnreadableError, function: str, asked: Mapping[str, Any]
) -> list[Any]:
    """What the release's own interpreter finds in a file that this one cannot read. Raises _UnclearError."""
    ours = ".".join(map(str, sys.version_info[:2]))
    if tree.python is None:
        raise _UnclearError(
            f"{_place(tree, path, error.line)} is no Python {ours}: {error}; if it is fine for a newer one, give "
            "python, the interpreter of this SGLang",
            path,
            error.line or None,
        )
    answer = _elsewhere(tree, function, asked)
    if "error" in answer:
        raise _UnclearError(
            f"{_place(tree, path, answer['line'])} is no Python {tree.python_version}: {answer['error']}",
            path,
            answer["line"] or None,
        )
    return list(answer["found"])


def _place(tree: Tree, path: str, line: int) -> str:
    return tree.short(path) + (f" line {line}" if line else "")


def _same_but_for(source: Source, text: str, backend: str) -> bool:
    try:
        return gate_syntax.differs_only_by(source.text, text, backend, source.collection.start)
    except gate_syntax.UnreadableError:
        if source.tree.python is None:
            return False
        asked = {"before": source.text, "after": text, "value": backend, "start": source.collection.start}
        return _elsewhere(source.tree, "differs_only_by", asked).get("found") is True


_ELSEWHERE = """
import json, sys
asked = json.load(sys.stdin)
here = {"__name__": "gate_syntax"}
sys.modules["gate_syntax"] = type(sys)("gate_syntax")
exec(compile(asked["module"], "gate_syntax", "exec", dont_inherit=True), sys.modules["gate_syntax"].__dict__)
syntax = sys.modules["gate_syntax"]
try:
    if asked["function"] == "scan":
        found = syntax.as_json(syntax.scan(asked["text"], tuple(asked["names"])))
    elif asked["function"] in ("mentions", "brings"):
        found = getattr(syntax, asked["function"])(asked["text"], asked["word"])
    else:
        found = syntax.differs_only_by(asked["before"], asked["after"], asked["value"], asked["start"])
    answer = {"found": found}
except syntax.UnreadableError as error:
    answer = {"error": str(error), "line": error.line}
print()
print(json.dumps(answer))
"""


def _elsewhere(tree: Tree, function: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Run a function of `gate_syntax` in the release's own interpreter."""
    loader: Any = gate_syntax.__spec__.loader if gate_syntax.__spec__ else None
    request = {"module": loader.get_source(gate_syntax.__name__), "function": function, **asked}
    printed = sglang_tree.run_in(str(tree.python), _ELSEWHERE, json.dumps(request))
    return sglang_tree.answer_of(str(tree.python), printed, "found", "error")


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
    text = gate_edit.with_name(source.text, source.collection, gate.backend)
    definition = _definition_in(source, text)
    collection = definition.collection if definition else None
    if (
        collection is None
        or sorted(collection.names) != sorted((*source.collection.names, gate.backend))
        or not _same_but_for(source, text, gate.backend)
    ):
        raise GateError(
            f"opening the gate in {place}: the edit would not give what was meant, nothing was changed; report this "
            "file's gate",
            gate=UNKNOWN,
        )
    data = source.encoded(text)
    applied = source.note.applied(source.sha256) if source.note else ()
    original = source.note.original_sha256 if applied and source.note else source.sha256
    note = Note(original, (*applied, _edit_between(source.text, text, gate.backend, _sha256(data))))
    line = next(element.line for element in collection.elements if element.value == gate.backend)
    opened = replace(gate, kind=OPEN_BY_PATCH, line=line, backends=collection.names, enabled_by=PATCH)
    return Change(f"opened the gate for {gate.backend} in {gate.file} line {line}", opened, data, note)


def _definition_in(source: Source, text: str) -> Definition | None:
    """The gate in another state of its file; edits never move the start of its collection."""
    try:
        definitions = parsed(source.tree, source.path, text, (source.definition.name,))
    except _UnclearError:
        return None
    found = (one for one in definitions if one.collection and one.collection.start == source.collection.start)
    return next(found, None)


def _closed(gate: Gate, source: Source) -> Change:
    place = f"{gate.file} line {gate.line}"
    applied = source.note.applied(source.sha256) if source.note else ()
    back, said = source, ""
    undone = _undone(source.note, source.data, source.text, source.encoding) if applied and source.note else None
    if undone is not None:
        back = _source_with(source, *undone)
        others = sorted({edit.backend for edit in applied} - {gate.backend})
        said = f"; it was open for {', '.join(others)} too" if others else ""
    foreign = [name for name in back.collection.names if _enabled_by(back, name) == FOREIGN]
    for name in foreign:
        original = _original_without(back, name)
        if original is not None:
            back, foreign = _source_with(back, _decoded(original)[0], original), []
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
    original = source.original_sha256 in (None, back.sha256)
    whole = "the original bytes are back" if original else "the bytes from before it was opened are back"
    message = f"closed the gate in {gate.file}: {whole}{said}"
    return Change(message, after, back.data, Note(back.sha256, ()))


def _source_with(source: Source, text: str, data: bytes) -> Source:
    """The file with other bytes, which no note describes."""
    definition = _definition_in(source, text) or source.definition
    collection = definition.collection or source.collection
    return replace(source, data=data, text=text, definition=definition, collection=collection, note=None)


def _edit_between(before: str, after: str, backend: str, sha256: str) -> Edit:
    """The one stretch in which two texts differ."""
    start = _common(before, after)
    tail = _common(before[:start:-1], after[:start:-1])
    return Edit(backend, start, before[start : len(before) - tail], after[start : len(after) - tail], sha256)


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    shorter = min(len(one), len(other))
    return next((at for at in range(shorter) if one[at] != other[at]), shorter)


# --- doing -----------------------------------------------------------------------------------------------------------


def apply(source: Source, change: Change) -> None:
    """Write what was planned. Raises GateError; the file then has its old bytes."""
    real = os.path.realpath(source.path)
    if change.data is None or change.note is None:
        # Nothing is to be done, so that it cannot be done is no failure.
        with contextlib.suppress(OSError):
            _tidy(real, source)
        return
    try:
        with _exclusive(os.path.dirname(real)):
            _sweep(real)
            if _bytes_of(real) != source.data:
                raise GateError(
                    f"writing {source.path}: it was changed by somebody else after it was read; nothing was written, "
                    "run again"
                )
            # The way back is on the disk before the edit is, so a stop in between loses nothing.
            with _note_first(source, change.note):
                _clear_bytecode(source.path)
                write_atomic(real, change.data)
            # A server that starts meanwhile may have compiled the old text again.
            _clear_bytecode(source.path)
            if not change.note.edits:
                _remove(_note_path(real))
    except OSError as error:
        hints = {
            errno.EROFS: "the file system is read-only: edit the environment while it is built, or remount it",
            errno.ENOSPC: "free disk space there and run again",
            errno.EACCES: "run as the user who owns it",
            errno.EPERM: "run as the user who owns it",
        }
        raise GateError(
            f"writing {error.filename or source.path}: {error.strerror}; "
            f"{hints.get(error.errno or 0, 'look at it and run again')}",
            file=source.path,
        ) from error


@contextlib.contextmanager
def _exclusive(folder: str) -> Iterator[None]:
    """One writer at a time. The directory itself is locked, so no lock file is left in a package."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Some network file systems cannot lock a directory; the comparison before the rename guards there.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _note_first(source: Source, note: Note) -> Iterator[None]:
    """Have the note on the disk; the one from before comes back when the file could not be written."""
    path = _note_path(source.path)
    before = _bytes_of(path) if os.path.isfile(path) else None
    if note.edits:
        _write_note(source, note)
    try:
        yield
    except OSError:
        with contextlib.suppress(OSError):
            if before is None:
                _remove(path)
            else:
                write_atomic(path, before)
        raise


def _tidy(path: str, source: Source) -> None:
    """Remove what a stopped run left beside a file that stays as it is. Raises OSError."""
    folder, name = os.path.split(path)
    note = _read_note(path)
    needless = note is not None and note.original_sha256 == source.sha256
    if not needless and not glob.glob(os.path.join(glob.escape(folder), f".*{glob.escape(name)}*.tmp")):
        return
    with _exclusive(folder):
        _sweep(path)
        # Another run may have opened the gate meanwhile.
        if needless and _bytes_of(path) == source.data:
            _remove(_note_path(path))


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _sweep(path: str) -> None:
    """Remove what a stopped write left beside the file."""
    folder, name = os.path.split(path)
    for stem in (name, os.path.basename(_note_path(path))):
        for left in glob.glob(os.path.join(glob.escape(folder), f".{glob.escape(stem)}.*.tmp")):
            _remove(left)


def _clear_bytecode(path: str) -> None:
    stem = os.path.splitext(os.path.basename(path))[0]
    for folder in (os.path.dirname(path), os.path.dirname(os.path.realpath(path))):
        for compiled in glob.glob(os.path.join(glob.escape(folder), "__pycache__", f"{glob.escape(stem)}.*.pyc")):
            _remove(compiled)


def _note_path(path: str) -> str:
    folder, name = os.path.split(os.path.realpath(path))
    return os.path.join(folder, f".{name}.tokforge-gate.json")


def _write_note(source: Source, note: Note) -> None:
    data = {
        "schema_version": _NOTE_SCHEMA,
        "sglang_version": source.tree.version,
        "original_sha256": note.original_sha256,
        "edits": [asdict(edit) for edit in note.edits],
    }
    write_atomic(_note_path(source.path), json.dumps(data, indent=1).encode() + b"\n", 0o644)


def _read_note(path: str) -> Note | None:
    """The note beside a file, or None when there is none that can be used."""
    try:
        with open(_note_path(path), encoding="utf-8") as stream:
            data = json.load(stream)
        if data["schema_version"] != _NOTE_SCHEMA:
            return None
        edits = tuple(Edit(**one) for one in data["edits"])
        whole = all(
            isinstance(edit.start, int) and all(isinstance(one, str) for one in (edit.backend, edit.was, edit.now))
            for edit in edits
        )
        return Note(data["original_sha256"], edits) if whole else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def original_bytes(path: str) -> bytes | None:
    """What a file was before this module opened its gate, or None when this module did not change it."""
    try:
        data = _bytes_of(path)
        note = _read_note(path)
        text, encoding = _decoded(data)
        if note is None or not note.applied(_sha256(data)):
            return None
        back = _undone(note, data, text, encoding)
        return back[1] if back else None
    except (OSError, SyntaxError, UnicodeError, LookupError):
        return None


def _undone(note: Note, data: bytes, text: str, encoding: str) -> tuple[str, bytes] | None:
    """Text and bytes without the note's edits, or None when they do not lead to the original it names.

    A note that does not describe the file has no edits in it, and leads to the file as it is.
    """
    applied = note.applied(_sha256(data))
    for edit in reversed(applied):
        text = text[: edit.start] + edit.was + text[edit.start + len(edit.now) :]
    try:
        before = _encoded(text, encoding, data)
    except UnicodeError:
        return None
    return (text, before) if not applied or _sha256(before) == note.original_sha256 else None


def _bytes_of(path: str) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()


def _decoded(data: bytes) -> tuple[str, str]:
    """A Python file's text and encoding (PEP 263), line ends as they are."""
    # Python ends a line at a lone CR too, before it looks for a cookie in the first two.
    lines = io.BytesIO(data.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
    encoding, _lines = tokenize.detect_encoding(lines.readline)
    body = data[len(codecs.BOM_UTF8) :] if encoding == "utf-8-sig" else data
    return body.decode("utf-8" if encoding == "utf-8-sig" else encoding), encoding


def _encoded(text: str, encoding: str, like: bytes) -> bytes:
    if encoding == "utf-8-sig":
        return (codecs.BOM_UTF8 if like.startswith(codecs.BOM_UTF8) else b"") + text.encode()
    return text.encode(encoding)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
