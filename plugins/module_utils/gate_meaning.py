# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether naming a backend in the gate's collection really decides that it is tuned.

The function is followed statement by statement with the backend known and everything else undecided. It is never run:
its imports would start CUDA. What is undecided (a device, a flag, a call) is a coin that falls the same way in every
run of one scenario; in enough scenarios a condition that shuts a backend out, or lets it in by another way than the
collection, shows itself.

Imports only the standard library and nothing of this collection: its source is also handed to the release's own
interpreter, when the one that Ansible uses is too old for the file's grammar.
"""

from __future__ import annotations

import ast
import operator
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_SUBJECT = ("moe_runner_backend", "get_moe_runner_backend")
#: A name that no release can know.
_NOBODY = "tokforge_nobody"
#: How often a coin falls true, and in how many scenarios each. Guards at the start of a gate mostly return, so that
#: fair coins alone would seldom reach its end.
_ODDS = {0.0: 1, 1.0: 1, 0.1: 40, 0.5: 80, 0.9: 30}
_MOST_ROUNDS = 50
_CALLS: Mapping[str, Any] = {
    "frozenset": frozenset,
    "set": frozenset,
    "tuple": tuple,
    "list": tuple,
    "bool": bool,
    "str": str,
}
_TEXT_METHODS = (
    "startswith",
    "endswith",
    "lower",
    "upper",
    "casefold",
    "strip",
    "lstrip",
    "rstrip",
    "replace",
    "split",
)
_COMPARISONS: Mapping[Any, Any] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    # Names are the same object in the server and need not be here.
    ast.Is: operator.eq,
    ast.IsNot: operator.ne,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}
_OPERATIONS: Mapping[Any, Any] = {
    ast.Add: operator.add,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.Sub: operator.sub,
}


class UnclearError(Exception):
    """The function does something with the backend that is not followed; `line` is where."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line} does something with the backend that is not followed")
        self.line = line


@dataclass(frozen=True)
class _Value:
    """A value: known, or a coin (its `key` is the place that made it). `ours` says that it depends on the backend."""

    known: bool
    value: Any = None
    key: int = 0
    ours: bool = False


class _ReturnError(Exception):
    def __init__(self, value: _Value) -> None:
        super().__init__()
        self.value = value


class _BreakError(Exception):
    pass


class _ContinueError(Exception):
    pass


def judge(text: str, name: str, line: int, start: Sequence[int], backend: str) -> str:
    """Why naming `backend` in the collection would not decide that it is tuned, or an empty text when it does.

    :param name: of the function, defined on `line`.
    :param start: line and column (in UTF-8 bytes) of the collection's literal.
    """
    with warnings.catch_warnings():
        # What the compiler thinks of the release's style is nobody's business here.
        warnings.simplefilter("ignore")
        tree = ast.parse(text)
    functions = [one for one in ast.walk(tree) if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))]
    function = next(one for one in functions if (one.name, one.lineno) == (name, line))
    again = _assigned_again(tree, name)
    if again:
        return f"{name} is assigned anew on line {again}"
    literal = next(
        one
        for one in ast.walk(tree)
        if isinstance(getattr(one, "elts", None), list) and [one.lineno, one.col_offset] == list(start)  # type: ignore[attr-defined]
    )
    try:
        return _compared(function, tree, literal, backend)
    except UnclearError as error:
        return str(error)
    except RecursionError:
        return "it is nested too deeply to be followed"


def _assigned_again(tree: ast.Module, name: str) -> int:
    for node in ast.walk(tree):
        # Another way to call it is no other function.
        if isinstance(node, ast.Assign) and name not in _called(node.value):
            for target in node.targets:
                if name in _called(target):
                    return node.lineno
    return 0


def _called(node: ast.expr) -> tuple[str, str]:
    return getattr(node, "id", ""), getattr(node, "attr", "")


def _compared(function: Any, tree: ast.Module, literal: ast.AST, backend: str) -> str:
    names = [one.value for one in literal.elts]  # type: ignore[attr-defined]
    without = [one for one in names if one != backend]
    constants = _constants(tree)
    effect = False
    for number, odds in enumerate(odds for odds, count in _ODDS.items() for _time in range(count)):
        outcome = [
            _Run(constants, literal, listed, asked, (number, odds)).tunes(function)
            for asked, listed in ((backend, [*without, backend]), (backend, without), (_NOBODY, without))
        ]
        named, unnamed, nobody = outcome
        if unnamed and not nobody:
            return f"it tunes {backend} by another condition than its collection"
        if unnamed and not named:
            return f"it tunes {backend} where its collection does not name it"
        effect = effect or (named and not unnamed)
    return "" if effect else f"naming {backend} in its collection would not lead to autotune"


class _Run:
    """One scenario, followed for one backend with one content of the collection."""

    def __init__(
        self,
        constants: Mapping[str, list[ast.expr]],
        literal: ast.AST,
        names: Sequence[str],
        backend: str,
        coins: tuple[int, float],
    ) -> None:
        self.constants, self.literal, self.names, self.backend = constants, literal, tuple(names), backend
        self.number, self.odds = coins
        self.env: dict[str, _Value] = {}

    def tunes(self, function: Any) -> bool:
        """Whether the function answers yes. Raises UnclearError."""
        try:
            self.body(function.body)
        except _ReturnError as answer:
            return self.truth(answer.value, function)
        return False

    # --- values ----------------------------------------------------------------------------------------------------

    def coin(self, node: ast.AST, ours: bool = False) -> _Value:
        """An undecided value; the same place is the same coin in every run of the scenario."""
        line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
        return _Value(False, key=line * 100_000 + column, ours=ours)

    def truth(self, value: _Value, node: ast.AST) -> bool:
        if value.known:
            return bool(value.value)
        if value.ours:
            raise UnclearError(getattr(node, "lineno", 0))
        return random.Random(f"{self.number} {value.key}").random() < self.odds  # noqa: S311 (nothing secret)

    def unclear(self, node: ast.AST) -> _Value:
        """What is not followed: undecided, and ours when the backend is anywhere in it."""
        for one in ast.walk(node):
            if isinstance(one, ast.expr) and self.is_subject(one):
                return self.coin(node, True)
            if isinstance(one, ast.Name) and self.env.get(one.id, _Value(True)).ours:
                return self.coin(node, True)
        return self.coin(node)

    def is_subject(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Attribute):
            return node.attr == _SUBJECT[0]
        if isinstance(node, ast.Name):
            return node.id == _SUBJECT[0] and node.id not in self.env
        if isinstance(node, ast.Subscript):
            return getattr(node.slice, "value", None) == _SUBJECT[0]
        if isinstance(node, ast.Call):
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            asked = [getattr(one, "value", None) for one in node.args[1:2]]
            return called in _SUBJECT or (called == "getattr" and asked == [_SUBJECT[0]])
        return False

    def value(self, node: ast.expr) -> _Value:
        if self.is_subject(node):
            return _Value(True, self.backend, ours=True)
        if node is self.literal:
            return _Value(True, self.names)
        handler = getattr(self, f"value_of_{type(node).__name__.lower()}", self.unclear)
        found: _Value = handler(node)
        return found

    def value_of_constant(self, node: ast.Constant) -> _Value:
        return _Value(True, node.value)

    def value_of_name(self, node: ast.Name) -> _Value:
        if node.id in self.env:
            return self.env[node.id]
        return self.constant(node.id, node)

    def constant(self, name: str, node: ast.AST) -> _Value:
        found = self.constants.get(name, [])
        return self.value(found[0]) if len(found) == 1 else self.coin(node)

    def value_of_attribute(self, node: ast.Attribute) -> _Value:
        if isinstance(node.value, ast.Name) and node.value.id not in self.env and node.attr in self.constants:
            return self.constant(node.attr, node)
        base = self.value(node.value)
        # A member of an enumeration of backends: its value is the name.
        if base.known and base.ours and node.attr == "value":
            return base
        return self.coin(node, base.ours)

    def value_of_boolop(self, node: ast.BoolOp) -> _Value:
        found = _Value(True, None)
        for operand in node.values:
            found = self.value(operand)
            if self.truth(found, operand) is isinstance(node.op, ast.Or):
                break
        return found

    def value_of_unaryop(self, node: ast.UnaryOp) -> _Value:
        found = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return _Value(True, not self.truth(found, node), ours=found.ours)
        if isinstance(node.op, ast.USub) and found.known and isinstance(found.value, (int, float)):
            return _Value(True, -found.value, ours=found.ours)
        return self.coin(node, found.ours)

    def value_of_ifexp(self, node: ast.IfExp) -> _Value:
        return self.value(node.body if self.truth(self.value(node.test), node) else node.orelse)

    def value_of_namedexpr(self, node: ast.NamedExpr) -> _Value:
        found = self.value(node.value)
        self.env[node.target.id] = found
        return found

    def value_of_await(self, node: ast.Await) -> _Value:
        return self.value(node.value)

    def value_of_compare(self, node: ast.Compare) -> _Value:
        values = [self.value(one) for one in (node.left, *node.comparators)]
        ours = any(one.ours for one in values)
        if not all(one.known for one in values):
            return self.coin(node, ours)
        try:
            held = all(
                _COMPARISONS[type(how)](one.value, other.value) for how, one, other in zip(node.ops, values, values[1:])
            )
        except TypeError:
            return self.coin(node, ours)
        return _Value(True, held, ours=ours)

    def value_of_binop(self, node: ast.BinOp) -> _Value:
        return self.combined(node, self.value(node.left), self.value(node.right))

    def combined(self, node: Any, one: _Value, other: _Value) -> _Value:
        ours = one.ours or other.ours
        operation = _OPERATIONS.get(type(node.op))
        if one.known and other.known and operation:
            try:
                return _Value(True, operation(one.value, other.value), ours=ours)
            except TypeError:
                return self.coin(node, ours)
        if isinstance(node.op, (ast.BitOr, ast.BitAnd)):
            both = (self.truth(one, node), self.truth(other, node))
            return _Value(True, any(both) if isinstance(node.op, ast.BitOr) else all(both), ours=ours)
        return self.coin(node, ours)

    def value_of_list(self, node: ast.expr) -> _Value:
        elements: list[_Value] = []
        for one in node.elts:  # type: ignore[attr-defined]
            found = self.value(one.value if isinstance(one, ast.Starred) else one)
            starred = isinstance(one, ast.Starred) and found.known
            elements += [_Value(True, part, ours=found.ours) for part in found.value] if starred else [found]
        ours = any(one.ours for one in elements)
        if not all(one.known for one in elements):
            return self.coin(node, ours)
        return _Value(True, tuple(one.value for one in elements), ours=ours)

    value_of_tuple = value_of_set = value_of_list

    def value_of_dict(self, node: ast.Dict) -> _Value:
        pairs = [(self.value(key), self.value(one)) for key, one in zip(node.keys, node.values) if key is not None]
        if len(pairs) < len(node.keys) or not all(key.known and one.known for key, one in pairs):
            return self.unclear(node)
        ours = any(key.ours or one.ours for key, one in pairs)
        return _Value(True, {key.value: one.value for key, one in pairs}, ours=ours)

    def value_of_subscript(self, node: ast.Subscript) -> _Value:
        base, key = self.value(node.value), self.value(node.slice)
        ours = base.ours or key.ours
        if base.known and key.known:
            try:
                return _Value(True, base.value[key.value], ours=ours)
            except (TypeError, KeyError, IndexError):
                return self.coin(node, ours)
        return self.coin(node, ours)

    def value_of_call(self, node: ast.Call) -> _Value:
        arguments = [self.value(one) for one in node.args]
        ours = any(one.ours for one in arguments)
        plain = all(one.known for one in arguments) and not node.keywords
        if isinstance(node.func, ast.Name) and plain and node.func.id not in self.constants:
            function: Any = _CALLS.get(node.func.id)
            if function and len(arguments) == 1 and node.func.id not in self.env:
                try:
                    return _Value(True, function(arguments[0].value), ours=ours)
                except TypeError:
                    return self.coin(node, ours)
        if isinstance(node.func, ast.Attribute) and plain:
            base = self.value(node.func.value)
            text = isinstance(base.value, str) and node.func.attr in _TEXT_METHODS
            if base.known and (text or (isinstance(base.value, dict) and node.func.attr == "get")):
                try:
                    result = getattr(base.value, node.func.attr)(*[one.value for one in arguments])
                except (TypeError, ValueError):
                    return self.coin(node, ours or base.ours)
                return _Value(True, result, ours=ours or base.ours)
        return self.unclear(node)

    # --- statements ------------------------------------------------------------------------------------------------

    def body(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            handler = getattr(self, f"do_{type(statement).__name__.lower()}", None)
            if handler is not None:
                handler(statement)

    def do_return(self, node: ast.Return) -> None:
        raise _ReturnError(self.value(node.value) if node.value is not None else _Value(True, None))

    def do_raise(self, node: ast.Raise) -> None:
        raise _ReturnError(_Value(True, False))

    def do_expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.NamedExpr):
            self.value(node.value)

    def do_if(self, node: ast.If) -> None:
        self.body(node.body if self.truth(self.value(node.test), node) else node.orelse)

    def do_assign(self, node: ast.Assign) -> None:
        if isinstance(node.value, ast.Tuple) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Tuple) and len(target.elts) == len(node.value.elts):
                for one, found in zip(target.elts, [self.value(one) for one in node.value.elts]):
                    self.bind(one, found)
                return
        found = self.value(node.value)
        for target in node.targets:
            self.bind(target, found)

    def do_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.bind(node.target, self.value(node.value))

    def do_augassign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            before = self.env.get(node.target.id, self.coin(node))
            self.env[node.target.id] = self.combined(node, before, self.value(node.value))

    def bind(self, target: ast.expr, found: _Value) -> None:
        if isinstance(target, ast.Name):
            self.env[target.id] = found
        elif self.is_subject(target):
            raise UnclearError(target.lineno)
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = found.value if found.known and isinstance(found.value, tuple) else ()
            fits = len(parts) == len(target.elts)
            for number, one in enumerate(target.elts):
                part = _Value(True, parts[number], ours=found.ours) if fits else self.coin(one, found.ours)
                self.bind(one, part)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, self.coin(target, found.ours))

    def do_import(self, node: Any) -> None:
        for one in node.names:
            self.env[(one.asname or one.name).split(".")[0]] = self.coin(node)

    do_importfrom = do_import

    def do_functiondef(self, node: Any) -> None:
        self.env[node.name] = self.unclear(node)

    do_asyncfunctiondef = do_classdef = do_functiondef

    def do_with(self, node: Any) -> None:
        for item in node.items:
            if item.optional_vars is not None:
                self.bind(item.optional_vars, self.unclear(item.context_expr))
        self.body(node.body)

    do_asyncwith = do_with

    def do_try(self, node: Any) -> None:
        try:
            if not node.handlers or self.truth(self.coin(node), node):
                self.body(node.body)
                self.body(node.orelse)
            else:
                self.body(node.handlers[0].body)
        except _ReturnError:
            self.body(node.finalbody)
            raise
        self.body(node.finalbody)

    do_trystar = do_try

    def do_for(self, node: Any) -> None:
        found = self.value(node.iter)
        if found.known and isinstance(found.value, (tuple, frozenset)):
            rounds = [_Value(True, one, ours=found.ours) for one in found.value]
        else:
            rounds = (
                [self.coin(node.target, found.ours)] if self.truth(_Value(False, key=self.coin(node).key), node) else []
            )
        try:
            for one in rounds[:_MOST_ROUNDS]:
                self.bind(node.target, one)
                self.round(node.body)
        except _BreakError:
            return
        self.body(node.orelse)

    do_asyncfor = do_for

    def do_while(self, node: ast.While) -> None:
        try:
            for _round in range(_MOST_ROUNDS):
                if not self.truth(self.value(node.test), node):
                    break
                self.round(node.body)
            else:
                # A coin that stays true; the loop ends some day.
                if self.value(node.test).known:
                    raise UnclearError(node.lineno)
        except _BreakError:
            return
        self.body(node.orelse)

    def round(self, statements: Sequence[ast.stmt]) -> None:
        try:
            self.body(statements)
        except _ContinueError:
            return

    def do_break(self, node: ast.Break) -> None:
        raise _BreakError

    def do_continue(self, node: ast.Continue) -> None:
        raise _ContinueError

    def do_match(self, node: Any) -> None:
        subject = self.value(node.subject)
        for case in node.cases:
            fits = self.fits(case.pattern, subject)
            if fits and (case.guard is None or self.truth(self.value(case.guard), node)):
                self.body(case.body)
                return

    def fits(self, pattern: Any, subject: _Value) -> bool:
        kind = type(pattern).__name__
        if kind == "MatchOr":
            return any(self.fits(one, subject) for one in pattern.patterns)
        if kind == "MatchAs":
            held = pattern.pattern is None or self.fits(pattern.pattern, subject)
            if held and pattern.name:
                self.env[pattern.name] = subject
            return held
        if kind == "MatchValue":
            wanted = self.value(pattern.value)
            if wanted.known and subject.known:
                return bool(wanted.value == subject.value)
        elif kind == "MatchSingleton" and subject.known:
            return subject.value is pattern.value
        return self.truth(self.coin(pattern, subject.ours), pattern)


def _constants(tree: ast.Module) -> Mapping[str, list[ast.expr]]:
    """Names that the file and its classes assign, with every value; what is defined otherwise has no one value."""
    found: dict[str, list[ast.expr]] = {}
    for node in _outside_functions(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            found.setdefault(node.target.id, []).append(node.value)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.setdefault(node.name, []).extend([ast.Constant(None), ast.Constant(None)])
    return found


def _outside_functions(tree: ast.Module) -> Iterator[ast.AST]:
    stack: list[ast.AST] = list(tree.body)
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.expr)):
            stack += ast.iter_child_nodes(node)
