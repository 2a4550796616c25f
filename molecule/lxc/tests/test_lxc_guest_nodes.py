# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes that the guest has, and that its rules let it open them."""

from __future__ import annotations

import json
from typing import Any

import pytest

testinfra_hosts = ["ssh://lxc-guest"]

# What open() says: no driver is behind the nodes, so ENXIO where the rules allow it, and EPERM where they do not.
LOOK = """
import errno, json, os
found = {}
for top, below, names in os.walk("/dev"):
    for name in names:
        path = os.path.join(top, name)
        if "nvidia" not in path and name != "not-allowed":
            continue
        status = os.stat(path)
        try:
            os.close(os.open(path, os.O_RDONLY))
            opened = "opened"
        except OSError as error:
            opened = errno.errorcode[error.errno]
        found[path] = [os.major(status.st_rdev), os.minor(status.st_rdev), opened]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def nodes(host: Any) -> dict[str, list[Any]]:
    """Numbers of the nodes, and how opening them ended. One of a number that no rule names is made for comparison."""
    host.check_output("mknod /dev/not-allowed c 480 0")
    try:
        found: dict[str, list[Any]] = json.loads(host.check_output(f"python3 -c '{LOOK}'"))
    finally:
        host.check_output("rm /dev/not-allowed")
    return found


def test_guest_may_open_exactly_the_nodes_of_its_gpus(nodes: dict[str, list[Any]], uvm: int) -> None:
    assert nodes == {
        "/dev/not-allowed": [480, 0, "EPERM"],
        "/dev/nvidia0": [195, 0, "ENXIO"],
        "/dev/nvidia1": [195, 1, "ENXIO"],
        "/dev/nvidiactl": [195, 255, "ENXIO"],
        "/dev/nvidia-modeset": [195, 254, "ENXIO"],
        "/dev/nvidia-uvm": [uvm, 0, "ENXIO"],
        "/dev/nvidia-uvm-tools": [uvm, 1, "ENXIO"],
        "/dev/nvidia-caps/nvidia-cap1": [uvm + 1, 1, "ENXIO"],
        "/dev/nvidia-caps/nvidia-cap2": [uvm + 1, 2, "ENXIO"],
    }


def test_nodes_were_made_before_the_guest_started(host: Any) -> None:
    boot = host.check_output("stat -c %Y /proc/1")
    assert int(host.check_output("stat -c %Z /dev/nvidia-uvm")) <= int(boot)
