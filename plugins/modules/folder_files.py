#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: folder_files
short_description: Write several small files of one folder at once
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
    description: Texts by name of the file, without any directory.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Write a program and what it imports
  tokforge.sglang.folder_files:
    path: /usr/local/lib/example
    files:
      main.py: "{{ lookup('ansible.builtin.file', 'main.py') }}"
      part.py: "{{ lookup('ansible.builtin.file', 'part.py') }}"
"""

RETURN = r"""
written:
  description: Names of the files that changed, in check mode those that would.
  returned: success
  type: list
  elements: str
  sample: [main.py]
"""

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


def run(folder: str, files: Mapping[str, str], check_mode: bool) -> dict[str, Any]:
    """What the module returns. Raises OSError, and ValueError for a name that is none of a file."""
    for name in files:
        if name in ("", ".", "..") or os.sep in name or "\0" in name:
            raise ValueError(f"writing {name!r} in {folder}: this is no name of a file; give it without a directory")
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
    return {"changed": bool(differing), "written": differing, "diff": diff}


def main() -> None:
    """Write what differs."""
    module = AnsibleModule(
        argument_spec={"path": {"type": "path", "required": True}, "files": {"type": "dict", "required": True}},
        supports_check_mode=True,
    )
    folder = module.params["path"]
    try:
        result = run(folder, {name: str(text) for name, text in module.params["files"].items()}, module.check_mode)
    except ValueError as error:
        module.fail_json(msg=str(error), path=folder)
    except OSError as error:
        module.fail_json(
            msg=f"writing files in {folder}: {error.strerror}; make it a folder that can be written", path=folder
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
