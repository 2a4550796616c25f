# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings the lock and the overlay from the controller to the module, and shows that the module is alive.

They go to the task's temporary directory, not below the root: so the environment's identity, which depends on them, is
known in check mode on a machine that has never seen them, and a lock on the target cannot be an old one.
"""

from __future__ import annotations

import os
import tarfile
import tempfile
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.tokforge.sglang.plugins.plugin_utils.heartbeat import run_with_heartbeat

BROUGHT = ("lock", "lock_no_deps", "overlay")


class ActionModule(ActionBase):
    """Run the module of the same name."""

    TRANSFERS_FILES = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Transfer the files, then run the module with their places on the target."""
        asked = self._task.args
        whats = {"sglang": "installing SGLang", "router": "installing SGLang's router"}
        what = whats.get(asked.get("kind", ""), "making the tools environment")
        try:
            brought = {name: self._bring(name, asked[name]) for name in BROUGHT if asked.get(name)}
        except AnsibleError as error:
            return {"failed": True, "msg": f"reading the task's files: {error}; see the role's files directory"}
        self._task.args = {**asked, **brought}
        try:
            result = run_with_heartbeat(self, tmp, task_vars, what)
        finally:
            # A retry of the task starts from what was asked.
            self._task.args = asked
        # It holds temporary paths that mean nothing to a reader.
        result.pop("invocation", None)
        return result

    def _bring(self, name: str, path: str) -> str:
        source = self._find_needle("files", path)
        if not self._connection._shell.tmpdir:
            self._make_tmp_path()
        target: str = self._connection._shell.join_path(self._connection._shell.tmpdir, name)
        if os.path.isdir(source):
            with tempfile.NamedTemporaryFile(suffix=".tar") as packed:
                with tarfile.open(fileobj=packed, mode="w") as archive:
                    archive.add(source, arcname=".")
                packed.flush()
                self._transfer_file(packed.name, target)
        else:
            self._transfer_file(source, target)
        self._fixup_perms2((self._connection._shell.tmpdir, target))
        return target
