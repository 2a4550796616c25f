# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A TuneD of a few words: what is made active, what is put back, whatever it was before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import previous_values, tuned_profile
from ansible_collections.tokforge.sglang.plugins.module_utils.tuned_profile import Paths, TunedError

OURS = "tokforge-host"


class Tuned:
    """TuneD as tuned-adm(8) tells of it; fails on any command that it does not have."""

    def __init__(self, root: Path, installed: bool = True) -> None:
        self.config = root / "etc/tuned"
        self.adm = root / "tuned-adm"
        self.paths = Paths(str(self.config), str(self.adm), "", str(root / "none"), "systemctl", str(root / "record"))
        self.enabled = self.running = False
        self.calls: list[str] = []
        self.known = {"balanced", "virtual-guest", "throughput-performance"}
        self.deaf = False
        if installed:
            self.install()

    def install(self) -> None:
        self.config.mkdir(parents=True)
        self.adm.write_text("")
        self.active("", "")

    def active(self, profile: str, mode: str) -> None:
        (self.config / "active_profile").write_text(f"{profile}\n" if profile else "")
        (self.config / "profile_mode").write_text(f"{mode}\n" if mode else "")

    def run(self, command: Sequence[str]) -> tuple[int, str]:
        words = [Path(command[0]).name, *command[1:]]
        if words[1] not in ("is-enabled", "is-active"):
            self.calls.append(" ".join(words[1:]))
        known = {*self.known, *(path.parent.name for path in self.config.glob("*/tuned.conf"))}
        if words == ["systemctl", "is-enabled", "tuned.service"]:
            return (0, "enabled\n") if self.enabled else (1, "disabled\n")
        if words == ["systemctl", "is-active", "tuned.service"]:
            return (0, "active\n") if self.running else (3, "inactive\n")
        if words[0] == "systemctl" and words[-1] == "tuned.service":
            action = words[1:-1]
            assert action in (["enable", "--now"], ["enable"], ["disable"], ["start"], ["stop"]), words
            self.enabled = {"enable": True, "disable": False}.get(action[0], self.enabled)
            if action[0] == "start" or "--now" in action:
                self.running = True
                if not (self.config / "active_profile").read_text().strip():
                    self.active("balanced", "auto")
            self.running = self.running and action[0] != "stop"
            return 0, ""
        assert words[0] == "tuned-adm" and self.running, words
        if words[1:] == ["off"]:
            self.active("", "manual")
        elif words[1:] == ["auto_profile"]:
            self.active("balanced", "auto")
        else:
            assert words[1] == "profile" and len(words) > 2, words
            if not set(words[2:]) <= known:
                return 1, f"Requested profile '{words[2]}' doesn't exist.\n"
            if not self.deaf:
                self.active(" ".join(words[2:]), "manual")
        return 0, ""

    def set(self, check: bool = False, name: str = OURS) -> tuned_profile.Outcome:
        return tuned_profile.present(name, "performance", self.paths, check, self.run)

    def back(self, check: bool = False, name: str = OURS) -> tuned_profile.Outcome:
        return tuned_profile.absent(name, self.paths, check, self.run)

    def state(self) -> tuple[bool, bool, str, str]:
        found = tuned_profile.look(self.paths, self.run)
        return found.enabled, found.running, found.profile, found.mode


def test_profile_goes_on_top_of_the_one_that_was_active_and_that_one_comes_back(tmp_path: Path) -> None:
    tuned = Tuned(tmp_path)
    tuned.enabled = tuned.running = True
    tuned.active("throughput-performance", "manual")
    assert tuned.set(check=True).changed and tuned.calls == []
    assert tuned.set().changed
    text = (tuned.config / OURS / "tuned.conf").read_text()
    assert "include=throughput-performance\n" in text and text.endswith("[cpu]\ngovernor=performance\n")
    assert tuned.calls == [f"profile {OURS}"]
    assert not tuned.set().changed and tuned.calls == [f"profile {OURS}"]
    assert tuned.back(check=True).changed and tuned.state()[2] == OURS
    done = tuned.back()
    assert (done.changed, done.remove_package) == (True, False)
    assert tuned.state() == (True, True, "throughput-performance", "manual")
    assert not (tuned.config / OURS).exists() and previous_values.read(tuned.paths.record_dir) == {}
    assert not tuned.back().changed


@pytest.mark.parametrize(
    ("enabled", "running", "profile", "mode"),
    [
        (True, True, "balanced", "auto"),
        (True, True, "", "manual"),
        (False, False, "", "manual"),
        (False, False, "", ""),
        (False, False, "virtual-guest", "manual"),
        (False, True, "balanced virtual-guest", "manual"),
        (True, False, "balanced", "manual"),
    ],
)
def test_whatever_tuned_was_before_comes_back(
    tmp_path: Path, enabled: bool, running: bool, profile: str, mode: str
) -> None:
    tuned = Tuned(tmp_path)
    tuned.enabled, tuned.running = enabled, running
    tuned.active(profile, mode)
    before = tuned.state()
    tuned.set()
    assert tuned.state() == (True, True, OURS, "manual")
    lines = (tuned.config / OURS / "tuned.conf").read_text().splitlines()
    included = [line for line in lines if line.startswith("include")]
    assert included == ([f"include={','.join(profile.split())}"] if profile else [])
    tuned.back()
    assert tuned.state() == before


def test_package_that_we_installed_is_to_go_and_is_noted_until_it_did(tmp_path: Path) -> None:
    tuned = Tuned(tmp_path, installed=False)
    assert not tuned_profile.note(tuned.paths, False, tuned.run).changed
    assert tuned.set(check=True).changed
    tuned.install()
    tuned.set()
    # No profile of TuneD's own choice was ever active.
    assert tuned.calls == ["enable --now tuned.service", f"profile {OURS}"]
    assert "include" not in (tuned.config / OURS / "tuned.conf").read_text()
    tuned_profile.note(tuned.paths, False, tuned.run)
    done = tuned.back()
    assert (done.changed, done.remove_package, done.after.installed) == (True, True, True)
    assert tuned.state() == (False, False, "", "")
    assert previous_values.read(tuned.paths.record_dir)["tuned"]["installed"] is False
    assert tuned.back().remove_package
    tuned.adm.unlink()
    assert not tuned.back().remove_package
    assert previous_values.read(tuned.paths.record_dir) == {}


def test_profile_that_was_chosen_by_hand_since_is_replaced_and_the_first_note_stays(tmp_path: Path) -> None:
    tuned = Tuned(tmp_path)
    tuned.enabled = tuned.running = True
    tuned.active("balanced", "auto")
    tuned.set()
    tuned.active("virtual-guest", "manual")
    assert tuned.set().changed
    assert "include=balanced\n" in (tuned.config / OURS / "tuned.conf").read_text()
    tuned.active("virtual-guest", "manual")
    tuned.back()
    assert tuned.state() == (True, True, "balanced", "auto")


def test_profile_with_another_name_replaces_the_one_before(tmp_path: Path) -> None:
    tuned = Tuned(tmp_path)
    tuned.enabled = tuned.running = True
    tuned.active("balanced", "manual")
    tuned.set(name="earlier")
    assert tuned.set(check=True).changed and (tuned.config / "earlier").exists()
    assert tuned.set().changed and not tuned.set().changed
    assert tuned.state()[2] == OURS and not (tuned.config / "earlier").exists()
    assert "include=balanced\n" in (tuned.config / OURS / "tuned.conf").read_text()
    tuned.back()
    assert tuned.state() == (True, True, "balanced", "manual")
    assert previous_values.read(tuned.paths.record_dir) == {}


@pytest.mark.parametrize("running", [True, False])
def test_profile_that_was_made_under_another_name_goes_too(tmp_path: Path, running: bool) -> None:
    tuned = Tuned(tmp_path)
    tuned.enabled = tuned.running = True
    tuned.active("balanced", "manual")
    tuned.set(name="earlier")
    tuned.running = running
    assert tuned.back(check=True).changed and (tuned.config / "earlier").exists()
    assert tuned.back().changed and not tuned.back().changed
    assert tuned.state() == (True, True, "balanced", "manual")
    assert list(tuned.config.glob("*/tuned.conf")) == []
    assert previous_values.read(tuned.paths.record_dir) == {}


def test_profiles_are_written_where_the_installed_release_looks(tmp_path: Path) -> None:
    tuned = Tuned(tmp_path)
    assert tuned_profile.profile_file(OURS, tuned.paths) == str(tuned.config / OURS / "tuned.conf")
    (tmp_path / "none").mkdir()
    assert tuned_profile.profile_file(OURS, tuned.paths) == str(tuned.config / "profiles" / OURS / "tuned.conf")
    (tuned.config / "tuned-main.conf").write_text(
        "# profile_dirs = /x\nprofile_dirs = /usr/lib/tuned/profiles, /srv/own\n"
    )
    assert tuned_profile.profile_file(OURS, tuned.paths) == f"/srv/own/{OURS}/tuned.conf"
    with pytest.raises(TunedError, match="this is no name"):
        tuned_profile.profile_file("../x", tuned.paths)


def test_what_goes_wrong_is_said(tmp_path: Path) -> None:
    tuned = Tuned(tmp_path)
    tuned.enabled = tuned.running = tuned.deaf = True
    with pytest.raises(TunedError, match="afterwards it has none and is running"):
        tuned.set()
    tuned.deaf = False
    tuned.set()
    previous_values.forget(tuned.paths.record_dir, ["tuned"])
    gone = {"installed": True, "enabled": True, "running": True, "profile": "removed", "mode": "manual"}
    previous_values.remember(tuned.paths.record_dir, {"tuned": gone})
    with pytest.raises(TunedError, match=r"it ended with 1.*'removed' doesn't exist"):
        tuned.back()
    assert "tuned" in previous_values.read(tuned.paths.record_dir)
    tuned.adm.unlink()
    with pytest.raises(TunedError, match="install the package tuned"):
        tuned.set()


@pytest.mark.parametrize("note", [1, {}, {"installed": 1, "enabled": True, "running": True, "profile": "", "mode": ""}])
def test_damaged_note_is_an_error(tmp_path: Path, note: object) -> None:
    tuned = Tuned(tmp_path)
    previous_values.remember(tuned.paths.record_dir, {"tuned": note})
    with pytest.raises(TunedError, match="is not as this collection notes it"):
        tuned.back()
