# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line is changed, refreshed and put back, and whatever a kill leaves is finished."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import boot_loader, previous_values
from ansible_collections.tokforge.sglang.plugins.module_utils.boot_loader import BootLoaderError
from ansible_collections.tokforge.sglang.plugins.modules import kernel_cmdline as module

GRUB = '# mine\nGRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX_DEFAULT="quiet iommu=off"\nGRUB_CMDLINE_LINUX=""\n'
RUNNING = "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet iommu=off\n"
ASKED = ["iommu=pt", "nosmt"]
PRESENT = GRUB.replace("iommu=off", "iommu=pt nosmt")


class Killed(BaseException):
    """The process ends here."""


class Host:
    """A host's files below a folder, and a stand-in for its refresh command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.grub = folder / "etc/default/grub"
        self.cmdline_file = folder / "etc/kernel/cmdline"
        self.record = folder / "record"
        self.refreshes: list[str] = []
        self.answer = (0, "")
        for path, text in ((self.grub, GRUB), (folder / "proc/cmdline", RUNNING)):
            path.parent.mkdir(parents=True)
            path.write_text(text)
        self.params: dict[str, Any] = {
            "state": "present",
            "boot_loader": "auto",
            "variable": "GRUB_CMDLINE_LINUX_DEFAULT",
            "refresh": True,
            "refresh_command": ["update-grub"],
            "record_dir": str(self.record),
            "grub_default": str(self.grub),
            "grub_directory": f"{self.grub}.d",
            "cmdline_file": str(self.cmdline_file),
            "boot_uuids": str(folder / "etc/kernel/proxmox-boot-uuids"),
            "efi": str(folder / "sys/firmware/efi"),
            "proc_cmdline": str(folder / "proc/cmdline"),
            "container_marks": [str(folder / "run/systemd/container")],
            "pid1_environ": str(folder / "proc/1/environ"),
        }

    def refresh(self, command: Sequence[str]) -> tuple[int, str]:
        """What the boot loader takes over is what the file holds now."""
        assert list(command) == ["update-grub"]
        self.refreshes.append(self.grub.read_text())
        return self.answer

    def run(self, *tokens: str, check: bool = False, **params: Any) -> dict[str, Any]:
        """In this process."""
        asked = {**self.params, "tokens": list(tokens), **params}
        _plan, result = module.settle(asked, check, boot_loader.Disk(), self.refresh)
        return result

    def ansible(self, *tokens: str, check: bool = False, diff: bool = False, **params: Any) -> dict[str, Any]:
        """As Ansible runs it."""
        asked = {**self.params, "tokens": list(tokens), **params}
        asked.update(_ansible_check_mode=check, _ansible_diff=diff)
        done = subprocess.run(
            [sys.executable, "-m", module.__name__],
            input=json.dumps({"ANSIBLE_MODULE_ARGS": asked}),
            capture_output=True,
            text=True,
            check=False,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode == (1 if answer.get("failed") else 0), done.stderr
        return answer

    def boots(self) -> None:
        """The host starts with what was refreshed last."""
        value = next(line for line in self.refreshes[-1].splitlines() if "LINUX_DEFAULT" in line).split('"')[1]
        (self.folder / "proc/cmdline").write_text(f"BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro {value}\n")

    def notes(self) -> dict[str, Any]:
        """The notes, with the name of the file in place of its path."""
        return {
            key.replace(str(self.grub), "grub"): value
            for key, value in previous_values.read(self.params["record_dir"]).items()
        }


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_present_then_reboot_then_absent_gives_back_the_same_bytes(host: Host) -> None:
    first = host.run(*ASKED)
    assert first == {
        "changed": True,
        "boot_loader": "grub",
        "file": str(host.grub),
        "before": "quiet iommu=off",
        "after": "quiet iommu=pt nosmt",
        "missing_in_running": ASKED,
        "reboot_required": True,
        "refreshed": True,
        "refresh_due": False,
        "restored": [],
        "not_ours": [],
    }
    assert host.grub.read_text() == PRESENT and host.refreshes == [PRESENT]
    assert host.notes() == {"kernel_cmdline/grub/iommu": ["iommu=off"], "kernel_cmdline/grub/nosmt": []}
    second = host.run(*ASKED)
    assert (second["changed"], second["refreshed"], second["missing_in_running"]) == (False, False, ASKED)
    host.boots()
    assert host.run(*ASKED)["reboot_required"] is False
    back = host.run(*ASKED, state="absent")
    assert (back["changed"], back["restored"], back["not_ours"]) == (True, ["iommu", "nosmt"], [])
    assert (back["missing_in_running"], back["reboot_required"]) == (ASKED, True)
    assert host.grub.read_text() == GRUB and host.refreshes == [PRESENT, GRUB] and host.notes() == {}
    again = host.run(*ASKED, state="absent")
    assert (again["changed"], again["not_ours"], again["restored"]) == (False, ["iommu", "nosmt"], [])
    # Until the reboot the running kernel still has them.
    assert (again["missing_in_running"], again["reboot_required"]) == (ASKED, True)
    host.boots()
    assert host.run(*ASKED, state="absent")["reboot_required"] is False


def test_first_value_is_put_back_after_several_changes(host: Host) -> None:
    for value in ("pt", "soft", "nopt"):
        assert host.run(f"iommu={value}")["after"] == f"quiet iommu={value}"
    assert host.run("iommu", state="absent")["after"] == "quiet iommu=off"
    assert host.grub.read_text() == GRUB


def test_token_that_was_there_is_not_ours(host: Host) -> None:
    assert host.run("quiet", "iommu=off")["changed"] is False
    assert not host.record.exists()
    answer = host.run("quiet", "iommu", state="absent")
    assert (answer["changed"], answer["not_ours"]) == (False, ["quiet", "iommu"])
    assert (answer["missing_in_running"], answer["reboot_required"]) == ([], False)
    assert host.grub.read_text() == GRUB and host.refreshes == []
    # What the next start does with a token that is none of ours is not asked.
    (host.folder / "proc/cmdline").write_text("ro\n")
    assert host.run("quiet", state="absent")["reboot_required"] is False


def test_value_that_comes_back_but_is_not_running_needs_a_reboot(host: Host) -> None:
    host.run("iommu=pt")
    (host.folder / "proc/cmdline").write_text("quiet\n")
    back = host.run("iommu=pt", state="absent")
    assert (back["missing_in_running"], back["reboot_required"]) == ([], True)


@pytest.mark.parametrize("state", ["present", "absent"])
def test_check_mode_predicts_and_writes_nothing(host: Host, state: str) -> None:
    if state == "absent":
        host.run(*ASKED)
    files = {path: path.read_bytes() for path in host.folder.rglob("*") if path.is_file()}
    refreshes = len(host.refreshes)
    predicted = host.run(*ASKED, state=state, check=True)
    assert {path: path.read_bytes() for path in host.folder.rglob("*") if path.is_file()} == files
    assert len(host.refreshes) == refreshes
    assert predicted["changed"] is True
    assert host.run(*ASKED, state=state) == predicted
    assert host.run(*ASKED, state=state, check=True)["changed"] is False


def kill_at(monkeypatch: pytest.MonkeyPatch, host: Host, step: str) -> None:
    """Have the next run end before a step."""

    def killed(*_args: Any, **_more: Any) -> Any:
        raise Killed

    if step == "write":
        monkeypatch.setattr(module, "write_atomic", killed)
    elif step == "forget":
        monkeypatch.setattr(previous_values, "forget", killed)
    elif step == "refresh":
        monkeypatch.setattr(host, "refresh", killed)
    else:
        monkeypatch.setattr(previous_values, "remember", killed)


@pytest.mark.parametrize("step", ["remember", "write", "refresh", "forget"])
@pytest.mark.parametrize("then", ["present", "absent"])
def test_kill_while_it_is_set_is_finished_by_the_next_run(
    host: Host, monkeypatch: pytest.MonkeyPatch, step: str, then: str
) -> None:
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, host, step)
        host.run(*ASKED)
    done = host.run(*ASKED, state=then)
    expected = PRESENT if then == "present" else GRUB
    assert host.grub.read_text() == expected
    # The boot loader has what the file holds, unless it never was told anything else.
    assert host.refreshes[-1:] == ([] if (step, then) == ("remember", "absent") else [expected])
    assert done["changed"] is ((step, then) != ("remember", "absent"))
    left = {"kernel_cmdline/grub/iommu": ["iommu=off"], "kernel_cmdline/grub/nosmt": []}
    assert host.notes() == (left if then == "present" else {})
    refreshes = len(host.refreshes)
    assert host.run(*ASKED, state=then)["changed"] is False
    assert len(host.refreshes) == refreshes


@pytest.mark.parametrize("step", ["remember", "write", "refresh", "forget"])
@pytest.mark.parametrize("then", ["present", "absent"])
def test_kill_while_it_is_put_back_is_finished_by_the_next_run(
    host: Host, monkeypatch: pytest.MonkeyPatch, step: str, then: str
) -> None:
    host.run(*ASKED)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, host, step)
        host.run(*ASKED, state="absent")
    host.run(*ASKED, state=then)
    expected = PRESENT if then == "present" else GRUB
    assert host.grub.read_text() == host.refreshes[-1] == expected
    assert host.run(*ASKED, state=then)["changed"] is False
    host.run(*ASKED, state="absent")
    assert host.grub.read_text() == host.refreshes[-1] == GRUB and host.notes() == {}


@pytest.mark.parametrize("state", ["present", "absent"])
def test_refresh_that_fails_puts_the_file_back(host: Host, state: str) -> None:
    if state == "absent":
        host.run(*ASKED)
    before, notes = host.grub.read_text(), host.notes()
    host.grub.chmod(0o640)
    host.answer = (1, "\n".join(f"line {number}" for number in range(40)))
    with pytest.raises(BootLoaderError, match=r"`update-grub`: exit status 1; .* was put back as it was") as caught:
        host.run(*ASKED, state=state)
    assert "line 39" in str(caught.value) and "line 24" not in str(caught.value)
    assert caught.value.facts["rc"] == 1 and caught.value.facts["output"].startswith("line 25\n")
    assert host.grub.read_text() == before and stat.S_IMODE(host.grub.stat().st_mode) == 0o640
    # Of several ESPs some may have taken it over, so a refresh is due until one succeeds.
    assert host.notes() == {**notes, "kernel_cmdline_refresh/grub": True}
    host.answer = (0, "")
    assert host.run(check=True, state=state)["refreshed"] is True
    assert host.run(*ASKED, state=state)["refreshed"] is True
    assert host.refreshes[-1] == (PRESENT if state == "present" else GRUB)
    assert "kernel_cmdline_refresh/grub" not in host.notes()


def test_refresh_that_fails_again_leaves_an_earlier_change(host: Host) -> None:
    host.run(*ASKED, refresh=False)
    host.answer = (2, "no space")
    with pytest.raises(BootLoaderError, match=r"exit status 2; .* was not changed by this run.*\nno space"):
        host.run(*ASKED)
    assert host.grub.read_text() == PRESENT and len(host.notes()) == 3


def test_refresh_that_was_left_out_is_due_until_it_is_done(host: Host) -> None:
    first = host.run("iommu=pt", refresh=False)
    assert (first["changed"], first["refreshed"], first["refresh_due"]) == (True, False, True)
    second = host.run("iommu=pt", refresh=False)
    assert (second["changed"], second["refresh_due"]) == (False, True)
    third = host.run("nosmt")
    assert (third["changed"], third["refreshed"], third["refresh_due"]) == (True, True, False)
    assert host.refreshes == [PRESENT]
    assert host.run("iommu=pt", "nosmt")["refreshed"] is False


def test_nothing_is_written_where_nothing_can_refresh(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot_loader.Disk, "command", lambda _self, _name: None)
    for check in (True, False):
        with pytest.raises(BootLoaderError, match="set refresh_command, or set refresh to false"):
            host.run(*ASKED, refresh_command=None, check=check)
    assert host.grub.read_text() == GRUB and not host.record.exists()
    assert host.run(*ASKED, refresh_command=None, refresh=False)["changed"] is True


def test_change_by_another_hand_meanwhile_is_not_overwritten(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    remember = previous_values.remember

    def meanwhile(*args: Any) -> None:
        remember(*args)
        host.grub.write_text(f"{GRUB}# theirs\n")

    monkeypatch.setattr(previous_values, "remember", meanwhile)
    with pytest.raises(BootLoaderError, match="somebody else changes it just now; run again"):
        host.run(*ASKED)
    assert host.grub.read_text() == f"{GRUB}# theirs\n" and host.notes() == {} and host.refreshes == []


def test_file_that_cannot_be_written_leaves_no_note(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_atomic", full)
    with pytest.raises(BootLoaderError, match=r"writing .*grub: No space left on device; it is as it was"):
        host.run(*ASKED)
    assert host.notes() == {} and host.grub.read_text() == GRUB


def test_file_that_reads_otherwise_after_the_write_is_put_back(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    override = Path(f"{host.grub}.d/z.cfg")
    override.parent.mkdir()
    write = module.write_atomic

    def meanwhile(path: str, data: bytes) -> None:
        write(path, data)
        override.write_text("GRUB_CMDLINE_LINUX_DEFAULT=$(theirs)\n")

    monkeypatch.setattr(module, "write_atomic", meanwhile)
    with pytest.raises(BootLoaderError, match=r"it reads as \(editing .*z\.cfg line 1.* and not as 'quiet iommu=pt"):
        host.run(*ASKED)
    assert host.grub.read_text() == GRUB and host.notes() == {} and host.refreshes == []


def test_link_and_mode_of_the_file_stay(host: Host) -> None:
    real = host.folder / "real"
    host.grub.rename(real)
    real.chmod(0o600)
    host.grub.symlink_to(real)
    host.run(*ASKED)
    assert host.grub.is_symlink() and real.read_text() == PRESENT and stat.S_IMODE(real.stat().st_mode) == 0o600


def test_override_is_edited_and_put_back_where_it_stands(host: Host) -> None:
    override = Path(f"{host.grub}.d/50-cloudimg-settings.cfg")
    override.parent.mkdir()
    override.write_text('GRUB_CMDLINE_LINUX_DEFAULT="console=tty1 console=ttyS0"\n')
    answer = host.run("iommu=pt", "console=ttyS1")
    assert (answer["file"], answer["after"]) == (str(override), "console=tty1 console=ttyS0 iommu=pt console=ttyS1")
    assert host.grub.read_text() == GRUB
    assert host.run("iommu", "console=ttyS1", state="absent")["after"] == answer["before"]
    assert host.notes() == {} and len(host.refreshes) == 2


def test_variable_that_was_not_there_goes_again(host: Host) -> None:
    for text in ("GRUB_TIMEOUT=5", ""):
        host.grub.write_text(text)
        assert host.run(*ASKED)["after"] == "iommu=pt nosmt"
        assert host.grub.read_text() == f'{text}{chr(10) if text else ""}GRUB_CMDLINE_LINUX_DEFAULT="iommu=pt nosmt"\n'
        assert host.run("nosmt", state="absent")["after"] == "iommu=pt"
        host.run("iommu", state="absent")
        assert host.grub.read_text() == text and host.notes() == {}


def test_notes_of_the_two_variables_are_kept_apart(host: Host) -> None:
    host.run("nosmt", variable="GRUB_CMDLINE_LINUX")
    assert host.grub.read_text() == GRUB.replace('LINUX=""', 'LINUX="nosmt"')
    assert host.run("nosmt")["changed"] is False
    other = host.run("nosmt", state="absent")
    assert (other["changed"], other["not_ours"]) == (False, ["nosmt"])
    assert len(other["warnings"]) == 1 and "set boot_loader or variable" in other["warnings"][0]
    assert host.run("nosmt", state="absent", variable="GRUB_CMDLINE_LINUX")["restored"] == ["nosmt"]
    assert host.grub.read_text() == GRUB


def test_console_of_another_hand_stays_and_the_note_with_it(host: Host) -> None:
    host.run("console=ttyS0", "console=ttyS1")
    assert host.run("console=ttyS0", state="absent")["after"] == "quiet iommu=off console=ttyS1"
    assert host.notes() == {"kernel_cmdline/grub/console": []}
    assert host.run("console=ttyS1", state="absent")["after"] == "quiet iommu=off"
    assert host.notes() == {}


def test_empty_list_only_finishes_what_is_due(host: Host) -> None:
    assert host.run()["changed"] is False and host.run(state="absent")["changed"] is False
    host.run(*ASKED, refresh=False)
    assert host.run()["refreshed"] is True and host.refreshes == [PRESENT]


def test_damaged_note_is_an_error_and_changes_nothing(host: Host) -> None:
    previous_values.remember(str(host.record), {f"kernel_cmdline/{host.grub}/quiet": "quiet"})
    with pytest.raises(previous_values.RecordError, match="is no list of texts"):
        host.run("quiet", state="absent")
    (host.record / "previous.json").write_text("{")
    with pytest.raises(previous_values.RecordError, match="put a backup back"):
        host.run(*ASKED)
    assert host.grub.read_text() == GRUB


def test_running_command_line_must_be_there(host: Host) -> None:
    (host.folder / "proc/cmdline").unlink()
    with pytest.raises(BootLoaderError, match="set proc_cmdline"):
        host.run(*ASKED)


# --- as Ansible runs it


def tool(host: Host, text: str) -> list[str]:
    """A refresh command."""
    path = host.folder / "tool"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return [str(path), "refresh"]


def test_module_edits_the_cmdline_file_with_diff(host: Host) -> None:
    line = "root=ZFS=rpool/ROOT/pve-1 boot=zfs\n"
    host.cmdline_file.parent.mkdir()
    host.cmdline_file.write_text(line)
    variable = host.folder / "sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
    variable.parent.mkdir(parents=True)
    variable.write_bytes(b"\x06\0\0\0" + "systemd-boot 257.7-1\0".encode("utf-16-le"))
    command = tool(host, f'[ "$*" = refresh ] || exit 64; cp {host.cmdline_file} {host.folder}/taken; echo $LC_ALL')
    answer = host.ansible('dyndbg="file a.c +p"', "memmap=4G$4G", diff=True, refresh_command=command)
    after = f'{line.strip()} dyndbg="file a.c +p" memmap=4G$4G'
    assert answer["diff"] == {
        "before_header": str(host.cmdline_file),
        "after_header": str(host.cmdline_file),
        "before": line,
        "after": f"{after}\n",
    }
    assert (answer["boot_loader"], answer["after"], answer["changed"]) == ("kernel_cmdline_file", after, True)
    assert host.cmdline_file.read_text() == (host.folder / "taken").read_text() == f"{after}\n"
    assert host.grub.read_text() == GRUB
    back = host.ansible("dyndbg", "memmap", state="absent", refresh_command=command)
    assert host.cmdline_file.read_text() == line and "diff" not in back


def test_module_fails_in_a_container_with_the_place_to_go_to(host: Host) -> None:
    mark = host.folder / "run/systemd/container"
    mark.parent.mkdir(parents=True)
    mark.write_text("lxc\n")
    answer = host.ansible(*ASKED, check=True)
    assert answer["failed"] and answer["container"] is True and "on the hypervisor" in answer["msg"]


def test_module_shows_what_a_failing_refresh_wrote(host: Host) -> None:
    command = tool(host, "echo out; echo 'grub-probe: error: no device' >&2; exit 3")
    answer = host.ansible(*ASKED, refresh_command=command)
    assert answer["failed"] and answer["rc"] == 3 and answer["output"] == "out\ngrub-probe: error: no device"
    assert host.grub.read_text() == GRUB
    missing = host.ansible(*ASKED, refresh_command=[str(host.folder / "none")])
    assert missing["rc"] == 127 and "No such file" in missing["msg"]


def test_module_refuses_what_is_no_token(host: Host) -> None:
    answer = host.ansible("iommu=pt quiet")
    assert answer["failed"] and answer["token"] == "iommu=pt quiet" and "not one token" in answer["msg"]
    assert os.listdir(host.folder / "etc/default") == ["grub"]


def test_token_that_stood_there_twice_comes_back_to_both_places(host: Host) -> None:
    before = host.grub.read_text()
    twice = before.replace("quiet iommu=off", "iommu=off  quiet iommu=on  console=tty0 quiet")
    assert twice != before
    host.grub.write_text(twice)
    host.run("iommu=pt", "nosmt", "quiet")
    assert "iommu=pt  quiet  console=tty0 nosmt" in host.grub.read_text()
    host.run("nosmt", state="absent")
    host.run("iommu=pt", "quiet", state="absent")
    assert (host.grub.read_text(), host.notes()) == (twice, {})
