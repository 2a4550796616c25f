# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""/usr/local/cuda: what is there, and what has to be done so that it points to where it is to point."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import toolkit_default
from ansible_collections.tokforge.sglang.plugins.module_utils.toolkit_default import Default, Fix

OLD, NEW, OTHER = "/usr/local/cuda-12.8", "/usr/local/cuda-13.0", "/usr/local/cuda-12.6"

#: As update-alternatives --query cuda writes it with two toolkits of NVIDIA's packages.
QUERY = """Name: cuda
Link: /usr/local/cuda
Status: {}
Best: /usr/local/cuda-13.0
Value: /usr/local/cuda-13.0

Alternative: /usr/local/cuda-12.8
Priority: 128

Alternative: /usr/local/cuda-13.0
Priority: 130
"""


def alternatives(target: str, mode: str = "auto") -> Default:
    return Default("alternatives", target, mode)


def link(target: str) -> Default:
    return Default("link", target)


def put(root: Path, target: str, alternative: str = "") -> str:
    (root / "usr/local").mkdir(parents=True)
    (root / "usr/local/cuda").symlink_to(target)
    if alternative:
        (root / "etc/alternatives").mkdir(parents=True)
        (root / "etc/alternatives/cuda").symlink_to(alternative)
    return str(root)


# --- looking ---


def test_nothing_a_directory_and_plain_links_are_told_apart(tmp_path: Path) -> None:
    assert toolkit_default.look(str(tmp_path)) == Default("absent")
    (tmp_path / "a/usr/local/cuda").mkdir(parents=True)
    assert toolkit_default.look(str(tmp_path / "a")) == Default("directory")
    assert toolkit_default.look(put(tmp_path / "b", "cuda-12.8")) == link(OLD)
    assert toolkit_default.look(put(tmp_path / "c", "/usr/local/cuda-12.8/")) == link(OLD)


@pytest.mark.parametrize("mode", ["auto", "manual"])
def test_alternative_is_read_with_its_mode(tmp_path: Path, mode: str) -> None:
    asked: list[Sequence[str]] = []

    def query(argv: Sequence[str]) -> str:
        asked.append(argv)
        return QUERY.format(mode)

    root = put(tmp_path, "/etc/alternatives/cuda", NEW)
    assert toolkit_default.look(root, query) == alternatives(NEW, mode)
    admin = f"{tmp_path}/var/lib/dpkg/alternatives"
    assert asked == [["update-alternatives", "--admindir", admin, "--query", "cuda"]]


def test_alternative_whose_program_is_gone_has_no_mode(tmp_path: Path) -> None:
    def gone(argv: Sequence[str]) -> str:
        raise subprocess.TimeoutExpired(argv, 30)

    assert toolkit_default.look(put(tmp_path, "/etc/alternatives/cuda", NEW), gone) == alternatives(NEW, "")


@pytest.mark.parametrize(
    "value", [None, "link", {}, {"kind": "tape", "target": ""}, {"kind": "link", "target": 1}, [], {"kind": ["link"]}]
)
def test_note_that_is_none_is_none(value: object) -> None:
    assert toolkit_default.of_record(value) is None


def test_note_reads_back_what_was_written() -> None:
    for one in (Default(), link(OLD), alternatives(NEW, "manual"), Default("directory")):
        assert toolkit_default.of_record(one.as_dict()) == one


# --- keeping ---


def how(fix: Fix) -> tuple[str, str]:
    return fix.how, fix.path


@pytest.mark.parametrize(
    ("now", "before", "wanted"),
    [
        # The packages' alternative of the new toolkit took it.
        (alternatives(NEW), alternatives(OLD), ("select", OLD)),
        (alternatives(NEW), link(OTHER), ("link", OTHER)),
        (alternatives(NEW), Default(), ("drop", NEW)),
        (link(NEW), Default(), ("unlink", NEW)),
        # It points to where it did.
        (alternatives(OLD, "manual"), alternatives(OLD), ("none", "")),
        (alternatives(NEW), alternatives(NEW), ("none", "")),
        (Default(), Default(), ("none", "")),
        # Somebody has set it since.
        (alternatives(OTHER, "manual"), alternatives(OLD), ("none", "")),
        (link(OTHER), Default(), ("none", "")),
        # Nothing is noted, so nothing of ours moved it.
        (alternatives(NEW), None, ("none", "")),
        # A directory is never replaced by update-alternatives, and cannot come back.
        (alternatives(NEW), Default("directory"), ("none", "")),
    ],
)
def test_default_is_kept_where_it_was(now: Default, before: Default | None, wanted: tuple[str, str]) -> None:
    assert how(toolkit_default.keep(now, before, [NEW])) == wanted


@pytest.mark.parametrize(
    ("now", "wanted"),
    [
        (alternatives(OLD), ("select", NEW)),
        (link(OLD), ("link", NEW)),
        (Default(), ("link", NEW)),
        (alternatives(NEW), ("none", "")),
        (link(NEW), ("none", "")),
    ],
)
def test_default_is_taken_on_request(now: Default, wanted: tuple[str, str]) -> None:
    assert how(toolkit_default.take(now, NEW)) == wanted


def test_directory_in_the_way_of_the_default_is_a_problem() -> None:
    fix = toolkit_default.take(Default("directory"), NEW)
    assert fix.how == "none"
    assert "/usr/local/cuda is no link" in fix.problem


@pytest.mark.parametrize(
    ("now", "before", "wanted"),
    [
        # From wheels, or when somebody else's toolkit was made the default.
        (alternatives(NEW, "manual"), alternatives(OLD), ("select", OLD)),
        (link(NEW), link(OLD), ("link", OLD)),
        (link(NEW), Default(), ("unlink", NEW)),
        # The packages are gone, and their alternative with them.
        (alternatives(OLD, "manual"), alternatives(OLD), ("auto", OLD)),
        (Default(), link(OLD), ("link", OLD)),
        (alternatives(OLD), alternatives(OLD), ("none", "")),
        (alternatives(OLD, "manual"), alternatives(OLD, "manual"), ("none", "")),
        (Default(), Default(), ("none", "")),
        # Somebody has set it since.
        (alternatives(OTHER, "manual"), alternatives(OLD), ("none", "")),
        (link(OTHER), link(OLD), ("none", "")),
        (alternatives(NEW), None, ("none", "")),
    ],
)
def test_default_is_put_back(now: Default, before: Default | None, wanted: tuple[str, str]) -> None:
    assert how(toolkit_default.restore(now, before, [NEW])) == wanted


@pytest.mark.parametrize("text", ["cuda-12.8", "/usr/local/cuda-12.8/", "/usr/local/cuda-12.8"])
def test_link_is_put_back_as_it_was_written(tmp_path: Path, text: str) -> None:
    before = toolkit_default.of_record(toolkit_default.look(put(tmp_path, text)).as_dict())
    assert before == link(OLD) and before.link == text
    for fix in (
        toolkit_default.keep(link(NEW), before, [NEW]),
        toolkit_default.restore(link(NEW), before, [NEW]),
        toolkit_default.restore(Default(), before, [NEW]),
    ):
        assert (fix.how, fix.path, toolkit_default.resolved(fix.path)) == ("link", text, OLD)


def test_noted_text_that_leads_elsewhere_does_not_count() -> None:
    noted = toolkit_default.of_record({"kind": "link", "target": OLD, "mode": "", "text": "../../etc"})
    assert noted is not None and noted.link == OLD
