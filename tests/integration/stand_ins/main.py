# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in that the first argument names, with the arguments after it; see grammar.py."""

from __future__ import annotations

import sys

import boot_tool
import grammar
import lxc_programs
import proxmox_programs

PROGRAMS = {
    "lxc-info": lxc_programs.info,
    "lxc-start": lxc_programs.start,
    "lxc-stop": lxc_programs.stop,
    "pct": proxmox_programs.pct,
    "proxmox-boot-tool": boot_tool.main,
    "pvesh": proxmox_programs.pvesh,
    "pveversion": proxmox_programs.pveversion,
}

program, arguments = sys.argv[1], sys.argv[2:]
grammar.note_call(program, arguments)
PROGRAMS[program](arguments)
