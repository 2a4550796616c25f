# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which tuning file of a directory SGLang would use for a layer, and why those that look like it are not used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from ansible_collections.tokforge.sglang.plugins.module_utils import moe_config, moe_config_content
from ansible_collections.tokforge.sglang.plugins.module_utils.moe_config import Key, Layer
from ansible_collections.tokforge.sglang.plugins.module_utils.moe_config_content import ContentError
from ansible_collections.tokforge.sglang.plugins.module_utils.releases import sort_key

MOST_NEARBY = 10
# Differences add up to how far off a file is; further off than this it is for something else altogether.
FAR = 9
_CASE_AND_BLANKS = str.maketrans("", "", " _-")


@dataclass(frozen=True)
class Entry:
    """A file that is there. `version` is the name of its directory below `configs`, "" for a file outside of one.

    `path` is what it is called in answers.
    """

    path: str
    name: str
    version: str = ""


@dataclass(frozen=True)
class Asked:
    """What SGLang looks for: one rank's file, in the versions' directories in the order they are tried.

    `wants` has a second key, with shared experts counted as experts, where it is not known whether they are.
    """

    release: str
    layer: Layer
    wants: tuple[Key, ...]
    directories: tuple[str, ...]


@dataclass(frozen=True)
class Nearby:
    """A file that is not used, and why."""

    file: str
    reason: str


@dataclass(frozen=True)
class Judgement:
    """What a directory gives.

    applies: path of the file that is used, None for none. applies_down: the down projection's own file.
    fatal: what ends the server at its first forward, "" for nothing. notes: what is to know of the file that is used.
    left_out: how many more files are near. others: how many tuning files are for something else altogether.
    """

    applies: str | None = None
    applies_down: str | None = None
    fatal: str = ""
    nearby: tuple[Nearby, ...] = ()
    left_out: int = 0
    others: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Use:
    """A key's file: the one that SGLang opens, and what is wrong in it."""

    key: Key
    entry: Entry
    settings: moe_config_content.Settings | None = None
    problem: ContentError | None = None


# Gives the text of a file. Raises ContentError when it cannot be read.
Reader = Callable[[Entry], str]


def judge_directory(asked: Asked, entries: Iterable[Entry], read: Reader) -> Judgement:
    """Which of the files is used, and why the others are not.

    :param entries: the files there are, in any order. Only those that SGLang would open are read.
    """
    files = list(entries)
    uses = [use for key in asked.wants for use in [_use(asked, files, key, read)] if use]
    used = next((use for use in uses if use.problem is None), None)
    downs = [moe_config.down_key(asked.release, key) for key in asked.wants]
    down = next((use for key in downs if key for use in [_use(asked, files, key, read)] if use), None)
    if down is not None:
        down = _fitted(asked.release, used, down)
        uses.append(down)
    good = {use.entry for use in uses if use.problem is None and use.key.down} | ({used.entry} if used else set())
    near: list[tuple[int, str, str]] = []
    others = 0
    for entry in files:
        if entry in good:
            continue
        broken = next((use.problem for use in uses if use.entry == entry and use.problem), None)
        distance, reason = (0, _opened(broken)) if broken else _compare(asked, entry, used)
        if distance > FAR:
            others += 1
        elif reason:
            near.append((distance, entry.path, reason))
    near.sort()
    return Judgement(
        applies=used.entry.path if used else None,
        applies_down=down.entry.path if down and down.problem is None else None,
        fatal=next((f"{use.entry.path}: {use.problem}" for use in uses if use.problem and use.problem.fatal), ""),
        nearby=tuple(Nearby(path, reason) for distance, path, reason in near[:MOST_NEARBY]),
        left_out=max(0, len(near) - MOST_NEARBY),
        others=others,
        notes=_notes(asked, used),
    )


def _use(asked: Asked, files: Sequence[Entry], key: Key, read: Reader) -> _Use | None:
    """The file that SGLang opens for a key, the first that is there, be it usable or not; None without one."""
    there = {entry.version: entry for entry in files if entry.name == key.name() and entry.version}
    entry = next((there[version] for version in asked.directories if version in there), None)
    if entry is None:
        return None
    try:
        return _Use(key, entry, moe_config_content.read(read(entry), asked.release, key.down))
    except ContentError as exc:
        return _Use(key, entry, problem=exc)


def _fitted(release: str, used: _Use | None, down: _Use) -> _Use:
    """The down projection's file, with the problem that it does not go with the other one, or with the defaults."""
    if not down.settings or sort_key(release) >= sort_key(moe_config_content.DOWN_FITTED_SINCE):
        return down
    key = down.key
    up = used.settings if used else None

    def block(batch: int) -> int:
        if up is None:
            return moe_config_content.default_block(key.dtype, key.block is not None, key.experts, batch)
        return int(moe_config_content.nearest(up, batch)["BLOCK_SIZE_M"])

    sizes = (key.experts, key.experts + 1) if up is None else tuple(up)
    batch = moe_config_content.differing_blocks(block, down.settings, sizes)
    if batch is None:
        return down
    other = f"the one in {used.entry.name}" if used else "the default, and no file without _down is there"
    return replace(down, problem=ContentError(f"at batch size {batch} its BLOCK_SIZE_M is not {other}"))


def _opened(problem: ContentError) -> str:
    return f"SGLang opens it and ends with it: {problem}" if problem.fatal else f"SGLang opens it, and {problem}"


def _notes(asked: Asked, used: _Use | None) -> tuple[str, ...]:
    if used is None:
        return ()
    found = []
    if used.entry.version != asked.directories[0]:
        found.append(
            f"it was tuned for {used.entry.version} and the Triton here is {asked.directories[0]}: SGLang uses it and "
            "warns that performance might be sub-optimal"
        )
    if len(asked.wants) > 1:
        counted = "not " if used.key == asked.wants[0] else ""
        found.append(
            f"it applies if shared experts are {counted}counted as experts, which is not known for this model; "
            "the server's log names the file it uses"
        )
    return tuple(found)


# --- why a file is not used -------------------------------------------------------------------------------------------


def _compare(asked: Asked, entry: Entry, used: _Use | None) -> tuple[int, str]:
    """How far off a file is, and why it is not used; no reason for a file that is no tuning file."""
    key = moe_config.parse_name(entry.name)
    if key is None:
        if not entry.name.startswith("E="):
            return 0, ""
        return FAR, "its name is none that SGLang makes; one is " + asked.wants[0].name()
    found = min((_differences(asked, key, want) for want in asked.wants), key=lambda one: sum(far for far, why in one))
    if not found:
        found = _same(asked, entry, key, used)
    return sum(far for far, why in found), "; ".join(why for far, why in found)


def _differences(asked: Asked, key: Key, want: Key) -> list[tuple[int, str]]:
    """What a name says otherwise than is asked for: how far off that is, and the reason."""
    found = []
    if key.experts != want.experts:
        found.append(_experts(asked.layer, key.experts, want.experts))
    if key.size != want.size:
        found.append(_size(asked.layer, key.size, want.size))
    if want.device == moe_config.DEVICE_UNKNOWN:
        found.append((1, f"it is for {key.device or 'a GPU without a name'}, and the GPU here is not known"))
    elif _plain(key.device) != _plain(want.device):
        found.append((5, f"device_name={key.device} is another GPU than {want.device}"))
    if key.dtype != want.dtype:
        has = f"dtype={key.dtype}" if key.dtype else "no dtype"
        found.append((3, f"it has {has}, and these experts are {want.dtype or 'not quantized'}"))
    if key.block != want.block:
        has = f"block_shape={list(key.block)}" if key.block else "no block_shape"
        wants = f"have scales for blocks of {list(want.block)}" if want.block else "have no scales for blocks"
        found.append((2, f"it has {has}, and these experts {wants}"))
    if key.per_channel != want.per_channel:
        has = "per_channel_quant=True" if key.per_channel else "no per_channel_quant"
        found.append((2, f"it has {has}, and SGLang {asked.release} looks for {'one' if want.per_channel else 'none'}"))
    if key.down and moe_config.down_key(asked.release, want) is None:
        since = moe_config.DOWN_SINCE
        found.append((1, f"it is for the down projection alone, which SGLang looks for from {since} on"))
    return found


def _same(asked: Asked, entry: Entry, key: Key, used: _Use | None) -> list[tuple[int, str]]:
    """Why a file that is for this very layer is not used."""
    names = {replace(want, down=key.down).name() for want in asked.wants}
    if entry.name not in names:
        return [(1, f"its name is spelt otherwise than SGLang looks for: {min(names)}")]
    if used is not None and not key.down and entry.name != used.entry.name:
        return [
            (1, "it applies instead if shared experts are counted the other way, which is not known for this model")
        ]
    if not entry.version:
        return [(1, f"it lies outside of {asked.directories[0]}, where SGLang looks")]
    if entry.version not in asked.directories:
        return [(1, f"SGLang {asked.release} does not look into {entry.version} here")]
    return [
        (1, f"another directory comes before {entry.version}, and has it" + (f": {used.entry.path}" if used else ""))
    ]


def _plain(device: str) -> str:
    return device.translate(_CASE_AND_BLANKS).lower()


def _experts(layer: Layer, has: int, wants: int) -> tuple[int, str]:
    routed = layer.experts + layer.redundant
    here = f"here a rank has {wants}" + (f" with ep {layer.ep}" if layer.ep > 1 else "")
    rest = has - layer.fused_shared
    if layer.ep > 1 and has in (routed, routed + layer.fused_shared):
        return 3, f"E={has} is for all experts on each rank, that is ep 1; {here}"
    if layer.fused_shared and has == wants - layer.fused_shared:
        return 3, f"E={has} is without the shared experts, which are counted; {here}"
    if layer.ep == 1 and has == wants + 1:
        return 3, f"E={has} is with a shared expert counted as an expert; {here}"
    if 0 < rest < routed and routed % rest == 0:
        return 3, f"E={has} is for ep {routed // rest}; {here}"
    return 5, f"E={has} is for another number of experts; {here}"


def _size(layer: Layer, has: int, wants: int) -> tuple[int, str]:
    # tp here is that of experts times what ep and MoE data parallelism take.
    others = layer.tp // layer.tp_of_expert()
    packed = layer.intermediate_size // layer.tp_of_expert() // wants
    here = f"here a rank has {wants} with tp {layer.tp}" + (f" and ep {layer.ep}" if layer.ep > 1 else "")
    whole = layer.intermediate_size // packed
    if packed > 1 and has == wants * packed:
        return 3, f"N={has} counts single weights, and {packed} of them share a byte; {here}"
    if has == whole:
        return 3, f"N={has} is the whole model's and not one rank's, that is tp {others}; {here}"
    if has and whole % has == 0:
        return 3, f"N={has} is for tp {whole // has * others}; {here}"
    return 5, f"N={has} is for another intermediate size; {here}"
