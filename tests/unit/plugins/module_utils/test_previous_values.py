# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host's settings were is noted once and never lost."""

from __future__ import annotations

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import previous_values


def test_first_value_stays_until_it_is_forgotten(tmp_path: Path) -> None:
    place = str(tmp_path / "a" / "host")
    assert previous_values.read(place) == {}
    previous_values.remember(place, {"cpu_governor/0": "schedutil", "x": None})
    previous_values.remember(place, {"cpu_governor/0": "performance", "y": ["a", 1]})
    assert previous_values.read(place) == {"cpu_governor/0": "schedutil", "x": None, "y": ["a", 1]}
    previous_values.forget(place, ["cpu_governor/0", "never"])
    assert previous_values.read(place) == {"x": None, "y": ["a", 1]}
    previous_values.remember(place, {"cpu_governor/0": "ondemand"})
    assert previous_values.read(place)["cpu_governor/0"] == "ondemand"


def test_only_its_owner_reads_it_and_what_is_known_is_not_written_again(tmp_path: Path) -> None:
    previous_values.remember(str(tmp_path), {"x": 1})
    path = tmp_path / previous_values.FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.stat().st_ino
    previous_values.remember(str(tmp_path), {"x": 2})
    previous_values.forget(str(tmp_path), [])
    assert path.stat().st_ino == before


def test_nothing_is_made_to_forget_what_was_never_noted(tmp_path: Path) -> None:
    previous_values.forget(str(tmp_path / "none"), ["x"])
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"values": {}}', '{"schema_version": 2, "values": {}}', "\xff"])
def test_damaged_file_is_an_error_and_stays(tmp_path: Path, text: str) -> None:
    path = tmp_path / previous_values.FILE
    path.write_text(text, encoding="latin-1")
    for act in (
        lambda: previous_values.read(str(tmp_path)),
        lambda: previous_values.remember(str(tmp_path), {"x": 1}),
        lambda: previous_values.forget(str(tmp_path), ["x"]),
    ):
        with pytest.raises(previous_values.RecordError, match="put a backup back"):
            act()
    assert path.read_text(encoding="latin-1") == text


def test_place_that_cannot_be_written_is_an_error_before_anything_is_changed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(previous_values.RecordError, match="make the directory writable"):
        previous_values.remember(str(tmp_path / "file" / "host"), {"x": 1})


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: previous_values.remember(str(tmp_path), {f"k{number}": number}), range(24)))
    assert previous_values.read(str(tmp_path)) == {f"k{number}": number for number in range(24)}
    assert json.loads((tmp_path / previous_values.FILE).read_text())["schema_version"] == 1
