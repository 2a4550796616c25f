# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What SGLang's source says about its autotune gate: text in, plain data out.

The gate is a function that decides at start-up whether FlashInfer profiles its MoE kernels, by testing the MoE runner
backend against a collection of names (read from the wheels 0.5.6 to 0.5.23). It is read from the syntax tree, because
the name that people look for already stands in a comment inside the collection.

Imports only the standard library and nothing of this collection: its source is also handed to the release's own
interpreter, when the one that Ansible uses is too old for the file's grammar.
"""

from __future__ import annotations

import ast
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Union

GATE_NAMES = ("_should_run_flashinfer_autotune", "should_run_flashinfer_autotune")

# What a definition is. A stub only names the function, a delegate only calls another one.
GATE, DELEGATE, STUB = "gate", "delegate", "stub"

_MOE = "moe_runner_backend"
_ATTENTION = "attention_backend"
_FunctionNode = Union[ast.FunctionDef, ast.AsyncFunctionDef]
_WRAPPERS = ("frozenset", "set", "tuple", "list")
_COMMENTED = re.compile(r"""#+[ \t]*(['"])(?P<value>[^'"\\]*)\1[ \t]*(?P<comma>,?)[ \t]*(?P<rest>#.*)?""")


class UnreadableError(Exception):
    """The text is no Python for this interpreter; `line` is where it stopped, 0 when that is not known."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Element:
    """One name in the collection. `start` and `end` are offsets of its literal in the text, in characters."""

    value: str
    line: int
    start: int
    end: int


@dataclass(frozen=True)
class Comment:
    """A comment on a line of its own that holds nothing but one name. Offsets as in Element, without the line's end."""

    value: str
    line: int
    start: int
    end: int


@dataclass(frozen=True)
class Collection:
    """The literal that the gate tests against. `start` and `end` are its offsets, brackets included.

    `bracketed` is false for a tuple that is written without parentheses.
    """

    form: str
    line: int
    start: int
    end: int
    bracketed: bool
    elements: tuple[Element, ...]
    commented: tuple[Comment, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names in it, in the order of the file."""
        return tuple(element.value for element in self.elements)


@dataclass(frozen=True)
class Definition:
    """One definition of the gate function.

    `subject` is what it tests: moe, attention, or empty when that cannot be said. `collection` is None when `problem`
    says what stands there instead.
    `target` is what a delegate calls: the module it comes from (empty for the same file) and the function's name.
    `constant` is the name of a constant of the file or the class that holds the collection, empty for any other.
    """

    name: str
    line: int
    kind: str
    subject: str = ""
    test_line: int = 0
    collection: Collection | None = None
    problem: str = ""
    target: tuple[str, str] = ("", "")
    constant: str = ""


def scan(text: str, names: tuple[str, ...] = GATE_NAMES) -> list[Definition]:
    """Every definition of a function with one of `names`, in the order of the file. Raises UnreadableError."""
    tree, source = _parse(text), _Source(text)
    found = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    try:
        return [
            _definition(node, tree, source)
            for node in sorted(found, key=lambda one: (one.lineno, one.col_offset))
            if node.name in names
        ]
    except RecursionError as error:
        raise UnreadableError("it is nested too deeply", 0) from error


def mentions(text: str, word: str) -> list[int]:
    """Lines on which an identifier holds `word`; comments and texts do not count. Raises UnreadableError."""
    lines = set()
    for node in ast.walk(_parse(text)):
        spelled = [getattr(node, name, None) for name in ("id", "attr", "name", "arg", "module")]
        # A name in an import statement knows its line from Python 3.10 on only.
        for one in getattr(node, "names", []):
            spelled += [one.name, one.asname] if isinstance(one, ast.alias) else [one]
        if hasattr(node, "lineno") and any(isinstance(one, str) and word in one for one in spelled):
            lines.add(node.lineno)
    return sorted(lines)


def brings(text: str, name: str) -> list[int]:
    """Lines on which `name` of another file is imported, or looked up in something. Raises UnreadableError."""
    lines = set()
    for node in ast.walk(_parse(text)):
        imported = isinstance(node, ast.ImportFrom) and any(one.name == name for one in node.names)
        if imported or (isinstance(node, ast.Attribute) and node.attr == name):
            lines.add(getattr(node, "lineno", 0))
    return sorted(lines)


def differs_only_by(before: str, after: str, value: str, start: int) -> bool:
    """Whether two texts are the same program but for one `value` more in the collection at `start` of both."""
    old, new, source = _parse(before), _parse(after), _Source(after)
    removed = 0
    for node in ast.walk(new):
        elements = getattr(node, "elts", None)
        if isinstance(elements, list) and source.offset_of(node) == start and not removed:
            kept = [one for one in elements if not (isinstance(one, ast.Constant) and one.value == value)]
            removed = len(elements) - len(kept)
            node.elts = kept  # type: ignore[attr-defined]
    return removed == 1 and _same(old, new)


def _same(one: Any, other: Any) -> bool:
    """Whether two syntax trees are equal but for positions, however deep they are."""
    pairs = [(one, other)]
    while pairs:
        left, right = pairs.pop()
        if type(left) is not type(right):
            return False
        if isinstance(left, ast.AST):
            pairs += [(getattr(left, name, None), getattr(right, name, None)) for name in left._fields]
        elif isinstance(left, list):
            if len(left) != len(right):
                return False
            pairs += zip(left, right)
        elif repr(left) != repr(right):
            return False
    return True


def as_json(definitions: list[Definition]) -> list[dict[str, Any]]:
    """The definitions as plain data, to bring them from another interpreter."""
    return [asdict(definition) for definition in definitions]


def from_json(data: list[dict[str, Any]]) -> list[Definition]:
    """The inverse of `as_json`."""
    return [_rebuilt(one) for one in data]


def _rebuilt(data: dict[str, Any]) -> Definition:
    found = data["collection"]
    collection = found and Collection(
        **{
            **found,
            "elements": tuple(Element(**one) for one in found["elements"]),
            "commented": tuple(Comment(**one) for one in found["commented"]),
        }
    )
    return Definition(**{**data, "collection": collection, "target": tuple(data["target"])})


def _parse(text: str) -> ast.Module:
    try:
        # What the compiler thinks of the file's style is nobody's concern here, and may be set to be an error.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        raise UnreadableError(str(error.msg), error.lineno or 0) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise UnreadableError(str(error) or type(error).__name__, 0) from error


class _Source:
    """The text by lines, as Python's own reader counts them: only CR, LF and CRLF end one."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0] + [match.end() for match in re.finditer(r"\r\n|\r|\n", text)]

    def offset(self, line: int, utf8_column: int) -> int:
        start = self.starts[line - 1]
        end = self.starts[line] if line < len(self.starts) else len(self.text)
        return start + len(self.text[start:end].encode()[:utf8_column].decode(errors="ignore"))

    def offset_of(self, node: Any) -> int:
        return self.offset(node.lineno, node.col_offset)

    def end_of(self, node: Any) -> int:
        return self.offset(node.end_lineno, node.end_col_offset)

    def line_at(self, offset: int) -> int:
        return bisect_right(self.starts, offset)


def _definition(node: _FunctionNode, tree: ast.Module, source: _Source) -> Definition:
    body = node.body[1:] if _is_docstring(node.body[0]) else node.body
    if _is_overload(node) or all(_says_nothing(statement) for statement in body):
        return Definition(node.name, node.lineno, STUB)
    target = _delegates_to(body, tree)
    if target is not None:
        return Definition(node.name, node.lineno, DELEGATE, target=target)
    return _Gate(node, tree, source).definition()


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(getattr(statement.value, "value", None), str)


def _says_nothing(statement: ast.stmt) -> bool:
    ellipsis = isinstance(statement, ast.Expr) and getattr(statement.value, "value", None) is Ellipsis
    return ellipsis or isinstance(statement, (ast.Pass, ast.Raise))


def _is_overload(node: _FunctionNode) -> bool:
    return any(getattr(one, "id", getattr(one, "attr", "")) == "overload" for one in node.decorator_list)


def _delegates_to(body: list[ast.stmt], tree: ast.Module) -> tuple[str, str] | None:
    """The module and the name of what the body calls, when it does nothing else; the module is empty in this file."""
    imports = [statement for statement in body if isinstance(statement, (ast.Import, ast.ImportFrom))]
    rest = [statement for statement in body if not isinstance(statement, (ast.Import, ast.ImportFrom))]
    value = _bare(rest[0].value) if len(rest) == 1 and isinstance(rest[0], ast.Return) else None
    if not isinstance(value, ast.Call) or any(_is_membership(one) for one in ast.walk(value)):
        return None
    called = value.func
    known: dict[str, tuple[str, str]] = {}
    for statement in [*(one for one in tree.body if isinstance(one, (ast.Import, ast.ImportFrom))), *imports]:
        known.update(_imported(statement))
    if isinstance(called, ast.Name):
        return known.get(called.id, ("", called.id))
    holder = _dotted(called.value) if isinstance(called, ast.Attribute) else ""
    if not holder or ("." in holder and holder not in known):
        return None
    module, name = known.get(holder, ("", ""))
    # "." is this package, and a name in it needs no further dot.
    joined = f"{module}{'' if module.endswith('.') else '.'}{name}" if name else module
    return joined, called.attr  # type: ignore[attr-defined]


def _bare(value: ast.expr | None) -> ast.expr | None:
    """A value without `await` and `bool()` around it."""
    while True:
        if isinstance(value, ast.Await):
            value = value.value
        elif isinstance(value, ast.Call) and getattr(value.func, "id", "") == "bool" and len(value.args) == 1:
            value = value.args[0]
        else:
            return value


def _dotted(value: ast.expr) -> str:
    """A name with dots as it is written, empty for anything else."""
    if isinstance(value, ast.Attribute):
        holder = _dotted(value.value)
        return holder and f"{holder}.{value.attr}"
    return value.id if isinstance(value, ast.Name) else ""


def _imported(statement: ast.Import | ast.ImportFrom) -> dict[str, tuple[str, str]]:
    """Local name -> module and name there; the name is empty when the module itself was imported."""
    if isinstance(statement, ast.Import):
        return {one.asname or one.name: (one.name, "") for one in statement.names}
    module = "." * statement.level + (statement.module or "")
    return {one.asname or one.name: (module, one.name) for one in statement.names}


def _is_membership(node: ast.AST) -> bool:
    return isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.In, ast.NotIn))


class _Gate:
    """Reads one gate function: which membership test decides, what it tests against, and which way round."""

    def __init__(self, node: _FunctionNode, tree: ast.Module, source: _Source) -> None:
        self.node, self.tree, self.source = node, tree, source
        self.parents = {child: parent for parent in ast.walk(node) for child in ast.iter_child_nodes(parent)}
        self.assigned: dict[str, list[ast.expr]] = {}
        for name, value in _assignments(node):
            self.assigned.setdefault(name, []).append(value)

    def definition(self) -> Definition:
        """What the function is, with the collection or the reason why there is none that can be edited."""
        tests: list[Any] = [one for one in ast.walk(self.node) if _is_membership(one)]
        moe = [one for one in tests if _MOE in self._subject(one.left)]
        if not moe:
            other = [one for one in tests if _ATTENTION in self._subject(one.left)]
            if other:
                return Definition(
                    self.node.name, self.node.lineno, GATE, "attention", other[0].lineno, problem=self._text(other[0])
                )
            return self._unknown(self.node.lineno, "it tests no MoE runner backend against a collection of names")
        ways = [(self._effect(one), one) for one in moe]
        opening = [one for way, one in ways if way == 1]
        unclear = [one for way, one in ways if way == 0]
        if unclear:
            return self._unknown(unclear[0].lineno, f"what {self._text(unclear[0])} leads to is not clear")
        if not opening:
            return self._unknown(moe[0].lineno, f"{self._text(moe[0])} names the backends that are not tuned")
        literals = {self._literal(one.comparators[0])[0] for one in opening}
        if len(literals) > 1 or (len(opening) > 1 and None in literals):
            lines = ", ".join(str(one.lineno) for one in opening)
            return self._unknown(opening[0].lineno, f"it tests the MoE runner backend {len(opening)} times ({lines})")
        literal, problem = self._literal(opening[0].comparators[0])
        collection = None
        if literal is not None:
            collection, problem = self._collection(literal)
        if collection is None:
            return self._unknown(opening[0].lineno, problem)
        constant = self._constant_name(opening[0].comparators[0])
        return Definition(
            self.node.name,
            self.node.lineno,
            GATE,
            "moe",
            opening[0].lineno,
            collection,
            constant=constant,
        )

    def _unknown(self, line: int, problem: str) -> Definition:
        return Definition(self.node.name, self.node.lineno, GATE, "", line, problem=problem)

    def _text(self, node: ast.expr) -> str:
        text = " ".join(self.source.text[self.source.offset_of(node) : self.source.end_of(node)].split())
        return text if len(text) < 80 else text[:76] + " ..."

    # --- what is tested --------------------------------------------------------------------------------------------

    def _subject(self, value: ast.expr) -> str:
        """All identifiers that a value comes from, through local names, as one text."""
        found, seen = [], set()
        waiting = [value]
        while waiting:
            for node in ast.walk(waiting.pop()):
                if isinstance(node, ast.Attribute):
                    found.append(node.attr)
                elif isinstance(node, ast.Constant) and isinstance(self.parents.get(node), (ast.Call, ast.Subscript)):
                    found.append(str(node.value))  # getattr(args, "moe_runner_backend"), args["moe_runner_backend"]
                elif isinstance(node, ast.Name) and node.id not in seen:
                    seen.add(node.id)
                    found.append(node.id)
                    waiting += self.assigned.get(node.id, [])
        return " ".join(found)

    # --- which way round -------------------------------------------------------------------------------------------

    def _effect(self, test: Any) -> int:
        """1 when membership leads to autotune, -1 when it leads away from it, 0 when that cannot be said."""
        sign = -1 if isinstance(test.ops[0], ast.NotIn) else 1
        effects = set(self._uses(test, sign, frozenset()))
        return effects.pop() if len(effects) == 1 else 0

    def _uses(self, node: ast.AST, sign: int, names: frozenset[str]) -> Iterator[int]:
        parent = self.parents.get(node)
        if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not):
            yield from self._uses(parent, -sign, names)
        elif isinstance(parent, ast.BoolOp) or (
            isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id == "bool"
        ):
            yield from self._uses(parent, sign, names)
        elif isinstance(parent, ast.NamedExpr):
            yield from self._name_uses(parent.target.id, sign, names)
            yield from self._uses(parent, sign, names)
        elif isinstance(parent, ast.Return):
            yield sign
        elif isinstance(parent, ast.IfExp):
            yield from self._choice(parent, node, sign, names)
        elif isinstance(parent, ast.If) and node is parent.test:
            yield from self._branch(parent.body, sign, names)
            yield from self._branch(parent.orelse, -sign, names)
        elif isinstance(parent, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    yield from self._name_uses(target.id, sign, names)
                else:
                    yield 0
        elif not isinstance(parent, ast.Expr):
            yield 0

    def _name_uses(self, name: str, sign: int, names: frozenset[str]) -> Iterator[int]:
        if name in names:
            return
        for node in ast.walk(self.node):
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
                yield from self._uses(node, sign, names | {name})

    def _choice(self, choice: ast.IfExp, node: ast.AST, sign: int, names: frozenset[str]) -> Iterator[int]:
        if node is not choice.test:
            yield from self._uses(choice, sign, names)
            return
        yes, no = (getattr(one, "value", None) for one in (choice.body, choice.orelse))
        if yes is False or no is True:
            sign = -sign
        elif not (yes is True or no is False):
            sign = 0
        yield from self._uses(choice, sign, names)

    def _branch(self, body: list[ast.stmt], sign: int, names: frozenset[str]) -> Iterator[int]:
        for statement in body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Return):
                    value = getattr(node.value, "value", None) if isinstance(node.value, ast.Constant) else node.value
                    if value in (False, None):
                        yield -sign
                    elif value is True or sign == 1:
                        yield sign
                elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                    said = node.value.value
                    for target in node.targets:
                        if isinstance(said, bool) and isinstance(target, ast.Name):
                            yield from self._name_uses(target.id, sign if said else -sign, names)

    # --- what it is tested against ---------------------------------------------------------------------------------

    def _literal(self, value: ast.expr) -> tuple[ast.expr | None, str]:
        """The literal behind `value`, or None and what stands there instead."""
        if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
            return value, ""
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in _WRAPPERS:
            if (
                len(value.args) == 1
                and not value.keywords
                and isinstance(value.args[0], (ast.List, ast.Tuple, ast.Set))
            ):
                return value.args[0], ""
            return None, f"the collection {self._text(value)} is not written out"
        if isinstance(value, ast.Name):
            return self._constant(value.id, value)
        if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
            return self._constant(value.attr, value)
        return None, f"the collection {self._text(value)} is not a list, tuple or set of names"

    def _constant_name(self, value: ast.expr) -> str:
        """The name of a constant of the class or the file, which other files can use too."""
        if isinstance(value, ast.Name):
            return "" if self._is_local(value.id) else value.id
        return value.attr if isinstance(value, ast.Attribute) else ""

    def _is_local(self, name: str) -> bool:
        """Whether the function itself says what a name is, also as an argument, by a loop or by an import."""
        for node in ast.walk(self.node):
            stored = isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)
            given = isinstance(node, ast.arg) and node.arg == name
            brought = isinstance(node, ast.alias) and (node.asname or node.name) == name
            if stored or given or brought:
                return True
        return False

    def _constant(self, name: str, used: ast.expr) -> tuple[ast.expr | None, str]:
        """The literal of a constant: of the function, of its class or of the file."""
        scope: ast.AST = self.tree
        if isinstance(used, ast.Name):
            local = self._is_local(name)
            scope = self.node if local else self.tree
            found = [one for known, one in _assignments(scope) if known == name]
        else:
            classes = [one for one in ast.walk(self.tree) if isinstance(one, ast.ClassDef) and self.node in one.body]
            owner = used.value.id if isinstance(used, ast.Attribute) and isinstance(used.value, ast.Name) else ""
            arguments = [*self.node.args.posonlyargs, *self.node.args.args]
            own = {one.name for one in classes} | {one.arg for one in arguments[:1]}
            found = [one for holder in classes for known, one in _assignments(holder) if known == name and owner in own]
        if len(found) != 1:
            many = "is not defined in this file" if not found else f"is assigned {len(found)} times"
            return None, f"the collection {name} {many}"
        # Also finds what changes it after it was made: NAME.append(...) loads the name, a subclass has its own.
        others = [
            getattr(node, "lineno", 0)
            for node in ast.walk(scope)
            if name in (getattr(node, "id", None), getattr(node, "attr", None))
            if node is not used and not self._is_assigned(node, found[0], scope)
        ]
        if others:
            lines = ", ".join(map(str, sorted(set(others))))
            return None, f"the collection {name} is used elsewhere too (line {lines}), so an edit would change more"
        if isinstance(found[0], (ast.Name, ast.Attribute)):
            return None, f"the collection {name} is another name for {self._text(found[0])}"
        return self._literal(found[0])

    def _is_assigned(self, target: ast.AST, value: ast.expr, scope: ast.AST) -> bool:
        """Whether `target` is where `value` gets its name, and its only one."""
        for node in ast.walk(scope):
            if isinstance(node, ast.Assign) and node.value is value:
                return len(node.targets) == 1 and node.targets[0] is target
            if isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is value:
                return node.target is target
        return False

    def _collection(self, literal: ast.expr) -> tuple[Collection | None, str]:
        source, elements = self.source, []
        for one in literal.elts:  # type: ignore[attr-defined]
            if not (isinstance(one, ast.Constant) and isinstance(one.value, str)):
                return None, f"the collection holds {self._text(one)}, which is not a plain name"
            elements.append(Element(one.value, one.lineno, source.offset_of(one), source.end_of(one)))
        start, end = source.offset_of(literal), source.end_of(literal)
        bracketed = not isinstance(literal, ast.Tuple) or self._is_bracketed(start, end, elements)
        form = type(literal).__name__.lower()
        commented = tuple(self._commented(start, end, elements)) if bracketed else ()
        line = literal.lineno
        return Collection(form, line, start, end, bracketed, tuple(elements), commented), ""

    def _is_bracketed(self, start: int, end: int, elements: list[Element]) -> bool:
        """Whether a tuple has parentheses of its own, and not only its first element has."""
        if not elements:
            return True
        gap = self.source.text[elements[0].end : elements[1].start if len(elements) > 1 else end]
        closed = re.sub(r"#[^\r\n]*", "", gap).split(",")[0].count(")")
        return re.sub(r"#[^\r\n]*", "", self.source.text[start : elements[0].start]).count("(") > closed

    def _commented(self, start: int, end: int, elements: list[Element]) -> Iterator[Comment]:
        """Comments between the elements that hold one name. What lies between is commas, blanks and comments only."""
        text = self.source.text
        edges = [start + 1, *(edge for one in elements for edge in (one.start, one.end)), end - 1]
        depth = 0
        for gap_start, gap_end in zip(edges[::2], edges[1::2]):
            for match in re.finditer(r"#[^\r\n]*|[()]", text[gap_start:gap_end]):
                if match.group() in "()":
                    depth += 1 if match.group() == "(" else -1
                    continue
                at = gap_start + match.start()
                line = self.source.line_at(at)
                said = _COMMENTED.fullmatch(match.group().rstrip())
                # In the parentheses of an element it would become a part of that element.
                if said and not depth and not text[self.source.starts[line - 1] : at].strip():
                    yield Comment(said["value"], line, at, gap_start + match.end())


def _assignments(scope: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Every name that is assigned in a scope, with the value; scopes inside it are not entered."""
    stack = list(ast.iter_child_nodes(scope))
    while stack:
        node = stack.pop(0)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            value = node.value
            if isinstance(node.target, ast.Name) and value is not None:
                yield node.target.id, value
        stack += ast.iter_child_nodes(node)
