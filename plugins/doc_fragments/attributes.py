# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Attributes every module of this collection states: check mode, diff mode, platform.

A module writes ``extends_documentation_fragment: [tokforge.sglang.attributes]`` and adds only
``support`` (and ``details`` where it is not plain) below each attribute, so that their meaning is written once.
"""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying target.
  diff_mode:
    description: Will return details on what has changed (or would change in C(check_mode)), when in diff mode.
  platform:
    description: Target OS the module works on.
    support: full
    platforms: linux
"""

    # For modules that only look: they change nothing, so both modes are trivially true.
    INFO_MODULE = r"""
options: {}
attributes:
  check_mode:
    support: full
    details:
      - This module only looks and never changes anything.
  diff_mode:
    support: N/A
    details:
      - This module only looks, so there is nothing to compare.
"""
