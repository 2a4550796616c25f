# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write roles/*/README.md from meta/argument_specs.yml, so that a variable is described in one place.

python tools/role_readme.py            write them
python tools/role_readme.py --check    say which are not current, exit code 1 then
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
MARKUP = [
    (re.compile(r"\b(?:C|V|O|RV|E|P)\(((?:[^()\\]|\\.)*)\)"), r"`\1`"),
    (re.compile(r"\bI\(([^()]*)\)"), r"*\1*"),
    (re.compile(r"\bB\(([^()]*)\)"), r"**\1**"),
    (re.compile(r"\bL\(([^,()]*),\s*([^()]*)\)"), r"[\1](\2)"),
    (re.compile(r"\bU\(([^()]*)\)"), r"<\1>"),
    (re.compile(r"\bM\(([^()]*)\)"), r"`\1`"),
]


def plain(text: str | list[str]) -> str:
    """Ansible's documentation markup as Markdown on one line; paragraphs become sentences after each other."""
    line = " ".join(text if isinstance(text, list) else [text])
    line = " ".join(line.split())
    for pattern, replacement in MARKUP:
        line = pattern.sub(replacement, line)
    return line.replace("\\)", ")")


def cell(text: str) -> str:
    """Text fit for a cell of a Markdown table."""
    return text.replace("|", "\\|")


def value(default: Any) -> str:
    """A default as one would write it in YAML."""
    return f"`{json.dumps(default, ensure_ascii=False) if not isinstance(default, str) else default or chr(34) * 2}`"


def default_of(name: str, option: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """What holds when the variable is left out: the role's own default, else that of its specification."""
    if option.get("required"):
        return "required"
    if name in defaults:
        return value(defaults[name])
    return value(option["default"]) if "default" in option else ""


def rows(options: Mapping[str, Any], defaults: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Table rows of the options, each followed by those inside it."""
    found = []
    for name, option in options.items():
        kind = option.get("type", "str")
        if kind == "list" and "elements" in option:
            kind = f"list of {option['elements']}"
        text = plain(option["description"])
        if option.get("choices"):
            text += " One of " + ", ".join(f"`{choice}`" for choice in option["choices"]) + "."
        default = default_of(name, option, {} if prefix else defaults)
        found.append(f"| `{prefix}{name}` | {kind} | {cell(default)} | {cell(text)} |")
        found += rows(option.get("options", {}), {}, f"{prefix}{name}.")
    return found


def readme(name: str, specs: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """The README of one role."""
    lines = [f"# tokforge.sglang.{name}", ""]
    for entry, spec in specs.items():
        if entry == "main":
            lines += [plain(spec["short_description"]) + ".", ""]
        else:
            lines += [f"## tasks_from: {entry}", "", plain(spec["short_description"]) + ".", ""]
        if spec.get("description"):
            lines += [plain(spec["description"]), ""]
        if spec.get("options"):
            table = rows(spec["options"], defaults)
            lines += ["| variable | type | default | meaning |", "|---|---|---|---|", *table, ""]
    lines += ["Written from `meta/argument_specs.yml` by `make docs`.", ""]
    return "\n".join(lines)


def expected(role: Path) -> str:
    """The README that the role's files ask for."""
    specs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]
    path = role / "defaults" / "main.yml"
    defaults = (yaml.safe_load(path.read_text(encoding="utf-8")) or {}) if path.exists() else {}
    return readme(role.name, specs, defaults)


def stale(root: Path) -> dict[Path, str]:
    """README files that are not what they should be, with the text they should hold."""
    wanted = {
        path.parent.parent / "README.md": expected(path.parent.parent)
        for path in sorted(root.glob("roles/*/meta/argument_specs.yml"))
    }
    return {
        path: text for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text
    }


def main(arguments: list[str]) -> int:
    """Command line; returns the exit code."""
    found = stale(ROOT)
    for path, text in found.items():
        if "--check" in arguments:
            print(f"{path.relative_to(ROOT)} is not current; run make docs", file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    return 1 if found and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
