# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finding the one definition of the gate function in an SGLang, read by its own interpreter where that is needed."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import gate_meaning, gate_syntax, sglang_tree, source_text
from ansible_collections.tokforge.sglang.plugins.module_utils.gate_syntax import DELEGATE, GATE, Definition
from ansible_collections.tokforge.sglang.plugins.module_utils.sglang_tree import Tree

_WORD = "flashinfer_autotune"
_HOPS = 5


class UnclearError(Exception):
    """No structure that is known; the text says what was found."""

    def __init__(self, message: str, path: str | None = None, line: int | None = None) -> None:
        super().__init__(message)
        self.path, self.line = path, line


Found = tuple[str, bytes, str, str, Definition]
#: By the real path and the line, so that a file with two names counts once: path and definition.
_Definitions = dict[tuple[str, int], tuple[str, Definition]]


class Search:
    """Finds the one real definition of the gate function below srt/model_executor."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.read: dict[str, tuple[bytes, str, str]] = {}

    def definition(self) -> Found | None:
        """The one definition, or None when the release has no autotune. Raises UnclearError."""
        if not os.path.isdir(self.tree.executor):
            raise UnclearError(f"there is no {self.tree.short(self.tree.executor)}, so this is no whole SGLang")
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
                    raise UnclearError(f"{self.tree.short(path)} line {one.line}: {one.name} {what}", path, one.line)
                for key, reached in target.items():
                    real.setdefault(key, reached)
        if len(real) > 1:
            where = sorted((path, one.line) for path, one in real.values())
            places = ", ".join(f"{self.tree.short(path)} line {line}" for path, line in where)
            raise UnclearError(f"{len(real)} definitions of the gate were found: {places}", *where[0])
        for path, definition in real.values():
            return (path, *self.read[path], self.private(path, definition))
        for path, one in found:
            raise UnclearError(f"{self.tree.short(path)} line {one.line}: {one.name} does nothing", path, one.line)
        self.no_other_autotune()
        return None

    def private(self, path: str, definition: Definition) -> Definition:
        """The definition, without its collection when that is a constant which other files use too."""
        name = definition.constant
        if not definition.collection or not name:
            return definition
        for other in sglang_tree.python_files(os.path.dirname(self.tree.srt)):
            data = source_text.read(other)
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
        """Lines of a file that `mentions` or `brings` of gate_syntax finds. Raises UnclearError."""
        text = self.decoded(path, data)[0]
        try:
            return list(getattr(gate_syntax, function)(text, word))
        except gate_syntax.UnreadableError as error:
            return list(_asked(self.tree, path, error, function, {"text": text, "word": word}))

    def named(self, folder: str) -> Iterator[tuple[str, Definition]]:
        for path in sglang_tree.python_files(folder):
            data = source_text.read(path)
            if any(name.encode() in data for name in gate_syntax.GATE_NAMES):
                yield from ((path, one) for one in self.scan(path, data, gate_syntax.GATE_NAMES))

    def scan(self, path: str, data: bytes, names: tuple[str, ...]) -> list[Definition]:
        text, encoding = self.decoded(path, data)
        self.read[path] = (data, text, encoding)
        return parsed(self.tree, path, text, names)

    def decoded(self, path: str, data: bytes) -> tuple[str, str]:
        try:
            text, encoding = source_text.decoded(data)
            exact = source_text.encoded(text, encoding, data) == data
        except (SyntaxError, UnicodeError, LookupError) as error:
            raise UnclearError(f"{self.tree.short(path)} is not text: {error}", path) from error
        if not exact:
            raise UnclearError(f"{self.tree.short(path)} is not the only way to write its text in {encoding}", path)
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
        data = source_text.read(target)
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
        """Hold that the release has no autotune, and did not merely move it. Raises UnclearError."""
        if not os.path.isfile(os.path.join(self.tree.executor, "model_runner.py")):
            raise UnclearError(
                f"{self.tree.short(self.tree.executor)} holds no model_runner.py, so this is no whole SGLang"
            )
        for path in sglang_tree.python_files(self.tree.srt):
            data = source_text.read(path)
            if _WORD.encode() not in data:
                continue
            lines = self.identifiers(path, data, "mentions", _WORD)
            if lines:
                raise UnclearError(
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
    """What the release's own interpreter finds in a file that this one cannot read. Raises UnclearError."""
    ours = ".".join(map(str, sys.version_info[:2]))
    if tree.python is None:
        raise UnclearError(
            f"{_place(tree, path, error.line)} is no Python {ours}: {error}; if it is fine for a newer one, give "
            "python, the interpreter of this SGLang",
            path,
            error.line or None,
        )
    answer = _elsewhere(tree, gate_syntax, function, asked)
    if "error" in answer:
        raise UnclearError(
            f"{_place(tree, path, answer['line'])} is no Python {tree.python_version}: {answer['error']}",
            path,
            answer["line"] or None,
        )
    return list(answer["found"])


def _place(tree: Tree, path: str, line: int) -> str:
    return tree.short(path) + (f" line {line}" if line else "")


def same_but_for(tree: Tree, before: str, after: str, value: str, start: int) -> bool:
    """Whether two texts are the same program but for one `value` more in the collection at `start`."""
    asked: dict[str, Any] = {"before": before, "after": after, "value": value, "start": start}
    try:
        return gate_syntax.differs_only_by(**asked)
    except gate_syntax.UnreadableError:
        return tree.python is not None and _elsewhere(tree, gate_syntax, "differs_only_by", asked).get("found") is True


def meaning(tree: Tree, text: str, definition: Definition, backend: str) -> str:
    """Why naming the backend in the collection would not decide that it is tuned; see `gate_meaning.judge`."""
    collection = definition.collection
    if collection is None:
        return definition.problem
    before = re.split(r"\r\n|\r|\n", text[: collection.start])[-1]
    asked: dict[str, Any] = {
        "text": text,
        "name": definition.name,
        "line": definition.line,
        "start": [collection.line, len(before.encode())],
        "backend": backend,
    }
    try:
        return gate_meaning.judge(**asked)
    except SyntaxError:
        return str(_elsewhere(tree, gate_meaning, "judge", asked).get("found"))


_ELSEWHERE = """
import json, sys
asked = json.load(sys.stdin)
module = sys.modules["asked_module"] = type(sys)("asked_module")
exec(compile(asked["module"], "asked_module", "exec", dont_inherit=True), module.__dict__)
try:
    found = getattr(module, asked["function"])(*asked["arguments"])
    answer = {"found": module.as_json(found) if asked["function"] == "scan" else found}
except getattr(module, "UnreadableError", SyntaxError) as error:
    answer = {"error": str(error), "line": getattr(error, "line", 0)}
print()
print(json.dumps(answer))
"""


def _elsewhere(tree: Tree, module: Any, function: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Run a function of a module that stands alone in the release's own interpreter."""
    source = module.__spec__.loader.get_source(module.__name__)
    request = {"module": source, "function": function, "arguments": list(asked.values())}
    printed = sglang_tree.run_in(str(tree.python), _ELSEWHERE, json.dumps(request))
    return sglang_tree.answer_of(str(tree.python), printed, "found", "error")
