# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apt_outputs as outputs
import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import apt_run, installed_packages, previous_values
from ansible_collections.tokforge.sglang.plugins.module_utils.apt_packages import Packages
from ansible_collections.tokforge.sglang.plugins.module_utils.apt_pin import Pin
from ansible_collections.tokforge.sglang.plugins.module_utils.apt_simulation import SimulationError

ASKED = ["nvidia-driver-cuda=580.95.05-*"]
V = "580.95.05-1"


class Host:
    """Answers apt-get, apt-mark, apt-cache and dpkg-query; a transaction takes effect."""

    def __init__(self, installed: dict[str, str] | None = None) -> None:
        self.there = dict(installed or {})
        self.brings = ["nvidia-driver-cuda", "libcuda1"]
        self.held: set[str] = set()
        self.manual: set[str] = set()
        self.offers: dict[str, list[str]] = {}
        self.needed_by: dict[str, str] = {}
        self.fails = False
        # Unpacked and not configured, until apt is run; and what apt-get says instead of doing it, once each.
        self.unfinished: list[str] = []
        self.trouble: list[str] = []
        # Lists that do not know the packages yet; `refresh` is what fetching them does to those.
        self.unlisted: dict[str, bool] = {}
        self.refresh = True
        self.calls: list[list[str]] = []
        self.preferences: list[dict[str, str]] = []

    def __call__(self, command: Sequence[str]) -> tuple[int, str, str]:
        given = list(command)
        self.calls.append(given)
        if given[0] == "dpkg-query":
            states = {name: "iF" if name in self.unfinished else "ii" for name in self.there}
            return 0, "".join(f"{states[name]} \t{name}\t{version}\n" for name, version in self.there.items()), ""
        if given[0] == "dpkg":
            return 0, "", ""
        if given[0] == "apt-cache":
            return (
                0,
                "".join(f" {given[2]} | {one} | file:/srv Packages\n" for one in self.offers.get(given[2], [])),
                "",
            )
        if given[0] == "apt-mark":
            return self.mark(given)
        return self.get(given)

    def mark(self, given: list[str]) -> tuple[int, str, str]:
        if given[1] == "hold":
            self.held |= set(given[2:])
        elif given[1] == "unhold":
            self.held -= set(given[2:])
        shown = {"showhold": self.held, "showauto": set(self.there) - self.manual}.get(given[1], set())
        return 0, "\n".join(sorted(shown)), ""

    def get(self, given: list[str]) -> tuple[int, str, str]:
        for one in given:
            if one.startswith("Dir::Etc::preferencesparts="):
                folder = Path(one.partition("=")[2])
                self.preferences.append({file.name: file.read_text() for file in folder.iterdir()})
        lists = next((one.partition("=")[2] for one in given if one.startswith("Dir::State::lists=")), "")
        if given[-1] == "update":
            self.unlisted[lists] = not self.refresh
            return 100, "", "E: The repository 'https://enterprise.example bookworm' is not signed.\n"
        if self.unlisted.get(lists, bool(lists)):
            return 100, "", outputs.NO_HEADERS_ERRORS
        if "purge" in given:
            names = given[given.index("purge") + 1 :]
            names += [user for need, user in self.needed_by.items() if need in names and user in self.there]
            text = outputs.purging(*names)
            if "-s" not in given:
                self.there = {name: one for name, one in self.there.items() if name not in names}
            return 0, text, ""
        names = [name for name in self.brings if name not in self.there]
        text = outputs.installing(*names) + "".join(f"Conf {name} ({V} x [amd64])\n" for name in self.unfinished)
        if "-s" not in given:
            if self.trouble:
                return 100, "", self.trouble.pop(0)
            self.unfinished = []
            if self.fails:
                return 100, "", "E: Sub-process /usr/bin/dpkg returned an error code (1)\n"
            self.there.update(dict.fromkeys(names, V))
        return 0, text, ""


def packages(host: Host, tmp_path: Path, text: str = "") -> Packages:
    pin = Pin(str(tmp_path / "preferences.d" / "ours"), text) if text else Pin()
    return Packages(apt_run.Apt(host), "gpu_driver", str(tmp_path / "record"), pin)


def bring(host: Host, tmp_path: Path, **given: Any) -> dict[str, Any]:
    chosen: dict[str, Any] = {"also": [], "refuse": ["kernel"], "hold": False, "check": False, "text": "", **given}
    text = chosen.pop("text")
    return packages(host, tmp_path, text).bring(chosen.pop("packages", ASKED), **chosen)


def test_packages_are_installed_once_and_noted(tmp_path: Path) -> None:
    host = Host()
    first = bring(host, tmp_path)
    assert (first["changed"], [one["name"] for one in first["installs"]]) == (True, ["nvidia-driver-cuda", "libcuda1"])
    assert previous_values.read(str(tmp_path / "record")) == {
        "gpu_driver/package/nvidia-driver-cuda": "",
        "gpu_driver/package/libcuda1": "",
        "gpu_driver/asked/nvidia-driver-cuda": True,
    }
    assert bring(host, tmp_path)["changed"] is False


def test_what_is_done_is_what_was_simulated(tmp_path: Path) -> None:
    host = Host()
    bring(host, tmp_path)
    simulated, done = [one for one in host.calls if one[0] == "apt-get"][:2]
    assert simulated[:2] == ["apt-get", "-s"]
    assert done[:3] == ["apt-get", "-y", "-q"]
    assert done[3:] == simulated[2:]
    assert {"--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages"} <= set(done)


def test_check_mode_predicts_and_does_nothing(tmp_path: Path) -> None:
    host = Host()
    told = bring(host, tmp_path, check=True, hold=True, text="Pin\n")
    assert (told["changed"], told["held"], host.there) == (True, ["nvidia-driver-cuda"], {})
    assert list(tmp_path.iterdir()) == []


def test_lists_are_fetched_once_when_they_do_not_know_a_package(tmp_path: Path) -> None:
    host = Host()
    host.unlisted[""] = True
    assert bring(host, tmp_path)["changed"] and host.there
    updates = [one for one in host.calls if one[-1] == "update"]
    assert len(updates) == 1 and updates[0][:2] == ["apt-get", "-q"]
    bring(host, tmp_path)
    assert len([one for one in host.calls if one[-1] == "update"]) == 1


def test_check_mode_fetches_lists_into_a_directory_of_its_own(tmp_path: Path) -> None:
    host = Host()
    host.unlisted[""] = True
    told = bring(host, tmp_path, check=True)
    assert [one["name"] for one in told["installs"]] == ["nvidia-driver-cuda", "libcuda1"]
    # apt's own lists still know nothing, and nothing is left of the others.
    aside = [one for one in host.unlisted if one]
    assert host.unlisted[""] and len(aside) == 1 and not Path(aside[0]).exists()
    assert all("Dir::Cache::pkgcache=" in one for one in host.calls if one[-1] == "update")


def test_package_that_new_lists_do_not_know_either_is_named(tmp_path: Path) -> None:
    host = Host()
    host.unlisted[""], host.refresh = True, False
    for check in (False, True):
        with pytest.raises(SimulationError, match="Unable to locate package") as told:
            bring(host, tmp_path, check=check)
        assert told.value.facts["unlisted"]


def test_refused_transaction_leaves_nothing_behind(tmp_path: Path) -> None:
    host = Host()
    host.brings.append("linux-image-6.1.0-99-amd64")
    with pytest.raises(SimulationError, match=r"linux-image-6\.1\.0-99-amd64"):
        bring(host, tmp_path, hold=True, text="Pin\n")
    assert (host.there, host.held, list(tmp_path.iterdir())) == ({}, set(), [])


def test_container_refuses_what_brings_kernel_modules(tmp_path: Path) -> None:
    host = Host()
    host.brings.append("nvidia-kernel-open-dkms")
    with pytest.raises(SimulationError, match=r"kernel modules \(nvidia-kernel-open-dkms\)"):
        bring(host, tmp_path, refuse=["kernel", "kernel_module"])
    assert host.there == {}


def test_pins_hold_while_apt_is_asked_and_afterwards_when_held(tmp_path: Path) -> None:
    host = Host()
    folder = tmp_path / "preferences.d"
    folder.mkdir()
    (folder / "theirs").write_text("Package: x\n")
    (folder / "ours").write_text("older\n")
    bring(host, tmp_path, hold=True, text="newer\n")
    assert host.preferences[0] == {"theirs": "Package: x\n", "ours": "newer\n"}
    assert {one["ours"] for one in host.preferences} == {"newer\n"}
    assert (folder / "ours").read_text() == "newer\n"
    assert bring(host, tmp_path, hold=True, text="newer\n")["changed"] is False
    assert bring(host, tmp_path, hold=False, text="newer\n")["changed"] is True
    assert [one.name for one in folder.iterdir()] == ["theirs"]


def test_only_what_was_asked_for_is_held_and_only_our_hold_is_taken_off(tmp_path: Path) -> None:
    host = Host()
    host.held = {"base-files"}
    assert bring(host, tmp_path, hold=True)["held"] == ["nvidia-driver-cuda"]
    assert host.held == {"base-files", "nvidia-driver-cuda"}
    assert bring(host, tmp_path, hold=True)["changed"] is False
    assert bring(host, tmp_path, hold=False)["held"] == ["nvidia-driver-cuda"]
    assert host.held == {"base-files"}


def test_hold_of_somebody_else_stays(tmp_path: Path) -> None:
    host = Host()
    host.held = {"nvidia-driver-cuda"}
    assert bring(host, tmp_path, hold=True)["held"] == []
    bring(host, tmp_path, hold=False)
    assert host.held == {"nvidia-driver-cuda"}


def test_libraries_that_can_come_along_are_asked_for_too(tmp_path: Path) -> None:
    host = Host()
    host.offers = {"libcuda1": ["580.105.08-1", V], "libold": ["570.1-1"]}
    bring(host, tmp_path, also=["libcuda1=580.95.05-*", "libold=580.95.05-*", "libgone=580.95.05-*"], hold=True)
    asked = next(one for one in host.calls if one[:2] == ["apt-get", "-s"])
    assert asked[asked.index("install") + 1 :] == ["nvidia-driver-cuda=580.95.05-*", "libcuda1=580.95.05-*"]
    assert host.held == {"nvidia-driver-cuda"}


def test_failed_transaction_is_noted_and_told(tmp_path: Path) -> None:
    host = Host()
    host.fails = True
    with pytest.raises(SimulationError, match="dpkg returned an error code"):
        bring(host, tmp_path)
    assert "gpu_driver/package/libcuda1" in previous_values.read(str(tmp_path / "record"))


def test_package_that_a_killed_run_left_unconfigured_is_finished(tmp_path: Path) -> None:
    host = Host()
    bring(host, tmp_path)
    host.unfinished = ["libcuda1"]
    assert bring(host, tmp_path, check=True)["changed"] is True
    assert (bring(host, tmp_path)["unfinished"], host.unfinished) == (["libcuda1"], [])
    assert bring(host, tmp_path)["changed"] is False


def test_unconfigured_package_of_somebody_else_is_not_ours_to_finish(tmp_path: Path) -> None:
    host = Host({"nginx": "1"})
    bring(host, tmp_path)
    host.unfinished = ["nginx"]
    assert bring(host, tmp_path)["changed"] is False
    assert host.unfinished == ["nginx"]


def test_package_that_is_half_installed_goes_too(tmp_path: Path) -> None:
    host = Host()
    bring(host, tmp_path)
    host.unfinished = ["libcuda1"]
    packages(host, tmp_path).take_away([], check=False)
    assert host.there == {}


def test_dpkg_that_was_killed_is_put_right_first(tmp_path: Path) -> None:
    host = Host()
    host.trouble = ["E: dpkg was interrupted, you must manually run 'dpkg --configure -a' to correct the problem. \n"]
    assert bring(host, tmp_path)["changed"] is True
    assert ["dpkg", "--force-confdef", "--force-confold", "--configure", "-a"] in host.calls
    assert set(host.there) == {"nvidia-driver-cuda", "libcuda1"}


def test_archive_that_lost_what_old_lists_name_is_asked_anew(tmp_path: Path) -> None:
    host = Host()
    gone = "E: Failed to fetch http://x/a.deb  404  Not Found\nE: Unable to fetch some archives\n"
    host.trouble, host.refresh = [gone], True
    assert bring(host, tmp_path)["changed"] is True
    assert [one for one in host.calls if one[-1] == "update"]
    host = Host()
    host.trouble = [gone, gone]
    with pytest.raises(SimulationError, match="404"):
        bring(host, tmp_path / "2")


def test_locks_of_lists_are_waited_for_and_not_for_ever() -> None:
    held = (100, "", "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)\n")
    answers = [held, held, (0, "Hit:1\n", "")]
    waits: list[float] = []
    assert apt_run.patiently(["apt-get", "update"], lambda _command: answers.pop(0), waits.append)[0] == 0
    assert waits == [2.0, 2.0]
    waits = []
    assert apt_run.patiently(["apt-get", "update"], lambda _command: held, waits.append, limit_s=4) == held
    assert waits == [2.0, 2.0]
    other = (100, "", "E: Could not get lock /var/lib/dpkg/lock-frontend.\n")
    assert apt_run.patiently(["apt-get", "install"], lambda _command: other, waits.append) == other


def test_everything_that_came_goes_and_nothing_else(tmp_path: Path) -> None:
    host = Host({"openssh-server": "1"})
    host.brings.append("dkms")
    bring(host, tmp_path, hold=True, text="Pin\n")
    told = packages(host, tmp_path, "Pin\n").take_away(["kernel"], check=True)
    assert (told["changed"], len(host.there)) == (True, 4)
    told = packages(host, tmp_path, "Pin\n").take_away(["kernel"], check=False)
    assert sorted(one["name"] for one in told["removes"]) == ["dkms", "libcuda1", "nvidia-driver-cuda"]
    assert (host.there, host.held) == ({"openssh-server": "1"}, set())
    assert previous_values.read(str(tmp_path / "record")) == {}
    assert not (tmp_path / "preferences.d" / "ours").exists()
    assert packages(host, tmp_path, "Pin\n").take_away(["kernel"], check=False)["changed"] is False


def test_what_came_along_stays_when_somebody_needs_or_wants_it(tmp_path: Path) -> None:
    for wanted in (True, False):
        host = Host({"zfs-dkms": "1"})
        host.brings.append("dkms")
        bring(host, tmp_path)
        host.manual = {"dkms"} if wanted else set()
        host.needed_by = {} if wanted else {"dkms": "zfs-dkms"}
        packages(host, tmp_path).take_away([], check=False)
        assert set(host.there) == {"zfs-dkms", "dkms"}


def test_removal_that_would_take_more_is_refused(tmp_path: Path) -> None:
    host = Host()
    bring(host, tmp_path)
    host.there["ollama"] = "1"
    host.needed_by = {"libcuda1": "ollama"}
    with pytest.raises(SimulationError, match="ollama would go too"):
        packages(host, tmp_path).take_away([], check=False)
    assert "libcuda1" in host.there
    assert previous_values.read(str(tmp_path / "record"))


@pytest.mark.parametrize("needed", [True, False])
def test_what_others_need_stays_when_that_is_asked_for(tmp_path: Path, needed: bool) -> None:
    host = Host()
    bring(host, tmp_path)
    host.there["ollama"] = "1"
    host.needed_by = {"libcuda1": "ollama"} if needed else {}
    there = dict(host.there)
    told = packages(host, tmp_path).take_away([], check=False, keep_needed=True)
    assert (told["changed"], bool(told["removes"])) == (not needed, not needed)
    assert host.there == (there if needed else {"ollama": "1"})
    # What stays is not ours any more.
    assert previous_values.read(str(tmp_path / "record")) == {}


def test_package_that_was_there_before_is_kept_and_told(tmp_path: Path) -> None:
    host = Host({"libcuda1": V})
    previous_values.remember(str(tmp_path / "record"), {"gpu_driver/package/libcuda1": "535.1-1"})
    told = packages(host, tmp_path).take_away([], check=False)
    assert (told["kept"], told["changed"], host.there) == ({"libcuda1": "535.1-1"}, False, {"libcuda1": V})


@pytest.mark.parametrize("name", ["-o", "--purge", "a b", "x/stable", "../x.deb", "x=1;reboot", "", "task^"])
def test_what_is_no_package_is_refused_before_apt_sees_it(name: str, tmp_path: Path) -> None:
    host = Host()
    with pytest.raises(SimulationError, match="is no package"):
        bring(host, tmp_path, packages=[name])
    assert not [one for one in host.calls if one[0] == "apt-get"]


@pytest.mark.parametrize("name", ["g++", "libstdc++6", "libc6:i386", "nvidia-kernel-dkms-", "x=1:2.0~rc1+b-1", "a=5-*"])
def test_packages_names_are_understood(name: str) -> None:
    apt_run.check_names([name])


def test_simulation_that_fails_tells_why(tmp_path: Path) -> None:
    def run(command: Sequence[str]) -> tuple[int, str, str]:
        return (100, "", outputs.NO_HEADERS_ERRORS) if command[0] == "apt-get" else (0, "", "")

    with pytest.raises(SimulationError, match=r"Unable to locate package linux-headers-6\.1\.0-1-amd64;"):
        Packages(apt_run.Apt(run), "x", str(tmp_path)).bring(["linux-headers-6.1.0-1-amd64"], [], [], False, False)


def test_installed_packages_are_read_with_their_state() -> None:
    text = (
        "ii \tlibcuda1\t580.95.05-1\nhi \tnvidia-driver-cuda\t580.95.05-1\nrc \tnvidia-kernel-dkms\t535.1-1\n"
        "iF \tnvidia-modprobe\t580.95.05-1\niiR\tlibnvidia-ml1\t1\nun \tnvidia-smi\t\nii \tbash\t5.2\n"
    )
    assert installed_packages.driver(text) == {"libcuda1": "580.95.05-1", "nvidia-driver-cuda": "580.95.05-1"}
    assert installed_packages.installed("no packages found matching x\n") == {}
