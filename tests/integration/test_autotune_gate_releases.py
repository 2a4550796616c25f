# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The autotune gate in every SGLang release since 0.5.0rc0, in the files of the wheels from the package index.

What each release has stands in `gate_releases.py`. The first run fetches the wheels, later ones read what was kept of
them below `.build`; only a first run without network is skipped.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import io
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import wheel_parts
from gate_releases import RELEASES
from packaging.version import Version
from wheel_parts import WheelParts

from ansible_collections.tokforge.sglang.plugins.module_utils import autotune_gate, gate_syntax, sglang_tree
from ansible_collections.tokforge.sglang.plugins.module_utils.autotune_gate import Change, Gate
from ansible_collections.tokforge.sglang.plugins.module_utils.sglang_tree import Tree

PLAYBOOK = shutil.which("ansible-playbook", path=os.path.dirname(sys.executable))
CUTLASS = "flashinfer_cutlass"
BACKENDS = (
    CUTLASS,
    "flashinfer_trtllm",
    "flashinfer_trtllm_routed",
    "flashinfer_cutedsl",
    "flashinfer_megamoe",
    "flashinfer_mxfp4",
)
#: A choice of every release with a gate, which no release tunes and none has in a comment.
UNTUNED = "deep_gemm"
OLDEST, NEWEST = min(RELEASES, key=Version), max(RELEASES, key=Version)
GATED = [version for version, release in RELEASES.items() if release.live]


class Line(NamedTuple):
    """A line that an edit changed: its number afterwards, what it was (empty when it is new) and what it is."""

    number: int
    was: str
    now: str


@pytest.fixture(scope="module", autouse=True)
def read_once() -> Iterator[None]:
    """Texts that were read before are not parsed again: the tests look at the same few hundred times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate_syntax, "scan", functools.cache(gate_syntax.scan))
        yield


@pytest.fixture
def site(version: str, wheels: Callable[[str], WheelParts], tmp_path: Path) -> Path:
    """A directory that holds the files of a release, as site-packages does."""
    return wheels(version).unpack(version, tmp_path / "site-packages")


def gate_file(site: Path, version: str) -> Path:
    return site / "sglang" / "srt" / "model_executor" / RELEASES[version].file


def sha256_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def state_of(site: Path) -> dict[str, tuple[int, int, str]]:
    """Every file: whose inode, when written, what it holds."""
    files = [path for path in site.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(site)): (path.stat().st_ino, path.stat().st_mtime_ns, sha256_of(path)) for path in files
    }


def changed_lines(before: bytes, after: bytes) -> list[Line]:
    """The lines in which two files differ, whatever the number of lines became."""
    old, new = (data.decode().split("\n") for data in (before, after))
    changed = []
    for tag, start, end, new_start, new_end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            was = old[start:end] + [""] * (new_end - new_start - end + start)
            changed += [Line(new_start + 1 + at, was[at], now) for at, now in enumerate(new[new_start:new_end])]
            assert end - start <= new_end - new_start, f"{tag}: lines are gone"
    return changed


def set_gate(tree: Tree, backend: str, state: str) -> tuple[Gate, Change]:
    """What the module does: look, plan, write."""
    gate, source = autotune_gate.examine(tree, backend)
    assert source is not None, gate.why
    change = autotune_gate.plan(gate, source, state)
    autotune_gate.apply(source, change)
    return gate, change


def compiles(data: bytes) -> bool:
    """Whether it is a program for the interpreter that runs this."""
    try:
        compile(data, "gate", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def open_and_close(site: Path, version: str, backend: str) -> list[Line]:
    """Open twice and close twice; the lines that opening changed. Everything else is held to be as it was."""
    tree, path = sglang_tree.of_source(str(site)), gate_file(site, version)
    pristine, original = state_of(site), path.read_bytes()
    assert sha256_of(path) == wheel_parts.recorded_sha256(site, path)

    _gate, change = set_gate(tree, backend, "open")
    assert change.changed
    assert (change.after.kind, change.after.enabled_by) == (autotune_gate.OPEN_BY_PATCH, "patch")
    opened = path.read_bytes()
    state = state_of(site)
    note = str(path.with_name(f".{path.name}.tokforge-gate.json").relative_to(site))
    touched = {name for name in state if state[name] != pristine.get(name)}
    assert touched == {str(path.relative_to(site)), note}
    assert compiles(opened) or not compiles(original)

    gate, change = set_gate(tree, backend, "open")
    assert (gate.kind, gate.enabled_by, change.changed) == (autotune_gate.OPEN_BY_PATCH, "patch", False)
    assert state_of(site) == state, "opening twice wrote something"

    gate, change = set_gate(tree, backend, "closed")
    assert (gate.kind, change.after.kind, change.changed) == (autotune_gate.OPEN_BY_PATCH, autotune_gate.CLOSED, True)
    assert sha256_of(path) == wheel_parts.recorded_sha256(site, path)
    closed = state_of(site)
    assert {name: digest for name, (_inode, _written, digest) in closed.items()} == {
        name: digest for name, (_inode, _written, digest) in pristine.items()
    }
    _gate, change = set_gate(tree, backend, "closed")
    assert not change.changed
    assert state_of(site) == closed, "closing twice wrote something"
    return changed_lines(original, opened)


@pytest.mark.parametrize("version", RELEASES)
def test_release_has_the_gate_that_it_is_known_for(site: Path, version: str) -> None:
    known = RELEASES[version]
    tree = sglang_tree.of_source(str(site))
    assert tree.version == version

    gate, source = autotune_gate.examine(tree, CUTLASS)
    path = str(gate_file(site, version)) if known.file else None
    assert (gate.kind, gate.file, gate.line or 0, gate.backends) == (known.kind, path, known.line, known.live)
    assert gate.enabled_by == ("upstream" if known.kind == autotune_gate.OPEN_UPSTREAM else None)
    assert (source is not None) == (version in GATED)
    if source:
        commented = {comment.value: comment.line for comment in source.collection.commented}
        lines = {CUTLASS: known.cutlass, "flashinfer_trtllm_routed": known.routed}
        assert commented == {backend: line for backend, line in lines.items() if line}
        assert source.original is not None
        recorded = wheel_parts.recorded_sha256(site, gate_file(site, version))
        assert source.sha256 == recorded == source.original.sha256

    choices = sglang_tree.moe_backends(tree)
    assert choices is None or CUTLASS in choices
    for backend in BACKENDS:
        if choices is None or backend in choices:
            found = autotune_gate.examine(tree, backend)[0]
            closed = autotune_gate.CLOSED if known.live else known.kind
            assert found.kind == (autotune_gate.OPEN_UPSTREAM if backend in known.live else closed), backend
            assert autotune_gate.expected(version, backend) == found.kind, backend
        elif known.live:
            with pytest.raises(autotune_gate.GateError, match=f"{backend}.*{version} has no such"):
                autotune_gate.examine(tree, backend)


@pytest.mark.parametrize("version", [version for version in GATED if RELEASES[version].kind == autotune_gate.CLOSED])
def test_opening_makes_the_commented_line_live_and_closing_brings_the_wheels_bytes_back(
    site: Path, version: str
) -> None:
    known = RELEASES[version]
    lines = open_and_close(site, version, CUTLASS)
    assert lines == [Line(known.cutlass, '            # "flashinfer_cutlass",', '            "flashinfer_cutlass",')]


@pytest.mark.parametrize("version", [version for version in GATED if RELEASES[version].kind == autotune_gate.CLOSED])
def test_gate_that_another_hand_opened_is_left_open_and_can_be_closed(site: Path, version: str) -> None:
    """As people do it with sed: the comment sign goes, and nothing beside the file says so."""
    tree, path = sglang_tree.of_source(str(site)), gate_file(site, version)
    lines = path.read_text().split("\n")
    lines[RELEASES[version].cutlass - 1] = f'            "{CUTLASS}",'
    path.write_text("\n".join(lines))
    state = state_of(site)

    gate, change = set_gate(tree, CUTLASS, "open")
    assert (gate.kind, gate.enabled_by, change.changed) == (autotune_gate.OPEN_BY_PATCH, "foreign_patch", False)
    assert (gate.line, state_of(site)) == (RELEASES[version].cutlass, state)
    _gate, change = set_gate(tree, CUTLASS, "closed")
    assert (change.after.kind, change.after.enabled_by, change.changed) == (autotune_gate.CLOSED, None, True)
    assert sha256_of(path) == wheel_parts.recorded_sha256(site, path)
    assert state_of(site).keys() == state.keys()


@pytest.mark.parametrize("version", [version for version in GATED if RELEASES[version].kind != autotune_gate.CLOSED])
def test_release_that_tunes_the_backend_itself_is_not_written_to(site: Path, version: str) -> None:
    known, tree, state = RELEASES[version], sglang_tree.of_source(str(site)), state_of(site)
    assert gate_file(site, version).read_text().split("\n")[known.line - 1].strip() == '"flashinfer_cutlass",'
    for wanted in ("open", "closed", "open"):
        gate, change = set_gate(tree, CUTLASS, wanted)
        assert (gate.kind, change.after, change.changed) == (autotune_gate.OPEN_UPSTREAM, gate, False)
    assert state_of(site) == state


@pytest.mark.parametrize("version", GATED)
def test_backend_that_the_file_does_not_name_gets_a_line_like_the_others(site: Path, version: str) -> None:
    known = RELEASES[version]
    text = gate_file(site, version).read_text().split("\n")
    # The data is right about the line before: the last backend that is live.
    assert text[known.end - 2] == " " * known.indent + f'"{known.live[-1]}",'
    assert open_and_close(site, version, UNTUNED) == [Line(known.end, "", " " * known.indent + f'"{UNTUNED}",')]


@pytest.mark.parametrize("version", ["0.5.12.post1"])
def test_hard_link_in_a_package_cache_keeps_its_bytes(
    version: str, wheels: Callable[[str], WheelParts], tmp_path: Path
) -> None:
    """As uv installs: every file in site-packages is a second name of one in its cache."""
    cache = wheels(version).unpack(version, tmp_path / "cache")
    site = tmp_path / "site-packages"
    shutil.copytree(cache, site, copy_function=os.link)
    cached, installed = state_of(cache), gate_file(site, version)
    assert installed.samefile(gate_file(cache, version))
    (tmp_path / "play.yml").write_text(
        f"""
- hosts: localhost
  gather_facts: false
  tasks:
    - tokforge.sglang.autotune_gate: {{source: {site}, backend: {CUTLASS}}}
"""
    )
    assert PLAYBOOK
    done = subprocess.run(
        [PLAYBOOK, "-i", "localhost,", "-c", "local", "-e", f"ansible_python_interpreter={sys.executable}", "play.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "changed=1 " in done.stdout

    assert state_of(cache) == cached
    assert installed.read_text().split("\n")[RELEASES[version].cutlass - 1] == f'            "{CUTLASS}",'
    others = [path for path in site.rglob("*.py") if path != installed]
    assert len(others) > 10
    assert all(path.samefile(cache / path.relative_to(site)) for path in others)


def test_newer_releases_have_a_gate_that_is_known(
    index: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = sorted((version for version in index if Version(version) > Version(NEWEST)), key=Version)
    parts, unknown = WheelParts(), []
    for version in newer:
        if not parts.has(version):
            parts.keep(version)
        tree = sglang_tree.of_source(str(parts.unpack(version, tmp_path / version)))
        gate, _source = autotune_gate.examine(tree, CUTLASS)
        where = f"{tree.short(gate.file)} line {gate.line}" if gate.file else "no file"
        seen = f"{version}: {gate.kind} for {CUTLASS}, {where}, {', '.join(gate.backends) or gate.why}"
        with capsys.disabled():
            print(f"\nSGLang newer than {NEWEST}: {seen}; add it to gate_releases.py")
        if gate.kind == autotune_gate.UNKNOWN:
            unknown.append(seen)
    assert not unknown, (
        "releases whose gate is not recognized:\n  "
        + "\n  ".join(unknown)
        + "\nRead that file in the release, teach gate_syntax its structure, add the release to RELEASES in "
        "tests/integration/gate_releases.py, and bring RELEASES and NEWEST_READ in autotune_gate.py up to it"
    )


def test_every_release_of_the_index_was_read(index: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    between = [version for version in index if Version(OLDEST) <= Version(version) <= Version(NEWEST)]
    gone = sorted(set(RELEASES) - set(between), key=Version)
    if gone:
        with capsys.disabled():
            print(f"\nno longer on the package index: {', '.join(gone)}")
    assert sorted(set(between) - set(RELEASES), key=Version) == [], "add these releases to gate_releases.py"
    assert autotune_gate.NEWEST_READ == NEWEST


def wheel_of(version: str, folder: Path) -> Path:
    """A wheel with a file of each kind: named, searched for its text, and not wanted."""
    path = folder / f"sglang-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("sglang/srt/model_executor/model_runner.py", "pass\n")
        archive.writestr("sglang/srt/speculative/draft.py", "flashinfer_autotune = 1\n")
        archive.writestr("sglang/srt/layers/big.py", "pass\n")
        archive.writestr(f"sglang-{version}.dist-info/RECORD", "")
    return path


@pytest.mark.parametrize("keep", [0, 1, 100, -1])
def test_archive_that_was_cut_short_is_made_again(keep: int, tmp_path: Path) -> None:
    parts = WheelParts(tmp_path / "kept", wheel_of)
    assert not parts.has("1.0")
    parts.keep("1.0")
    assert parts.has("1.0")
    archive = parts.archive("1.0")
    archive.write_bytes(archive.read_bytes()[:keep])
    assert not parts.has("1.0")
    parts.keep("1.0")
    found = parts.unpack("1.0", tmp_path / "site").rglob("*.*")
    assert sorted(path.name for path in found if path.is_file()) == ["draft.py", "model_runner.py"]
    assert [path.name for path in archive.parent.iterdir() if path.suffix != ".lock"] == [archive.name]


def test_archive_with_a_wrong_byte_is_made_again(tmp_path: Path) -> None:
    parts = WheelParts(tmp_path / "kept", wheel_of)
    parts.keep("1.0")
    archive = parts.archive("1.0")
    data = bytearray(archive.read_bytes())
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        info = opened.infolist()[0]
    data[info.header_offset + 30 + len(info.filename)] ^= 0xFF
    archive.write_bytes(data)
    assert not parts.has("1.0")


def test_index_that_does_not_answer_is_told_from_one_without_sglang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    monkeypatch.setenv("PIP_RETRIES", "0")
    # Nothing listens on the discard port.
    monkeypatch.setenv("PIP_INDEX_URL", "https://127.0.0.1:9/simple")
    with pytest.raises(wheel_parts.IndexUnreachableError, match="unreachable: connection error"):
        wheel_parts.on_the_index()
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "index.html").write_text("<html></html>\n")
    monkeypatch.setenv("PIP_INDEX_URL", tmp_path.as_uri())
    with pytest.raises(wheel_parts.WheelError, match="No matching distribution"):
        wheel_parts.on_the_index()
