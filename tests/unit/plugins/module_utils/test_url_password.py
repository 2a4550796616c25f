# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses with a password, and those that only look like it."""

from __future__ import annotations

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils.url_password import holds_password


@pytest.mark.parametrize(
    "text",
    [
        "http://user:secret@proxy.example:3128",
        "redis://:secret@127.0.0.1:6379/0",
        "a list, https://one.example https://u:p@two.example/x",
        "socks5h://user:with@sign@host",
        '{"endpoint": "https://key:token@store.example/bucket"}',
    ],
)
def test_password_in_an_address_is_found(text: str) -> None:
    assert holds_password(text)


@pytest.mark.parametrize(
    "text",
    [
        "http://proxy.example:3128",
        "ssh://git@example.org:22/x",
        "http://host:80/path/@home",
        "a:b@c",
        "",
        "tcp://[::1]:80",
    ],
)
def test_other_addresses_have_none(text: str) -> None:
    assert not holds_password(text)
