# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the collection is that this command runs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from tokforge_rollout.variables import UsageError

HERE = Path(__file__).resolve().parent
NAME = Path("ansible_collections", "tokforge", "sglang")


@dataclass(frozen=True)
class Collection:
    """One copy of tokforge.sglang: its root, the entry of ANSIBLE_COLLECTIONS_PATH for it, its version."""

    root: Path
    search_path: Path
    version: str

    def playbook(self, name: str) -> Path:
        """The file of a playbook; UsageError when this copy has none of that name."""
        path = self.root / "playbooks" / f"{name}.yml"
        if not path.is_file():
            raise UsageError(
                f"cannot run {name}: version {self.version} in {self.root} has no such playbook; update it"
            )
        return path


def find(environment: Mapping[str, str], here: Path = HERE) -> Collection:
    """The first of: one in ANSIBLE_COLLECTIONS_PATH, the checkout this file lies in, the one packaged with it.

    Whoever sets ANSIBLE_COLLECTIONS_PATH means it. What is merely installed for this user is not looked for:
    the command and the playbooks of one version belong together.
    """
    asked = filter(None, environment.get("ANSIBLE_COLLECTIONS_PATH", "").split(os.pathsep))
    places = [Path(place).expanduser().absolute() for place in asked]
    places += [here.parent / "collections", here / "collections"]
    for place in places:
        root = place / NAME
        if (root / "playbooks").is_dir():
            return Collection(root.resolve(), place, version(root))
    raise UsageError(
        f"cannot find collection tokforge.sglang in {', '.join(map(str, places))}: none of them holds {NAME}; "
        "install it with ansible-galaxy and name its place in ANSIBLE_COLLECTIONS_PATH"
    )


def version(root: Path) -> str:
    """The version of a copy: an installed one says it in MANIFEST.json, sources say it in galaxy.yml."""
    manifest = root / "MANIFEST.json"
    if manifest.is_file():
        return str(json.loads(manifest.read_text(encoding="utf-8"))["collection_info"]["version"])
    galaxy = root / "galaxy.yml"
    return str(yaml.safe_load(galaxy.read_text(encoding="utf-8"))["version"]) if galaxy.is_file() else "unknown"
