# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The compatibility data against the released wheels: every proof is in the file it names, every choice in the release.

The first run fetches the wheels that `test_autotune_gate_releases.py` reads too, and some of FlashInfer's; later ones
read what was kept of them below `.build`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

import pytest
import wheel_parts
from gate_releases import RELEASES
from packaging.version import Version
from wheel_parts import WheelParts

from ansible_collections.tokforge.sglang.plugins.module_utils import compat_data, compat_releases
from ansible_collections.tokforge.sglang.plugins.module_utils.compat_data import Proof

SERVER_ARGS = "sglang/srt/server_args.py"
#: Files that declare flags and the lists of their choices, as far as a release has them.
FLAG_FILES = (
    SERVER_ARGS,
    "sglang/srt/arg_groups/choices.py",
    "sglang/srt/arg_groups/fields/exec_.py",
    "sglang/srt/arg_groups/fields/spec.py",
)
FLASHINFER_VERSIONS = sorted(
    {
        version
        for proof in wheel_parts.PROOFS
        for package, version in [proof.wheel.split(" ")]
        if package == wheel_parts.FLASHINFER
    },
    key=Version,
)


def proofs_of(wheel: str) -> list[Proof]:
    return [proof for proof in wheel_parts.PROOFS if proof.wheel == wheel]


def missing(parts: WheelParts, version: str) -> list[Proof]:
    """The proofs whose text is not in the wheel's file."""
    texts: dict[str, str] = {}
    found = []
    for proof in proofs_of(f"{parts.package} {version}"):
        if proof.file not in texts:
            texts[proof.file] = parts.text(version, proof.file)
        if proof.text not in texts[proof.file]:
            found.append(proof)
    return found


class Choices:
    """The choices that a release's sources declare for a flag, read as syntax trees."""

    def __init__(self, texts: list[str]) -> None:
        self.lists: dict[str, ast.expr] = {}
        self.flags: dict[str, ast.expr] = {}
        nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
        for node in nodes:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.lists[node.targets[0].id] = node.value
        self.flags.update(self._fields([node for node in nodes if isinstance(node, ast.AnnAssign)]))
        self.flags.update(self._calls([node for node in nodes if isinstance(node, ast.Call)]))

    @staticmethod
    def _calls(calls: list[ast.Call]) -> Iterator[tuple[str, ast.expr]]:
        """`parser.add_argument("--flag", choices=...)`."""
        for call in calls:
            if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
                for keyword in call.keywords:
                    if keyword.arg == "choices" and isinstance(call.args[0], ast.Constant):
                        yield str(call.args[0].value).removeprefix("--"), keyword.value

    @staticmethod
    def _fields(fields: list[ast.AnnAssign]) -> Iterator[tuple[str, ast.expr]]:
        """`flag: A[type, Arg(choices=...)]`, or where there is no list a type such as Literal["auto", "trtllm"]."""
        for field in fields:
            name = ast.unparse(field.target).replace("_", "-")
            for node in ast.walk(field.annotation):
                if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Literal":
                    yield name, node.slice
            for node in ast.walk(field.annotation):
                if isinstance(node, ast.Call):
                    told = {word.arg: word.value for word in node.keywords}
                    if "choices" in told:
                        cli = told.get("cli_name")
                        yield (
                            str(cli.value).removeprefix("--") if isinstance(cli, ast.Constant) else name,
                            told["choices"],
                        )

    def of(self, flag: str) -> set[str] | None:
        """The flag's choices; None when it has none that are a list of texts."""
        node = self.flags.get(flag)
        if isinstance(node, ast.Name):
            node = self.lists.get(node.id)
        if not isinstance(node, (ast.List, ast.Tuple)):
            return None
        return {str(entry.value) for entry in node.elts if isinstance(entry, ast.Constant)}


@pytest.mark.parametrize("version", list(RELEASES))
def test_every_fact_stands_in_the_release_it_names(version: str, wheels: Callable[[str], WheelParts]) -> None:
    assert missing(wheels(version), version) == []


@pytest.mark.parametrize("flashinfer_version", FLASHINFER_VERSIONS)
def test_every_fact_stands_in_the_flashinfer_it_names(
    flashinfer_version: str, flashinfer_wheels: Callable[[str], WheelParts]
) -> None:
    assert missing(flashinfer_wheels(flashinfer_version), flashinfer_version) == []


@pytest.mark.parametrize("version", list(RELEASES))
def test_release_has_these_choices_and_this_flashinfer(version: str, wheels: Callable[[str], WheelParts]) -> None:
    parts = wheels(version)
    declared = Choices([parts.text(version, name) for name in FLAG_FILES])
    known = {flag: compat_releases.choices(flag, version) for flag in compat_releases.CHANGES}
    found = {flag: declared.of(flag) for flag in known}
    if known["moe-runner-backend"] is None:
        # The three first releases have switches in its place; of their other flags nothing is recorded.
        assert found["moe-runner-backend"] is None
        assert f'"--{compat_releases.SWITCHES["flashinfer_cutlass"]}"' in parts.text(version, SERVER_ARGS)
    else:
        assert found == {flag: None if values is None else set(values) for flag, values in known.items()}
    metadata = parts.text(version, f"sglang-{version}.dist-info/METADATA")
    pins = set(re.findall(r"^Requires-Dist: flashinfer[-_]python(?:\[\w+\])?==([^;\s]+)", metadata, re.MULTILINE))
    assert pins == {compat_releases.FLASHINFER[version]}


def test_all_releases_are_covered_and_every_proof_names_a_wheel_that_is_read() -> None:
    assert tuple(RELEASES) == compat_releases.RELEASES
    named = {proof.wheel for row in compat_data.ROWS for proof in row.proofs}
    read = {f"sglang {version}" for version in RELEASES} | {f"flashinfer-python {v}" for v in FLASHINFER_VERSIONS}
    assert named <= read
    first, last = compat_data.FLASHINFER_READ
    assert [FLASHINFER_VERSIONS[0], FLASHINFER_VERSIONS[-1]] == [first, last]
