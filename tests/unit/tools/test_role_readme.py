# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Role READMEs say what the argument specs say."""

from __future__ import annotations

from pathlib import Path

import role_readme

SPECS = """
argument_specs:
  main:
    short_description: Serve
    description: [Runs C(server) at O(port).]
    options:
      port:
        description: Where it listens.
        type: int
      mode:
        description: [How., 'One | two.']
        choices: [a, b]
        default: a
      root:
        description: Its directory.
        type: path
        required: true
      index:
        description: From where.
        type: dict
        options:
          urls: {description: Addresses., type: list, elements: str}
  stop:
    short_description: Stop it
"""


def made(tmp_path: Path) -> Path:
    role = tmp_path / "roles" / "serve"
    for name, text in {"meta/argument_specs.yml": SPECS, "defaults/main.yml": "port: 30000\n"}.items():
        (role / name).parent.mkdir(parents=True, exist_ok=True)
        (role / name).write_text(text, encoding="utf-8")
    return role


def test_table_holds_type_default_choices_and_nested_options(tmp_path: Path) -> None:
    text = role_readme.expected(made(tmp_path))
    assert "Runs `server` at `port`." in text
    assert "| `port` | int | `30000` | Where it listens. |" in text
    assert "| `mode` | str | `a` | How. One \\| two. One of `a`, `b`. |" in text
    assert "| `root` | path | required | Its directory. |" in text
    assert "| `index.urls` | list of str |  | Addresses. |" in text
    assert "## tasks_from: stop" in text


def test_readme_is_stale_until_written_and_again_after_a_change(tmp_path: Path) -> None:
    role = made(tmp_path)
    ((path, text),) = role_readme.stale(tmp_path).items()
    assert path == role / "README.md"
    path.write_text(text, encoding="utf-8")
    assert role_readme.stale(tmp_path) == {}
    (role / "defaults" / "main.yml").write_text("port: 30001\n", encoding="utf-8")
    assert list(role_readme.stale(tmp_path)) == [path]


def test_markup_becomes_markdown() -> None:
    assert role_readme.plain(["See L(the page,https://example.org/a)  and", "B(not) V(x=1\\)) I(now)."]) == (
        "See [the page](https://example.org/a) and **not** `x=1)` *now*."
    )
