# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Artifacts with kernels that FlashInfer built elsewhere: what is asked, what names one, and what one holds.

An artifact is one library (`NAME.so`, also `.gz` or `.xz`), or a directory or an archive with `NAME/NAME.so` at any
depth or `NAME.so` at the top. That covers FlashInfer's own cache, `<version>/<arch>/cached_ops/NAME/NAME.so`, whose
other files (build.ninja, objects) are passed over. `jit_placement.py` judges and installs what is read here.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import tarfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO, Any, Protocol, cast

from ansible_collections.tokforge.sglang.plugins.module_utils import cuda_binary, lockfile
from ansible_collections.tokforge.sglang.plugins.module_utils.cuda_binary import GpuCode
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError

DIRECTORY, ARCHIVE, LIBRARY = "directory", "archive", "library"
# FlashInfer 0.6.11.post1's fused_moe_90 has 188 MB, and a cache holds the objects it was linked from as well.
LIMIT_BYTES = 4 << 30
_BLOCK_BYTES = 1 << 20
_LIBRARY_ENDINGS = (".so", ".so.gz", ".so.xz")
_ARCHIVE_ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz")
_KINDS = f"a directory, an archive ({', '.join(_ARCHIVE_ENDINGS)}) or a library (NAME{', NAME'.join(_LIBRARY_ENDINGS)})"
_COPY_AGAIN = "copy or make it again"
# An archive ends with this many zero bytes; one without them was cut off between two files.
_TAR_END_BYTES = 1024


@dataclass(frozen=True)
class ArtifactRequest:
    """What is asked: where it lies, the version of FlashInfer it was built for, and the sha256 it must have, if any.

    The sha256 of a library or an archive is that of the file as it lies there. A directory's is the one of what
    `LC_ALL=C sha256sum */*.so` prints in it, had it the layout `NAME/NAME.so`.
    """

    path: str
    flashinfer: str
    sha256: str | None = None


@dataclass(frozen=True)
class Library:
    """One library of an artifact. `file` is where it was unpacked to, `sha256` and `size_bytes` are of that file.

    `cuda` and `code` are what CudaBinary says.
    """

    name: str
    file: str
    sha256: str
    size_bytes: int
    cuda: int | None
    code: tuple[GpuCode, ...] | None


@dataclass(frozen=True)
class Artifact:
    """An artifact that was unpacked: its request, its sha256, and its libraries in the order of their names."""

    request: ArtifactRequest
    sha256: str
    libraries: tuple[Library, ...]


class _Readable(Protocol):
    def read(self, size: int = ..., /) -> bytes: ...


def kind_of(request: ArtifactRequest) -> str:
    """`library`, `archive` or `directory`, by name only, so that it is known of what is not there yet.

    Raises InstallError when the request itself is wrong.
    """
    if not re.fullmatch(r"\d+(\.\d+)+[A-Za-z0-9.+-]*", request.flashinfer):
        raise _error(
            request,
            f"{request.flashinfer!r} is no version of FlashInfer",
            "say which one it was built for, such as 0.6.11.post1",
        )
    if request.sha256 is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", request.sha256):
        raise _error(request, f"{request.sha256!r} is no sha256", "give its 64 hex digits, or leave it out")
    name = os.path.basename(request.path.rstrip("/"))
    if name.endswith(_LIBRARY_ENDINGS):
        _checked_name(request, name)
        return LIBRARY
    return ARCHIVE if name.endswith(_ARCHIVE_ENDINGS) else DIRECTORY


def identity(request: ArtifactRequest) -> dict[str, str]:
    """What names the artifact in the identity of an environment, found without unpacking: `id` and `sha256`.

    Where it lies is no part of it. It need not be there when its sha256 is given. Raises InstallError, also when it is
    there and has another sha256.
    """
    kind = kind_of(request)
    name = f"flashinfer-{lockfile.normal(request.flashinfer)}"
    if kind == LIBRARY:
        name += "/" + _checked_name(request, os.path.basename(request.path.rstrip("/")))
    if request.sha256 is not None and not os.path.lexists(request.path):
        return {"id": name, "sha256": request.sha256.lower()}
    if kind == DIRECTORY:
        digest = _directory_digest((found, _file_digest(request, path)) for found, path in _in_directory(request))
    else:
        digest = _file_digest(request, request.path)
    _check_digest(request, digest)
    return {"id": name, "sha256": digest}


def check_there(requests: Iterable[ArtifactRequest]) -> None:
    """Refuse one that is gone, which `identity` does not when its sha256 is given: now something is to be built.

    Raises InstallError.
    """
    for request in requests:
        try:
            os.stat(request.path)
        except OSError as error:
            raise _unreadable(request, error) from error


def unpack(request: ArtifactRequest, folder: str, limit_bytes: int = LIMIT_BYTES) -> Artifact:
    """Write the libraries into the directory `folder`, as NAME.so, and say what they are for.

    The caller makes and removes `folder`. All artifacts of an environment go into one: a library that is in it already
    is one that there are two of. `limit_bytes` bounds what is written and what an archive unpacks to.
    Raises InstallError, and OSError when `folder` cannot be written.
    """
    kind = kind_of(request)
    libraries: list[Library] = []
    if kind == DIRECTORY:
        for name, path in _in_directory(request):
            with _open(request, path) as stream:
                libraries.append(_add(request, name, _Source(request, stream, limit_bytes), folder))
            limit_bytes -= libraries[-1].size_bytes
        digest = _directory_digest((library.name, library.sha256) for library in libraries)
        _check_digest(request, digest)
    else:
        # One descriptor for both: what is unpacked is what was compared.
        with _open(request, request.path) as stream:
            digest = _stream_digest(request, stream)
            _check_digest(request, digest)
            stream.seek(0)
            content, damage = _decompressed(request, stream)
            source = _Source(request, content, limit_bytes, damage)
            if kind == LIBRARY:
                libraries = [_add(request, _checked_name(request, os.path.basename(request.path)), source, folder)]
            else:
                libraries = _add_archive(request, source, folder)
    return Artifact(request, digest, tuple(sorted(libraries, key=lambda library: library.name)))


def _error(request: ArtifactRequest, why: str, what_to_do: str) -> InstallError:
    return InstallError(f"reading the kernels {request.path}: {why}; {what_to_do}", path=request.path)


def _unreadable(request: ArtifactRequest, error: OSError) -> InstallError:
    place = "" if error.filename in (None, request.path) else f"{error.filename}: "
    return _error(request, f"{place}{error.strerror or error}", f"give {_KINDS} that can be read")


def _open(request: ArtifactRequest, path: str) -> IO[bytes]:
    try:
        return open(path, "rb")
    except OSError as error:
        raise _unreadable(request, error) from error


class _Source:
    """What is unpacked, with a bound. It knows how much it was and where the last byte was that is not zero."""

    def __init__(
        self,
        request: ArtifactRequest,
        stream: _Readable,
        limit_bytes: int,
        damage: tuple[type[Exception], ...] = (),
    ) -> None:
        self.request, self.stream, self.limit_bytes, self.damage = request, stream, limit_bytes, damage
        self.total_bytes = 0
        self.content_bytes = 0

    def read(self, size: int = -1, /) -> bytes:
        try:
            block = self.stream.read(size)
        except self.damage as error:
            raise _error(self.request, f"it is cut off or damaged: {error}", _COPY_AGAIN) from error
        except OSError as error:
            raise _unreadable(self.request, error) from error
        content = len(block.rstrip(b"\0"))
        if content:
            self.content_bytes = self.total_bytes + content
        self.total_bytes += len(block)
        if self.total_bytes > self.limit_bytes:
            raise _error(
                self.request,
                f"it unpacks to more than the {self.limit_bytes / 1e6:.1f} MB that are left of the limit",
                "give only the libraries that are needed",
            )
        return block


def _decompressed(request: ArtifactRequest, stream: IO[bytes]) -> tuple[_Readable, tuple[type[Exception], ...]]:
    """What it unpacks to, and what is raised when it is damaged."""
    if request.path.endswith((".gz", ".tgz")):
        return gzip.GzipFile(fileobj=stream), (EOFError, zlib.error, gzip.BadGzipFile)
    if request.path.endswith((".xz", ".txz")):
        try:
            # Not above: a Python that was built without it can make every environment but this one.
            import lzma
        except ImportError as error:
            raise _error(
                request, f"this Python has no xz ({error})", "give it as .gz, or use another Python"
            ) from error
        return lzma.LZMAFile(stream), (EOFError, lzma.LZMAError)
    return stream, ()


def _add(request: ArtifactRequest, name: str, stream: _Readable, folder: str) -> Library:
    """Write one library into `folder` and look at what it is."""
    file = os.path.join(folder, f"{name}.so")
    digest, size_bytes = hashlib.sha256(), 0
    if os.path.lexists(file):
        raise _two_of(request, name)
    with open(file, "xb") as target:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
            size_bytes += len(block)
            target.write(block)
    try:
        binary = cuda_binary.read(file)
    except cuda_binary.BinaryError as error:
        raise _error(
            request, f"{name}.so: {error}", "give a library that FlashInfer built on such a machine"
        ) from error
    return Library(name, file, digest.hexdigest(), size_bytes, binary.cuda, binary.code)


def _add_archive(request: ArtifactRequest, source: _Source, folder: str) -> list[Library]:
    libraries = []
    try:
        # As a stream, since that is what a compressed file is; tarfile's own decompression checks no checksums.
        with tarfile.open(fileobj=cast(Any, source), mode="r|") as archive:
            for member in archive:
                parts = member.name.split("/")
                if member.name.startswith("/") or ".." in parts:
                    raise _error(request, f"{member.name} leaves the archive", "give plain relative names")
                if member.isdir():
                    continue
                content = archive.extractfile(member) if member.isreg() and not member.issparse() else None
                if content is None:
                    raise _error(request, f"{member.name} is no plain file", "give files, no links")
                name = _library_name(request, [part for part in parts if part not in ("", ".")])
                if name is not None:
                    libraries.append(_add(request, name, content, folder))
            end = archive.offset
    except (tarfile.TarError, ValueError, LookupError, RecursionError) as error:
        raise _error(request, f"it is cut off or damaged: {error}", _COPY_AGAIN) from error
    # tarfile takes whatever is no header for the end. It is the end when nothing follows, and enough of that.
    while source.read(_BLOCK_BYTES):
        pass
    if source.content_bytes > end or source.total_bytes < end + _TAR_END_BYTES:
        raise _error(request, "it is cut off or damaged", _COPY_AGAIN)
    if not libraries:
        raise _none_in(request)
    return libraries


def _in_directory(request: ArtifactRequest) -> list[tuple[str, str]]:
    """Name and path of every library in the directory, in the order of their names."""
    found: dict[str, str] = {}
    try:
        for folder, folders, names in os.walk(request.path, onerror=_raise):
            for entry in sorted(folders + names):
                path = os.path.join(folder, entry)
                if os.path.islink(path):
                    raise _error(request, f"{path} is a link", "give files, no links")
                parts = os.path.relpath(path, request.path).split(os.sep)
                name = None if entry in folders else _library_name(request, parts)
                if name in found:
                    raise _two_of(request, str(name))
                if name is not None:
                    found[name] = path
    except OSError as error:
        raise _unreadable(request, error) from error
    if not found:
        raise _none_in(request)
    return sorted(found.items())


def _raise(error: OSError) -> None:
    raise error


def _two_of(request: ArtifactRequest, name: str) -> InstallError:
    return _error(request, f"there are two libraries {name}.so", "give one of them, in one artifact")


def _none_in(request: ArtifactRequest) -> InstallError:
    return _error(request, "it holds no library", "give one with NAME/NAME.so or NAME.so")


def _library_name(request: ArtifactRequest, parts: list[str]) -> str | None:
    """Which library the file at `parts` is, None for any other file. Raises InstallError when that is not sure."""
    if not parts or not parts[-1].endswith(".so"):
        return None
    name = _checked_name(request, parts[-1])
    if len(parts) > 1 and parts[-2] != name:
        raise _error(
            request,
            f"{'/'.join(parts)} does not say which library it is",
            "lay it down as NAME/NAME.so, or as NAME.so at the top",
        )
    whole = os.path.abspath(request.path).split(os.sep) + parts
    # Of FlashInfer's own cache it is known which version it is of.
    version = whole[-5] if len(whole) > 4 and whole[-3] == "cached_ops" else ""
    if re.match(r"\d+\.\d", version) and not lockfile.matches(version, request.flashinfer):
        raise _error(
            request,
            f"{name}.so is in a cache of FlashInfer {version}, FlashInfer {request.flashinfer} was said",
            "say the one that it was built for",
        )
    return name


def _checked_name(request: ArtifactRequest, file_name: str) -> str:
    name = next(file_name[: -len(ending)] for ending in _LIBRARY_ENDINGS if file_name.endswith(ending))
    # FlashInfer's names of kernels. Anything else it would not look for.
    if not re.fullmatch(r"[A-Za-z0-9_]+", name):
        raise _error(request, f"{file_name} is no name of a kernel", "give it the name that FlashInfer built it under")
    return name


def _directory_digest(libraries: Iterable[tuple[str, str]]) -> str:
    lines = [f"{digest}  {name}/{name}.so\n" for name, digest in libraries]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _file_digest(request: ArtifactRequest, path: str) -> str:
    with _open(request, path) as stream:
        return _stream_digest(request, stream)


def _stream_digest(request: ArtifactRequest, stream: IO[bytes]) -> str:
    digest = hashlib.sha256()
    try:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
    except OSError as error:
        raise _unreadable(request, error) from error
    return digest.hexdigest()


def _check_digest(request: ArtifactRequest, digest: str) -> None:
    if request.sha256 is not None and digest != request.sha256.lower():
        raise InstallError(
            f"reading the kernels {request.path}: its sha256 is {digest}, {request.sha256.lower()} was said; "
            f"{_COPY_AGAIN}, or give the sha256 of this one",
            path=request.path,
            sha256=digest,
        )
