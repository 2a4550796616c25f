# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel parameters in a folder that stands for /proc/sys, and the file that keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import own_file, previous_values, sysctl_parameters
from ansible_collections.tokforge.sglang.plugins.module_utils.sysctl_parameters import ParameterError, Paths

BALANCING, PAGES = "kernel.numa_balancing", "vm.nr_hugepages"


class Kernel:
    """The folder, with two parameters."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file = root / "etc/sysctl.d/99-tokforge-host.conf"
        self.file.parent.mkdir(parents=True)
        self.paths = Paths(str(root / "sys"), str(self.file), (str(root / "lib"),), str(root / "record"))
        self.put(BALANCING, "1\n")
        self.put(PAGES, "0\n")
        self.put("net.ipv4.tcp_rmem", "4096\t131072\t6291456\n")

    def put(self, name: str, value: str) -> None:
        path = Path(sysctl_parameters.path_of(name, str(self.root / "sys")))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value)

    def get(self, name: str) -> str | None:
        return sysctl_parameters.read_value(name, self.paths.proc_sys)

    def settle(self, parameters: dict[str, Any]) -> sysctl_parameters.Plan:
        plan = sysctl_parameters.decide(parameters, self.paths)
        sysctl_parameters.apply(plan, self.paths)
        return plan

    def notes(self) -> dict[str, Any]:
        return previous_values.read(self.paths.record_dir)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def test_set_is_made_kept_in_a_file_and_put_back(kernel: Kernel) -> None:
    assert kernel.settle({BALANCING: 0, PAGES: "16"}).changed
    assert (kernel.get(BALANCING), kernel.get(PAGES)) == ("0", "16")
    assert kernel.file.read_text() == f"{own_file.HEADER}{BALANCING} = 0\n{PAGES} = 16\n"
    assert kernel.notes() == {f"kernel_parameter/{BALANCING}": "1", f"kernel_parameter/{PAGES}": "0"}
    assert not kernel.settle({BALANCING: 0, PAGES: 16}).changed
    assert kernel.settle({}).changed
    assert (kernel.get(BALANCING), kernel.get(PAGES), kernel.file.exists(), kernel.notes()) == ("1", "0", False, {})
    assert not kernel.settle({}).changed


def test_parameter_that_is_not_asked_for_any_more_gets_back_what_it_had(kernel: Kernel) -> None:
    kernel.settle({BALANCING: 0, PAGES: 16})
    plan = kernel.settle({BALANCING: 0})
    assert [(entry.name, entry.status) for entry in plan.entries] == [(BALANCING, "already"), (PAGES, "restored")]
    assert (kernel.get(BALANCING), kernel.get(PAGES)) == ("0", "0")
    assert PAGES not in kernel.file.read_text()
    assert list(kernel.notes()) == [f"kernel_parameter/{BALANCING}"]


def test_change_by_hand_is_set_again_and_does_not_replace_the_note(kernel: Kernel) -> None:
    kernel.settle({BALANCING: 0})
    kernel.put(BALANCING, "2\n")
    assert kernel.settle({BALANCING: 0}).changed
    kernel.put(BALANCING, "2\n")
    kernel.settle({})
    assert kernel.get(BALANCING) == "1"


def test_kill_after_the_note_is_finished_by_the_next_run_of_either_kind(kernel: Kernel) -> None:
    previous_values.remember(kernel.paths.record_dir, {f"kernel_parameter/{BALANCING}": "1"})
    own_file.write(str(kernel.file), f"{own_file.HEADER}{BALANCING} = 0\n")
    assert kernel.settle({BALANCING: 0}).changed
    assert kernel.settle({}).changed
    assert (kernel.get(BALANCING), kernel.file.exists(), kernel.notes()) == ("1", False, {})


def test_earlier_file_of_others_is_left_alone_and_a_later_one_is_refused(kernel: Kernel) -> None:
    earlier = kernel.file.parent / "10-vendor.conf"
    earlier.write_text(f"{BALANCING}=1\n")
    kernel.settle({BALANCING: 0})
    assert earlier.read_text() == f"{BALANCING}=1\n"
    (kernel.root / "lib").mkdir()
    later = kernel.root / "lib/99-zz.conf"
    later.write_text(f"# {BALANCING} = 3\n;x\n-kernel/numa_balancing =  2 \n")
    with pytest.raises(ParameterError, match=f"{later} line 3 comes later and sets it to 2") as refused:
        kernel.settle({BALANCING: 0})
    assert refused.value.facts == {"name": BALANCING, "file": str(later), "line": 3}
    # A file of the same name in our directory hides it, and the same value is no conflict.
    (kernel.file.parent / "99-zz.conf").write_text(f"{BALANCING} = 0\n")
    assert not kernel.settle({BALANCING: 0}).changed


def test_values_with_several_numbers_are_compared_without_their_spaces(kernel: Kernel) -> None:
    assert kernel.settle({"net.ipv4.tcp_rmem": " 4096 131072   6291456"}).entries[0].status == "already"
    assert sysctl_parameters.differing({"net.ipv4.tcp_rmem": "1 2 3"}, kernel.paths.proc_sys) == [
        ("net.ipv4.tcp_rmem", "1 2 3", "4096 131072 6291456")
    ]


@pytest.mark.parametrize(
    ("name", "normal"),
    [
        ("net/ipv4/conf/eth0.1/rp_filter", "net.ipv4.conf.eth0/1.rp_filter"),
        ("net.ipv4.conf.eth0/1.rp_filter", "net.ipv4.conf.eth0/1.rp_filter"),
    ],
)
def test_first_sign_of_a_name_decides(name: str, normal: str) -> None:
    assert sysctl_parameters.normalised(name) == normal
    assert sysctl_parameters.path_of(normal, "/p") == "/p/net/ipv4/conf/eth0.1/rp_filter"


@pytest.mark.parametrize("name", ["", "x", "../etc/passwd", "kernel..x", "/etc/passwd", "kernel.x\n", "kernel.x y"])
def test_name_that_is_none_is_refused(kernel: Kernel, name: str) -> None:
    with pytest.raises(ParameterError, match="this is no name"):
        kernel.settle({name: 1})


@pytest.mark.parametrize("value", [True, None, 1.5, "", " ", "1\x00", [1]])
def test_value_that_is_none_is_refused(kernel: Kernel, value: Any) -> None:
    with pytest.raises(ParameterError, match=BALANCING):
        kernel.settle({BALANCING: value})
    assert not kernel.file.exists()


def test_two_values_of_one_parameter_are_refused() -> None:
    with pytest.raises(ParameterError, match="both 0 and 1"):
        sysctl_parameters.wanted_values({BALANCING: 0, "kernel/numa_balancing": 1})


def test_parameter_that_the_kernel_does_not_have(kernel: Kernel) -> None:
    with pytest.raises(ParameterError, match="is not there; correct the name"):
        kernel.settle({"kernel.nothing": 1})
    previous_values.remember(kernel.paths.record_dir, {"kernel_parameter/kernel.nothing": "1"})
    assert [entry.status for entry in kernel.settle({}).entries] == ["gone"]
    assert kernel.notes() == {}


def test_note_that_is_no_text_is_an_error(kernel: Kernel) -> None:
    previous_values.remember(kernel.paths.record_dir, {f"kernel_parameter/{PAGES}": 7})
    with pytest.raises(ParameterError, match="is no text"):
        kernel.settle({})


def test_file_of_somebody_else_is_not_replaced(kernel: Kernel) -> None:
    kernel.file.write_text("kernel.x = 1\n")
    with pytest.raises(own_file.OwnFileError, match="was not written by this collection"):
        kernel.settle({BALANCING: 0})
    assert (kernel.get(BALANCING), kernel.notes()) == ("1", {})


def test_value_that_the_kernel_changes_is_an_error_that_says_what_it_reads(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysctl_parameters, "write_value", lambda path, value: Path(path).write_text("7\n"))
    with pytest.raises(ParameterError, match="the kernel reads 7 afterwards; the kernel has not so much memory"):
        kernel.settle({PAGES: 16})


def test_read_only_proc_says_where_to_run(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(_path: str, _value: str) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(sysctl_parameters, "write_value", refusing)
    with pytest.raises(ParameterError, match="on the machine below it"):
        kernel.settle({BALANCING: 0})


def test_refused_parameter_leaves_neither_file_nor_note_nor_half_of_the_others(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.settle({"net.ipv4.tcp_rmem": "4096 131072 6291457"})
    text, notes = kernel.file.read_text(), kernel.notes()
    real = sysctl_parameters.write_value

    def write(path: str, value: str) -> None:
        if path.endswith("nr_hugepages"):
            raise OSError(30, "Read-only file system")
        real(path, value)

    monkeypatch.setattr(sysctl_parameters, "write_value", write)
    with pytest.raises(ParameterError, match=r"vm\.nr_hugepages to 16"):
        kernel.settle({BALANCING: 0, PAGES: 16, "net.ipv4.tcp_rmem": "4096 131072 6291457"})
    assert (kernel.get(BALANCING), kernel.get(PAGES)) == ("1", "0")
    assert (kernel.file.read_text(), kernel.notes()) == (text, notes)


def test_file_that_cannot_be_written_leaves_the_kernel_as_it_was(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: str, text: str | None) -> None:
        raise own_file.OwnFileError(f"writing {file}: No space left on device; free some")

    monkeypatch.setattr(own_file, "write", full)
    with pytest.raises(own_file.OwnFileError):
        kernel.settle({BALANCING: 0})
    assert (kernel.get(BALANCING), kernel.notes()) == ("1", {})
