# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Governor and energy preference on trees of files that stand for the kernel's, with a kernel that answers writes."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import cpu_frequency, previous_values
from ansible_collections.tokforge.sglang.plugins.module_utils.cpu_frequency import FrequencyError, Settings

GOVERNORS = "conservative ondemand performance schedutil"
PREFERENCES = "default performance balance_performance balance_power power"
FULL = Settings("performance", "performance")


class Kernel:
    """A tree below `folder` with the given policies, and the writes that came, in order.

    `tied` answers as intel_pstate and amd-pstate-epp do. `rules` map a file's name to what it does with a value.
    """

    def __init__(self, folder: Path) -> None:
        self.cpu = folder / "cpu"
        self.record = str(folder / "record")
        self.writes: list[tuple[str, str, str]] = []
        self.tied = False
        self.rules: dict[str, Callable[[Path, str], str]] = {}
        (self.cpu / "cpufreq").mkdir(parents=True)

    def policy(self, number: int, cpus: str | None = None, **files: str | None) -> Path:
        """Make or change one. A file that is None is not there."""
        path = self.cpu / "cpufreq" / f"policy{number}"
        path.mkdir(exist_ok=True)
        content = {
            "affected_cpus": cpus or str(number),
            "related_cpus": cpus or str(number),
            "scaling_driver": "acpi-cpufreq",
            "scaling_governor": "schedutil",
            "scaling_available_governors": GOVERNORS + " ",
            **files,
        }
        for name, text in content.items():
            if text is not None:
                (path / name).write_text(f"{text}\n")
            elif (path / name).exists():
                (path / name).unlink()
        return path

    def pstate(self, number: int, driver: str = "intel_pstate", **files: str | None) -> Path:
        """One whose driver has an energy preference."""
        self.tied = True
        content: dict[str, str | None] = {
            "scaling_driver": driver,
            "scaling_governor": "powersave",
            "scaling_available_governors": "performance powersave",
            "energy_performance_preference": "balance_performance",
            "energy_performance_available_preferences": PREFERENCES,
        }
        return self.policy(number, **{**content, **files})

    def write(self, path: str, value: str) -> None:
        """What the kernel does with a value."""
        file = Path(path)
        self.writes.append((file.parent.name, file.name, value))
        preference = file.parent / "energy_performance_preference"
        governor = (file.parent / "scaling_governor").read_text().strip()
        if self.tied and file.name == preference.name and governor == "performance" != value:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
        if file.name in self.rules:
            value = self.rules[file.name](file, value)
        cpu_frequency.write_value(path, value)
        if self.tied and file.name == "scaling_governor" and value == "performance":
            preference.write_text("performance\n")

    def present(self, governor: str, preference: str | None = None, check: bool = False) -> cpu_frequency.Outcome:
        wanted = Settings(governor, preference)
        return cpu_frequency.present(wanted, str(self.cpu), self.record, check, self.write)

    def absent(self, check: bool = False) -> cpu_frequency.Outcome:
        return cpu_frequency.absent(str(self.cpu), self.record, check, self.write)

    def now(self, number: int = 0) -> Settings:
        settings = cpu_frequency.look(str(self.cpu))[number].settings
        assert settings is not None
        return settings


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def statuses(outcome: cpu_frequency.Outcome) -> dict[str, str]:
    return {entry.name: entry.status for entry in outcome.entries}


def test_two_cpus_are_set_once_and_put_back(kernel: Kernel) -> None:
    kernel.policy(0)
    kernel.policy(1, scaling_governor="ondemand")
    predicted = kernel.present("performance", check=True)
    assert kernel.writes == [] and not os.path.exists(kernel.record)
    done = kernel.present("performance")
    assert done == predicted
    assert (done.changed, done.supported, done.reason, done.energy_preference_supported) == (True, True, "", None)
    assert [(entry.before, entry.after, entry.status) for entry in done.entries] == [
        (Settings("schedutil"), Settings("performance"), "set"),
        (Settings("ondemand"), Settings("performance"), "set"),
    ]
    assert previous_values.read(kernel.record) == {
        "cpu_governor/policy0": {"governor": "schedutil", "energy_preference": None, "driver": "acpi-cpufreq"},
        "cpu_governor/policy1": {"governor": "ondemand", "energy_preference": None, "driver": "acpi-cpufreq"},
    }
    kernel.writes.clear()
    again = kernel.present("performance")
    assert (again.changed, set(statuses(again).values()), kernel.writes) == (False, {"already"}, [])
    predicted = kernel.absent(check=True)
    assert kernel.writes == [] and len(previous_values.read(kernel.record)) == 2
    back = kernel.absent()
    assert back == predicted and back.changed and set(statuses(back).values()) == {"restored"}
    assert (kernel.now(0), kernel.now(1)) == (Settings("schedutil"), Settings("ondemand"))
    assert previous_values.read(kernel.record) == {}
    over = kernel.absent()
    assert (over.changed, set(statuses(over).values())) == (False, {"not_ours"})


def test_later_values_of_ours_do_not_replace_what_was_noted_first(kernel: Kernel) -> None:
    kernel.policy(0)
    kernel.present("ondemand")
    kernel.present("performance")
    kernel.absent()
    assert kernel.now() == Settings("schedutil")


def test_value_that_was_there_is_not_noted(kernel: Kernel) -> None:
    kernel.policy(0, scaling_governor="performance")
    assert kernel.present("performance").changed is False
    assert previous_values.read(kernel.record) == {}


@pytest.mark.parametrize("made", [True, False])
def test_machine_without_policies_is_not_supported_and_no_failure(kernel: Kernel, made: bool) -> None:
    if not made:
        (kernel.cpu / "cpufreq").rmdir()
    previous_values.remember(kernel.record, {"cpu_governor/policy0": "kept"})
    for outcome in (kernel.present("performance", "power"), kernel.present("x", check=True), kernel.absent()):
        assert (outcome.changed, outcome.supported, outcome.entries) == (False, False, ())
        assert "has no policies" in outcome.reason and str(kernel.cpu / "cpufreq") in outcome.reason
    assert kernel.present("performance", "power").energy_preference_supported is False
    assert previous_values.read(kernel.record) == {"cpu_governor/policy0": "kept"}


def test_place_that_is_no_cpu_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FrequencyError, match="no such directory; mount /sys"):
        cpu_frequency.look(str(tmp_path / "none"))
    (tmp_path / "cpufreq").write_text("")
    with pytest.raises(FrequencyError, match="Not a directory"):
        cpu_frequency.look(str(tmp_path))


def test_governor_that_one_policy_does_not_have_fails_before_any_write(kernel: Kernel) -> None:
    kernel.policy(0, "0 1")
    kernel.policy(2, "2 3", scaling_available_governors="performance powersave")
    kernel.policy(4, "4", scaling_available_governors="performance powersave")
    with pytest.raises(FrequencyError) as caught:
        kernel.present("ondemand")
    assert "CPU 2-4 has performance, powersave; choose one of them" in str(caught.value)
    assert "conservative" not in str(caught.value)
    assert caught.value.facts["available"] == {
        "policy2": ["performance", "powersave"],
        "policy4": ["performance", "powersave"],
    }
    assert kernel.writes == [] and not os.path.exists(kernel.record)


@pytest.mark.parametrize("governor", ["", "perf", "performance schedutil", "performance\n", "\0", "Performance"])
def test_text_that_is_no_governor_of_the_list_is_refused(kernel: Kernel, governor: str) -> None:
    kernel.policy(0)
    with pytest.raises(FrequencyError, match="choose one of them"):
        kernel.present(governor)


def test_policies_are_shared_sorted_by_number_and_named_after_their_cpus(kernel: Kernel) -> None:
    for number in (10, 2, 0):
        kernel.policy(number, f"{number} {number + 1}")
    (kernel.cpu / "cpufreq" / "boost").write_text("1\n")
    (kernel.cpu / "cpufreq" / "ondemand").mkdir()
    (kernel.cpu / "cpufreq" / "policy07").mkdir()
    outcome = kernel.present("performance")
    assert [entry.name for entry in outcome.entries] == ["policy0", "policy2", "policy10"]
    assert cpu_frequency.lines(outcome.entries, after=False) == (
        "CPU 0-1 (policy0): schedutil\nCPU 2-3 (policy2): schedutil\nCPU 10-11 (policy10): schedutil\n"
    )
    assert "CPU 10-11 (policy10): performance\n" in cpu_frequency.lines(outcome.entries, after=True)
    assert cpu_frequency.described(outcome.entries[2]) == {
        "name": "policy10",
        "cpus": [10, 11],
        "driver": "acpi-cpufreq",
        "before": {"governor": "schedutil", "energy_preference": None},
        "after": {"governor": "performance", "energy_preference": None},
        "available": {"governors": GOVERNORS.split(), "energy_preferences": []},
        "status": "set",
    }


def test_governor_is_written_before_the_preference_which_then_needs_no_write(kernel: Kernel) -> None:
    kernel.pstate(0)
    kernel.pstate(1, scaling_governor="performance", energy_performance_preference="performance")
    predicted = kernel.present("performance", "performance", check=True)
    done = kernel.present("performance", "performance")
    assert done == predicted and done.energy_preference_supported is True
    assert statuses(done) == {"policy0": "set", "policy1": "already"}
    assert kernel.writes == [("policy0", "scaling_governor", "performance")]
    assert kernel.now() == FULL
    back = kernel.absent()
    assert statuses(back) == {"policy0": "restored", "policy1": "not_ours"}
    assert kernel.writes[1:] == [
        ("policy0", "scaling_governor", "powersave"),
        ("policy0", "energy_performance_preference", "balance_performance"),
    ]
    assert kernel.now() == Settings("powersave", "balance_performance")


def test_preference_that_the_governor_brings_along_is_predicted_and_put_back(kernel: Kernel) -> None:
    kernel.pstate(0, driver="amd-pstate-epp")
    predicted = kernel.present("performance", check=True)
    assert kernel.present("performance") == predicted
    assert predicted.entries[0].after == FULL and predicted.energy_preference_supported is None
    kernel.absent()
    assert kernel.now() == Settings("powersave", "balance_performance")


def test_preference_alone_is_changed_where_the_governor_is_right(kernel: Kernel) -> None:
    kernel.pstate(0)
    outcome = kernel.present("powersave", "power")
    assert kernel.writes == [("policy0", "energy_performance_preference", "power")]
    assert outcome.changed and kernel.present("powersave", "power").changed is False
    assert kernel.present("powersave").changed is False


@pytest.mark.parametrize("driver", ["intel_pstate", "amd-pstate-epp"])
def test_preference_that_governor_performance_excludes_fails_before_any_write(kernel: Kernel, driver: str) -> None:
    kernel.pstate(0, driver=driver)
    with pytest.raises(FrequencyError, match=f"driver {driver} allows only performance under governor performance"):
        kernel.present("performance", "balance_power", check=True)
    with pytest.raises(FrequencyError):
        kernel.present("performance", "balance_power")
    assert kernel.writes == []


def test_driver_that_unties_governor_and_preference_takes_both(kernel: Kernel) -> None:
    kernel.pstate(0, driver="intel_cpufreq", scaling_governor="schedutil", scaling_available_governors=GOVERNORS)
    kernel.tied = False
    outcome = kernel.present("performance", "balance_power")
    assert outcome.entries[0].after == kernel.now() == Settings("performance", "balance_power")


def test_list_that_only_governor_performance_narrows_is_looked_at_again_after_it(kernel: Kernel) -> None:
    narrow = {"energy_performance_preference": "performance", "energy_performance_available_preferences": "performance"}
    path = kernel.pstate(0, driver="amd-pstate-epp", scaling_governor="performance", **narrow)

    def widen(file: Path, value: str) -> str:
        (path / "energy_performance_available_preferences").write_text(PREFERENCES)
        return value

    with pytest.raises(FrequencyError, match=r"list it under governor powersave; choose one of performance$"):
        kernel.present("powersave", "power")
    kernel.absent()
    assert kernel.now() == FULL
    kernel.rules["scaling_governor"] = widen
    assert kernel.present("powersave", "power").entries[0].after == Settings("powersave", "power")


@pytest.mark.parametrize(
    ("preference", "why"),
    [
        ("default", "never reads it back.*choose one of performance, balance_performance, balance_power, power$"),
        ("fast", "the kernel does not list it; choose one of performance"),
        ("", "does not list it"),
        ("128", "does not list it"),
    ],
)
def test_preference_that_cannot_be_is_refused_with_the_list(kernel: Kernel, preference: str, why: str) -> None:
    kernel.pstate(0)
    with pytest.raises(FrequencyError, match=why) as caught:
        kernel.present("powersave", preference)
    assert caught.value.facts["available"] == {"policy0": PREFERENCES.split()[1:]}
    assert kernel.writes == []


def test_driver_without_preference_is_reported_and_the_others_are_set(kernel: Kernel) -> None:
    kernel.policy(0, scaling_governor="performance")
    kernel.pstate(1)
    outcome = kernel.present("performance", "performance")
    assert (outcome.supported, outcome.energy_preference_supported) == (True, False)
    assert outcome.reason == "there is no energy preference for CPU 0 (policy0) with driver acpi-cpufreq"
    assert statuses(outcome) == {"policy0": "already", "policy1": "set"}
    assert kernel.now(1) == FULL


def test_preference_without_a_name_is_put_back_as_the_number_it_was(kernel: Kernel) -> None:
    kernel.pstate(0, energy_performance_preference="96")
    kernel.present("performance")
    kernel.absent()
    assert kernel.now() == Settings("powersave", "96")


def test_offline_policy_is_left_and_keeps_its_note(kernel: Kernel) -> None:
    kernel.policy(0)
    kernel.policy(2, "2 3")
    kernel.present("performance")
    path = kernel.policy(2, affected_cpus="", related_cpus="2 3", scaling_governor="performance")
    outcome = kernel.absent()
    assert statuses(outcome) == {"policy0": "restored", "policy2": "offline"}
    assert outcome.entries[1].policy is not None and outcome.entries[1].policy.cpus == (2, 3)
    assert cpu_frequency.described(outcome.entries[1])["before"] is None
    assert list(previous_values.read(kernel.record)) == ["cpu_governor/policy2"]
    assert statuses(kernel.present("ondemand")) == {"policy0": "set", "policy2": "offline"}
    assert (path / "scaling_governor").read_text() == "performance\n"
    kernel.policy(2, "2 3", scaling_governor="performance")
    assert statuses(kernel.absent())["policy2"] == "restored"
    assert (path / "scaling_governor").read_text() == "schedutil\n"


def test_policy_that_answers_busy_is_offline(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.policy(3)

    def busy(path: str, name: str) -> str:
        raise OSError(errno.EBUSY, "Device or resource busy", name)

    monkeypatch.setattr(cpu_frequency, "_read", busy)
    (policy,) = cpu_frequency.look(str(kernel.cpu))
    assert (policy.cpus, policy.settings) == ((3,), None)
    monkeypatch.undo()
    kernel.policy(3, affected_cpus="", related_cpus="")
    assert cpu_frequency.look(str(kernel.cpu)) == (policy,)


def test_policies_that_came_and_went_are_reported(kernel: Kernel) -> None:
    kernel.policy(0)
    gone = kernel.policy(1)
    kernel.present("performance")
    for file in gone.iterdir():
        file.unlink()
    gone.rmdir()
    kernel.policy(2)
    predicted = kernel.absent(check=True)
    outcome = kernel.absent()
    assert outcome == predicted
    assert statuses(outcome) == {"policy0": "restored", "policy1": "gone", "policy2": "not_ours"}
    assert cpu_frequency.described(outcome.entries[1])["cpus"] == []
    assert previous_values.read(kernel.record) == {}
    assert kernel.now(1) == Settings("schedutil")


def test_other_driver_is_not_given_the_governor_of_the_former_one(kernel: Kernel) -> None:
    kernel.pstate(0)
    kernel.present("performance")
    kernel.policy(0, scaling_governor="performance", scaling_available_governors="performance powersave schedutil")
    outcome = kernel.absent()
    assert (statuses(outcome), outcome.changed) == ({"policy0": "other_driver"}, False)
    assert kernel.now().governor == "performance"
    assert previous_values.read(kernel.record) == {}


def test_value_that_does_not_stick_names_the_cpu_and_what_it_reads(kernel: Kernel) -> None:
    kernel.policy(0)
    kernel.policy(1)
    kernel.rules["scaling_governor"] = lambda file, value: "ondemand" if file.parent.name == "policy1" else value
    with pytest.raises(
        FrequencyError, match=r"CPU 1 .policy1. to 'performance': it reads 'ondemand' afterwards"
    ) as caught:
        kernel.present("performance")
    facts = caught.value.facts
    assert (facts["cpus"], facts["wanted"], facts["reads"], facts["changed"]) == ([1], "performance", "ondemand", True)
    assert [(one["name"], one["status"], one["after"]["governor"]) for one in facts["policies"]] == [
        ("policy0", "set", "performance"),
        ("policy1", "failed", "ondemand"),
    ]
    # Both are noted, so the way back is whole.
    kernel.rules.clear()
    kernel.absent()
    assert (kernel.now(0), kernel.now(1)) == (Settings("schedutil"), Settings("schedutil"))


def test_preference_that_does_not_stick_fails(kernel: Kernel) -> None:
    kernel.pstate(0)
    kernel.rules["energy_performance_preference"] = lambda file, value: "balance_power"
    with pytest.raises(FrequencyError, match=r"energy_performance_preference of CPU 0 .*reads 'balance_power'"):
        kernel.present("powersave", "power")


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EROFS, "run this on the hypervisor, as root"),
        (errno.EACCES, "run this on the hypervisor, as root"),
        (errno.EPERM, "run this on the hypervisor, as root"),
        (errno.EBUSY, "choose another governor or preference"),
        (errno.EINVAL, "look at its log"),
    ],
)
def test_write_that_the_kernel_refuses_says_what_to_do(kernel: Kernel, number: int, remedy: str) -> None:
    kernel.policy(0)

    def refuse(file: Path, value: str) -> str:
        raise OSError(number, os.strerror(number), str(file))

    kernel.rules["scaling_governor"] = refuse
    with pytest.raises(FrequencyError) as caught:
        kernel.present("performance")
    assert os.strerror(number) in str(caught.value) and str(caught.value).endswith(remedy)
    assert caught.value.facts["changed"] is False
    # Noted before the write: the kill of a run here loses nothing.
    assert list(previous_values.read(kernel.record)) == ["cpu_governor/policy0"]


@pytest.mark.parametrize("check", [True, False])
def test_read_only_place_is_found_before_anything_is_noted(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, check: bool
) -> None:
    kernel.policy(0)
    real = os.open

    def read_only(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_WRONLY and str(path).endswith("scaling_governor"):
            raise OSError(errno.EROFS, "Read-only file system", path)
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(FrequencyError, match="Read-only file system; a container cannot set the CPUs of its machine"):
        kernel.present("performance", check=check)
    assert kernel.writes == [] and not os.path.exists(kernel.record)
    # What needs no write needs no permission.
    assert kernel.present("schedutil", check=check).changed is False
    previous_values.remember(
        kernel.record, {"cpu_governor/policy0": {"governor": "ondemand", "driver": "acpi-cpufreq"}}
    )
    with pytest.raises(FrequencyError, match="Read-only file system; a container cannot set the CPUs of its machine"):
        kernel.absent(check=check)
    assert kernel.writes == [] and list(previous_values.read(kernel.record)) == ["cpu_governor/policy0"]


def test_killed_run_is_finished_by_the_next_of_either_kind(kernel: Kernel) -> None:
    for number in range(3):
        kernel.policy(number)

    def killed(file: Path, value: str) -> str:
        if file.parent.name == "policy1":
            raise KeyboardInterrupt
        return value

    kernel.rules["scaling_governor"] = killed
    with pytest.raises(KeyboardInterrupt):
        kernel.present("performance")
    kernel.rules.clear()
    assert statuses(kernel.present("performance")) == {"policy0": "already", "policy1": "set", "policy2": "set"}
    kernel.rules["scaling_governor"] = killed
    with pytest.raises(KeyboardInterrupt):
        kernel.absent()
    kernel.rules.clear()
    assert len(previous_values.read(kernel.record)) == 3
    assert kernel.absent().changed
    assert {kernel.now(number).governor for number in range(3)} == {"schedutil"}


@pytest.mark.parametrize(
    "note",
    [
        None,
        "schedutil",
        [],
        {},
        {"governor": 1, "driver": "x"},
        {"governor": "a"},
        {"governor": "", "driver": "x"},
        {"governor": "a", "driver": "x", "energy_preference": 7},
        {"governor": "a", "driver": "x", "energy_preference": ""},
        {"governor": "a", "driver": "x", "energy_preference": []},
    ],
)
def test_note_that_is_none_of_ours_is_an_error_and_stays(kernel: Kernel, note: object) -> None:
    kernel.policy(0)
    previous_values.remember(kernel.record, {"cpu_governor/policy0": note})
    with pytest.raises(FrequencyError, match="cpu_governor/policy0 is not as this collection notes it; put a backup"):
        kernel.absent()
    assert previous_values.read(kernel.record) == {"cpu_governor/policy0": note}
    assert kernel.writes == []


def test_notes_of_other_settings_stay(kernel: Kernel) -> None:
    kernel.policy(0)
    previous_values.remember(kernel.record, {"pcie_read_request/0000:00:01.0": 1, "cpu_governors": 2})
    kernel.present("performance")
    kernel.absent()
    assert previous_values.read(kernel.record) == {"pcie_read_request/0000:00:01.0": 1, "cpu_governors": 2}


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("affected_cpus", "0-3", "is no list of CPU numbers"),
        ("affected_cpus", "zero", "is no list of CPU numbers"),
        ("affected_cpus", "0 \0", "is no list of CPU numbers"),
        ("affected_cpus", None, "No such file or directory .affected_cpus."),
        ("scaling_governor", "", "it is empty"),
        ("scaling_governor", None, "No such file or directory .scaling_governor."),
        ("scaling_available_governors", None, "No such file or directory .scaling_available_governors."),
        ("scaling_driver", None, "No such file or directory .scaling_driver."),
    ],
)
def test_policy_that_cannot_be_understood_is_an_error(kernel: Kernel, name: str, text: str | None, why: str) -> None:
    kernel.policy(0, **{name: text})
    with pytest.raises(FrequencyError, match=why) as caught:
        kernel.present("performance")
    assert "policy0" in caught.value.facts["path"]


def test_policy_that_vanishes_before_the_write_is_an_error(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    path = kernel.pstate(0)
    monkeypatch.setattr(previous_values, "remember", lambda *given: (path / "scaling_governor").unlink())
    with pytest.raises(FrequencyError, match=r"No such file or directory after CPU 0 .policy0. was set"):
        kernel.present("powersave", "power")


def test_file_that_is_gone_at_the_write_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        cpu_frequency.write_value(str(tmp_path / "scaling_governor"), "performance")
    assert list(tmp_path.iterdir()) == []
