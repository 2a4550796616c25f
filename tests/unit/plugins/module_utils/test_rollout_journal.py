# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rollout writes down before it switches, and the files that come back."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import kept_files, rollout_journal
from ansible_collections.tokforge.sglang.plugins.module_utils.rollout_journal import Entry, JournalError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "r"
    (made / "state/rollout").mkdir(parents=True)
    return made


@pytest.fixture
def files(root: Path) -> list[str]:
    """A secret, a link, and a file that is not there yet."""
    secret, link, new = root / "secrets.env", root / "unit", root / "new"
    secret.write_text("KEY=old\n")
    secret.chmod(0o600)
    link.symlink_to("elsewhere")
    return [str(secret), str(link), str(new)]


def entry(rollout: str = "one", release: int | None = 2, previous: int | None = 1) -> Entry:
    return Entry(rollout, "deploy", f"me@{rollout}", 1000.0, release, previous)


def change(files: list[str]) -> None:
    """What a rollout does."""
    Path(files[0]).write_text("KEY=new\n")
    Path(files[0]).chmod(0o640)
    Path(files[1]).unlink()
    Path(files[1]).write_text("a file now")
    Path(files[2]).write_text("made")


def state(files: list[str]) -> list[object]:
    secret, link, new = map(Path, files)
    mode = stat.S_IMODE(secret.stat().st_mode)
    return [secret.read_text(), mode, os.readlink(link) if link.is_symlink() else None, os.path.lexists(new)]


def test_what_was_there_comes_back_with_its_mode_and_what_was_not_goes(root: Path, files: list[str]) -> None:
    before = state(files)
    opened = rollout_journal.begin(str(root), entry(), files)
    assert [one.kind for one in opened.kept] == ["file", "link", "absent"]
    assert rollout_journal.undo(str(root)) == []
    change(files)
    assert rollout_journal.undo(str(root), check_mode=True) == files
    assert state(files)[0] == "KEY=new\n"
    assert rollout_journal.undo(str(root)) == files
    assert state(files) == before
    assert rollout_journal.undo(str(root)) == []


def test_copies_of_secrets_are_for_the_owner_only(root: Path, files: list[str]) -> None:
    rollout_journal.begin(str(root), entry(), files)
    folder = Path(rollout_journal.copies(str(root)))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()] == [0o600]
    journal = Path(rollout_journal.path(str(root)))
    assert stat.S_IMODE(journal.stat().st_mode) == 0o600
    assert "old" not in journal.read_text()


def test_rollout_after_those_that_were_cut_off_keeps_the_first_ones_way_back(root: Path, files: list[str]) -> None:
    before = state(files)
    rollout_journal.begin(str(root), entry("one", 2, 1), files)
    change(files)
    taken = rollout_journal.begin(str(root), entry("two", 3, 2), files)
    assert (taken.rollout, taken.release, taken.previous) == ("two", 3, 1)
    assert list(taken.cut_off) == ["deploy of me@one to release 2"]
    again = rollout_journal.begin(str(root), entry("two", 4, 2), files)
    assert (again.release, again.previous, list(again.cut_off)) == (4, 1, ["deploy of me@one to release 2"])
    rollout_journal.undo(str(root))
    assert state(files) == before


def test_way_back_knows_as_what_the_server_ran_and_what_only_a_later_request_makes(
    root: Path, files: list[str]
) -> None:
    unit = str(root / "other.service")
    first = Entry("one", "deploy", "me@one", 1000.0, 2, 1, manager="systemd", name="sglang")
    rollout_journal.begin(str(root), first, files)
    change(files)
    second = Entry("two", "deploy", "me@two", 1001.0, 3, 2, manager="supervisor", name="other")
    taken = rollout_journal.begin(str(root), second, [*files, unit])
    assert (taken.manager, taken.name) == ("systemd", "sglang")
    Path(unit).write_text("made by the second one")
    assert rollout_journal.undo(str(root)) == [*files, unit]
    assert not os.path.exists(unit)
    # Somebody else's file of that name is not taken for one that the rollout made.
    Path(unit).write_text("somebody's")
    third = rollout_journal.begin(
        str(root), Entry("three", "deploy", "me@x", 1.0, 4, 2), [*files, str(root / "x"), unit]
    )
    assert [one.path for one in third.kept] == [*files, unit, str(root / "x")]


def test_end_forgets_the_copies_and_remembers_what_changed(root: Path, files: list[str]) -> None:
    assert rollout_journal.end(str(root), "done", "", 2000.0) is None
    rollout_journal.begin(str(root), entry(), files)
    rollout_journal.end(str(root), "rolled_back", "it crashed", 2000.0)
    journal = rollout_journal.read(str(root))
    assert journal.open is None and not os.path.exists(rollout_journal.copies(str(root)))
    [ended] = journal.ended
    assert (ended.outcome, ended.reason, ended.ended_at, list(ended.kept)) == ("rolled_back", "it crashed", 2000.0, [])
    assert rollout_journal.undo(str(root)) == []


def test_rollout_that_changed_nothing_leaves_no_trace(root: Path, files: list[str]) -> None:
    rollout_journal.begin(str(root), entry("one", 1, 1), files)
    rollout_journal.end(str(root), "done", "", 2000.0)
    assert rollout_journal.read(str(root)).ended == []
    rollout_journal.begin(str(root), entry("two", 1, 1), files)
    Path(files[0]).write_text("KEY=new\n")
    rollout_journal.end(str(root), "done", "", 2000.0)
    assert [one.rollout for one in rollout_journal.read(str(root)).ended] == ["two"]


def test_so_many_are_remembered(root: Path) -> None:
    for number in range(rollout_journal.REMEMBERED + 3):
        rollout_journal.begin(str(root), entry(str(number)), [])
        rollout_journal.end(str(root), "failed", "x" * 5000, 2000.0)
    ended = rollout_journal.read(str(root)).ended
    assert [ended[0].rollout, ended[-1].rollout] == ["3", "22"]
    assert len(ended[-1].reason) == rollout_journal.LONGEST_REASON


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema_version": 1}', '{"schema_version": 1, "open": {"rollout": 1}, "ended": []}']
)
def test_damaged_journal_is_told_of_and_does_not_stop_anything(root: Path, text: str) -> None:
    Path(rollout_journal.path(str(root))).write_text(text)
    journal = rollout_journal.read(str(root))
    assert journal.open is None and "is damaged" in journal.warnings[0]
    assert rollout_journal.begin(str(root), entry(), []).previous == 1


def test_release_that_is_no_number_is_damage(root: Path) -> None:
    rollout_journal.begin(str(root), entry(), [])
    path = Path(rollout_journal.path(str(root)))
    data = json.loads(path.read_text())
    data["open"]["previous"] = "1"
    path.write_text(json.dumps(data))
    assert rollout_journal.read(str(root)).warnings


def test_journal_of_a_newer_collection_is_refused(root: Path) -> None:
    Path(rollout_journal.path(str(root))).write_text('{"schema_version": 2}')
    with pytest.raises(JournalError, match=r"has schema 2, this version of tokforge\.sglang knows 1"):
        rollout_journal.read(str(root))


def test_copy_that_was_changed_is_not_put_back(root: Path, files: list[str]) -> None:
    rollout_journal.begin(str(root), entry(), files)
    Path(files[0]).write_text("KEY=new\n")
    (Path(rollout_journal.copies(str(root))) / "0").write_text("KEY=forged\n")
    with pytest.raises(JournalError, match=r"the copy of .*secrets.env in .*kept is not what was kept"):
        rollout_journal.undo(str(root))
    assert Path(files[0]).read_text() == "KEY=new\n"


def test_copy_that_is_gone_is_told_of(root: Path, files: list[str]) -> None:
    rollout_journal.begin(str(root), entry(), files)
    change(files)
    (Path(rollout_journal.copies(str(root))) / "0").unlink()
    with pytest.raises(JournalError) as told:
        rollout_journal.undo(str(root))
    assert str(told.value) == (
        f"cannot put files back below {root}: the copy of {files[0]} in {rollout_journal.copies(str(root))} is gone;"
        " deploy a release that works"
    )
    assert Path(files[0]).read_text() == "KEY=new\n"


def test_directory_in_the_place_of_a_file_is_told_of_and_put_right_when_it_is_gone(
    root: Path, files: list[str]
) -> None:
    before = state(files)
    rollout_journal.begin(str(root), entry(), files)
    change(files)
    Path(files[2]).unlink()
    Path(files[2]).mkdir()
    with pytest.raises(
        JournalError, match=r"cannot put files back below .*not a file of .*/new\); .*move away what is"
    ):
        rollout_journal.undo(str(root))
    Path(files[2]).rmdir()
    assert rollout_journal.undo(str(root)) == files[:2] and state(files) == before


def test_directory_in_the_place_of_the_journal_is_told_of(root: Path) -> None:
    Path(rollout_journal.path(str(root))).mkdir()
    with pytest.raises(JournalError) as told:
        rollout_journal.read(str(root))
    assert str(told.value) == (
        f"cannot read {rollout_journal.path(str(root))}: it is a directory; move it away, then run again"
    )


def test_what_is_no_file_is_refused_before_anything_is_switched(root: Path) -> None:
    (root / "unit").mkdir()
    with pytest.raises(JournalError, match=r"cannot keep the way back .*not a file of at most 16 MiB"):
        rollout_journal.begin(str(root), entry(), [str(root / "unit")])
    assert rollout_journal.read(str(root)).open is None


def test_owner_comes_back(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = root / "secrets.env"
    secret.write_text("KEY=old\n")
    kept = kept_files.keep([str(secret)], str(root / "kept"))
    secret.unlink()
    owners: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "chown", lambda path, uid, gid: owners.append((uid, gid)))
    elsewhere = [kept_files.Kept(**{**vars(kept[0]), "uid": kept[0].uid + 1})]
    kept_files.restore(elsewhere, str(root / "kept"))
    assert owners == [(kept[0].uid + 1, kept[0].gid)]


def test_entry_is_described_without_copies_and_told_in_words(root: Path, files: list[str]) -> None:
    opened = rollout_journal.begin(str(root), entry(previous=None), files)
    assert rollout_journal.describe(opened)["kept"] == files
    assert rollout_journal.cut_off_message(opened) == (
        "deploy of me@one was cut off after it had begun to switch from no release to release 2"
    )
