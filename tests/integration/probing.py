# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Releases below a root of their own, to be probed in an environment that is there already."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import launch_plan, proc, release_store


class ProbeRoot:
    """A root whose only environment is a given one, for a model that is there."""

    def __init__(self, root: Path, environment: Path, model: Path) -> None:
        self.root, self.model = root, model
        self.version = json.loads((environment / "environment.json").read_text())["versions"]["sglang"]
        venv = root / "venvs" / "given"
        venv.mkdir(parents=True)
        for name in ("bin", "lib", "pyvenv.cfg"):
            (venv / name).symlink_to(environment / name)
        (venv / "environment.json").write_text(json.dumps({"schema_version": 1, "versions": {"sglang": self.version}}))
        (root / "state").mkdir()

    def stage(self, backend: str = "auto", **args: Any) -> int:
        """A release of the model; its number."""
        request = launch_plan.Request(
            root=str(self.root),
            sglang_version=self.version,
            lane="cpu",
            backend=backend,
            host="127.0.0.1",
            port=31690,
            metrics=False,
            model_path=str(self.model),
            served_name="tiny",
            random_weights=True,
            args={"max-total-tokens": 8192, "max-running-requests": 64, **args},
        )
        argv, env = launch_plan.argv(request), launch_plan.environment(request)
        model = {"path": str(self.model)}
        content = release_store.Content("given", self.version, backend, argv, env, str(self.root), model)
        return release_store.stage(str(self.root), content, "2026-11-30T00:00:00Z").release


def left() -> list[str]:
    """Command lines of processes that belong to a probe."""
    return [proc.cmdline(one.pid) for one in proc.processes() if "TOKFORGE_PROBE" in proc.environ(one.pid)]
