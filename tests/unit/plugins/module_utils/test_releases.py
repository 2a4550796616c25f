# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looking up what is locked, and the lock files themselves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import release_catalog, releases

ROOT = Path(__file__).resolve().parents[4]
LOCKS = ROOT / "roles" / "sglang_install" / "files" / "locks"
HELP = Path(__file__).parent / "fixtures" / "server_args"
ALL_LOCKS = sorted(path.name for path in LOCKS.glob("*.txt"))
CPU_LOCKS = [name for name in ALL_LOCKS if name.startswith("cpu-") and not name.endswith("-nodeps.txt")]
HASH_EXEMPT = "torch"


def pins(name: str) -> dict[str, set[str]]:
    """Distribution -> all versions a lock pins, one for each range of Python versions."""
    found: dict[str, set[str]] = {}
    for match in re.finditer(r"(?m)^([a-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;]+)", (LOCKS / name).read_text()):
        found.setdefault(match[1], set()).add(match[2])
    return found


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A catalog of four small releases."""
    lane = {"lock": "l.txt", "lock_no_deps": None, "torch": "2.0", "flashinfer": None}
    flags = {
        "moe-runner-backend": {"takes_value": True, "choices": ["auto", "triton"]},
        "tp-size": {"takes_value": True, "aliases": ["tensor-parallel-size"]},
    }
    entries = {
        version: {
            "requires_python": f"{floor},<3.14",
            "torch": "2.0",
            "flashinfer": "0.6",
            "lanes": dict.fromkeys(lanes, lane),
            "flags": flags,
        }
        for version, floor, lanes in (
            ("0.5.9", ">=3.10", ("cpu", "cuda13")),
            ("0.5.12", ">=3.10", ("cuda13",)),
            ("0.5.12.post1", ">=3.10", ("cpu", "cuda13")),
            ("0.5.23", ">=3.11", ("cuda13",)),
        )
    }
    monkeypatch.setattr(release_catalog, "RELEASES", entries)
    return entries


def test_known_releases_come_newest_first_by_number_not_by_text(catalog: dict[str, Any]) -> None:
    assert releases.known() == ("0.5.23", "0.5.12.post1", "0.5.12", "0.5.9")


def test_known_and_newest_of_a_lane_leave_out_releases_without_it(catalog: dict[str, Any]) -> None:
    assert releases.known("cpu") == ("0.5.12.post1", "0.5.9")
    assert releases.newest("cpu") == "0.5.12.post1"
    assert releases.newest() == "0.5.23"


def test_newest_of_an_unknown_lane_names_the_lanes(catalog: dict[str, Any]) -> None:
    with pytest.raises(releases.ReleaseError, match="use one of cpu, cuda13") as raised:
        releases.newest("rocm")
    assert raised.value.facts["lanes"] == ("cpu", "cuda13")


def test_unknown_release_names_the_near_one_and_all_known(catalog: dict[str, Any]) -> None:
    with pytest.raises(
        releases.ReleaseError, match=r"did you mean 0\.5\.12\.post1\?.*0\.5\.23, 0\.5\.12\.post1"
    ) as raised:
        releases.get("0.5.12.post2")
    assert raised.value.facts["known"] == releases.known()


def test_lane_a_release_is_not_locked_for_is_refused_with_those_it_has(catalog: dict[str, Any]) -> None:
    with pytest.raises(releases.ReleaseError, match=r"0\.5\.23 in lane 'cpu'.*use one of cuda13"):
        releases.lock_names("0.5.23", "cpu")


@pytest.mark.parametrize("name", ["tp-size", "--tp-size", "tp_size", "tensor_parallel_size"])
def test_a_flag_is_found_under_every_spelling(catalog: dict[str, Any], name: str) -> None:
    flag = releases.get("0.5.9").flag(name)
    assert flag is not None and flag.name == "tp-size"


def test_a_flag_that_is_not_there_is_none(catalog: dict[str, Any]) -> None:
    assert releases.get("0.5.9").flag("tp") is None


@pytest.mark.parametrize(
    ("version", "python", "fits"),
    [
        ("0.5.23", (3, 10, 12), False),
        ("0.5.23", (3, 11), True),
        ("0.5.12", (3, 10, 12), True),
        ("0.5.12", (3, 9), False),
        ("0.5.23", (3, 13, 9), True),
        ("0.5.23", (3, 14, 0), False),
    ],
)
def test_python_must_be_in_the_releases_range(
    catalog: dict[str, Any], version: str, python: tuple[int, ...], fits: bool
) -> None:
    assert releases.python_fits(version, python) is fits


@pytest.mark.parametrize("text", ["<4", ">=3.11", ""])
def test_requires_python_without_both_bounds_is_refused(text: str) -> None:
    with pytest.raises(releases.ReleaseError, match="not of the form"):
        releases.python_range(text)


def test_versions_order_with_candidates_and_post_releases() -> None:
    mixed = ["0.5.13", "0.5.12.post2", "0.5.9", "0.5.0", "0.5.12", "0.5.0rc2", "0.5.12.post1", "0.5.0rc0"]
    assert sorted(mixed, key=releases.sort_key) == [
        "0.5.0rc0", "0.5.0rc2", "0.5.0", "0.5.9", "0.5.12", "0.5.12.post1", "0.5.12.post2", "0.5.13",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["latest", "0.5.x", "", "0.5.23+cpu", "v0.5.23"])
def test_text_that_is_no_release_name_is_refused(name: str) -> None:
    with pytest.raises(releases.ReleaseError, match="not a release name"):
        releases.sort_key(name)


# --- what is really locked -------------------------------------------------------------------------------------------


def test_both_promised_releases_are_locked_for_both_lanes() -> None:
    for lane in ("cpu", "cuda13"):
        assert {"0.5.23", "0.5.12.post1"} <= set(releases.known(lane))


@pytest.mark.parametrize(("version", "floor"), [("0.5.23", ">=3.11,<3.14"), ("0.5.12.post1", ">=3.10,<3.14")])
def test_python_ranges_are_those_of_the_wheels(version: str, floor: str) -> None:
    assert releases.requires_python(version) == floor


def test_catalog_and_lock_files_name_each_other() -> None:
    named = {"tools.txt"}
    for version in releases.known():
        for lane in releases.get(version).lanes.values():
            named.add(lane.lock)
            if lane.lock_no_deps:
                named.add(lane.lock_no_deps)
    assert named == set(ALL_LOCKS)


@pytest.mark.parametrize("name", ALL_LOCKS)
def test_lock_holds_no_address_and_no_path(name: str) -> None:
    text = (LOCKS / name).read_text()
    assert "://" not in text and "file:" not in text and " @ " not in text
    for line in text.splitlines():
        assert re.fullmatch(
            r"[a-z0-9._-]+(\[[a-z0-9,-]+\])?==\S+( ; [^/\\]+)?( \\)?| {4}--hash=sha256:[0-9a-f]{64}( \\)?", line
        )


@pytest.mark.parametrize("name", ALL_LOCKS)
def test_every_pin_has_a_hash_but_torch_on_cpu(name: str) -> None:
    lines = (LOCKS / name).read_text().splitlines()
    bare = [line.split("==")[0] for line, after in zip(lines, [*lines[1:], ""]) if line[0] != " " and after[:1] != " "]
    assert bare == ([HASH_EXEMPT] if name in CPU_LOCKS else [])


@pytest.mark.parametrize("name", CPU_LOCKS)
def test_cpu_lock_brings_no_cuda(name: str) -> None:
    assert not [dist for dist in pins(name) if re.match(r"nvidia-|cuda-|flashinfer|sgl-|sglang-kernel|cupy", dist)]


@pytest.mark.parametrize("version", releases.known())
def test_lock_pins_the_release_that_its_name_says(version: str) -> None:
    for lane in releases.get(version).lanes.values():
        assert pins(lane.lock_no_deps or lane.lock)["sglang"] == {version}
        if lane.lock_no_deps:
            assert "sglang" not in pins(lane.lock)


@pytest.mark.parametrize("version", releases.known())
def test_cuda_lock_keeps_the_wheels_own_torch_and_flashinfer_together(version: str) -> None:
    release = releases.get(version)
    [lane] = [lane for name, lane in release.lanes.items() if name != "cpu"]
    found = pins(lane.lock)
    # The lane is named after the CUDA that torch's own wheel is built for.
    assert any(name.endswith("-cu12") for name in found if name.startswith("nvidia-cudnn")) == (lane.name == "cuda12")
    assert found["torch"] == {release.torch}
    assert found["flashinfer-python"] == {release.flashinfer}
    # A cubin package of another version makes FlashInfer refuse to start.
    assert found.get("flashinfer-cubin", {release.flashinfer}) == {release.flashinfer}


@pytest.mark.parametrize("version", releases.known("cpu"))
def test_cpu_lane_keeps_the_versions_the_wheel_pins(version: str) -> None:
    pinned = {"0.5.23": ("5.19.0", "2.8.0"), "0.5.12.post1": ("5.6.0", "2.6.1")}
    found = pins(releases.get(version).lanes["cpu"].lock)
    assert (found["transformers"], found["openai"]) == tuple({text} for text in pinned[version])


# --- the catalog against the real parser -----------------------------------------------------------------------------


def flags_of_help(text: str) -> dict[str, dict[str, Any]]:
    """Name -> names, form and choices of every flag in recorded `--help` lines."""
    found = {}
    for line in text.splitlines():
        names = re.findall(r"(?:^  |, )--([\w-]+)", line)
        if not names or names == ["help"]:
            continue
        shape = line.rsplit(f"--{names[-1]}", 1)[1].strip()
        choices = re.search(r"\{([^}]*)\}", shape)
        bare = re.sub(r"\{[^}]*\}", "X", shape)
        if not bare:
            nargs: str | int | None = 0
        elif re.fullmatch(r"\[\S+ \.\.\.\]", bare):
            nargs = "*"
        elif re.fullmatch(r"\S+ \[\S+ \.\.\.\]", bare):
            nargs = "+"
        elif re.fullmatch(r"\[\S+\]", bare):
            nargs = "?"
        else:
            assert re.fullmatch(r"\S+", bare), line
            nargs = None
        found[names[0]] = {
            "names": set(names),
            "nargs": nargs,
            "choices": None if choices is None else sorted(choices[1].split(",")),
        }
    return found


def flags_of_catalog(version: str) -> dict[str, dict[str, Any]]:
    """The same shape from the catalog, without what `--help` hides."""
    return {
        flag.name: {
            "names": {flag.name, *flag.aliases, *([f"no-{flag.name}"] if flag.negatable else [])},
            "nargs": flag.nargs if flag.takes_value else 0,
            "choices": None if flag.choices is None else sorted(str(choice) for choice in flag.choices),
        }
        for flag in releases.get(version).flags.values()
        if not flag.hidden
    }


# Recorded with: COLUMNS=100000 python -m sglang.launch_server --help, keeping the flags and leaving out their prose.
@pytest.mark.parametrize("path", sorted(HELP.glob("help-*.txt")), ids=lambda path: path.stem)
def test_catalog_equals_the_help_of_the_installed_release(path: Path) -> None:
    version = path.stem.removeprefix("help-")
    recorded, read = flags_of_help(path.read_text()), flags_of_catalog(version)
    assert len(recorded) > 300
    assert set(read) == set(recorded)
    assert {name: read[name] for name in read if read[name] != recorded[name]} == {}


@pytest.mark.parametrize(
    ("version", "backend", "there"),
    [
        ("0.5.23", "flashinfer_cutlass", True),
        ("0.5.23", "humming", True),
        ("0.5.12.post1", "humming", False),
        ("0.5.12.post1", "flashinfer_cutedsl", True),
    ],
)
def test_moe_runner_backends_are_those_of_the_release(version: str, backend: str, there: bool) -> None:
    assert (backend in releases.get(version).moe_runner_backends()) is there
