# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading locks and holding what is installed against them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import lockfile
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError
from ansible_collections.tokforge.sglang.plugins.module_utils.lockfile import Artifact, Pin

A, B = "a" * 64, "b" * 64
LOCKS = Path(__file__).parents[4] / "roles/sglang_install/files/locks"


def test_parse_reads_markers_extras_continuations_and_comments() -> None:
    text = (
        "# made by a tool\n"
        f"Flashinfer_Python[cu13]==0.7.2 ; python_full_version >= '3.12' \\\n"
        f"    --hash=sha256:{A} \\\n    --hash=sha256:{B}\n    # via sglang\n"
        "torch==2.13.0\n"
        f"plain==1.0 --hash=sha256:{A}  # one line\n"
    )
    assert lockfile.parse(text, "x") == [
        Pin("flashinfer-python", "0.7.2", "python_full_version >= '3.12'", (f"sha256:{A}", f"sha256:{B}"), "[cu13]"),
        Pin("torch", "2.13.0"),
        Pin("plain", "1.0", hashes=(f"sha256:{A}",)),
    ]


@pytest.mark.parametrize(
    "line",
    ["--extra-index-url https://x/simple", "-r other.txt", "torch>=2", "torch", "torch @ https://x/t.whl", "./a.whl"],
)
def test_parse_refuses_what_is_no_exact_pin(line: str) -> None:
    with pytest.raises(InstallError, match=r"line 2: .* is no exact pin"):
        lockfile.parse(f"a==1\n{line}\n", "x")


def test_parse_refuses_an_empty_lock() -> None:
    with pytest.raises(InstallError, match="it is empty"):
        lockfile.parse("# nothing\n\n", "x")


@pytest.mark.parametrize("path", sorted(LOCKS.glob("*.txt")), ids=lambda path: path.name)
def test_every_lock_of_the_role_can_be_read_and_is_guarded(path: Path) -> None:
    pins = lockfile.parse(path.read_text(encoding="utf-8"), path.name)
    lockfile.require_hashes(pins, {"torch"} if path.name.startswith("cpu-") else (), path.name)


def test_line_gives_back_what_was_parsed() -> None:
    pin = Pin("flashinfer-python", "0.7.2", "python_full_version >= '3.12'", (f"sha256:{A}",), "[cu13]")
    assert lockfile.parse(pin.line(), "x") == [pin]


def test_require_hashes_names_every_bare_pin_that_is_not_exempt() -> None:
    pins = [Pin("torch", "1"), Pin("b", "1"), Pin("a", "1"), Pin("c", "1", hashes=("sha256:" + A,))]
    with pytest.raises(InstallError, match="no hash for a, b;"):
        lockfile.require_hashes(pins, {"torch"}, "x")


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("0.5.12.post1", "0.5.12-1"),
        ("1.0", "1.0.0"),
        ("v1.2", "1.2"),
        ("2.11.0-rc.1", "2.11rc1"),
        ("1.0a1", "1.0-alpha.1"),
        ("1.0.dev3", "1.0dev3"),
        ("2024.05.01", "2024.5.1"),
        ("1!2.0", "1!2"),
        ("2.13.0+cpu", "2.13+CPU"),
        ("1.0.post2", "1.0.rev2"),
    ],
)
def test_normal_gives_one_spelling_for_equal_versions(text: str, same: str) -> None:
    assert lockfile.normal(text) == lockfile.normal(same)


@pytest.mark.parametrize(
    ("one", "other"), [("1.0", "1.0.post1"), ("1.0rc1", "1.0"), ("1.10", "1.1"), ("1.0+cpu", "1.0+cu130")]
)
def test_normal_keeps_different_versions_apart(one: str, other: str) -> None:
    assert lockfile.normal(one) != lockfile.normal(other)


def test_normal_leaves_alone_what_is_no_version() -> None:
    assert lockfile.normal("not a version") == "not a version"


def test_matches_lets_a_local_build_stand_for_a_plain_pin_and_not_the_other_way_round() -> None:
    assert lockfile.matches("2.13.0+cpu", "2.13.0")
    assert not lockfile.matches("2.13.0", "2.13.0+cpu")
    assert not lockfile.matches("2.13.0+cu130", "2.13.0+cpu")
    assert not lockfile.matches("0.5.9", "0.5.23")


def test_differences_names_wrong_and_missing_distributions() -> None:
    pins = [
        Pin("sglang", "0.5.23"),
        Pin("numpy", "2.3.5", "p < '3.13'"),
        Pin("numpy", "2.5.5", "p >= '3.13'"),
        Pin("c", "1"),
    ]
    pins += [Pin("pycparser", "3.12", "implementation_name != 'PyPy'")]
    assert lockfile.differences(pins, {"sglang": "0.5.9", "numpy": "2.5.5", "other": "9"}) == [
        "c 1 was asked, none is installed",
        "sglang 0.5.23 was asked, 0.5.9 is installed",
    ]
    assert lockfile.differences(pins, {"sglang": "0.5.23", "numpy": "2.4.0", "c": "1.0"}) == [
        "numpy 2.3.5 or 2.5.5 was asked, 2.4.0 is installed"
    ]
    assert lockfile.differences(pins, {"numpy": "2.3.5", "c": "1"}, left_out={"sglang"}) == []


PYLOCK = """\
lock-version = "1.0"

[[packages]]
name = "torch"
version = "2.13.0+cpu"
wheels = [{ url = "file:///w/torch-2.13.0%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl", hashes = { sha256 = "AAA" } }]

[[packages]]
name = "many"
version = "1.0"
marker = "python_full_version >= '3'"
sdist = { url = "https://x/many-1.0.tar.gz", size = 3, hashes = { sha256 = "BBB" } }
wheels = [
    { url = "https://x/many-1.0-py3-none-any.whl", upload-time = 2026-03-23T18:10:03Z, hashes = { sha256 = "AAA" } },
    { url = "https://x/many-1.0-cp311-cp311-linux_x86_64.whl", size = 5, hashes = { sha256 = "BBB" } },
]

[[packages]]
name = "bare"
version = "1.0"
wheels = [{ url = "https://x/bare-1.0-py3-none-any.whl", hashes = {} }]
""".replace("AAA", A).replace("BBB", B)


def test_parse_pylock_reads_versions_and_wheels_with_their_sha256() -> None:
    assert lockfile.parse_pylock(PYLOCK) == {
        "torch": Artifact("2.13.0+cpu", {"torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl": A}),
        "many": Artifact("1.0", {"many-1.0-py3-none-any.whl": A, "many-1.0-cp311-cp311-linux_x86_64.whl": B}),
        "bare": Artifact("1.0", {}),
    }


def test_exempted_swaps_the_locks_hashes_for_those_of_the_file_that_is_taken() -> None:
    pins = [Pin("torch", "2.13.0", hashes=(f"sha256:{B}",)), Pin("other", "1", hashes=(f"sha256:{B}",))]
    assert lockfile.exempted(pins, {"torch"}, lockfile.parse_pylock(PYLOCK)) == [
        Pin("torch", "2.13.0+cpu", hashes=(f"sha256:{A}",)),
        pins[1],
    ]


def test_exempted_never_takes_another_version_than_the_pin() -> None:
    resolved = {"torch": Artifact("2.12.0", {"torch-2.12.0-py3-none-any.whl": A})}
    assert lockfile.exempted([Pin("torch", "2.13.0")], {"torch"}, resolved) == [Pin("torch", "2.13.0")]


def test_wheel_of_finds_the_file_by_its_tags() -> None:
    wheels = {
        "t-1-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl": A,
        "t-1-1-cp312-cp312-linux_x86_64.whl": B,
    }
    both = {"cp311-cp311-manylinux_2_17_x86_64", "cp311-cp311-manylinux2014_x86_64"}
    assert lockfile.wheel_of(wheels, both) == next(iter(wheels))
    assert lockfile.wheel_of(wheels, {"cp312-cp312-linux_x86_64"}) == "t-1-1-cp312-cp312-linux_x86_64.whl"
    assert lockfile.wheel_of(wheels, {"cp313-cp313-linux_x86_64"}) is None
    assert lockfile.wheel_of({"a-1-py3-none-any.whl": A, "b-1-py3-none-any.whl": B}, {"py3-none-any"}) is None
