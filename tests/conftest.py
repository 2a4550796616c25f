# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the checkout importable as ansible_collections.tokforge.sglang, as Ansible itself does."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLLECTIONS = ROOT / "collections"

# Namespace packages are joined over sys.path, so collections of the `ansible` package stay importable.
sys.path.insert(0, str(COLLECTIONS))
# Programs that tests start (ansible-playbook, python) find the same tree and the same settings.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(COLLECTIONS), os.environ.get("PYTHONPATH")]))
os.environ.setdefault("ANSIBLE_CONFIG", str(ROOT / "ansible.cfg"))
os.environ.setdefault("ANSIBLE_NOCOLOR", "1")
