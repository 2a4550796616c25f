# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tuning files of SGLang's Triton MoE kernel: what one is called, and where SGLang looks for it.

SGLang reads `configs/triton_<version>/<name>.json` below its own package or below $SGLANG_MOE_CONFIG_DIR. Nothing in a
file says what it is for: the name alone decides (read in every release from 0.5.0rc0 to 0.5.23).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole
from ansible_collections.tokforge.sglang.plugins.module_utils.releases import sort_key

# The place of the files inside the package; they moved with 0.5.11.
PACKAGE_DIRECTORIES = (
    ("0.5.11", "sglang/srt/layers/moe/moe_runner/triton_utils"),
    ("", "sglang/srt/layers/moe/fused_moe_triton"),
)
DIRECTORY_VARIABLE = "SGLANG_MOE_CONFIG_DIR"
# The other versions that a release tries when its own Triton's directory has no such file, newest first. From 0.5.12 on
# it tries all that are there.
FALLBACKS = (("0.5.3rc0", ("3.4.0", "3.3.1", "3.2.0", "3.1.0")), ("", ("3.3.1", "3.2.0", "3.1.0")))
FALLBACK_FROM_DISK = "0.5.12"
VARIABLE_SINCE = "0.5.3rc2"
PER_CHANNEL_SINCE = "0.5.6"
DOWN_SINCE = "0.5.4.post2"
# The Triton that comes with the torch each release pins (2.14.1, 2.13.0, 2.11.0, 2.9.1 and 2.8.0).
TRITON_VERSIONS = (("0.5.22", "3.8.0"), ("0.5.18", "3.7.1"), ("0.5.11", "3.6.0"), ("0.5.6", "3.5.1"), ("", "3.4.0"))
# The most digits of a number in a file name. More mean nothing, and Python refuses to read thousands.
_DIGITS = r"\d{1,9}"
_NAME = re.compile(
    rf"E=(?P<experts>{_DIGITS}),\s*N=(?P<size>{_DIGITS}),\s*device_name=(?P<device>[^,/\n]*?)"
    rf"(?:,\s*dtype=(?P<dtype>\w+?))?(?:,\s*block_shape=\[(?P<rows>{_DIGITS}),\s*(?P<columns>{_DIGITS})\])?"
    r"(?P<channel>,\s*per_channel_quant=True)?(?P<down>_down)?\.json",
    re.ASCII | re.IGNORECASE,
)
# Stands for the GPU in a name where it is not known.
DEVICE_UNKNOWN = "<GPU_name>"


class MoeConfigError(Exception):
    """Sizes that cannot be served; the message names them."""


@dataclass(frozen=True)
class Key:
    """What a file's name says it was tuned for.

    `experts` and `size` are one rank's. `size` is the last dimension of the down projection's weights as they lie in
    memory: the intermediate size, halved where one byte holds two weights. `block` is (rows, columns) of one scale.
    """

    experts: int
    size: int
    device: str
    dtype: str = ""
    block: tuple[int, int] | None = None
    per_channel: bool = False
    down: bool = False

    def name(self) -> str:
        """The one spelling that SGLang looks for (compared with the releases' own function)."""
        dtype = f",dtype={self.dtype}" if self.dtype else ""
        block = f",block_shape=[{self.block[0]}, {self.block[1]}]" if self.block and all(self.block) else ""
        channel = ",per_channel_quant=True" if self.per_channel else ""
        down = "_down" if self.down else ""
        device = self.device.replace(" ", "_")
        return f"E={self.experts},N={self.size},device_name={device}{dtype}{block}{channel}{down}.json"


def parse_name(name: str) -> Key | None:
    """What a file name says, also one that is spelt a little otherwise than SGLang wants; None for another file."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    return Key(
        experts=int(found["experts"]),
        size=int(found["size"]),
        device=found["device"],
        dtype=(found["dtype"] or "").lower(),
        block=(int(found["rows"]), int(found["columns"])) if found["rows"] else None,
        per_channel=bool(found["channel"]),
        down=bool(found["down"]),
    )


@dataclass(frozen=True)
class Format:
    """How the experts' weights are kept, as far as file names tell it. `packed` is the weights in one element."""

    dtype: str = ""
    block: tuple[int, int] | None = None
    per_channel: bool = False
    packed: int = 1


def weight_format(quantization: str, settings: Mapping[str, Any], dtype: str = "") -> Format | None:
    """How the Triton runner is told of the experts' weights; None when that is not known.

    :param quantization: SGLang's name, empty for none.
    :param settings: `quantization_config` of config.json, or an empty mapping.
    :param dtype: the type that the model is served in. Only float32 is named.
    """
    if quantization == "":
        return Format(dtype="float32" if dtype in ("float32", "float") else "")
    if quantization == "modelopt_fp8":
        return Format(dtype="fp8_w8a8")
    if quantization == "fp8":
        return Format(dtype="fp8_w8a8", block=_block(settings.get("weight_block_size")))
    if quantization in ("w8a8_fp8", "w8a8_int8"):
        return Format(dtype="fp8_w8a8" if quantization == "w8a8_fp8" else "int8_w8a8", per_channel=True)
    if quantization == "blockwise_int8":
        block = _block(settings.get("weight_block_size"))
        return Format(dtype="int8_w8a8", block=block) if block else None
    if quantization == "moe_wna16":
        # Its block shape is [0, group size], and a shape with a zero is left out of the name.
        bits = settings.get("bits")
        return {4: Format("int4_w4a16", packed=2), 8: Format("int8_w8a16")}.get(bits) if is_whole(bits) else None
    if quantization == "compressed-tensors":
        return _compressed_tensors(settings)
    return None


def _block(value: Any) -> tuple[int, int] | None:
    if isinstance(value, (list, tuple)) and len(value) == 2 and all(is_whole(part) and part > 0 for part in value):
        return value[0], value[1]
    return None


def _compressed_tensors(settings: Mapping[str, Any]) -> Format | None:
    """Only weights of eight bits as floating point numbers in a single group; others run elsewhere or are mixed."""
    groups = settings.get("config_groups")
    if not isinstance(groups, Mapping) or len(groups) != 1:
        return None
    group = next(iter(groups.values()))
    weights = group.get("weights") if isinstance(group, Mapping) else None
    if not isinstance(weights, Mapping) or weights.get("type") != "float" or weights.get("num_bits") != 8:
        return None
    strategy = weights.get("strategy")
    if strategy == "block":
        block = _block(weights.get("block_structure"))
        return Format("fp8_w8a8", block=block) if block else None
    return Format("fp8_w8a8", per_channel=strategy == "channel") if strategy in ("channel", "tensor") else None


@dataclass(frozen=True)
class Layer:
    """One MoE layer of the whole model and how it is spread.

    `intermediate_size` is one expert's. `fused_shared` is the shared experts that are computed as experts among the
    others: each rank has them all. `redundant` is copies of routed experts.
    """

    experts: int
    intermediate_size: int
    tp: int = 1
    ep: int = 1
    moe_dp: int = 1
    fused_shared: int = 0
    redundant: int = 0

    def tp_of_expert(self) -> int:
        """Over how many ranks one expert is split: tp, less what ep and MoE data parallelism take."""
        return self.tp // (self.ep * self.moe_dp)

    def check(self) -> None:
        """Raise MoeConfigError where SGLang itself would refuse the sizes."""
        for name in ("experts", "intermediate_size", "tp", "ep", "moe_dp"):
            if getattr(self, name) < 1:
                raise MoeConfigError(f"{name} is {getattr(self, name)}; give a number above 0")
        for name in ("fused_shared", "redundant"):
            if getattr(self, name) < 0:
                raise MoeConfigError(f"{name} is {getattr(self, name)}; give 0 or more")
        if self.tp % (self.ep * self.moe_dp):
            taken = f"ep {self.ep}" + (f" times moe_dp {self.moe_dp}" if self.moe_dp > 1 else "")
            raise MoeConfigError(f"tp is {self.tp}, which {taken} does not divide; choose sizes that divide each other")
        if (self.experts + self.redundant) % self.ep:
            raise MoeConfigError(f"{self.experts + self.redundant} experts cannot be spread over ep {self.ep} evenly")
        if self.intermediate_size % self.tp_of_expert():
            raise MoeConfigError(
                f"an expert's intermediate size {self.intermediate_size} cannot be split over {self.tp_of_expert()} "
                f"ranks (tp {self.tp}, ep {self.ep})"
            )


def key_of(release: str, layer: Layer, kept: Format, device: str) -> Key:
    """What the file for this layer on one rank is called. Raises MoeConfigError for sizes that cannot be.

    :param device: the first GPU's product name; its blanks become underscores.
    """
    layer.check()
    width = layer.intermediate_size // layer.tp_of_expert()
    if width % kept.packed:
        raise MoeConfigError(f"{width} weights of a rank do not fill elements of {kept.packed}; choose another tp")
    return Key(
        experts=(layer.experts + layer.redundant) // layer.ep + layer.fused_shared,
        size=width // kept.packed,
        device=device.replace(" ", "_"),
        dtype=kept.dtype,
        block=kept.block,
        # Releases before wrote it into names, but never looked for such a name.
        per_channel=kept.per_channel and sort_key(release) >= sort_key(PER_CHANNEL_SINCE),
    )


def down_key(release: str, key: Key) -> Key | None:
    """The second file that is looked for, for the down projection alone; None before there was one."""
    return replace(key, down=True) if sort_key(release) >= sort_key(DOWN_SINCE) else None


def triton_version(release: str) -> str:
    """The version of Triton that a release is installed with unless its torch is changed."""
    return str(_since(TRITON_VERSIONS, release))


def version_directory(triton: str) -> str:
    """The directory of one Triton version."""
    return f"triton_{triton.replace('.', '_')}"


def package_directory(release: str) -> str:
    """Where `configs` lies in the package when $SGLANG_MOE_CONFIG_DIR is not set, below site-packages."""
    return str(_since(PACKAGE_DIRECTORIES, release))


def reads_variable(release: str) -> bool:
    """Whether the release can be given files without writing them into its package."""
    return sort_key(release) >= sort_key(VARIABLE_SINCE)


def lists_directory(release: str) -> bool:
    """Whether the release looks which versions' directories there are (and fails on a name it cannot read)."""
    return sort_key(release) >= sort_key(FALLBACK_FROM_DISK)


def lookup_directories(release: str, triton: str, present: Iterable[str]) -> tuple[str, ...]:
    """The versions' directories below `configs` in the order they are tried.

    :param present: what there is below `configs`; only releases from 0.5.12 on ask for it.
    """
    if lists_directory(release):
        found = {name for name in present if name.startswith("triton_") and not misnamed((name,))}
        others = sorted(found, key=lambda name: [int(part) for part in name[7:].split("_")], reverse=True)
    else:
        others = [version_directory(version) for version in _since(FALLBACKS, release)]
    own = version_directory(triton)
    return (own, *(name for name in others if name != own))


def misnamed(present: Iterable[str]) -> tuple[str, ...]:
    """The entries that a release which lists `configs` takes for a Triton version and cannot read as one.

    It fails on the first of them, files too, unless its own version's directory has the file.
    """
    fine = re.compile(r"triton_\d{1,9}([._]\d{1,9})*", re.ASCII)
    return tuple(sorted(name for name in present if name.startswith("triton_") and not fine.fullmatch(name)))


def _since(table: Iterable[tuple[str, Any]], release: str) -> Any:
    """The value of the newest row that is not newer than the release; the last row has no release."""
    return next(value for since, value in table if not since or sort_key(release) >= sort_key(since))
