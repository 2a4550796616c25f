# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a checkpoint's weights are quantized: SGLang's name for it, bits per weight, and which modules are left out.

The description is `quantization_config` in config.json or, when there is none, hf_quant_config.json (NVIDIA ModelOpt);
SGLang looks in this order (read in 0.5.12.post1 and 0.5.23). Modules are named as most checkpoints name them:
model.layers.3.mlp.experts.0.gate_proj, model.layers.3.self_attn.o_proj, lm_head.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import releases
from ansible_collections.tokforge.sglang.plugins.module_utils.config_values import ShapeError, Values

#: Bits per weight that is not quantized. SGLang loads float32 with 16 bits unless --dtype says otherwise.
DTYPE_BITS: Mapping[str, int] = {"bfloat16": 16, "float16": 16, "float32": 16, "float8_e4m3fn": 8}

#: More names of left out modules than this are not believed; real lists have hundreds.
_MOST_NAMES = 200_000

#: More patterns than this would make the reading slow; real lists have one for each layer.
_MOST_PATTERNS = 2_000

#: Regular expressions are matched one by one; real lists have a dozen.
_MOST_EXPRESSIONS = 200

#: With more of these a regular expression can take ages.
_MOST_QUANTIFIERS = 4

#: NVFP4: 4 bits, and one scale of 8 bits for 16 weights. The scale of the tensor is nothing.
NVFP4_BITS = 4 + 8 / 16

#: MXFP4 and MXFP8: one scale of 8 bits for 32 weights.
MXFP4_BITS = 4 + 8 / 32
MXFP8_BITS = 8 + 8 / 32

#: bitsandbytes with 4 bits: one scale of 32 bits for 64 weights.
BNB4_BITS = 4 + 32 / 64

#: What the experts of W4AFP8 checkpoints are: 4 bits, and one scale of 16 bits for 128 weights.
W4_BITS = 4 + 16 / 128

#: FP8 in blocks of 128 by 128 with a scale of 32 bits.
BLOCK_FP8_BITS = 8 + 32 / (128 * 128)

#: SGLang never quantizes these: tables, routers, norms (their layers are made without a quantization).
_NEVER = re.compile(r"(^|\.)(lm_head|embed_tokens|gate|router|shared_expert_gate|weights_proj|\w*norm)$")

#: Checkpoints of other families call the same parts so.
_OTHER_NAMES = (
    (re.compile(r"\b(block_sparse_moe|feed_forward)\b"), "mlp"),
    (re.compile(r"\b(shared_expert|share_expert|shared_mlp|shared_experts?_mlp)\b"), "shared_experts"),
    (re.compile(r"\blanguage_model\\?\."), ""),
    (re.compile(r"^language_model$"), "model"),
)

#: Quantifiers on groups, and many beside each other, can take a regular expression ages, so it is not evaluated.
_NESTED = re.compile(r"\)[*+{]|(?:[*+{].*){7}", re.DOTALL)

_BITS_OF_ALGO: Mapping[str, float] = {
    "NVFP4": NVFP4_BITS,
    "NVFP4_AWQ": NVFP4_BITS,
    "W4A16_NVFP4": NVFP4_BITS,
    "FP8": 8.0,
    "FP8_PER_CHANNEL_PER_TOKEN": 8.0,
    "FP8_PB_WO": BLOCK_FP8_BITS,
    "FP8_BLOCK": BLOCK_FP8_BITS,
    "MXFP8": MXFP8_BITS,
    "MXFP4": MXFP4_BITS,
    "W4A8_AWQ": W4_BITS,
    "W4A16_AWQ": W4_BITS,
    "INT4": W4_BITS,
}


@dataclass(frozen=True)
class Names:
    """A set of module names: exact ones, which stand for everything below them too, and patterns."""

    exact: frozenset[str] = frozenset()
    patterns: tuple[re.Pattern[str], ...] = ()

    def __contains__(self, module: object) -> bool:
        """Whether the module, or one that it is part of, is meant."""
        name = str(module)
        parts = name.split(".")
        if self.exact and any(
            ".".join(parts[start:stop]) in self.exact
            for start in (*range(min(len(parts), 2)), *range(2, len(parts)))
            for stop in range(start + 1, len(parts) + 1)
        ):
            return True
        return any(pattern.fullmatch(name) for pattern in self.patterns)


@dataclass(frozen=True)
class Quantization:
    """What is known of a checkpoint's quantization.

    method: SGLang's name, "" for none. algo: the checkpoint's own word.
    rules: which modules have how many bits; the first that matches holds. A rule without names is for all modules.
    block: rows and columns that share a scale, (0, 0) when scales are not in blocks.
    group_size: weights in a row that share a scale, 0 when scales are for more.
    kv_cache: "fp8" or "nvfp4" when the checkpoint asks for such a cache, else "".
    layer_bits: bits of modules that the checkpoint lists one by one.
    unknown: what could not be told, in words.
    """

    method: str = ""
    algo: str = ""
    rules: tuple[tuple[Names | None, float], ...] = ()
    ignored: Names = field(default_factory=Names)
    layer_bits: Mapping[str, float] | None = None
    group_size: int = 0
    block: tuple[int, int] = (0, 0)
    kv_cache: str = ""
    unknown: tuple[str, ...] = ()

    def bits(self, module: str, dtype: str) -> float:
        """Bits per weight of a module, scales included. `dtype` is the type of what is not quantized."""
        plain = float(DTYPE_BITS.get(dtype, 16))
        if _NEVER.search(module) or module in self.ignored:
            return plain
        if self.layer_bits is not None:
            parts = module.split(".")
            names = (".".join(parts[:stop]) for stop in range(len(parts), 0, -1))
            return next((self.layer_bits[name] for name in names if name in self.layer_bits), plain)
        return next((bits for names, bits in self.rules if names is None or module in names), plain)


def read(top: Values, text: Values, quant: Mapping[str, Any] | None) -> Quantization:
    """The quantization of a checkpoint.

    :param top: config.json. :param text: the part of it that describes the text model.
    :param quant: hf_quant_config.json, None without such a file.
    Raises ShapeError for values of the wrong type.
    """
    described = top.part("quantization_config") or text.part("quantization_config") or top.part("compression_config")
    if described is None and quant is not None:
        if not isinstance(quant, Mapping):
            raise ShapeError("cannot use hf_quant_config.json: it is no JSON object; copy the file again")
        described = Values(quant, "hf_quant_config.json: ")
        if not described.data:
            return Quantization()
    if described is None:
        return Quantization()
    method = described.word("quant_method").lower()
    if method in ("", "modelopt", "modelopt_fp4", "modelopt_fp8", "modelopt_mixed"):
        return _modelopt(described.part("quantization") or described, method)
    reader = _READERS.get(method)
    if reader is None:
        return Quantization(method, method, unknown=(f"bits per weight of quantization {method}",))
    return reader(described, method)


def name_in(quantization: Quantization, release: str, architecture: str = "") -> str:
    """SGLang's name for the checkpoint's quantization in a release; `method` is the name in 0.5.23.

    :param architecture: first of the config's architectures, which decided for mixed checkpoints in some releases.
    Changes as read in the wheels of 0.5.0rc0 to 0.5.23: ModelOpt's kinds have names of their own since 0.5.3.post1,
    MIXED_PRECISION is modelopt_mixed for Nemotron-H since 0.5.10rc0 and by its layers since 0.5.15, MXFP8 is told from
    FP8 since 0.5.18.
    """
    key = releases.sort_key(release)
    method, algo = quantization.method, quantization.algo
    if algo == "MIXED_PRECISION":
        if key >= releases.sort_key("0.5.15"):
            return method
        mixed = key >= releases.sort_key("0.5.10rc0") and architecture.startswith("NemotronH")
        return "modelopt_mixed" if mixed else "w4afp8"
    if method in ("modelopt_fp4", "modelopt_fp8") and key < releases.sort_key("0.5.3.post1"):
        return "modelopt"
    if algo == "MXFP8" and key < releases.sort_key("0.5.18"):
        return "modelopt_fp8"
    return method


# --- each kind of description -----------------------------------------------------------------------------------------


def _modelopt(values: Values, method: str) -> Quantization:
    """NVIDIA ModelOpt, in either file. Names as SGLang gives them (_parse_modelopt_quant_config in 0.5.23)."""
    algo = values.word("quant_algo").upper()
    unknown: list[str] = []
    ignored = _names(values, ("exclude_modules", "ignore"), unknown)
    group = values.optional("group_size")
    found = Quantization(
        method or "modelopt", algo, ignored=ignored, group_size=group, kv_cache=_modelopt_cache(values)
    )
    if algo == "MIXED_PRECISION":
        return _mixed(values, found, unknown)
    if "FP4" in algo:
        bits = _BITS_OF_ALGO.get(algo, 4 + 8 / (group or 16))
        found = replace(found, method="modelopt_fp4", rules=((None, bits),), group_size=group or 16)
    elif algo == "MXFP8":
        found = replace(found, method="mxfp8", rules=((None, MXFP8_BITS),), group_size=group or 32)
    elif "FP8" in algo:
        bits = _BITS_OF_ALGO.get(algo, 8.0)
        found = replace(found, method="modelopt_fp8", rules=((None, bits),))
    elif algo or method:
        unknown.append(f"bits per weight of quantization {algo or method}")
    else:
        return Quantization(unknown=("quantization: no quant_method and no quant_algo",))
    return replace(found, unknown=tuple(unknown))


def _mixed(values: Values, found: Quantization, unknown: list[str]) -> Quantization:
    """Layers of several kinds, one by one in `quantized_layers`; without it, 4 bit experts in an FP8 model."""
    listed = values.part("quantized_layers")
    if listed is None or not listed.data:
        rules = ((_pattern(r".*\.experts\..*"), W4_BITS), (None, BLOCK_FP8_BITS))
        return replace(found, method="w4afp8", rules=rules, unknown=tuple(unknown))
    bits = {}
    four = False
    for name in listed.data:
        algo = (listed.part(name) or Values({})).word("quant_algo").upper()
        four = four or algo in ("NVFP4", "W4A16_NVFP4")
        if algo in _BITS_OF_ALGO:
            bits[_plain(name)] = _BITS_OF_ALGO[algo]
        elif f"bits per weight of quantization {algo}" not in unknown:
            unknown.append(f"bits per weight of quantization {algo}")
    method = "modelopt_mixed" if four else "w4afp8"
    return replace(found, method=method, layer_bits=bits, unknown=tuple(unknown))


def _modelopt_cache(values: Values) -> str:
    algo = values.word("kv_cache_quant_algo").upper()
    if not algo:
        return _cache_scheme(values)
    return "nvfp4" if "FP4" in algo else "fp8" if "FP8" in algo else ""


def _cache_scheme(values: Values) -> str:
    scheme = values.part("kv_cache_scheme")
    if scheme is None or scheme.word("type") != "float":
        return ""
    return {8: "fp8", 4: "nvfp4"}.get(scheme.optional("num_bits"), "")


def _fp8(values: Values, method: str) -> Quantization:
    unknown: list[str] = []
    block = (0, 0)
    if values.present("weight_block_size"):
        sizes = values.numbers("weight_block_size", 1)
        if len(sizes) != 2:
            raise values.error("weight_block_size", "two whole numbers")
        block = (sizes[0], sizes[1])
    scale_bits = 8 if method == "mxfp8" else 32
    bits = 8 + (scale_bits / (block[0] * block[1]) if block[0] else 8 / 32 if method == "mxfp8" else 0)
    ignored = _names(values, ("modules_to_not_convert", "ignored_layers"), unknown)
    group = block[1] if method == "mxfp8" else 0
    return Quantization(
        method,
        method,
        ((None, bits),),
        ignored,
        block=block if method != "mxfp8" else (0, 0),
        group_size=group,
        unknown=tuple(unknown),
    )


def _compressed(values: Values, _method: str) -> Quantization:
    """compressed-tensors: groups of targets, each with the format of its weights."""
    unknown: list[str] = []
    groups = values.part("config_groups")
    rules: list[tuple[Names | None, float]] = []
    group_size, block = 0, (0, 0)
    for name in sorted(groups.data) if groups else ():
        group = groups.part(name) if groups else None
        weights = group.part("weights") if group else None
        if group is None or weights is None:
            continue
        bits, size, blocks = _scheme(weights, group.word("format") or values.word("format"))
        group_size, block = group_size or size, block if block[0] else blocks
        targets = group.words("targets", _MOST_NAMES)
        every = not targets or "Linear" in targets
        # Rules for some modules come before the rule for all.
        rules.insert(len(rules) if every else 0, (None if every else _as_names(targets, unknown), bits))
    if not rules:
        unknown.append("bits per weight of quantization compressed-tensors")
    ignored = _names(values, ("ignore",), unknown)
    return Quantization(
        "compressed-tensors",
        values.word("format"),
        tuple(rules),
        ignored,
        group_size=group_size,
        block=block,
        kv_cache=_cache_scheme(values),
        unknown=tuple(unknown),
    )


def _scheme(weights: Values, form: str) -> tuple[float, int, tuple[int, int]]:
    """Bits per weight, group size and block of one group of compressed-tensors."""
    number = weights.whole("num_bits", 1, 32)
    strategy = weights.word("strategy")
    if strategy == "block" or weights.present("block_structure"):
        rows, columns = weights.numbers("block_structure", 1)[:2] if weights.present("block_structure") else (128, 128)
        return number + 32 / (rows * columns), 0, (rows, columns)
    # -1 is the whole row.
    size = max(0, weights.optional("group_size", least=-1))
    if not size:
        return float(number), 0, (0, 0)
    scale_bits = 8 if weights.word("type") == "float" and number <= 8 else 16
    zero_bits = 0 if weights.truth("symmetric", True) else number
    if form == "mxfp4-pack-quantized":
        scale_bits = 8
    return number + (scale_bits + zero_bits) / size, size, (0, 0)


def _grouped(values: Values, method: str) -> Quantization:
    """AWQ, GPTQ and auto-round: whole numbers with a scale and a zero point for a group of weights."""
    unknown: list[str] = []
    bits = values.optional("bits", "w_bit", default=4, least=1, most=32)
    size = max(0, values.optional("group_size", "q_group_size", default=128, least=-1))
    ignored = _names(values, ("modules_to_not_convert",), unknown)
    dynamic = values.part("dynamic")
    if dynamic:
        # GPTQ marks modules that it leaves out with "-:" before the pattern.
        out = tuple("re:" + key[2:] for key in dynamic.data if key.startswith("-:"))
        ignored = Names(ignored.exact, ignored.patterns + _as_names(out, unknown).patterns)
    total = bits + (16 + bits) / size if size else float(bits)
    return Quantization(method, method, ((None, total),), ignored, group_size=size, unknown=tuple(unknown))


def _mxfp4(values: Values, method: str) -> Quantization:
    """gpt-oss: only the experts are MXFP4."""
    unknown: list[str] = []
    ignored = _names(values, ("modules_to_not_convert",), unknown)
    rules = ((_pattern(r".*\.experts(\..*)?"), MXFP4_BITS),)
    return Quantization(method, method, rules, ignored, group_size=32, unknown=tuple(unknown))


def _bitsandbytes(values: Values, method: str) -> Quantization:
    unknown: list[str] = []
    bits = BNB4_BITS if values.truth("load_in_4bit") or values.truth("_load_in_4bit") else 8.0
    ignored = _names(values, ("llm_int8_skip_modules",), unknown)
    return Quantization(method, method, ((None, bits),), ignored, unknown=tuple(unknown))


def _eight(values: Values, method: str) -> Quantization:
    """Eight bits a weight with a scale for a row or a tensor."""
    unknown: list[str] = []
    ignored = _names(values, ("modules_to_not_convert", "ignored_layers", "ignore"), unknown)
    return Quantization(method, method, ((None, 8.0),), ignored, unknown=tuple(unknown))


def _w4afp8(values: Values, method: str) -> Quantization:
    return replace(_mixed(values, Quantization(method, method), []), method=method)


def _quark(values: Values, method: str) -> Quantization:
    """AMD Quark: one description for all modules, and exceptions by name that we do not follow."""
    unknown: list[str] = []
    whole = values.part("global_quant_config")
    weight = whole.part("weight") if whole else None
    kind = weight.word("dtype") if weight else ""
    bits = {"fp4": MXFP4_BITS, "fp8_e4m3": 8.0, "int8": 8.0, "int4": W4_BITS, "fp6_e2m3": 6 + 8 / 32}.get(kind)
    if bits is None:
        unknown.append(f"bits per weight of quantization quark {kind}".rstrip())
    if values.data.get("layer_quant_config"):
        unknown.append("bits per weight of the layers in layer_quant_config")
    ignored = _names(values, ("exclude",), unknown)
    return Quantization(method, kind or method, ((None, bits),) if bits else (), ignored, unknown=tuple(unknown))


_READERS = {
    "fp8": _fp8,
    "mxfp8": _fp8,
    "fbgemm_fp8": _eight,
    "w8a8_fp8": _eight,
    "w8a8_int8": _eight,
    "blockwise_int8": _fp8,
    "compressed-tensors": _compressed,
    "compressed_tensors": _compressed,
    "awq": _grouped,
    "awq_marlin": _grouped,
    "gptq": _grouped,
    "gptq_marlin": _grouped,
    "auto-round": _grouped,
    "mxfp4": _mxfp4,
    "bitsandbytes": _bitsandbytes,
    "w4afp8": _w4afp8,
    "quark": _quark,
}


# --- names of modules -------------------------------------------------------------------------------------------------


def _names(values: Values, keys: tuple[str, ...], unknown: list[str]) -> Names:
    key = values.present(*keys)
    return _as_names(values.words(key, _MOST_NAMES), unknown) if key else Names()


def _plain(name: str) -> str:
    """A name or pattern in the words that this file uses for the parts of a model."""
    for pattern, ours in _OTHER_NAMES:
        name = pattern.sub(ours, name)
    return name


def _as_names(listed: tuple[str, ...], unknown: list[str]) -> Names:
    """Names, patterns with stars, and regular expressions after `re:`. What cannot be used is told in `unknown`."""
    exact, globs, expressions = set(), [], []
    for given in listed:
        name = _plain(given)
        if name.startswith("re:"):
            expressions.append(_regex(name[3:]))
        elif "*" in name:
            globs.append(_glob(name))
        elif name:
            exact.add(name)
    usable = [pattern for pattern in expressions if pattern]
    stars = [pattern for pattern in globs if pattern][:_MOST_PATTERNS]
    if len(usable) < len(expressions) or len(usable) > _MOST_EXPRESSIONS or len(stars) < len(globs):
        unknown.append("modules left out by patterns that are not evaluated")
    if stars:
        usable.insert(0, re.compile("|".join(stars)))
    return Names(frozenset(exact), tuple(usable[:_MOST_EXPRESSIONS]))


def _glob(name: str) -> str:
    """A pattern with stars as a regular expression that also matches what is below it; "" when it has too many."""
    pieces = re.sub(r"\*+", "*", name).split("*")
    return (
        ".*".join(re.escape(piece) for piece in pieces) + r"(?:\..*)?" if len(pieces) <= _MOST_QUANTIFIERS + 1 else ""
    )


def _regex(text: str) -> re.Pattern[str] | None:
    """A regular expression from a config that is safe to evaluate, else None."""
    if len(text) > 500 or _NESTED.search(text) or len(re.findall(r"[*+{]", text)) > _MOST_QUANTIFIERS:
        return None
    try:
        # The beginning must match, the rest need not, as with the library that writes them.
        return re.compile(f"(?:{text}).*")
    except (re.error, RecursionError, OverflowError):
        return None


def _pattern(text: str) -> Names:
    return Names(patterns=(re.compile(text),))
