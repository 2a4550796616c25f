# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Artifacts with kernels: names, digests, and what is taken out of them."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from kernel_libraries import Elf, container, entry

from ansible_collections.tokforge.sglang.plugins.module_utils import jit_artifacts
from ansible_collections.tokforge.sglang.plugins.module_utils.cuda_binary import CUBIN, GpuCode
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError
from ansible_collections.tokforge.sglang.plugins.module_utils.jit_artifacts import Artifact, ArtifactRequest

VERSION = "0.6.11.post1"
MOE = Elf().build()
GEMM = Elf(needed=("libcudart.so.12",), fatbin=container(entry(2, 100, 0x200011))).build()
COPY = "copy or make it again"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def unpack(path: Path, folder: Path | None = None, limit_bytes: int = 1 << 20, sha256: str | None = None) -> Artifact:
    folder = folder or path.parent / "unpacked"
    folder.mkdir(exist_ok=True)
    return jit_artifacts.unpack(ArtifactRequest(str(path), VERSION, sha256), str(folder), limit_bytes)


def refusal(path: Path, what: Callable[[], object]) -> str:
    """The message of the refusal, without what all of them begin with."""
    with pytest.raises(InstallError) as caught:
        what()
    start = f"reading the kernels {path}: "
    assert str(caught.value).startswith(start)
    assert caught.value.facts["path"] == str(path)
    return str(caught.value)[len(start) :]


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def tar_of(files: dict[str, bytes], mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, data in files.items():
            add(archive, name, data)
    return buffer.getvalue()


def special_tar(*members: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member in members:
            archive.addfile(member)
    return buffer.getvalue()


def member(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


def test_a_library_is_unpacked_and_said_what_it_is_for(tmp_path: Path) -> None:
    path = write(tmp_path / "fused_moe_90.so.xz", lzma.compress(MOE))
    found = unpack(path)
    file = str(tmp_path / "unpacked" / "fused_moe_90.so")
    assert found.sha256 == sha256(path.read_bytes())
    assert found.libraries == (
        jit_artifacts.Library("fused_moe_90", file, sha256(MOE), len(MOE), 13, (GpuCode(CUBIN, 9, 0, "a"),)),
    )
    assert Path(file).read_bytes() == MOE


@pytest.mark.parametrize(("ending", "pack"), [(".so", bytes), (".so.gz", gzip.compress), (".so.xz", lzma.compress)])
def test_a_library_may_be_compressed(tmp_path: Path, ending: str, pack: Callable[[bytes], bytes]) -> None:
    path = write(tmp_path / f"gemm{ending}", pack(GEMM))
    (library,) = unpack(path).libraries
    assert (library.name, library.sha256, library.cuda) == ("gemm", sha256(GEMM), 12)
    assert path.exists()


@pytest.mark.parametrize(
    "files",
    [
        {"moe/moe.so": MOE, "gemm/gemm.so": GEMM},
        {"moe.so": MOE, "gemm.so": GEMM},
        {"a/b/moe/moe.so": MOE, "gemm/gemm.so": GEMM, "gemm/README.so.txt": b"x"},
        {
            f"{VERSION}/90a/cached_ops/moe/moe.so": MOE,
            f"{VERSION}/90a/cached_ops/moe/build.ninja": b"rule\n",
            f"{VERSION}/90a/cached_ops/moe/moe.cuda.o": b"\x7fELF",
            f"{VERSION}/90a/cached_ops/gemm/gemm.so": GEMM,
            f"{VERSION}/90a/flashinfer_jit.log": b"",
        },
        {"90a/cached_ops/moe/moe.so": MOE, "90a/cached_ops/gemm/gemm.so": GEMM},
        {"b/x/cached_ops/moe/moe.so": MOE, "gemm.so": GEMM},
    ],
)
def test_every_layout_gives_the_same_libraries(tmp_path: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        write(tmp_path / "kernels" / name, data)
    found = unpack(tmp_path / "kernels")
    assert [(one.name, one.sha256, one.cuda) for one in found.libraries] == [
        ("gemm", sha256(GEMM), 12),
        ("moe", sha256(MOE), 13),
    ]
    for ending, mode in ((".tar", "w"), (".tar.gz", "w:gz"), (".tgz", "w:gz"), (".tar.xz", "w:xz"), (".txz", "w:xz")):
        path = write(tmp_path / f"kernels{ending}", tar_of({f"./{name}": data for name, data in files.items()}, mode))
        archive = unpack(path, tmp_path / f"from{ending}")
        assert archive.sha256 == sha256(path.read_bytes())
        assert [(one.name, one.sha256) for one in archive.libraries] == [("gemm", sha256(GEMM)), ("moe", sha256(MOE))]
        assert sorted(os.listdir(tmp_path / f"from{ending}")) == ["gemm.so", "moe.so"]


def test_an_archive_that_tar_made_of_a_directory_is_read(tmp_path: Path) -> None:
    write(tmp_path / "kernels" / "moe" / "moe.so", MOE)
    subprocess.run(["tar", "-cJf", "k.tar.xz", "-C", "kernels", "."], cwd=tmp_path, check=True)
    assert [one.name for one in unpack(tmp_path / "k.tar.xz").libraries] == ["moe"]


def test_a_directory_is_named_by_what_sha256sum_prints(tmp_path: Path) -> None:
    for name, data in (("a_b", MOE), ("a", GEMM), ("a1", MOE), ("B", GEMM)):
        write(tmp_path / "kernels" / name / f"{name}.so", data)
    printed = subprocess.run(
        ["/bin/sh", "-c", "LC_ALL=C sha256sum */*.so | sha256sum"],
        cwd=tmp_path / "kernels",
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()[0]
    request = ArtifactRequest(str(tmp_path / "kernels"), VERSION)
    assert jit_artifacts.identity(request) == {"id": f"flashinfer-{VERSION}", "sha256": printed}
    assert unpack(tmp_path / "kernels").sha256 == printed
    # What is passed over does not count.
    write(tmp_path / "kernels" / "a" / ".ninja_log", b"# ninja log v5\n")
    assert jit_artifacts.identity(request)["sha256"] == printed
    write(tmp_path / "kernels" / "a" / "a.so", MOE)
    assert jit_artifacts.identity(request)["sha256"] != printed


def test_the_identity_is_that_of_the_file_wherever_it_lies(tmp_path: Path) -> None:
    data = lzma.compress(MOE)
    one = write(tmp_path / "here" / "moe.so.xz", data)
    two = write(tmp_path / "there" / "moe.so.xz", data)
    expected = {"id": "flashinfer-0.6.11.post1/moe", "sha256": sha256(data)}
    assert jit_artifacts.identity(ArtifactRequest(str(one), VERSION)) == expected
    assert jit_artifacts.identity(ArtifactRequest(str(two), "0.6.11-1", sha256(data).upper())) == expected
    archive = write(tmp_path / "any.tar.gz", b"not even an archive")
    assert jit_artifacts.identity(ArtifactRequest(str(archive), "0.7.2")) == {
        "id": "flashinfer-0.7.2",
        "sha256": sha256(b"not even an archive"),
    }
    assert sorted(os.listdir(tmp_path)) == ["any.tar.gz", "here", "there"]


def test_with_a_sha256_the_identity_needs_no_file(tmp_path: Path) -> None:
    digest = "AB" * 32
    for name, kind in (("moe.so.gz", "/moe"), ("k.txz", ""), ("kernels/", "")):
        request = ArtifactRequest(str(tmp_path / name), "0.7.2", digest)
        assert jit_artifacts.identity(request) == {"id": f"flashinfer-0.7.2{kind}", "sha256": "ab" * 32}


@pytest.mark.parametrize("name", ["moe.so", "kernels", "k.tar"])
def test_another_sha256_than_the_said_one_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write(path / "moe.so" if name == "kernels" else path, tar_of({"moe.so": MOE}) if name == "k.tar" else MOE)
    actual = jit_artifacts.identity(ArtifactRequest(str(path), VERSION))["sha256"]
    expected = f"its sha256 is {actual}, {'0' * 64} was said; {COPY}, or give the sha256 of this one"
    request = ArtifactRequest(str(path), VERSION, "0" * 64)
    assert refusal(path, lambda: jit_artifacts.identity(request)) == expected
    assert refusal(path, lambda: unpack(path, sha256="0" * 64)) == expected
    assert unpack(path, tmp_path / "again", sha256=actual.upper()).sha256 == actual


@pytest.mark.parametrize("name", ["moe.so", "k.tar.gz", "kernels"])
def test_what_is_not_there_is_said(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for what in (lambda: jit_artifacts.identity(ArtifactRequest(str(path), VERSION)), lambda: unpack(path)):
        assert refusal(path, what) == (
            "No such file or directory; give a directory, an archive (.tar, .tar.gz, .tgz, .tar.xz, .txz) or a library "
            "(NAME.so, NAME.so.gz, NAME.so.xz) that can be read"
        )


def test_a_file_of_no_known_kind_and_a_directory_named_like_a_library_are_refused(tmp_path: Path) -> None:
    zipped = write(tmp_path / "k.zip", b"PK")
    assert refusal(zipped, lambda: unpack(zipped)).startswith("Not a directory; give a directory, an archive (.tar,")
    folder = write(tmp_path / "moe.so" / "moe.so", MOE).parent
    assert refusal(folder, lambda: unpack(folder)).startswith("Is a directory; ")


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (ArtifactRequest("/k/moe.so", ""), "'' is no version of FlashInfer"),
        (ArtifactRequest("/k/moe.so", "latest"), "'latest' is no version of FlashInfer"),
        (ArtifactRequest("/k/moe.so", "1"), "'1' is no version of FlashInfer"),
        (ArtifactRequest("/k/moe.so", VERSION, "abc"), "'abc' is no sha256"),
        (ArtifactRequest("/k/fused-moe.so.xz", VERSION), "fused-moe.so.xz is no name of a kernel"),
        (ArtifactRequest("/k/.so", VERSION), ".so is no name of a kernel"),
        (ArtifactRequest("/k/moe.so.1.so", VERSION), "moe.so.1.so is no name of a kernel"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_read(request_: ArtifactRequest, why: str) -> None:
    assert refusal(Path(request_.path), lambda: jit_artifacts.identity(request_)).startswith(f"{why}; ")


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"moe/moe.cuda.o": b"x"}, "it holds no library; give one with NAME/NAME.so or NAME.so"),
        ({"moe/moe.so.xz": b"x"}, "it holds no library; give one with NAME/NAME.so or NAME.so"),
        ({"moe/lib-moe.so": MOE}, "lib-moe.so is no name of a kernel; give it the name that FlashInfer built it under"),
        (
            {"kernels/moe.so": MOE},
            "kernels/moe.so does not say which library it is; lay it down as NAME/NAME.so, or as NAME.so at the top",
        ),
        (
            {"moe.so": MOE, "x/moe/moe.so": MOE},
            "there are two libraries moe.so; give one of them, in one artifact",
        ),
        (
            {"0.6.7.post3/90a/cached_ops/moe/moe.so": MOE},
            "moe.so is in a cache of FlashInfer 0.6.7.post3, FlashInfer 0.6.11.post1 was said; say the one that it was "
            "built for",
        ),
        (
            {"moe.so": Elf(machine=183).build()},
            "moe.so: it is for aarch64, not for 64-bit x86; give a library that FlashInfer built on such a machine",
        ),
    ],
)
def test_what_cannot_be_installed_is_refused_in_a_directory_and_an_archive(
    tmp_path: Path, files: dict[str, bytes], why: str
) -> None:
    for name, data in files.items():
        write(tmp_path / "kernels" / name, data)
    archive = write(tmp_path / "k.tar", tar_of(files))
    for path in (tmp_path / "kernels", archive):
        assert refusal(path, lambda path=path: unpack(path, tmp_path / f"from{path.suffix}")) == why


def test_the_same_library_from_two_artifacts_is_refused(tmp_path: Path) -> None:
    unpack(write(tmp_path / "moe.so", MOE))
    path = write(tmp_path / "k.tar", tar_of({"moe/moe.so": MOE}))
    assert refusal(path, lambda: unpack(path)) == "there are two libraries moe.so; give one of them, in one artifact"


def test_a_cache_that_is_given_from_within_is_still_known_by_its_version(tmp_path: Path) -> None:
    inside = tmp_path / "0.7.2" / "90a" / "cached_ops"
    write(inside / "moe" / "moe.so", MOE)
    assert "is in a cache of FlashInfer 0.7.2, " in refusal(inside, lambda: unpack(inside, tmp_path / "unpacked"))


def test_links_are_refused(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside" / "moe.so", MOE)
    for name, target in (("moe.so", outside), ("moe", outside.parent)):
        folder = tmp_path / f"{name}-linked"
        folder.mkdir()
        (folder / name).symlink_to(target)
        assert refusal(folder, lambda folder=folder: unpack(folder)) == (
            f"{folder / name} is a link; give files, no links"
        )


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (member("moe.so", tarfile.SYMTYPE, "/etc/passwd"), "moe.so is no plain file; give files, no links"),
        (member("moe.so", tarfile.LNKTYPE, "other.so"), "moe.so is no plain file; give files, no links"),
        (member("notes", tarfile.FIFOTYPE), "notes is no plain file; give files, no links"),
        (member("moe.so", tarfile.GNUTYPE_SPARSE), "moe.so is no plain file; give files, no links"),
        (member("/moe/moe.so", tarfile.REGTYPE), "/moe/moe.so leaves the archive; give plain relative names"),
        (
            member("a/../../moe/moe.so", tarfile.REGTYPE),
            "a/../../moe/moe.so leaves the archive; give plain relative names",
        ),
        (member("../out", tarfile.DIRTYPE), "../out leaves the archive; give plain relative names"),
    ],
)
def test_an_archive_may_hold_only_files_and_directories_within_it(
    tmp_path: Path, made: tarfile.TarInfo, why: str
) -> None:
    path = write(tmp_path / "k.tar", special_tar(member("moe", tarfile.DIRTYPE), made))
    assert refusal(path, lambda: unpack(path)) == why
    assert os.listdir(tmp_path / "unpacked") == []


@pytest.mark.parametrize("name", ["moe.so.xz", "moe.so.gz", "k.tar.xz", "k.tar.gz", "k.tar"])
def test_a_file_that_was_cut_off_anywhere_is_refused(tmp_path: Path, name: str) -> None:
    content = tar_of({"moe/moe.so": MOE, "gemm.so": GEMM}) if name.startswith("k.") else MOE
    if name == "k.tar":
        # The rest is padding up to tar's record size, which may be missing.
        content = content[: -(-len(content.rstrip(b"\0")) // 512) * 512 + 1024]
    data = {"xz": lzma.compress, "gz": gzip.compress}.get(name.rpartition(".")[2], bytes)(content)
    path = write(tmp_path / name, data)
    assert unpack(path, tmp_path / "whole").libraries
    for length in {*range(0, len(data), max(1, len(data) // 100)), len(data) - 1}:
        write(path, data[:length])
        folder = tmp_path / f"cut{length}"
        why = refusal(path, lambda folder=folder: unpack(path, folder))
        assert why.endswith((f"; {COPY}", "on such a machine")), (length, why)
        assert "it is cut off or damaged" in why or "it is empty" in why, (length, why)


def test_a_flipped_bit_in_a_compressed_file_is_found(tmp_path: Path) -> None:
    for name, data in (("moe.so.xz", lzma.compress(MOE)), ("k.tar.gz", tar_of({"moe.so": MOE}, "w:gz"))):
        damaged = bytearray(data)
        damaged[-6] ^= 1
        path = write(tmp_path / name, bytes(damaged))
        assert "it is cut off or damaged: " in refusal(path, lambda path=path: unpack(path, tmp_path / path.suffix))


def test_an_archive_with_a_damaged_header_in_the_middle_is_not_taken_for_a_shorter_one(tmp_path: Path) -> None:
    data = bytearray(tar_of({"moe.so": MOE, "gemm.so": GEMM}))
    data[data.index(b"gemm.so")] ^= 1
    path = write(tmp_path / "k.tar", bytes(data))
    assert refusal(path, lambda: unpack(path)) == f"it is cut off or damaged; {COPY}"


def test_what_follows_an_archives_end_may_only_be_padding(tmp_path: Path) -> None:
    data = tar_of({"moe.so": MOE})
    assert unpack(write(tmp_path / "padded.tar", data + bytes(50_000))).libraries
    path = write(tmp_path / "two.tar", data + tar_of({"gemm.so": GEMM}))
    assert refusal(path, lambda: unpack(path, tmp_path / "two")) == f"it is cut off or damaged; {COPY}"


@pytest.mark.parametrize("name", ["moe.so", "moe.so.gz", "moe.so.xz", "k.tar.gz", "kernels"])
def test_what_unpacks_to_more_than_the_limit_is_stopped(tmp_path: Path, name: str) -> None:
    big = MOE + bytes(300_000)
    path = tmp_path / name
    if name == "kernels":
        write(path / "moe.so", MOE)
        write(path / "zeros.so", big)
    else:
        pack = {"moe.so.gz": gzip.compress, "moe.so.xz": lzma.compress}.get(name, bytes)
        write(path, tar_of({"notes": bytes(300_000), "moe.so": MOE}, "w:gz") if name == "k.tar.gz" else pack(big))
    why = refusal(path, lambda: unpack(path, limit_bytes=200_000))
    left = f"{(200_000 - (len(MOE) if name == 'kernels' else 0)) / 1e6:.1f}"
    assert why == (
        f"it unpacks to more than the {left} MB that are left of the limit; give only the libraries that are needed"
    )


def test_a_file_that_cannot_be_read_to_its_end_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.BytesIO):
        """Gives so many blocks, then the error of a disk."""

        blocks = 0

        def read(self, size: int | None = -1, /) -> bytes:
            if self.blocks == 0:
                raise OSError(5, "Input/output error")
            self.blocks -= 1
            return super().read(size)

    path = write(tmp_path / "moe.so", MOE)
    for blocks in (0, 2):
        stream = Broken(MOE)
        stream.blocks = blocks
        monkeypatch.setattr(jit_artifacts, "_open", lambda request, path, stream=stream: stream)
        why = refusal(path, lambda: unpack(path, tmp_path / f"cut{blocks}"))  # noqa: B023
        assert why.startswith("Input/output error; give a directory, ")


def test_a_directory_that_may_not_be_read_names_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def walk(top: str, onerror: Callable[[OSError], None]) -> list[tuple[str, list[str], list[str]]]:
        onerror(PermissionError(13, "Permission denied", f"{top}/moe"))
        return []

    monkeypatch.setattr(jit_artifacts.os, "walk", walk)
    path = tmp_path / "kernels"
    assert refusal(path, lambda: unpack(path)).startswith(f"{path}/moe: Permission denied; give ")


def test_without_xz_in_python_everything_else_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lzma", None)
    path = write(tmp_path / "moe.so.xz", b"")
    assert refusal(path, lambda: unpack(path)) == (
        "this Python has no xz (import of lzma halted; None in sys.modules); give it as .gz, or use another Python"
    )
    assert unpack(write(tmp_path / "moe.so.gz", gzip.compress(MOE))).libraries


def test_a_folder_that_cannot_be_written_is_no_fault_of_the_artifact(tmp_path: Path) -> None:
    path = write(tmp_path / "moe.so", MOE)
    with pytest.raises(FileNotFoundError) as caught:
        jit_artifacts.unpack(ArtifactRequest(str(path), VERSION), str(tmp_path / "nowhere"))
    assert caught.value.filename == str(tmp_path / "nowhere" / "moe.so")


def test_a_library_with_a_slash_behind_its_name_is_no_directory(tmp_path: Path) -> None:
    path = tmp_path / "fused_moe_90.so"
    path.write_bytes(Elf().build())
    with pytest.raises(InstallError, match=r"fused_moe_90.so/: Not a directory; give a directory"):
        jit_artifacts.identity(ArtifactRequest(f"{path}/", "0.6.11.post1"))
