# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a container really has, seen through a /proc that is a directory."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import lxc_inside
from ansible_collections.tokforge.sglang.plugins.module_utils.lxc_devices import Host
from ansible_collections.tokforge.sglang.plugins.module_utils.lxc_inside import Inside, Wanted

HOST = Host({195: ("nvidia",), 511: ("nvidia-uvm",), 236: ("nvidia-caps",)}, (0, 1), frozenset())
GPU, UVM, CAP = "/dev/nvidia0", "/dev/nvidia-uvm", "/dev/nvidia-caps/nvidia-cap1"
HAVE = {GPU: (195, 0), UVM: (511, 0), CAP: (236, 1)}
NONE: frozenset[int] = frozenset()


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    root = tmp_path / "7" / "root"
    (root / "dev" / "nvidia-caps").mkdir(parents=True)
    (tmp_path / "7" / "status").write_text(
        "Name:\tinit\nCpus_allowed:\tff\nCpus_allowed_list:\t0-3,8\nMems_allowed_list:\t1\n"
    )
    return tmp_path


def test_nodes_and_cpus_are_read(proc: Path) -> None:
    root = proc / "7/root"
    (root / "dev/nvidia1").touch()
    try:
        os.mknod(root / "dev/nvidia0", 0o600 | stat.S_IFCHR, os.makedev(195, 0))
        os.mknod(root / "dev/nvidia-caps/nvidia-cap1", 0o400 | stat.S_IFCHR, os.makedev(236, 1))
    except OSError as error:
        pytest.skip(f"device nodes cannot be made here: {error.strerror}")
    found = lxc_inside.look(str(proc), 7, [CAP, UVM])
    # A file is no device.
    assert found.nodes == {CAP: (236, 1), UVM: None, GPU: (195, 0), "/dev/nvidia1": None}
    assert (found.cpus, found.mems) == ({0, 1, 2, 3, 8}, {1})


@pytest.mark.parametrize("link", ["dev/null-link", "dev/nvidia-caps"])
def test_links_of_the_container_do_not_lead_to_the_host(proc: Path, link: str) -> None:
    root = proc / "7/root"
    (root / "dev/nvidia-caps").rmdir()
    (root / link).symlink_to("/dev/null" if link == "dev/null-link" else "/dev")
    found = lxc_inside.look(str(proc), 7, ["/dev/null-link", "/dev/nvidia-caps/null"])
    assert set(found.nodes.values()) == {None}


def test_container_without_dev_has_no_nodes(proc: Path) -> None:
    (proc / "7/root/dev/nvidia-caps").rmdir()
    (proc / "7/root/dev").rmdir()
    assert lxc_inside.look(str(proc), 7, [GPU]).nodes == {GPU: None}


def test_process_that_ended_is_an_error(proc: Path) -> None:
    with pytest.raises(FileNotFoundError):
        lxc_inside.look(str(proc), 8, [GPU])


@pytest.mark.parametrize(
    ("inside", "wanted", "differences"),
    [
        (Inside(HAVE), Wanted((GPU, UVM, CAP)), []),
        (Inside({**HAVE, UVM: None}), Wanted((GPU, UVM)), ["/dev/nvidia-uvm is not in it"]),
        (Inside({}), Wanted((GPU,)), ["/dev/nvidia0 is not in it"]),
        (
            Inside({**HAVE, UVM: (509, 0)}),
            Wanted((GPU, UVM)),
            ["/dev/nvidia-uvm has major number 509 in it, and its driver has 511"],
        ),
        (
            Inside({**HAVE, "/dev/nvidia1": (195, 1)}),
            Wanted((GPU, UVM)),
            ["/dev/nvidia1 is in it and no longer given to it"],
        ),
        # What is no node of the driver is the container's own.
        (Inside({"/dev/nvidia1": (1, 3)}), Wanted(), []),
        (Inside({}, frozenset({0, 1}), frozenset({0})), Wanted((), "0-1", "0"), []),
        (
            Inside({}, frozenset({0, 1}), frozenset({0, 1})),
            Wanted((), "0", "0"),
            ["it may use CPUs 0-1, and is bound to 0", "it may use memory nodes 0-1, and is bound to 0"],
        ),
        (Inside({}, NONE, NONE), Wanted((), "0", "0"), []),
        (Inside({}, frozenset({3}), NONE), Wanted(), []),
    ],
)
def test_differences(inside: Inside, wanted: Wanted, differences: list[str]) -> None:
    assert lxc_inside.differences(inside, wanted, HOST) == differences
