# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Breaks something at the start of one task of a play, for test_faults.py only."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import faulting

DOCUMENTATION = """
name: inject_fault
type: aggregate
short_description: Break something at the start of one task
description:
  - The environment says what, where and at which task, see faulting.order.
"""


class CallbackModule(CallbackBase):
    """Ansible's own process calls it before a task is handed to a worker, and waits for it."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "inject_fault"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self.order: dict[str, Any] = json.loads(os.environ[faulting.ORDER])
        self.seen = 0

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """A task of a role is called `role : task`; what only brings tasks in is none."""
        if "include" in task.action or task.get_name().rpartition(" : ")[2] != self.order["at"]:
            return
        self.seen += 1
        if self.seen == self.order["nth"]:
            faulting.happen(faulting.Scene(Path(self.order["root"]), self.order["port"]), self.order["do"])
