# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The values of simple expressions in a package's sources, read from the syntax tree; nothing is run or imported.

Literals, names through imports, sums, enumerations, keys of a mapping and functions that return one of these are
known. Whatever else is met is an error that names the place, never a guess.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: A source file of SGLang has 400 kB at most; one far above that is none, and parsing takes a hundred times its size.
GREATEST_BYTES = 8_000_000
#: How much of an expression a message shows, in characters.
SHOWN = 80


class ExtractionError(Exception):
    """The sources hold something this reader does not know; the text names the file, the line and the expression."""


@dataclass(frozen=True)
class Member:
    """A member of an enumeration."""

    name: str
    value: Any


@dataclass
class Module:
    """A parsed source file and the names it defines or imports at its top level."""

    name: str
    tree: ast.Module
    path: Path
    names: dict[str, ast.stmt] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)


class Sources:
    """The packages below a directory (an unpacked wheel, a site-packages, a checkout's python/), parsed on demand."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules: dict[str, Module] = {}

    def module(self, name: str) -> Module:
        """Parse the module `name`. Raises ExtractionError naming a file that is missing or cannot be read."""
        if name not in self.modules:
            base = self.root.joinpath(*name.split("."))
            path = base.with_suffix(".py") if base.with_suffix(".py").is_file() else base / "__init__.py"
            if not path.is_file():
                raise ExtractionError(f"reading {name}: no such file below {self.root}; its layout changed")
            module = Module(name, parse(path), path)
            module.names, module.imports = bindings(module.tree.body)
            module.stars = star_imports(module)
            self.modules[name] = module
        return self.modules[name]

    def find(self, module: Module, name: str) -> tuple[Module, ast.stmt]:
        """The statement that defines `name` as `module` sees it, through imports, and the module it stands in."""
        if name in module.names:
            return module, module.names[name]
        if name in module.imports:
            origin, original = module.imports[name]
            return self.find(self.module(origin), original)
        for star in module.stars:
            beside = self.module(star)
            if name in beside.names or name in beside.imports:
                return self.find(beside, name)
        raise ExtractionError(f"reading {module.path.name}: {name} is defined nowhere in it; the layout changed")


def parse(path: Path) -> ast.Module:
    """The syntax tree of a file. Raises ExtractionError, also where this Python is older than the file's syntax."""
    try:
        if path.stat().st_size > GREATEST_BYTES:
            raise ExtractionError(f"reading {path}: it has more than {GREATEST_BYTES} bytes, so it is no source file")
        return ast.parse(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ExtractionError(f"reading {path}: {exc.strerror}; see that this user may read it") from exc
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        line = f" line {exc.lineno}" if isinstance(exc, SyntaxError) and exc.lineno else ""
        version = ".".join(str(part) for part in sys.version_info[:2])
        raise ExtractionError(
            f"reading {path}{line}: Python {version} cannot parse it ({type(exc).__name__}); its syntax is newer or "
            "the file is damaged, so let a newer Python read it (ansible_python_interpreter)"
        ) from exc


def star_imports(module: Module) -> list[str]:
    """The modules whose every name the module imports, also those beside it (`from .x import *`)."""
    package = module.name if module.path.name == "__init__.py" else module.name.rpartition(".")[0]
    found = []
    for statement in walk_statements(module.tree.body):
        if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
            above = package.split(".")[: len(package.split(".")) - statement.level + 1] if statement.level else []
            found.append(".".join([*above, *([statement.module] if statement.module else [])]))
    return found


def bindings(body: list[ast.stmt]) -> tuple[dict[str, ast.stmt], dict[str, tuple[str, str]]]:
    """What statements bind: name -> statement, and imported name -> (module, original name)."""
    names: dict[str, ast.stmt] = {}
    imports: dict[str, tuple[str, str]] = {}
    for statement in walk_statements(body):
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            names[statement.targets[0].id] = statement
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            names[statement.target.id] = statement
        elif isinstance(statement, (ast.ClassDef, ast.FunctionDef)):
            names.setdefault(statement.name, statement)
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            for alias in statement.names:
                imports[alias.asname or alias.name] = (statement.module, alias.name)
    return names, imports


def walk_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements in source order, into `if`, `try` and `with`, but into no class and no function."""
    for statement in body:
        yield statement
        if isinstance(statement, (ast.If, ast.Try, ast.With)):
            for name in ("body", "orelse", "finalbody"):
                yield from walk_statements(getattr(statement, name, []))


class Evaluator:
    """The value of a simple expression, read from the tree: literals, names, sums, enumerations, keys of a mapping."""

    def __init__(self, sources: Sources, module: Module, scope: Mapping[str, Any] | None = None) -> None:
        self.sources, self.module, self.scope = sources, module, dict(scope or {})

    def unknown(self, node: ast.AST) -> ExtractionError:
        """The error for an expression this reader does not know."""
        where = f"{self.module.path.name}:{getattr(node, 'lineno', '?')}"
        return ExtractionError(f"reading {where}: cannot tell `{ast.unparse(node)[:SHOWN]}`")

    def read(self, node: ast.expr) -> Any:
        """The value of `node`, see `value`. Raises ExtractionError also where the values do not fit each other."""
        try:
            return self.value(node)
        except (TypeError, AttributeError, ValueError) as exc:
            raise self.unknown(node) from exc

    def value(self, node: ast.expr) -> Any:
        """The value of `node`; lists, tuples and sets all come back as lists, a set sorted."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, (ast.List, ast.Tuple)):
            return [value for item in node.elts for value in self.spread(item)]
        if isinstance(node, ast.Set):
            return sorted(self.value(item) for item in node.elts)
        if isinstance(node, ast.Dict):
            return [self.value(key) for key in node.keys if key is not None]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.value(node.left) + self.value(node.right)
        if isinstance(node, ast.Name):
            return self.name(node)
        if isinstance(node, ast.Attribute):
            return self.attribute(node)
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, ast.ListComp):
            return self.comprehension(node)
        raise self.unknown(node)

    def spread(self, node: ast.expr) -> list[Any]:
        """What one item of a list display adds: `*x` all of x, anything else itself."""
        found: list[Any] = self.value(node.value) if isinstance(node, ast.Starred) else [self.value(node)]
        return found

    def name(self, node: ast.Name) -> Any:
        """A local name, or a name of the module."""
        if node.id in self.scope:
            bound = self.scope[node.id]
            return self.value(bound) if isinstance(bound, ast.expr) else bound
        module, statement = self.sources.find(self.module, node.id)
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            return Evaluator(self.sources, module).value(statement.value)
        if isinstance(statement, ast.ClassDef):
            return members(module, statement, self.sources)
        raise self.unknown(node)

    def attribute(self, node: ast.Attribute) -> Any:
        """`member.name`, `member.value` or a constant of a class."""
        if not isinstance(node.value, ast.Name):
            raise self.unknown(node)
        bound = self.scope.get(node.value.id)
        if isinstance(bound, Member):
            return getattr(bound, node.attr)
        module, statement = self.sources.find(self.module, node.value.id)
        if isinstance(statement, ast.ClassDef):
            names, _imports = bindings(statement.body)
            inner = names.get(node.attr)
            if isinstance(inner, (ast.Assign, ast.AnnAssign)) and inner.value is not None:
                scope = {
                    name: found.value
                    for name, found in names.items()
                    if isinstance(found, (ast.Assign, ast.AnnAssign)) and found.value is not None
                }
                return Evaluator(self.sources, module, scope).value(inner.value)
        raise self.unknown(node)

    def call(self, node: ast.Call) -> Any:
        """`list(x)` and its like, `x.keys()`, `text.lower()`, and a function of the module without arguments."""
        function = node.func
        if isinstance(function, ast.Attribute) and not node.args:
            if function.attr == "keys":
                return self.value(function.value)
            if function.attr == "lower":
                return self.value(function.value).lower()
        if isinstance(function, ast.Name):
            if function.id in ("list", "tuple") and len(node.args) == 1:
                return self.value(node.args[0])
            if function.id in ("set", "frozenset", "sorted") and len(node.args) == 1:
                return sorted(self.value(node.args[0]))
            if not node.args and not node.keywords:
                module, statement = self.sources.find(self.module, function.id)
                if isinstance(statement, ast.FunctionDef):
                    return self.returned(module, statement)
        raise self.unknown(node)

    def returned(self, module: Module, function: ast.FunctionDef) -> Any:
        """What the function's last statement returns: the way on which nothing was registered before."""
        last = function.body[-1]
        if not isinstance(last, ast.Return) or last.value is None:
            raise self.unknown(function)
        names, imports = bindings(function.body)
        inside = Module(module.name, module.tree, module.path, {**module.names, **names}, {**module.imports, **imports})
        return Evaluator(self.sources, inside).value(last.value)

    def comprehension(self, node: ast.ListComp) -> list[Any]:
        """`[... for x in y]` without conditions."""
        loop = node.generators[0]
        if len(node.generators) > 1 or loop.ifs or not isinstance(loop.target, ast.Name):
            raise self.unknown(node)
        items = self.value(loop.iter)
        return [
            Evaluator(self.sources, self.module, {**self.scope, loop.target.id: item}).value(node.elt) for item in items
        ]


def members(module: Module, statement: ast.ClassDef, sources: Sources) -> list[Member]:
    """The members of an enumeration class, in order."""
    evaluator = Evaluator(sources, module)
    return [
        Member(entry.targets[0].id, evaluator.value(entry.value))
        for entry in statement.body
        if isinstance(entry, ast.Assign) and isinstance(entry.targets[0], ast.Name)
    ]
