# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mark of tests that would take CI past its time; make test-full runs them."""

from __future__ import annotations

import os

import pytest

IN_FULL = pytest.mark.skipif(os.environ.get("TOKFORGE_TEST_FULL") != "1", reason="needs make test-full")
