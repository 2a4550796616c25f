# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Released wheels for the tests that read them: fetched once, a few at a time, those that the chosen tests need."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import wheel_parts
from gate_releases import RELEASES
from wheel_parts import WheelParts

DOWNLOADS = 4


@dataclass(frozen=True)
class Index:
    """The releases on the package index, or why it cannot be asked."""

    releases: list[str]
    unreachable: str = ""


def ask_index(needed: Collection[str], package: str) -> Index:
    """What the package index has of a package."""
    try:
        return Index(wheel_parts.on_the_index(needed, package))
    except wheel_parts.IndexUnreachableError as error:
        return Index([], str(error))


@pytest.fixture(scope="module")
def asked_index() -> Index:
    """The package index, asked for SGLang once and only when it is needed."""
    return ask_index(RELEASES, wheel_parts.SGLANG)


@pytest.fixture(scope="module")
def index(asked_index: Index) -> list[str]:
    """The SGLang releases on the package index."""
    if asked_index.unreachable:
        pytest.skip(asked_index.unreachable)
    return asked_index.releases


def chosen(request: pytest.FixtureRequest, parameter: str) -> set[str]:
    """The values of a parameter in those tests of the file that were chosen."""
    calls = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    return {call.params[parameter] for call in calls if call and parameter in call.params}


def waiting(
    parts: WheelParts, versions: Collection[str], look: Callable[[], Index]
) -> Iterator[Callable[[str], WheelParts]]:
    """Yields what waits until the files of a release are kept. A release that cannot be had is skipped."""
    missing = [version for version in versions if not parts.has(version)]
    index = look() if missing else Index([])
    pool = ThreadPoolExecutor(DOWNLOADS)
    fetched: dict[str, Future[None]] = {
        version: pool.submit(parts.keep, version) for version in missing if version in index.releases
    }

    def wait_for(version: str) -> WheelParts:
        if version in fetched:
            fetched[version].result()
        elif version in missing:
            pytest.skip(index.unreachable or f"{parts.package} {version} is no longer on the package index")
        return parts

    yield wait_for
    pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def wheels(request: pytest.FixtureRequest) -> Iterator[Callable[[str], WheelParts]]:
    """Waits until the files of a SGLang release are kept."""
    versions = chosen(request, "version")
    look = functools.partial(request.getfixturevalue, "asked_index")
    yield from waiting(WheelParts(), [version for version in RELEASES if version in versions], look)


@pytest.fixture(scope="module")
def flashinfer_wheels(request: pytest.FixtureRequest) -> Iterator[Callable[[str], WheelParts]]:
    """Waits until the files of a flashinfer-python release are kept."""
    package = wheel_parts.FLASHINFER
    versions = sorted(chosen(request, "flashinfer_version"))
    fetch = functools.partial(wheel_parts.download, package=package)
    look = functools.partial(ask_index, versions, package)
    yield from waiting(WheelParts(fetch=fetch, package=package), versions, look)
