# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The generation of an NVIDIA GPU, told by its PCI device id: before there is a driver nobody else tells it.

The first byte of the id is the generation's (table "Supported NVIDIA GPU Products" of the driver's README, 580, and the
PCI ID database). Which kernel module a generation can use is from the README's chapter on the open kernel modules: they
know Turing and later, and Grace Hopper, Blackwell and what comes after them are known by no other module.
"""

from __future__ import annotations

from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import BLACKWELL_IDS

BLACKWELL = "blackwell"
UNKNOWN = "unknown"

_FIRST_BYTES = {
    **dict.fromkeys((0x1E, 0x1F, 0x21), "turing"),
    **dict.fromkeys((0x20, 0x22, 0x24, 0x25), "ampere"),
    0x23: "hopper",
    **dict.fromkeys((0x26, 0x27, 0x28), "ada"),
    **dict.fromkeys(BLACKWELL_IDS, BLACKWELL),
}

#: Grace Hopper's ids, 0x2340 to 0x234F, within Hopper's.
_GRACE_HOPPER = 0x234


def architecture(device_id: int) -> str:
    """turing, ampere, hopper, ada, blackwell; older for all before Turing, unknown for what is not in the table."""
    first = device_id >> 8
    return _FIRST_BYTES.get(first) or ("older" if first < min(_FIRST_BYTES) else UNKNOWN)


def needs_open_module(device_id: int) -> bool:
    """Whether only the open kernel module drives it. An unknown id above all known ones is a later generation's."""
    return device_id >> 8 in BLACKWELL_IDS or device_id >> 4 == _GRACE_HOPPER or device_id >> 8 > max(_FIRST_BYTES)


def can_open_module(device_id: int) -> bool:
    """Whether the open kernel module drives it."""
    return device_id >> 8 >= min(_FIRST_BYTES)
