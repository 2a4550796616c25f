# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the command line of `sglang.launch_server` from a release's sources, without running or importing any of them.

Two layouts are known. Up to 0.5.12 `ServerArgs.add_cli_args` calls `parser.add_argument` for every flag. Later releases
declare most flags as annotated fields, `name: A[type, Arg(...)]`, in the classes that `_INPUT_NAMESPACES` lists, turn
them into flags in `add_cli_args_from_dataclass`, and add a few by hand. Both are read by the same code: every
annotated field, then every `add_argument` call. The rules that turn a field into a flag repeat those of
`sglang/srt/arg_groups/arg_utils.py` (0.5.23). What cannot be read of one flag is told, never guessed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import flags
from ansible_collections.tokforge.sglang.plugins.module_utils.flags import Flag
from ansible_collections.tokforge.sglang.plugins.module_utils.source_values import (
    Evaluator,
    ExtractionError,
    Module,
    Sources,
    bindings,
)

SERVER_ARGS = "sglang.srt.server_args"
# argparse's own action names that take no value on the command line.
VALUELESS_ACTIONS = ("store_true", "store_false", "store_const", "append_const", "count", "help", "version")
NO_VALUE = 0
# Converters that read the whole value as JSON.
JSON_TYPES = ("json.loads", "json_list_type")
TYPES: Mapping[str, str] = {"int": flags.INT, "float": flags.FLOAT, "human_readable_int": flags.SIZE}
# How the help of a flag on its way out begins, and which flag it names for the job.
_DEPRECATED = re.compile(r"\W*deprecated\b", re.IGNORECASE)
_USE = re.compile(r"\buse (--[a-z][\w-]*(?:=[\w-]+)?)", re.IGNORECASE)


@dataclass(frozen=True)
class Reading:
    """What a release's sources say: name -> flag, and in words what could not be read of single flags."""

    flags: Mapping[str, Flag]
    unread: tuple[str, ...] = ()


def read(root: Path) -> Reading:
    """The command line of the `sglang` package below `root`. Raises ExtractionError when it cannot be found or read."""
    try:
        return _read(Sources(root))
    except RecursionError as exc:
        raise ExtractionError(
            f"reading {root}: its sources refer to each other without an end; see what it is"
        ) from exc


def _read(sources: Sources) -> Reading:
    module = sources.module(SERVER_ARGS)
    _home, server_args = class_of(sources, module, "ServerArgs")
    function = next(
        (entry for entry in server_args.body if isinstance(entry, ast.FunctionDef) and entry.name == "add_cli_args"),
        None,
    )
    if function is None:
        raise ExtractionError(f"reading {module.path}: ServerArgs has no add_cli_args; the layout changed")
    found: dict[str, Flag] = {}
    unread: list[str] = []
    for flag in [*field_flags(sources, module, unread), *call_flags(sources, module, function, unread)]:
        if flag.name in found:
            raise ExtractionError(f"reading {module.path.name}: --{flag.name} is there twice; argparse refuses that")
        found[flag.name] = flag
    return Reading(found, tuple(unread))


def make_flag(names: list[str], keywords: Mapping[str, ast.expr], evaluator: Evaluator, unread: list[str]) -> Flag:
    """A flag from what `add_argument` is given: its names, and the keywords that decide its form."""
    name, *aliases = [name.lstrip("-") for name in names]
    try:
        nargs, retired = _nargs(keywords, evaluator), _refuses(keywords, evaluator)
    except ExtractionError as exc:
        unread.append(f"the form of --{name}: {exc}")
        return Flag(name, aliases=tuple(aliases), unread=True, dest=_dest(name, keywords))
    action = ast.unparse(keywords["action"]) if "action" in keywords else ""
    help_text = _text(keywords["help"]) if "help" in keywords else ""
    kind = ast.unparse(keywords["type"]) if "type" in keywords else ""
    deprecated = action.startswith("Deprecated") or _DEPRECATED.match(help_text) is not None
    return Flag(
        name=name,
        aliases=tuple(aliases),
        takes_value=nargs != NO_VALUE,
        nargs=None if nargs == NO_VALUE else nargs,
        choices=_choices(name, keywords, evaluator, unread),
        negatable=action.endswith("BooleanOptionalAction"),
        deprecated=deprecated,
        json=kind in JSON_TYPES,
        hidden="help" in keywords and ast.unparse(keywords["help"]).endswith("SUPPRESS"),
        type=TYPES.get(kind, flags.TEXT) if nargs != NO_VALUE else flags.TEXT,
        successor=_successor(keywords, help_text) if deprecated else "",
        retired=retired,
        dest=_dest(name, keywords),
    )


def _dest(name: str, keywords: Mapping[str, ast.expr]) -> str:
    dest = _text(keywords["dest"]) if "dest" in keywords else ""
    return "" if dest == name.replace("-", "_") else dest


def _nargs(keywords: Mapping[str, ast.expr], evaluator: Evaluator) -> Any:
    if "nargs" in keywords:
        return evaluator.read(keywords["nargs"])
    return action_nargs(keywords["action"], evaluator) if "action" in keywords else None


def _choices(
    name: str, keywords: Mapping[str, ast.expr], evaluator: Evaluator, unread: list[str]
) -> tuple[str | int, ...] | None:
    if "choices" not in keywords:
        return None
    try:
        choices = evaluator.read(keywords["choices"])
        if choices is None:
            return None
        if not isinstance(choices, list) or not all(isinstance(choice, (str, int)) for choice in choices):
            raise evaluator.unknown(keywords["choices"])
    except ExtractionError as exc:
        unread.append(f"the choices of --{name}: {exc}")
        return None
    return tuple(choices)


def _text(node: ast.expr) -> str:
    """A text as far as it begins with one that is written out; empty for anything else."""
    if isinstance(node, ast.BinOp):
        return _text(node.left)
    if isinstance(node, ast.JoinedStr) and node.values:
        return _text(node.values[0])
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _successor(keywords: Mapping[str, ast.expr], help_text: str) -> str:
    said = _text(keywords["new_flag"]) if "new_flag" in keywords else ""
    named = _USE.search(help_text)
    return said or (named[1] if named else "")


def action_nargs(action: ast.expr, evaluator: Evaluator) -> str | int | None:
    """How many values an action takes when the flag does not say: argparse's names, or the class's own default."""
    if isinstance(action, ast.Constant):
        return NO_VALUE if action.value in VALUELESS_ACTIONS else None
    if ast.unparse(action).endswith("BooleanOptionalAction"):
        return NO_VALUE
    module, methods = _action_class(action, evaluator)
    if "__init__" in methods:
        arguments = methods["__init__"].args
        named = arguments.args[len(arguments.args) - len(arguments.defaults) :]
        for argument, default in zip(named, arguments.defaults):
            if argument.arg == "nargs":
                found: str | int | None = Evaluator(evaluator.sources, module).read(default)
                return found
    return None


def _action_class(action: ast.expr, evaluator: Evaluator) -> tuple[Module, dict[str, ast.FunctionDef]]:
    """The module and the methods of an action's own class."""
    if not isinstance(action, ast.Name):
        raise evaluator.unknown(action)
    module, statement = evaluator.sources.find(evaluator.module, action.id)
    if not isinstance(statement, ast.ClassDef):
        raise evaluator.unknown(action)
    return module, {entry.name: entry for entry in statement.body if isinstance(entry, ast.FunctionDef)}


def _refuses(keywords: Mapping[str, ast.expr], evaluator: Evaluator) -> bool:
    """Whether the flag's action ends the start: it raises (..0.5.7), or is given the error to end with (0.5.18..)."""
    if "error_message" in keywords:
        return ast.unparse(keywords["error_message"]) != "None"
    action = keywords.get("action")
    if not isinstance(action, ast.Name) or not action.id.startswith("Deprecated"):
        return False
    _module, methods = _action_class(action, evaluator)
    return "__call__" in methods and any(isinstance(step, ast.Raise) for step in methods["__call__"].body)


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


def field_flag(name: str, annotation: ast.expr, evaluator: Evaluator, unread: list[str]) -> Flag | None:
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
    keywords = {str(key.arg): key.value for key in note.keywords} if isinstance(note, ast.Call) else {"help": note}
    if "no_cli" in keywords and evaluator.read(keywords["no_cli"]):
        return None
    names = [evaluator.read(keywords["cli_name"]) if "cli_name" in keywords else "--" + name.replace("_", "-")]
    names += evaluator.read(keywords["aliases"]) if "aliases" in keywords else []
    return make_flag(names, {"dest": ast.Constant(name), **field_keywords(kind, keywords)}, evaluator, unread)


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
    inner = unwrap_optional(kind)
    base = ast.unparse(inner.value) if isinstance(inner, ast.Subscript) else ast.unparse(inner)
    if base == "Literal" and isinstance(inner, ast.Subscript):
        literals = inner.slice if isinstance(inner.slice, ast.Tuple) else ast.Tuple([inner.slice], ast.Load())
        return {"choices": passed.get("choices", literals), **shared}
    if "type_parser" in keywords:
        return {"type": keywords["type_parser"], **passed, **shared}
    if base in ("List", "list"):
        item = {"type": inner.slice} if isinstance(inner, ast.Subscript) else {}
        return {"nargs": ast.Constant("+"), **item, **passed, **shared}
    if base == "bool":
        return {"action": ast.Constant("store_true"), **shared}
    return {"type": inner, **passed, **shared}


def field_flags(sources: Sources, module: Module, unread: list[str]) -> Iterator[Flag]:
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
            try:
                flag = field_flag(name, annotation, evaluator, unread)
            except ExtractionError as exc:
                unread.append(f"the field {name}: {exc}")
                continue
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


def call_flags(sources: Sources, module: Module, function: ast.FunctionDef, unread: list[str]) -> Iterator[Flag]:
    """The flags of every `parser.add_argument(...)` in the function, in source order."""
    names, imports = bindings(function.body)
    inside = replace(module, imports={**module.imports, **imports})
    scope = {
        name: statement.value
        for name, statement in names.items()
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None
    }
    evaluator = Evaluator(sources, inside, scope)
    for node in ast.walk(function):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr == "add_argument" and node.args:
            keywords = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
            try:
                given = [str(evaluator.read(name)) for name in node.args]
            except ExtractionError as exc:
                unread.append(f"the name of a flag: {exc}")
                continue
            yield make_flag(given, keywords, evaluator, unread)
