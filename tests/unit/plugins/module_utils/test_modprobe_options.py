# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of kernel modules: the file, the initramfs and what is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import modprobe_options, own_file, previous_values
from ansible_collections.tokforge.sglang.plugins.module_utils.modprobe_options import OptionsError

HMM = {"nvidia_uvm": {"uvm_disable_hmm": 1}}


class Tree:
    """A host's files, and the commands that ran."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file = root / "modprobe.d/tokforge-host.conf"
        self.file.parent.mkdir()
        self.record = str(root / "record")
        self.calls: list[list[str]] = []
        self.status = 0

    def run(self, command: Sequence[str]) -> tuple[int, str]:
        self.calls.append(list(command))
        return self.status, "no space left\n"

    def settle(self, options: dict[str, Any]) -> modprobe_options.Plan:
        plan = modprobe_options.decide(options, str(self.file), (str(self.root / "lib"),), self.record)
        modprobe_options.apply(plan, str(self.file), ["refresh", "-u"], self.record, self.run)
        return plan

    def parameter(self, module: str, name: str, value: str) -> None:
        path = self.root / "sys" / module / "parameters" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")

    def loaded(self, options: dict[str, Any]) -> list[str]:
        return [each.status for each in modprobe_options.loaded(options, str(self.root / "sys"))]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_file_is_written_and_the_initramfs_refreshed_once_for_a_change(tree: Tree) -> None:
    assert tree.settle(HMM).changed
    assert tree.file.read_text() == f"{own_file.HEADER}options nvidia_uvm uvm_disable_hmm=1\n"
    assert tree.calls == [["refresh", "-u"]]
    assert not tree.settle({"nvidia-uvm": {"uvm_disable_hmm": "1"}}).changed
    assert len(tree.calls) == 1
    assert tree.settle({}).changed and not tree.file.exists()
    assert len(tree.calls) == 2
    assert not tree.settle({}).changed
    assert (len(tree.calls), previous_values.read(tree.record)) == (2, {})


def test_run_that_ended_before_the_refresh_is_finished_by_the_next(tree: Tree) -> None:
    tree.status = 1
    with pytest.raises(OptionsError, match=r"refresh -u: it ended with 1.*no space left"):
        tree.settle(HMM)
    assert tree.file.exists()
    tree.status = 0
    plan = modprobe_options.decide(HMM, str(tree.file), (), tree.record)
    assert (plan.writes, plan.refresh, plan.changed) == (False, True, True)
    assert tree.settle(HMM).changed and not tree.settle(HMM).changed
    assert len(tree.calls) == 2


def test_refresh_that_is_due_is_also_done_when_nothing_is_asked_any_more(tree: Tree) -> None:
    previous_values.remember(tree.record, {f"modprobe_options_refresh/{tree.file}": True})
    assert tree.settle({}).changed
    assert len(tree.calls) == 1


@pytest.mark.parametrize(
    ("wanted", "shown", "status"),
    [
        (1, "Y", "followed"),
        (True, "Y", "followed"),
        ("y", "Y", "followed"),
        (0, "Y", "other_value"),
        ("N", "N", "followed"),
        (1, "1", "followed"),
        ("0x11", "17", "followed"),
        (1, "N", "other_value"),
        ("a,b", "a,b", "followed"),
        ("a,b", "a", "other_value"),
    ],
)
def test_what_a_loaded_module_shows_is_compared_by_meaning(tree: Tree, wanted: Any, shown: str, status: str) -> None:
    tree.parameter("m", "p", shown)
    assert tree.loaded({"m": {"p": wanted}}) == [status]


def test_module_that_is_not_loaded_and_parameter_that_is_not_shown(tree: Tree) -> None:
    assert tree.loaded(HMM) == ["not_loaded"]
    tree.parameter("nvidia_uvm", "other", "1")
    assert tree.loaded(HMM) == ["not_shown"]


def test_later_file_with_another_value_is_refused_and_an_earlier_one_is_not(tree: Tree) -> None:
    (tree.file.parent / "a.conf").write_text("options nvidia-uvm uvm_disable_hmm=0\n")
    (tree.file.parent / "zz.conf").write_text(
        "# options nvidia_uvm uvm_disable_hmm=0\noptions nvidia_uvm uvm_disable_hmm=Y\n"
    )
    tree.settle(HMM)
    (tree.root / "lib").mkdir()
    (tree.root / "lib/zzz.conf").write_text("\noptions nvidia-uvm other=1 uvm_disable_hmm=0\n")
    with pytest.raises(OptionsError, match=r"zzz.conf line 2 comes later and sets it to 0"):
        tree.settle(HMM)


@pytest.mark.parametrize(
    "options",
    [
        {"nvidia uvm": {"x": 1}},
        {"../x": {"x": 1}},
        {"nvidia": "x=1"},
        {"nvidia": {"x y": 1}},
        {"nvidia": {"x": "a\nb"}},
        {"nvidia": {"x": 'a"b'}},
        {"nvidia": {"x": ""}},
        {"nvidia": {"x": None}},
        {"nvidia": {"x": [1]}},
        {"nvidia_uvm": {"x": 1}, "nvidia-uvm": {"x": 2}},
    ],
)
def test_what_cannot_be_written_is_refused(tree: Tree, options: dict[str, Any]) -> None:
    with pytest.raises(OptionsError):
        tree.settle(options)
    assert not tree.file.exists() and tree.calls == []


def test_text_is_read_back_as_it_was_meant() -> None:
    options = modprobe_options.wanted_options({"b": {"x": "one two", "y": True}, "a-b": {"z": "A=1;B=2"}})
    text = modprobe_options.rendered(options)
    assert text == f'{own_file.HEADER}options a_b z=A=1;B=2\noptions b x="one two" y=1\n'
    assert modprobe_options.in_file(text) == options
    assert modprobe_options.in_file(None) == {}


def test_file_of_somebody_else_is_not_replaced(tree: Tree) -> None:
    tree.file.write_text("options x y=1\n")
    with pytest.raises(own_file.OwnFileError):
        tree.settle(HMM)
    assert tree.file.read_text() == "options x y=1\n"


def test_what_somebody_wrote_to_our_file_does_not_stop_the_next_run(tree: Tree) -> None:
    text = f"""{own_file.HEADER}options nvidia-uvm uvm-disable-hmm=1
options nvidia_uvm other="a b"
options broken a='b
options ../x a=b
options snd model= # don't
install x /bin/true
"""
    assert modprobe_options.in_file(text) == {"nvidia_uvm": {"uvm_disable_hmm": "1", "other": "a b"}}
    tree.file.write_text(text)
    assert tree.settle(HMM).changed
    assert tree.file.read_text() == f"{own_file.HEADER}options nvidia_uvm uvm_disable_hmm=1\n"


def test_names_of_parameters_are_one_with_either_sign(tree: Tree) -> None:
    tree.parameter("nvidia_uvm", "uvm_disable_hmm", "Y")
    assert tree.loaded({"nvidia-uvm": {"uvm-disable-hmm": True}}) == ["followed"]
    with pytest.raises(OptionsError, match="both 1 and 0"):
        tree.settle({"nvidia_uvm": {"uvm_disable_hmm": 1, "uvm-disable-hmm": 0}})
    (tree.file.parent / "zz.conf").write_text("options nvidia-uvm uvm-disable-hmm=0\n")
    with pytest.raises(OptionsError, match=r"zz.conf line 1 comes later"):
        tree.settle(HMM)


@pytest.mark.parametrize(
    ("text", "shown"), [("on", "Y"), ("off", "N"), ("yes", "Y"), ("No", "N"), ("true", "Y"), ("F", "N")]
)
def test_flag_may_be_written_as_the_kernel_reads_it(tree: Tree, text: str, shown: str) -> None:
    tree.parameter("x", "p", shown)
    assert tree.loaded({"x": {"p": text}}) == ["followed"]
    tree.parameter("x", "p", "Y" if shown == "N" else "N")
    assert tree.loaded({"x": {"p": text}}) == ["other_value"]
