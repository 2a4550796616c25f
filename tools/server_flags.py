# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the command line of `sglang.launch_server` from a wheel's sources, without running any of them.

Two layouts are known. Up to 0.5.12 `ServerArgs.add_cli_args` calls `parser.add_argument` for every flag. Later releases
declare most flags as annotated fields, `name: A[type, Arg(...)]`, in the classes that `_INPUT_NAMESPACES` lists, turn
them into flags in `add_cli_args_from_dataclass`, and add a few by hand. Both are read by the same code: every
annotated field, then every `add_argument` call. The rules that turn a field into a flag repeat those of
`sglang/srt/arg_groups/arg_utils.py` (0.5.23). Whatever cannot be read is an error, never a guess.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SERVER_ARGS = "sglang.srt.server_args"
# argparse's own action names that take no value on the command line.
VALUELESS_ACTIONS = ("store_true", "store_false", "store_const", "append_const", "count", "help", "version")
NO_VALUE = 0
# Converters that read the whole value as JSON.
JSON_TYPES = ("json.loads", "json_list_type")


class ExtractionError(Exception):
    """The sources hold something this reader does not know; the text names the file, the line and the expression."""


@dataclass(frozen=True)
class Flag:
    """One flag; names have no leading dashes. `nargs` as in argparse: None one value, 0 none, `?`, `*`, `+`.

    A `json` flag's one value is read as JSON text; a `hidden` one is left out of `--help`.
    """

    name: str
    aliases: tuple[str, ...] = ()
    nargs: str | int | None = None
    choices: tuple[str | int, ...] | None = None
    negatable: bool = False
    deprecated: bool = False
    json: bool = False
    hidden: bool = False

    def data(self) -> dict[str, Any]:
        """The catalog's form: only what differs from a flag with one free value."""
        found: dict[str, Any] = {"takes_value": self.nargs != NO_VALUE}
        if self.nargs not in (None, NO_VALUE):
            found["nargs"] = self.nargs
        if self.choices is not None:
            found["choices"] = list(self.choices)
        if self.aliases:
            found["aliases"] = list(self.aliases)
        if self.negatable:
            found["negatable"] = True
        if self.deprecated:
            found["deprecated"] = True
        if self.json:
            found["json"] = True
        if self.hidden:
            found["hidden"] = True
        return found


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


class Sources:
    """The unpacked wheel, parsed on demand."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules: dict[str, Module] = {}

    def module(self, name: str) -> Module:
        """Parse the module `name`; a missing file is an error that names it."""
        if name not in self.modules:
            base = self.root.joinpath(*name.split("."))
            path = base.with_suffix(".py") if base.with_suffix(".py").exists() else base / "__init__.py"
            if not path.exists():
                raise ExtractionError(f"reading {name}: the wheel has no such file; its layout changed")
            tree = ast.parse(path.read_text(encoding="utf-8"))
            module = Module(name, tree, path)
            module.names, module.imports = bindings(tree.body)
            self.modules[name] = module
        return self.modules[name]

    def find(self, module: Module, name: str) -> tuple[Module, ast.stmt]:
        """The statement that defines `name` as `module` sees it, through imports, and the module it stands in."""
        if name in module.names:
            return module, module.names[name]
        if name in module.imports:
            origin, original = module.imports[name]
            return self.find(self.module(origin), original)
        raise ExtractionError(f"reading {module.path.name}: {name} is defined nowhere in it; the layout changed")


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
        return ExtractionError(f"reading {where}: cannot tell `{ast.unparse(node)}`; teach server_flags.py")

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


def action_nargs(action: ast.expr, evaluator: Evaluator) -> str | int | None:
    """How many values an action takes when the flag does not say: argparse's names, or the class's own default."""
    if isinstance(action, ast.Constant):
        return NO_VALUE if action.value in VALUELESS_ACTIONS else None
    if ast.unparse(action).endswith("BooleanOptionalAction"):
        return NO_VALUE
    if not isinstance(action, ast.Name):
        raise evaluator.unknown(action)
    module, statement = evaluator.sources.find(evaluator.module, action.id)
    if not isinstance(statement, ast.ClassDef):
        raise evaluator.unknown(action)
    for entry in statement.body:
        if isinstance(entry, ast.FunctionDef) and entry.name == "__init__":
            named = entry.args.args[len(entry.args.args) - len(entry.args.defaults) :]
            for argument, default in zip(named, entry.args.defaults, strict=True):
                if argument.arg == "nargs":
                    found: str | int | None = Evaluator(evaluator.sources, module).value(default)
                    return found
    return None


def make_flag(names: list[str], keywords: Mapping[str, ast.expr], evaluator: Evaluator) -> Flag:
    """A flag from what `add_argument` is given: its names, and the keywords that decide its form."""
    action = keywords.get("action")
    nargs: Any = None
    if "nargs" in keywords:
        nargs = evaluator.value(keywords["nargs"])
    elif action is not None:
        nargs = action_nargs(action, evaluator)
    choices = evaluator.value(keywords["choices"]) if "choices" in keywords else None
    if choices is not None and not all(isinstance(choice, (str, int)) for choice in choices):
        raise evaluator.unknown(keywords["choices"])
    bare = [name.lstrip("-") for name in names]
    written = "" if action is None else ast.unparse(action)
    return Flag(
        name=bare[0],
        aliases=tuple(bare[1:]),
        nargs=nargs,
        choices=None if choices is None else tuple(choices),
        negatable=written.endswith("BooleanOptionalAction"),
        deprecated=written.startswith("Deprecated"),
        json="type" in keywords and ast.unparse(keywords["type"]) in JSON_TYPES,
        hidden="help" in keywords and ast.unparse(keywords["help"]).endswith("SUPPRESS"),
    )


def unwrap_optional(node: ast.expr) -> ast.expr:
    """`Optional[X]`, `Union[X, None]` or `X | None` -> X; any other type as it is."""
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Optional"):
        return unwrap_optional(node.slice)
    parts: list[ast.expr] = []
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Union"):
        parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else []
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        parts = [node.left, node.right]
    some = [part for part in parts if ast.unparse(part) != "None"]
    return some[0] if len(some) == 1 and len(parts) > 1 else node


def field_flag(name: str, annotation: ast.expr, evaluator: Evaluator) -> Flag | None:
    """The flag of one field `name: A[type, "help" | Arg(...)]`; None when the field has none on the command line."""
    if not isinstance(annotation, ast.Subscript) or ast.unparse(annotation.value) not in ("A", "Annotated"):
        return None
    if not isinstance(annotation.slice, ast.Tuple):
        raise evaluator.unknown(annotation)
    kind, *notes = annotation.slice.elts
    # The first text or Arg(...) makes the field a flag; other notes (its namespace) say nothing about the command line.
    note = next((entry for entry in notes if not isinstance(entry, ast.Call) or ast.unparse(entry.func) == "Arg"), None)
    if note is None:
        return None
    keywords = {str(key.arg): key.value for key in note.keywords} if isinstance(note, ast.Call) else {}
    if "no_cli" in keywords and evaluator.value(keywords["no_cli"]):
        return None
    names = [evaluator.value(keywords["cli_name"]) if "cli_name" in keywords else "--" + name.replace("_", "-")]
    names += evaluator.value(keywords["aliases"]) if "aliases" in keywords else []
    return make_flag(names, field_keywords(kind, keywords), evaluator)


def field_keywords(kind: ast.expr, keywords: Mapping[str, ast.expr]) -> dict[str, ast.expr]:
    """What SGLang hands to `add_argument` for a field of this type (arg_utils.add_cli_args_from_dataclass)."""
    shared = {"help": keywords["help"]} if "help" in keywords else {}
    if "action" in keywords:
        passed = {"action": keywords["action"], **shared}
        more = keywords.get("action_kwargs")
        if isinstance(more, ast.Dict):
            passed.update({str(ast.literal_eval(key)): value for key, value in zip(more.keys, more.values) if key})
        return passed
    passed = {key: keywords[key] for key in ("choices", "nargs") if key in keywords}
    if "type_parser" in keywords:
        passed["type"] = keywords["type_parser"]
    inner = unwrap_optional(kind)
    base = ast.unparse(inner.value) if isinstance(inner, ast.Subscript) else ast.unparse(inner)
    if base == "Literal" and isinstance(inner, ast.Subscript):
        literals = inner.slice if isinstance(inner.slice, ast.Tuple) else ast.Tuple([inner.slice], ast.Load())
        return {"choices": passed.get("choices", literals), **shared}
    if base in ("List", "list") and "type_parser" not in keywords:
        return {"nargs": ast.Constant("+"), **passed, **shared}
    if base == "bool":
        return {"action": ast.Constant("store_true"), **shared}
    return {**passed, **shared}


def field_flags(sources: Sources, module: Module) -> Iterator[Flag]:
    """The flags declared as fields of the classes in `_INPUT_NAMESPACES`, or of `ServerArgs` itself."""
    names = ["ServerArgs"]
    listed = module.names.get("_INPUT_NAMESPACES")
    if isinstance(listed, ast.Assign) and isinstance(listed.value, ast.List):
        names = [entry.id for entry in listed.value.elts if isinstance(entry, ast.Name)] + names
    for class_name in names:
        home, statement = class_of(sources, module, class_name)
        evaluator = Evaluator(sources, home)
        # A field that is annotated twice in one class (dcp_size in 0.5.15) is one field, as its last annotation says.
        fields = {
            entry.target.id: entry.annotation
            for entry in statement.body
            if isinstance(entry, ast.AnnAssign) and isinstance(entry.target, ast.Name)
        }
        for name, annotation in fields.items():
            flag = field_flag(name, annotation, evaluator)
            if flag is not None:
                yield flag


def class_of(sources: Sources, module: Module, name: str) -> tuple[Module, ast.ClassDef]:
    """The class `name` as `module` sees it; a later assignment to its name (`ServerArgs = ...`) does not hide it."""
    for statement in module.tree.body:
        if isinstance(statement, ast.ClassDef) and statement.name == name:
            return module, statement
    home, found = sources.find(module, name)
    if not isinstance(found, ast.ClassDef):
        raise ExtractionError(f"reading {module.path.name}: {name} is no class; the layout changed")
    return home, found


def call_flags(sources: Sources, module: Module, function: ast.FunctionDef) -> Iterator[Flag]:
    """The flags of every `parser.add_argument(...)` in the function, in source order."""
    names, imports = bindings(function.body)
    inside = Module(module.name, module.tree, module.path, module.names, {**module.imports, **imports})
    scope = {
        name: statement.value
        for name, statement in names.items()
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None
    }
    evaluator = Evaluator(sources, inside, scope)
    for node in ast.walk(function):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr == "add_argument":
            keywords = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
            yield make_flag([evaluator.value(name) for name in node.args], keywords, evaluator)


def read_flags(root: Path) -> dict[str, Flag]:
    """Name -> flag of the `sglang` package below `root`. Raises ExtractionError when the result cannot be right."""
    sources = Sources(root)
    module = sources.module(SERVER_ARGS)
    _home, server_args = class_of(sources, module, "ServerArgs")
    function = next(
        (entry for entry in server_args.body if isinstance(entry, ast.FunctionDef) and entry.name == "add_cli_args"),
        None,
    )
    if function is None:
        raise ExtractionError(f"reading {module.path}: ServerArgs has no add_cli_args; the layout changed")
    flags: dict[str, Flag] = {}
    for flag in [*field_flags(sources, module), *call_flags(sources, module, function)]:
        if flag.name in flags:
            raise ExtractionError(f"reading {module.path.name}: --{flag.name} is there twice; teach server_flags.py")
        flags[flag.name] = flag
    backend = flags.get("moe-runner-backend")
    if backend is None or not backend.choices:
        raise ExtractionError(
            f"reading {module.path.name}: no choices found for --moe-runner-backend; the layout changed, teach "
            "server_flags.py how this release declares them"
        )
    return flags
