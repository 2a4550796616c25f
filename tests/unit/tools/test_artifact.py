# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must not reach users in the artifact."""

from __future__ import annotations

import artifact


def test_caches_environments_and_artifacts_are_unwanted() -> None:
    names = [
        "plugins/modules/model.py",
        "plugins/modules/__pycache__/model.cpython-311.pyc",
        ".venv/bin/python",
        "tests/.pytest_cache/README.md",
        "tokforge-sglang-0.1.0.tar.gz",
        "roles/verify/tasks/main.yml",
    ]
    assert artifact.unwanted(names) == [names[1], names[2], names[3], names[4]]
