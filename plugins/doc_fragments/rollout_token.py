# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The option with which a module makes sure that its play still holds the lock."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  rollout:
    description:
      - Token of the play that holds the lock, from module tokforge.sglang.rollout. The task fails, and changes nothing,
        when the lock was taken away from that play. Without a token nobody is asked.
    type: str
"""
