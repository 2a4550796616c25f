# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file and the assignment that hold the command line are found as a shell and the firmware see them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import boot_loader, kernel_cmdline
from ansible_collections.tokforge.sglang.plugins.module_utils.boot_loader import (
    CMDLINE_FILE,
    BootLoaderError,
    Choice,
    Paths,
    Place,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.kernel_cmdline import GRUB

FIXTURES = Path(__file__).parent / "fixtures" / "boot"
MAIN = "/etc/default/grub"
DEFAULT, ALL = boot_loader.VARIABLES
INFO = "/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
UUIDS = "/etc/kernel/proxmox-boot-uuids"
CMDLINE = "/etc/kernel/cmdline"


class Machine:
    """Files and programs that are not there."""

    def __init__(self, files: Mapping[str, bytes | str], *commands: str) -> None:
        self.files = {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}
        self.commands = commands

    def read(self, path: str) -> bytes | None:
        return self.files.get(path)

    def names(self, path: str) -> list[str] | None:
        below = [file[len(path) + 1 :].split("/")[0] for file in self.files if file.startswith(f"{path}/")]
        return sorted(set(below)) or None

    def command(self, name: str) -> str | None:
        return f"/usr/sbin/{name}" if name in self.commands else None


def info(name: str) -> bytes:
    return b"\x06\0\0\0" + (name + "\0").encode("utf-16-le")


def grub(text: str | bytes, variable: str = DEFAULT, **drop_ins: str) -> Place:
    """Where the command line is, with files 'grub.d/<name>.cfg'."""
    more = {f"{MAIN}.d/{name.replace('_', '-')}.cfg": each for name, each in drop_ins.items()}
    return boot_loader.find(Choice(GRUB, ()), variable, Paths(), Machine({MAIN: text, **more}))


def fixture(name: str) -> Machine:
    """The machine of a folder of fixtures."""
    files = {}
    for path in (FIXTURES / name).rglob("*"):
        if path.is_file():
            relative = str(path.relative_to(FIXTURES / name))
            files[f"/etc/{'default' if relative.startswith('grub') else 'kernel'}/{relative}"] = path.read_bytes()
    return Machine(files)


def by_shell(folder: Path, files: Mapping[str, bytes], variable: str) -> str:
    """What /bin/sh makes of the variable, with the files sourced as grub-mkconfig does."""
    script = ""
    for number, data in enumerate(files.values()):
        path = folder / f"{number}.cfg"
        path.write_bytes(data)
        script += f". {path}; "
    done = subprocess.run(
        ["/bin/sh", "-c", script + f'printf "%s" "${variable}"'],
        cwd=folder,
        capture_output=True,
        check=True,
        timeout=20,
    )
    return done.stdout.decode("utf-8", "surrogateescape")


# --- which boot loader


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({MAIN: ""}, GRUB),
        ({MAIN: "", CMDLINE: "root=x", UUIDS: "A-B\n"}, GRUB),
        ({MAIN: "", CMDLINE: "root=x", INFO: info("systemd-boot 257.7-1")}, CMDLINE_FILE),
        ({MAIN: "", CMDLINE: "root=x", INFO: info("GRUB 2.12-9")}, GRUB),
        ({MAIN: "", CMDLINE: "root=x", "/sys/firmware/efi/efivars/Boot0000-x": ""}, GRUB),
        ({MAIN: "", "/sys/firmware/efi/systab": ""}, GRUB),
    ],
)
def test_boot_loader_is_the_one_that_started_the_host(files: dict[str, bytes | str], expected: str) -> None:
    assert boot_loader.choose("auto", Paths(), Machine(files)).boot_loader == expected


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({MAIN: "", CMDLINE: "r", "/sys/firmware/efi/systab": ""}, "both are there; set boot_loader to grub or"),
        ({CMDLINE: "r", "/sys/firmware/efi/systab": ""}, "only the second is there"),
        ({"/sys/firmware/efi/systab": ""}, "none is there"),
        ({MAIN: "", INFO: info("rEFInd 0.14")}, "'rEFInd 0.14', which is not known; set boot_loader"),
        ({MAIN: "", INFO: info("GRUB")[:-1]}, "not UTF-16"),
        ({MAIN: "", INFO: b"\x06\0"}, "is empty"),
        ({MAIN: "", INFO: info("systemd-boot 257")}, f"{CMDLINE}: there is no such file; write the command line"),
        ({CMDLINE: "r"}, f"{MAIN}: there is no such file; install GRUB or set boot_loader"),
        ({}, f"{MAIN}: there is no such file"),
    ],
)
def test_boot_loader_that_cannot_be_told_is_an_error(files: dict[str, bytes | str], why: str) -> None:
    with pytest.raises(BootLoaderError, match=why):
        boot_loader.choose("auto", Paths(), Machine(files))


def test_asked_boot_loader_wins_over_what_is_seen() -> None:
    machine = Machine({MAIN: "", CMDLINE: "r", INFO: info("systemd-boot 257")})
    assert boot_loader.choose(GRUB, Paths(), machine).boot_loader == GRUB
    assert boot_loader.choose(CMDLINE_FILE, Paths(), Machine({CMDLINE: "r"})).boot_loader == CMDLINE_FILE


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"/run/systemd/container": "lxc\n"}, "/run/systemd/container"),
        ({"/.dockerenv": ""}, "/.dockerenv"),
        ({"/proc/1/environ": b"PATH=/bin\0container=lxc\0"}, "/proc/1/environ"),
    ],
)
def test_container_is_sent_to_its_hypervisor(files: dict[str, bytes | str], named: str) -> None:
    for asked in ("auto", GRUB):
        with pytest.raises(BootLoaderError, match=rf"\({named}\).*on the hypervisor") as caught:
            boot_loader.choose(asked, Paths(), Machine({MAIN: "", **files}))
        assert caught.value.facts == {"container": True}
    other = {MAIN: "", "/proc/1/environ": b"mycontainer=1\0container=\0x=container=y\0"}
    assert boot_loader.choose("auto", Paths(), Machine(other)).boot_loader == GRUB


@pytest.mark.parametrize(
    ("asked", "uuids", "commands", "expected"),
    [
        (GRUB, None, ["update-grub"], ("/usr/sbin/update-grub",)),
        (GRUB, "\n", ["update-grub", "proxmox-boot-tool"], ("/usr/sbin/update-grub",)),
        (GRUB, "1A2B-3C4D\n", ["update-grub", "proxmox-boot-tool"], ("/usr/sbin/proxmox-boot-tool", "refresh")),
        (GRUB, "1A2B-3C4D\n", ["update-grub"], ("/usr/sbin/update-grub",)),
        (CMDLINE_FILE, "1A2B-3C4D\n", ["update-grub", "proxmox-boot-tool"], ("/usr/sbin/proxmox-boot-tool", "refresh")),
        (CMDLINE_FILE, None, ["update-grub", "proxmox-boot-tool"], ()),
    ],
)
def test_refresh_goes_to_the_esps_where_they_are_managed(
    asked: str, uuids: str | None, commands: list[str], expected: tuple[str, ...]
) -> None:
    files = {MAIN: "", CMDLINE: "root=x", **({} if uuids is None else {UUIDS: uuids})}
    assert boot_loader.choose(asked, Paths(), Machine(files, *commands)).refresh == expected


# --- where it stands


@pytest.mark.parametrize(
    ("name", "file", "value", "elsewhere"),
    [
        ("debian12", MAIN, "quiet", [("kdump-tools.cfg", 1, "  crashkernel=384M-:128M")]),
        ("debian13", MAIN, "quiet", []),
        ("ubuntu2204", MAIN, "quiet splash", []),
        (
            "ubuntu_cloud",
            f"{MAIN}.d/50-cloudimg-settings.cfg",
            "console=tty1 console=ttyS0",
            [("kdump-tools.cfg", 1, "  crashkernel=2G-4G:320M,4G-32G:512M")],
        ),
        ("pve8_grub", MAIN, "quiet", [("zfs.cfg", 1, "  root=ZFS=rpool/ROOT/pve-1 boot=zfs")]),
    ],
)
def test_recorded_files_are_edited_where_their_value_counts(
    tmp_path: Path, name: str, file: str, value: str, elsewhere: list[tuple[str, int, str]]
) -> None:
    machine = fixture(name)
    place = boot_loader.find(Choice(GRUB, ()), DEFAULT, Paths(), machine)
    assert (place.file, place.value) == (file, value)
    parts = [(os.path.basename(part.file), part.line, part.text) for part in place.elsewhere if part.text]
    assert parts == elsewhere
    changed = boot_loader.rendered(place, f"{value} iommu=pt")
    # Only the tokens are new in the file's bytes.
    assert changed.replace(b" iommu=pt", b"", 1) == place.data
    files = {path: machine.read(path) or b"" for path in boot_loader.grub_files(Paths(), machine)}
    added = [part[2].strip() for part in elsewhere if part[0] == "kdump-tools.cfg"]
    assert by_shell(tmp_path, {**files, file: changed}, DEFAULT) == " ".join([f"{value} iommu=pt", *added])
    again = boot_loader.find(Choice(GRUB, ()), DEFAULT, Paths(), Machine({**files, file: changed}))
    assert boot_loader.rendered(again, value) == place.data


def test_other_variable_is_found_too() -> None:
    place = boot_loader.find(Choice(GRUB, ()), ALL, Paths(), fixture("pve8_grub"))
    assert (place.file, place.value) == (MAIN, "")
    assert [part.text for part in place.elsewhere] == ["quiet", "  root=ZFS=rpool/ROOT/pve-1 boot=zfs"]


@pytest.mark.parametrize(
    ("text", "value", "line"),
    [
        ('V="quiet"\n', "quiet", 1),
        ("V='quiet x'", "quiet x", 1),
        ("V=quiet # not this\n", "quiet", 1),
        ("V=quiet\\ x\n", "quiet x", 1),
        ("V=\n", "", 1),
        ('V=""', "", 1),
        ('V="a"\'b "c\'" d"\n', 'ab "c d', 1),
        ('V="a"\nV="b"\n', "b", 2),
        ('#V="a"\n  V="b" # V="c"\n', "b", 2),
        ("X=1; V=a; Y=2\n", "a", 1),
        ("export V=a\n", "a", 1),
        ('V="a \\\nb"\n', "a b", 1),
        ('V="d=\\"x y\\" \\$p \\\\ \\`"', 'd="x y" $p \\ `', 1),
        ("V=\"it's\"\nX='\nV=no\n'\n", "it's", 1),
        ("V=a\nV=b true\n", "a", 1),
        ('V=a\nX=$(echo; V=b)\nY=`V=c`\nZ="${W:-V=d}"\n', "a", 1),
        ("V=$(date)\nV=a\n", "a", 2),
        ("if true; then V=a; fi\nV=b\n", "b", 2),
        ("if true; then X=a; fi\nV=b && true\n", "b", 2),
        ("V=a\nf() { X=1; }\ncase $X in (q) ;; b) X=2;; esac > /dev/null 2>&1\n", "a", 1),
        ("V=ü\n", "ü", 1),
        ("X=$(echo \")\" ')' \\) `echo ')'` $(echo); V=b)\nV=a\n", "a", 2),
        ('X="$(echo "}" ${Y:-"V=b"})"; V=a\n', "a", 1),
        ("X=`echo \\`V=b\\``\nV=a\n", "a", 2),
        ("V=a \\\n  X=2\n", "a", 1),
        ("V=a$\n", "a$", 1),
        ("V=a\nV2=b\nXV=c\n", "a", 1),
        ("V=a\nif [ 1 = 1 ] && true; then echo V=b >V=c; fi\n", "a", 1),
    ],
)
def test_assignment_is_read_as_the_shell_reads_it(tmp_path: Path, text: str, value: str, line: int) -> None:
    text = text.replace("V", "GRUB_CMDLINE_LINUX_DEFAULT")
    place = grub(text)
    assert place.value == value
    assert place.assignment is not None and place.assignment.line == line
    assert by_shell(tmp_path, {MAIN: text.encode()}, DEFAULT) == value


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("X=1\nV=$X\n", 2, r"has \$X in it"),
        ('V="a $(date)"\n', 1, r"has \$\(date\) in it"),
        ("V=`date`\n", 1, "has `date` in it"),
        ('V="a${X}"\n', 1, r"has \$\{X\} in it"),
        ("V=a\nV+=' b'\n", 2, r"with \+="),
        ("V=a\\\nb\n", 1, "goes on in the next line"),
        ('V="a\nb"\n', 1, "has a line end"),
        ("V=a\r\n", 1, "has a line end"),
        ("V=a\nif [ -e /x ]; then\n V=b\nfi\n", 3, "under a condition"),
        ("V=a\n[ -e /x ] && V=b\n", 2, "under a condition"),
        ("V=a\nfalse || V=b\n", 2, "under a condition"),
        ("V=a\nf() {\n V=b; }\n", 3, "under a condition"),
        ("V=a\nfor x in 1; do V=b; done\n", 2, "under a condition"),
        ("V=a\ncase x in\n a) V=b;; esac\n", 3, "under a condition"),
        ("V=a\n(V=b)\n", 2, "under a condition"),
        ("V=a\n. /etc/other\n", 2, "`.` there may set it"),
        ("V=a\neval X=1\n", 2, "`eval` there may set it"),
        ("V=a\nunset V\n", 2, "unset changes it"),
    ],
)
def test_value_that_only_a_shell_can_tell_is_an_error_with_its_line(text: str, line: int, why: str) -> None:
    text = text.replace("V", DEFAULT)
    with pytest.raises(BootLoaderError, match=why) as caught:
        grub(text)
    assert caught.value.facts == {"file": MAIN, "line": line}
    assert f"{MAIN} line {line}: " in str(caught.value)
    # A plain value below it is what counts.
    assert grub(f'{text}{DEFAULT}="c"\n').value == "c"


@pytest.mark.parametrize(
    ("text", "line"), [('V="a\n\n', 1), ("V=a\nX='b\n", 2), ("V=a\nX=$(b\n", 2), ("V=a\ncat <<E\nV=b\nE\n", 2)]
)
def test_file_that_cannot_be_read_is_an_error_where_the_variable_is_in_it(text: str, line: int) -> None:
    with pytest.raises(BootLoaderError, match=f"reading {MAIN} line {line}: "):
        grub(text.replace("V", DEFAULT))
    assert grub(f"{DEFAULT}=a\n", other=text).value == "a"


@pytest.mark.parametrize("own", ["$V", "${V}", "${V:+$V }", "${V:+${V} }", "${V:-}", "${V-}"])
def test_line_that_adds_to_the_value_leaves_the_base_to_edit(tmp_path: Path, own: str) -> None:
    text = f'V="a"\nV="{own} nosmt \\$tuned_params"\nif true; then V="$V late"; fi\n'.replace("V", DEFAULT)
    place = grub(text)
    assert place.value == "a"
    assert [part.text.split() for part in place.elsewhere] == [["nosmt", "$tuned_params"]]
    after = boot_loader.rendered(place, "a b")
    assert after.decode() == text.replace('"a"', '"a b"')
    assert by_shell(tmp_path, {MAIN: after}, DEFAULT).split() == ["a", "b", "nosmt", "$tuned_params", "late"]


def test_later_file_that_assigns_anew_is_the_one_to_edit() -> None:
    place = grub(f'{DEFAULT}="a"\n', b_late=f"{DEFAULT}='c'\n", a_early=f"{DEFAULT}=$(x)\n", c=f'{ALL}="z"\n')
    assert (place.file, place.value) == (f"{MAIN}.d/b-late.cfg", "c")
    assert boot_loader.rendered(place, "c d") == f"{DEFAULT}='c d'\n".encode()
    with pytest.raises(BootLoaderError, match=r"grub\.d/z\.cfg line 2: its value has \$\(x\) in it"):
        grub(f'{DEFAULT}="a"\n', z=f"\n{DEFAULT}=$(x)\n")


def test_names_that_grub_does_not_source_are_left_out() -> None:
    machine = Machine(
        {MAIN: "", f"{MAIN}.d/b.cfg": "", f"{MAIN}.d/A.cfg": "", f"{MAIN}.d/.x.cfg": "", f"{MAIN}.d/c": ""}
    )
    assert boot_loader.grub_files(Paths(), machine) == [MAIN, f"{MAIN}.d/A.cfg", f"{MAIN}.d/b.cfg"]


# --- editing


@pytest.mark.parametrize(
    ("source", "value", "expected"),
    [
        ('"quiet"', "quiet iommu=pt", '"quiet iommu=pt"'),
        ("'quiet'", "quiet iommu=pt", "'quiet iommu=pt'"),
        ("quiet", "quiet iommu=pt", '"quiet iommu=pt"'),
        ("", "iommu=pt", '"iommu=pt"'),
        ('""', "iommu=pt", '"iommu=pt"'),
        ("''", "iommu=pt", "'iommu=pt'"),
        ('"a b c"', "a c", '"a c"'),
        ('"quiet"', 'd="x y" m="4\\$4"', '"d=\\"x y\\" m=\\"4\\\\\\$4\\""'),
        ("'quiet'", 'd="x y" m="4\\$4"', '\'d="x y" m="4\\$4"\''),
        ("'quiet'", "quiet '$x'", "\"quiet '\\$x'\""),
        ('"a \\\n  b"', "a   b c", '"a \\\n  b c"'),
        ('"\\$p x"', "$p y", '"\\$p y"'),
        ("\"a\"'b'", "ab c", '"ab c"'),
        ('"a""b"', "ab c", '"a""b c"'),
    ],
)
def test_value_is_written_so_that_the_shell_reads_it(tmp_path: Path, source: str, value: str, expected: str) -> None:
    around = "# {0}=x\n\t{0}={1}  # comment\nX='{0}=y'"
    place = grub(around.format(DEFAULT, source))
    after = boot_loader.rendered(place, value)
    assert after.decode() == around.format(DEFAULT, expected)
    assert by_shell(tmp_path, {MAIN: after}, DEFAULT) == value
    assert boot_loader.rendered(grub(after), value) == after


@pytest.mark.parametrize("text", ["", "X=1\n", "X=1", 'V2="a"\n#V=b\n', "\n\n"])
def test_line_that_is_not_there_is_added_at_the_end_and_goes_again(text: str) -> None:
    text = text.replace("V", DEFAULT)
    place = grub(text)
    assert (place.assignment, place.value) == (None, "")
    assert boot_loader.rendered(place, "") == text.encode()
    after = boot_loader.rendered(place, 'd="a b"')
    assert after.decode() == f'{text}{place.lead}{DEFAULT}="d=\\"a b\\""\n'
    assert boot_loader.rendered(grub(after), "", drop=place.lead) == text.encode()
    assert boot_loader.rendered(grub(after), "") == after.replace(b'"d=\\"a b\\""', b'""')
    assert boot_loader.rendered(grub(after), "e", drop=place.lead) == after.replace(b'd=\\"a b\\"', b"e")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('X=1\nV="a"\nY=2\n', "X=1\nY=2\n"),
        ('X=1\nV="a" # why\nY=2\n', 'X=1\nV="" # why\nY=2\n'),
        ('X=1\nexport V="a"\nY=2\n', 'X=1\nexport V=""\nY=2\n'),
        ('X=1\n V="a"\nY=2\n', 'X=1\n V=""\nY=2\n'),
        ('X=1\nV="a"', 'X=1\nV=""'),
        ('X=1; V="a"\nY=2\n', 'X=1; V=""\nY=2\n'),
        ('V="a"\nX=1\n', "X=1\n"),
        ('X=1\nV="a"\n', "X=1"),
        ('V="a"\n', ""),
    ],
)
def test_line_that_goes_takes_nothing_of_another_hand_with_it(text: str, expected: str) -> None:
    after = boot_loader.rendered(grub(text.replace("V", DEFAULT)), "", drop="\n")
    assert after.decode() == expected.replace("V", DEFAULT)


def test_addition_without_a_value_before_it_is_an_error() -> None:
    with pytest.raises(BootLoaderError, match=f'line 2: it is added to.*write {DEFAULT}="" above'):
        grub(f'\n{DEFAULT}="${DEFAULT} x"\n')


def test_bytes_that_are_no_text_stay() -> None:
    data = b"# \xff\xfe\x00 caf\xe9\r\n" + f'{DEFAULT}="a"\r\n'.encode().replace(b"\r", b"") + b"# \xf0"
    assert boot_loader.rendered(grub(data), "a b") == data.replace(b'"a"', b'"a b"')


def test_result_that_reads_otherwise_is_never_returned() -> None:
    for value in ("a\nb", "a\0", "a\r"):
        with pytest.raises(BootLoaderError, match=f"{MAIN} line 1: its value has a line end or a zero byte"):
            boot_loader.rendered(grub(f'{DEFAULT}="a"\n'), value)


def test_systemd_boot_of_proxmox_is_edited_in_its_line_and_refreshed_on_its_esps() -> None:
    recorded = fixture("pve9_systemd_boot")
    machine = Machine({**recorded.files, INFO: info("systemd-boot 257.7-1")}, "proxmox-boot-tool")
    choice = boot_loader.choose("auto", Paths(), machine)
    assert choice == Choice(CMDLINE_FILE, ("/usr/sbin/proxmox-boot-tool", "refresh"))
    place = boot_loader.find(choice, DEFAULT, Paths(), machine)
    assert boot_loader.rendered(place, f"{place.value} iommu=pt") == b"root=ZFS=rpool/ROOT/pve-1 boot=zfs iommu=pt\n"


@pytest.mark.parametrize("end", ["\n", "", "\r\n", "\n\n"])
def test_line_of_the_cmdline_file_keeps_its_end(end: str) -> None:
    machine = Machine({CMDLINE: f"root=ZFS=rpool/ROOT/pve-1 boot=zfs{end}"})
    place = boot_loader.find(Choice(CMDLINE_FILE, ()), DEFAULT, Paths(), machine)
    assert (place.file, place.value, place.syntax) == (CMDLINE, "root=ZFS=rpool/ROOT/pve-1 boot=zfs", "kernel")
    assert boot_loader.rendered(place, f"{place.value} x") == f"{place.value} x{end}".encode()
    assert boot_loader.rendered(place, place.value) == place.data


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("root=x\nquiet\n", "several lines"),
        ("root=x\0", "zero byte"),
        ("", "no command line"),
        (" \n", "no command line"),
        ("# root=x\n", "no command line"),
    ],
)
def test_cmdline_file_that_is_no_line_is_an_error(text: str, why: str) -> None:
    with pytest.raises(BootLoaderError, match=why):
        boot_loader.find(Choice(CMDLINE_FILE, ()), DEFAULT, Paths(), Machine({CMDLINE: text}))


# --- other parts of the command line


def test_token_that_another_part_has_is_not_added_again() -> None:
    place = grub(f'{DEFAULT}="quiet"\n{ALL}="nosmt console=ttyS0"\n', k=f'{DEFAULT}="${DEFAULT} crashkernel=1G"\n')
    asked = kernel_cmdline.wanted(["nosmt", "crashkernel=1G", "quiet", "console=tty0", "iommu=pt"])
    assert [unit.texts for unit in boot_loader.already(place, asked)] == [["quiet"], ["console=tty0"], ["iommu=pt"]]


def test_value_of_another_part_that_only_grub_knows_does_not_hinder() -> None:
    asked = kernel_cmdline.wanted(["iommu=pt"])
    assert boot_loader.already(grub(f"{DEFAULT}='quiet'\n{ALL}='iommu=$mode'\n"), asked) == asked


def test_other_value_in_another_part_is_an_error_that_names_it() -> None:
    place = grub(f'{DEFAULT}="quiet"\n{ALL}="mitigations=off"\n', k=f'\n{DEFAULT}="${DEFAULT} crashkernel=1G"\n')
    with pytest.raises(BootLoaderError, match=f"{MAIN} line 2 has mitigations=off, and both would be there") as caught:
        boot_loader.already(place, kernel_cmdline.wanted(["mitigations=auto"]))
    assert caught.value.facts == {"file": MAIN, "line": 2, "tokens": ["mitigations=auto"]}
    with pytest.raises(BootLoaderError, match=r"grub\.d/k\.cfg line 2 has crashkernel=1G"):
        boot_loader.already(place, kernel_cmdline.wanted(["crashkernel=2G"]))


def test_part_that_grub_would_cut_is_an_error_that_names_it() -> None:
    with pytest.raises(BootLoaderError, match=f"{MAIN} line 2: .*GRUB ends it at ';'"):
        grub(f'{DEFAULT}="quiet"\n{ALL}="a;b"\n')


def test_other_variable_that_is_not_understood_does_not_matter() -> None:
    assert grub(f'{DEFAULT}="quiet"\n{ALL}="$(cat /x)"\n').elsewhere == ()


# --- the real disk


def test_disk_tells_missing_from_unreadable(tmp_path: Path) -> None:
    disk = boot_loader.Disk()
    assert disk.read(str(tmp_path / "none")) is None and disk.names(str(tmp_path / "none")) is None
    with pytest.raises(BootLoaderError, match="Is a directory"):
        disk.read(str(tmp_path))
    (tmp_path / "large").write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(BootLoaderError, match="larger than 1 MiB"):
        disk.read(str(tmp_path / "large"))
    assert disk.names(str(tmp_path)) == ["large"] and disk.names(str(tmp_path / "large")) is None
    assert disk.command("sh") is not None and disk.command("no-such-program-here") is None
