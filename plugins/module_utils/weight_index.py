# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a model's weight files hold, without loading them: names, types, shapes and sizes of all tensors.

A safetensors file begins with the length of its header (8 bytes, little endian) and the header, a JSON object that
gives type, shape and place of each tensor. model.safetensors.index.json says which file has which tensor, and the total
size. `read` never raises for what a file holds: what is missing, cut off or nonsense is told in `problems`.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole

INDEX = "model.safetensors.index.json"

#: States of an index. HEADERS: every file's header was read, so sizes are exact. TOTAL: only what the index file says
#: is known. ABSENT: there are no safetensors files. DAMAGED: files are missing, cut off or not safetensors.
HEADERS = "headers"
TOTAL = "total"
ABSENT = "absent"
DAMAGED = "damaged"

#: The format's own limit for a header.
LARGEST_HEADER_BYTES = 100_000_000

#: All headers together: a model of 230 000 tensors has 40 MB.
LARGEST_HEADERS_BYTES = 400_000_000

#: The index of such a model has 25 MB.
LARGEST_INDEX_BYTES = 200_000_000

#: More problems than this are not told one by one.
_MOST_PROBLEMS = 5

#: Bits of an element of each type that the format knows.
DTYPE_BITS: Mapping[str, int] = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}


@dataclass(frozen=True)
class Tensor:
    """One tensor of a checkpoint. Sizes in bytes as stored."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    file: str


@dataclass(frozen=True)
class WeightIndex:
    """What is known of a directory's weights. `total_bytes` None when not even the total is known."""

    state: str
    total_bytes: int | None = None
    tensors: tuple[Tensor, ...] = ()
    files: int = 0
    problems: tuple[str, ...] = ()


class _BadError(ValueError):
    """A file is not what it must be; the message says how."""


def read(directory: str, headers: bool = True) -> WeightIndex:
    """Look at the safetensors files of a directory. Reads no weights.

    :param headers: also read the header of each file, some tens of MB for the largest models.
    """
    try:
        names = sorted(os.listdir(directory))
    except (OSError, ValueError) as error:
        return WeightIndex(DAMAGED, problems=(f"cannot list {directory}: {_why(error)}",))
    present = [name for name in names if name.endswith(".safetensors")]
    problems: list[str] = []
    total: int | None = None
    wanted: Mapping[str, str] | None = None
    if INDEX in names:
        try:
            total, wanted = _read_index(os.path.join(directory, INDEX))
        except _BadError as error:
            problems.append(f"{INDEX} {error}")
    if wanted is None and not present and not problems:
        return WeightIndex(ABSENT)
    files = sorted(set(wanted.values())) if wanted else _without_copies(present)
    missing = [name for name in files if name not in present]
    if missing:
        problems.append(f"{len(missing)} of {len(files)} weight files are missing, {missing[0]} first")
    if not headers:
        return WeightIndex(DAMAGED if problems else TOTAL, total, (), len(files), tuple(problems))
    tensors = _read_headers(directory, [name for name in files if name in present], wanted, problems)
    if problems:
        told = problems[:_MOST_PROBLEMS]
        more = len(problems) - len(told)
        return WeightIndex(DAMAGED, total, (), len(files), (*told, *([f"and {more} more"] if more else [])))
    return WeightIndex(HEADERS, sum(tensor.size_bytes for tensor in tensors), tuple(tensors), len(files))


def _without_copies(present: Sequence[str]) -> list[str]:
    """Without an index: the files of the usual names; a consolidated file beside them has the same weights again."""
    return [name for name in present if not name.startswith("consolidated")] or list(present)


def _read_headers(
    directory: str, files: Sequence[str], wanted: Mapping[str, str] | None, problems: list[str]
) -> list[Tensor]:
    tensors: dict[str, Tensor] = {}
    left = LARGEST_HEADERS_BYTES
    for name in files:
        try:
            found, used = read_header(os.path.join(directory, name), left)
        except _BadError as error:
            problems.append(f"{name} {error}")
            continue
        left -= used
        for tensor in found:
            if wanted is not None and wanted.get(tensor.name) != name:
                # What the index does not ask for from this file is not loaded.
                continue
            if tensor.name in tensors:
                problems.append(f"{name} has tensor {tensor.name[:120]!r}, which {tensors[tensor.name].file} has too")
                continue
            tensors[tensor.name] = tensor
    if wanted is not None and not problems:
        lost = sorted(set(wanted) - set(tensors))
        if lost:
            problems.append(f"{len(lost)} tensors of the index are in no file, {lost[0][:120]!r} first")
    return list(tensors.values())


def _read_index(path: str) -> tuple[int | None, Mapping[str, str]]:
    """Total size, None where the file does not tell, and the file of each tensor. Raises _BadError."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise _BadError("is no plain file")
        size = status.st_size
        if size > LARGEST_INDEX_BYTES:
            raise _BadError(f"has {size} bytes, more than the {LARGEST_INDEX_BYTES} that an index can have")
        with open(path, "rb") as stream:
            data = json.loads(stream.read(LARGEST_INDEX_BYTES + 1), parse_int=_short)
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, _BadError):
            raise
        raise _BadError(f"cannot be read: {_why(error)}") from error
    files = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(files, dict) or not files:
        raise _BadError("has no weight_map that names files")
    if not all(isinstance(file, str) for file in files.values()):
        raise _BadError("has a weight_map with something other than file names")
    for file in sorted(set(files.values())):
        if not file.endswith(".safetensors") or os.path.basename(file) != file or "\0" in file:
            raise _BadError(f"names {file[:120]!r}, which is no safetensors file beside it")
    metadata = data.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    # Some tools write 1.5e12.
    if isinstance(total, float) and 0 < total < 2**53 and total == int(total):
        total = int(total)
    return (total if is_whole(total) and total > 0 else None), files


def read_header(path: str, most_bytes: int = LARGEST_HEADERS_BYTES) -> tuple[list[Tensor], int]:
    """The tensors of one safetensors file, and the bytes of its header. Raises ValueError when it is none.

    :param most_bytes: a longer header is refused.
    """
    file = os.path.basename(path)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            # Opening a pipe would wait for a writer.
            raise _BadError("is no plain file")
        with open(path, "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            first = stream.read(8)
            if len(first) < 8:
                raise _BadError(f"is cut off: it has {size} bytes")
            length = int.from_bytes(first, "little")
            if length > LARGEST_HEADER_BYTES:
                raise _BadError(f"is no safetensors file: it says its header has {length} bytes")
            if length > size - 8:
                raise _BadError(f"is cut off: its header has {length} bytes and the file {size}")
            if length > most_bytes:
                raise _BadError(f"has a header of {length} bytes, and all headers together may have {most_bytes} more")
            header = stream.read(length)
        data = json.loads(header, object_pairs_hook=_unique, parse_int=_short)
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, _BadError):
            raise
        raise _BadError(f"cannot be read: {_why(error)}") from error
    if not isinstance(data, dict):
        raise _BadError("is no safetensors file: its header is no JSON object")
    return [_tensor(name, data[name], file, size - 8 - length) for name in data if name != "__metadata__"], length


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _BadError("is no safetensors file: its header has a name twice")
    return found


def _short(digits: str) -> int:
    """A number of at most 20 digits: reading one of millions takes Python minutes."""
    if len(digits) > 20:
        raise _BadError(f"holds a number of {len(digits)} digits")
    return int(digits)


def _tensor(name: str, entry: Any, file: str, room_bytes: int) -> Tensor:
    """One entry of a header. Raises _BadError when type, shape and place do not agree with each other or the file."""
    told = name[:120]
    if not isinstance(entry, dict):
        raise _BadError(f"is no safetensors file: tensor {told!r} has no description")
    dtype, shape, place = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    bits = DTYPE_BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is None:
        raise _BadError(f"has tensor {told!r} of the unknown type {str(dtype)[:40]!r}")
    if not isinstance(shape, list) or len(shape) > 32 or not all(is_whole(item) and item >= 0 for item in shape):
        raise _BadError(f"has tensor {told!r} without a usable shape")
    if not isinstance(place, list) or len(place) != 2 or not all(is_whole(item) and item >= 0 for item in place):
        raise _BadError(f"has tensor {told!r} without a usable place")
    count = 1
    for item in shape:
        count *= item
    size = place[1] - place[0]
    if size != -(-count * bits // 8):
        raise _BadError(f"has tensor {told!r} with {size} bytes for {count} elements of type {dtype}")
    if place[1] > room_bytes:
        raise _BadError(f"is cut off: tensor {told!r} ends at byte {place[1]} and there are {room_bytes}")
    return Tensor(name, str(dtype), tuple(shape), size, file)


def _why(error: BaseException) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__)[:200]
