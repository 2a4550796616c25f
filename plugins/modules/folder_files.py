#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: folder_files
short_description: Write several small files of one folder at once, or remove them
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Writes texts to files of one folder, which is made when it is not there. Each file is replaced as a whole, and only
    when its text is another one. Other files in the folder are left alone.
  - One step where C(ansible.builtin.copy) takes two for each file.
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - Shows every file that changes.
options:
  path:
    description: The folder.
    type: path
    required: true
  files:
    description: Texts by name of the file, without any directory. With O(state=absent) only the names count.
    type: dict
    required: true
  state:
    description:
      - V(present) writes the files.
      - V(absent) removes them, what Python compiled of them, and the folder when nothing else is in it.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: Write a program and what it imports
  tokforge.sglang.folder_files:
    path: /usr/local/lib/example
    files:
      main.py: "{{ lookup('ansible.builtin.file', 'main.py') }}"
      part.py: "{{ lookup('ansible.builtin.file', 'part.py') }}"

- name: Remove it, and nothing else that is there
  tokforge.sglang.folder_files:
    path: /usr/local/lib/example
    files: {main.py: "", part.py: ""}
    state: absent
"""

RETURN = r"""
written:
  description: Names of the files that changed, in check mode those that would.
  returned: success
  type: list
  elements: str
  sample: [main.py]
removed:
  description: Names of the files that were removed, in check mode those that would.
  returned: success
  type: list
  elements: str
  sample: []
"""

import contextlib
import os
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic


def text_of(path: str) -> str | None:
    """The text of a file, None without one. Raises OSError."""
    try:
        with open(path, encoding="utf-8", errors="replace", newline="") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def check(folder: str, files: Mapping[str, str]) -> None:
    """Raises ValueError for a name that is none of a file."""
    for name in files:
        if name in ("", ".", "..") or os.sep in name or "\0" in name:
            raise ValueError(f"writing {name!r} in {folder}: this is no name of a file; give it without a directory")


def remove(folder: str, files: Mapping[str, str], check_mode: bool) -> dict[str, Any]:
    """What the module returns for files that are to go. Raises OSError and ValueError."""
    check(folder, files)
    compiled = os.path.join(folder, "__pycache__")
    there = [name for name in sorted(files) if os.path.lexists(os.path.join(folder, name))]
    diff = [
        {
            "before_header": os.path.join(folder, name),
            "after_header": os.path.join(folder, name),
            "before": text_of(os.path.join(folder, name)) or "",
            "after": "",
        }
        for name in there
    ]
    empty = os.path.isdir(folder) and not set(os.listdir(folder)) - {*files, "__pycache__"}
    if not check_mode:
        for name in there:
            os.unlink(os.path.join(folder, name))
        for name in os.listdir(compiled) if os.path.isdir(compiled) else ():
            if f"{name.partition('.')[0]}.py" in files:
                os.unlink(os.path.join(compiled, name))
        for path in (compiled, folder):
            # Something of somebody else is in it, or it is not there.
            with contextlib.suppress(OSError):
                os.rmdir(path)
        empty = empty and not os.path.lexists(folder)
    return {"changed": bool(there) or empty, "written": [], "removed": there, "diff": diff}


def run(folder: str, files: Mapping[str, str], check_mode: bool) -> dict[str, Any]:
    """What the module returns. Raises OSError, and ValueError for a name that is none of a file."""
    check(folder, files)
    wanted = {name: text.rstrip("\n") + "\n" for name, text in sorted(files.items())}
    before = {name: text_of(os.path.join(folder, name)) for name in wanted}
    differing = [name for name in wanted if before[name] != wanted[name]]
    if differing and not check_mode:
        os.makedirs(folder, mode=0o755, exist_ok=True)
        for name in differing:
            write_atomic(os.path.join(folder, name), wanted[name].encode(), 0o644)
    diff = [
        {
            "before_header": os.path.join(folder, name),
            "after_header": os.path.join(folder, name),
            "before": before[name] or "",
            "after": wanted[name],
        }
        for name in differing
    ]
    return {"changed": bool(differing), "written": differing, "removed": [], "diff": diff}


def main() -> None:
    """Write what differs."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "files": {"type": "dict", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    folder = module.params["path"]
    files = {name: str(text) for name, text in module.params["files"].items()}
    try:
        result = (run if module.params["state"] == "present" else remove)(folder, files, module.check_mode)
    except ValueError as error:
        module.fail_json(msg=str(error), path=folder)
    except OSError as error:
        module.fail_json(
            msg=f"writing files in {folder}: {error.strerror}; make it a folder that can be written", path=folder
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
