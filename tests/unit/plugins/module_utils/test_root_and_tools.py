# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A root that the server's user can enter, and the supervisord of a play that does not know the tools environment."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import environment_root, service
from ansible_collections.tokforge.sglang.plugins.module_utils.supervisor_manager import SupervisorManager


def test_root_can_be_entered_by_all_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        environment_root.claim_root(str(tmp_path / "opt/sglang"))
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    for made in (tmp_path / "opt", tmp_path / "opt/sglang"):
        assert stat.S_IMODE(made.stat().st_mode) == 0o755


def started_with(root: Path, asked: str | None) -> list[str]:
    """The command with which supervisord is started, or why it is not."""
    ran: list[list[str]] = []

    def run(command: Sequence[str], environment: Mapping[str, str] | None) -> tuple[int, str, str]:
        ran.append(list(command))
        return 1, "", "not now"

    manager = SupervisorManager(service.Paths(str(root)), "sglang", asked, run)
    with pytest.raises(service.ServiceError) as caught:
        manager._start_supervisord()
    return ran[0] if ran else [str(caught.value)]


def test_supervisord_is_that_of_the_interpreter_that_runs_the_launcher(
    tmp_path: Path,
) -> None:
    root = tmp_path / "a root"
    tools = root / "venvs/0123/bin"
    tools.mkdir(parents=True)
    (root / "state").mkdir()
    config = root / "state/supervisord.conf"
    missing = str(root / "venvs/tools/bin/supervisord")
    config.write_text(f"[program:sglang]\ncommand = '{tools}/python' '{root}/bin/launch.py' '{root}'\n")
    assert "supervisord is not at" in started_with(root, missing)[0]
    (tools / "supervisord").touch(mode=0o755)
    for asked in (missing, None):
        assert started_with(root, asked) == [f"{tools}/supervisord", "-c", str(config)]
    # One that was asked for and is there comes first.
    other = tmp_path / "supervisord"
    other.touch(mode=0o755)
    assert started_with(root, str(other))[0] == str(other)
    for text in ("", "[program:other]\ncommand = x\n", "[program:sglang]\ncommand = 'open\n", "no section\n"):
        config.write_text(text)
        assert "supervisord is not at" in started_with(root, missing)[0]
