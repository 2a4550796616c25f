# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write docs/compatibility.md from plugins/module_utils/compat_data.py, so that a fact stands in one place.

python tools/compat_table.py            write it
python tools/compat_table.py --check    say whether it is current, exit code 1 when it is not
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.tokforge.sglang.plugins.module_utils import compat_data, compat_match, compat_releases
from ansible_collections.tokforge.sglang.plugins.module_utils.compat_data import Row

DOCUMENT = ROOT / "docs" / "compatibility.md"
TITLES = {
    "moe": "MoE backend, `--moe-runner-backend`",
    "quantization": "Quantization, `--quantization`",
    "a2a": "MoE all-to-all, `--moe-a2a-backend`",
    "attention": "Attention, `--attention-backend`",
    "attention_prefill": "Attention while prefilling, `--prefill-attention-backend` and `--attention-backend`",
    "attention_decode": "Attention while decoding, `--decode-attention-backend` and `--attention-backend`",
    "dsa": "Sparse attention, `--dsa-*-backend` and `--nsa-*-backend`",
    "dsa_prefill": "Sparse attention while prefilling, `--dsa-prefill-backend` and `--nsa-prefill-backend`",
    "dsa_decode": "Sparse attention while decoding, `--dsa-decode-backend` and `--nsa-decode-backend`",
    "fp4_gemm": "FP4 matrices, `--fp4-gemm-backend`",
    "fp8_gemm": "FP8 matrices, `--fp8-gemm-backend`",
    "allreduce_fusion": "Allreduce fusion, `--flashinfer-allreduce-fusion-backend`",
    "toolkit": "CUDA toolkit that builds kernels",
    "driver": "NVIDIA driver",
}
VERDICTS = {"supported": "yes", "supported_but": "yes, but", "unsupported": "no"}
INTRODUCTION = """# What runs where

Which choices of SGLang {first} to {last} run on which GPU. Each line was read in released wheels; the last column
says in which files of which versions (their whole paths stand in the data). `tokforge.sglang.backend_check` and the
`preflight` role judge by these lines.

All lines that fit a case count, and the worst decides: one "no" refuses. A case that no line fits is unknown: it is
allowed, with a warning. Ranges of versions include both ends. A GPU is named by its compute capability: 8.0 A100,
8.9 L40S and RTX 4090, 9.0 H100 and H200, 10.0 B200, 10.3 B300, 11.0 Jetson Thor, 12.0 RTX PRO 6000 and RTX 5090,
12.1 DGX Spark.

Written from `plugins/module_utils/compat_data.py` by `make docs`.
"""
#: What stands in a reason for the figures of a case.
WORDS = (
    ("SGLang {sglang}", "SGLang"),
    ("FlashInfer {flashinfer}", "FlashInfer"),
    ("compute capability {capability}", "this compute capability"),
    ("{capability}", "others"),
    ("{sm}", "..."),
    ("{sglang}", "this release"),
    ("{flashinfer}", "another"),
    ("quantization {quantization}", "another quantization"),
    ("{quantization}", "this quantization"),
    ("{backend}", "it"),
    ("; here tp is {tp} and ep {ep}", ""),
    ("; here it is {ep}", ""),
    ("{tp}", "tp"),
    ("{ep}", "ep"),
)


def cell(text: str) -> str:
    """Text fit for a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def names(values: Iterable[str]) -> str:
    """Values as code, any when there are none."""
    return ", ".join(f"`{value}`" for value in values) or "any"


def reason(row: Row) -> str:
    """A row's reason without a case: its figures become words."""
    text = row.reason
    for figure, word in WORDS:
        text = text.replace(figure, word)
    return text


def conditions(row: Row) -> str:
    """What else has to hold, in words."""
    found = []
    if row.parallel:
        found.append(row.parallel)
    if row.a2a:
        found.append(f"moe_a2a_backend {names(row.a2a)}")
    found += [f"{name} {names(values)}" for name, values in row.args]
    found += [f"{name} none of {names(values)}" for name, values in row.unless_args]
    if row.flashinfer:
        found.append(f"FlashInfer {row.flashinfer}")
    return "; ".join(found)


def quantizations(row: Row) -> str:
    """The quantizations that a row is about."""
    if row.not_quantization:
        return f"any but {names(row.not_quantization)}"
    return names(row.quantization)


def read_in(row: Row) -> str:
    """Where it was read: each package once, in it each version or versions with the files that were read in all."""
    versions: dict[tuple[str, str], list[str]] = {}
    for proof in row.proofs:
        package, version = proof.wheel.split(" ")
        having = versions.setdefault((package, short(proof.file)), [])
        if version not in having:
            having.append(version)
    files: dict[tuple[str, str], list[str]] = {}
    for (package, file), having in versions.items():
        files.setdefault((package, ", ".join(having)), []).append(file)
    found: list[str] = []
    told = ""
    for (package, having_them), listed in files.items():
        found.append(f"{'' if package == told else package + ' '}{having_them} {names(listed)}")
        told = package
    return "; ".join([*found, *([row.source] if row.source else [])])


def short(file: str) -> str:
    """The end of a file's path that tells it from others: its name, with the directory that it is in below srt."""
    path = PurePosixPath(file)
    folder = path.parent.name
    plain = folder in ("srt", "sglang", "flashinfer") or folder.endswith(".dist-info")
    return path.name if plain else f"{folder}/{path.name}"


def values(row: Row) -> str:
    """The values that a row is about; of most MoE backends those that it is not about."""
    others = [name for name in compat_data.MOE_BACKENDS if name not in row.backends]
    if row.part == "moe" and row.backends and len(others) < len(row.backends):
        return f"any but {names(others)}" if others else "any"
    return names(row.backends)


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    body = ["| " + " | ".join(cell(text) for text in line) + " |" for line in lines]
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *body, ""]


def part_section(part: str, rows: Sequence[Row]) -> list[str]:
    """The lines of one part, in the data's order."""
    head = ("value", "GPU", "quantization", "SGLang", "if", "runs", "what happens", "read in")
    lines = [
        (
            values(row),
            row.capability or "any",
            quantizations(row),
            row.sglang or "all",
            conditions(row),
            VERDICTS[row.verdict],
            reason(row),
            read_in(row),
        )
        for row in rows
    ]
    return [f"## {TITLES[part]}", "", *table(head, lines)]


def choices_section() -> list[str]:
    """Which release has which MoE backend, and which FlashInfer."""
    flag = "moe-runner-backend"
    lines = []
    for name in compat_data.MOE_BACKENDS:
        having = compat_releases.releases_with(flag, name)
        last = "" if having[-1] == compat_releases.NEWEST else having[-1]
        lines.append((f"`{name}`", f"{having[0]}..{last}"))
    pins: dict[str, list[str]] = {}
    for release, version in compat_releases.FLASHINFER.items():
        pins.setdefault(version, []).append(release)
    own = [(version, ", ".join(having)) for version, having in pins.items()]
    return [
        "## Choices of `--moe-runner-backend`",
        "",
        *table(("value", "SGLang"), lines),
        "## FlashInfer of each release",
        "",
        *table(("flashinfer-python", "pinned by SGLang"), own),
    ]


def document() -> str:
    """The whole document."""
    releases = compat_releases.RELEASES
    lines = [INTRODUCTION.format(first=releases[0], last=releases[-1])]
    for part in compat_match.PARTS:
        rows = [row for row in compat_data.ROWS if row.part == part]
        lines += part_section(part, rows) if rows else []
    return "\n".join([*lines, *choices_section()])


def main(arguments: list[str], path: Path = DOCUMENT) -> int:
    """Command line; returns the exit code."""
    text = document()
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return 0
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    if "--check" in arguments:
        print(f"{shown} is not current; run make docs", file=sys.stderr)
        return 1
    path.write_text(text, encoding="utf-8")
    print(f"wrote {shown}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
