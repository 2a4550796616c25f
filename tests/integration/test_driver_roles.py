# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the roles of the driver do beside it: a container's persistence daemon, the certificates that https needs.

On a throw-away copy of this machine, where a stand-in plays systemctl, apt and dpkg.
"""

from __future__ import annotations

import base64
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import own_root
import pytest
from full_only import IN_FULL

CHECKOUT = Path(__file__).resolve().parents[2]
FINGERPRINT = "CCB3195B6BB8AF72DDED9B55BEA498A894009003"
KEY = """-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEaw2f5BYJKwYBBAHaRw8BAQdASs8phPvLBBEAWxsZ+Zttl/IewnLmYHlgaDr/
GexJPzC0FXR3byA8dHdvQGV4YW1wbGUuY29tPoiQBBMWCAA4FiEEzLMZW2u4r3Ld
7ZtVvqSYqJQAkAMFAmsNn+QCGwMFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQ
vqSYqJQAkAOhBgD+Jf5w1cUz9nA5KQesRMiJS1+wasDjozE0DOOXyr6thZ0A/2Bl
ZDyQUGORzb8YiIBgTOXcULpaN8O0AByp8Wu+heAC
=EAqM
-----END PGP PUBLIC KEY BLOCK-----
"""
MASK = "/etc/systemd/system/nvidia-persistenced.service"
UNIT = "/lib/systemd/system/nvidia-persistenced.service"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"

pytestmark = pytest.mark.skipif(not own_root.works("systemctl", "apt-get"), reason="needs root, mounts and systemctl")

#: Plays every program whose name it is called by. `running` is the daemon's file, CERTIFICATES the package's.
STAND_IN = f"""#!{sys.executable} -I
import os, sys
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
running, certificates = "/stand-in/running", {CERTIFICATES!r}

def note(text):
    with open("/stand-in/calls", "a") as stream:
        stream.write(text + chr(10))

if name == "systemctl":
    active = os.path.exists(running)
    if words[0] == "list-units":
        print("nvidia-persistenced.service loaded", "active running" if active else "inactive dead", "NVIDIA")
    elif words[0] == "show":
        print("LoadState=loaded" + chr(10) + "ActiveState=" + ("active" if active else "inactive"))
    elif words[0] in ("stop", "start", "daemon-reload"):
        note(" ".join(words))
        if words[0] == "start":
            open(running, "w").close()
        elif words[0] == "stop":
            os.unlink(running)
elif name == "dpkg-query" and os.path.exists(certificates):
    print("ii " + chr(9) + "ca-certificates" + chr(9) + "20230311")
elif name == "apt-get":
    there = os.path.exists(certificates)
    if "update" in words:
        note("update " + ("with" if there else "without") + " certificates")
    elif "install" in words and "-s" not in words:
        note("install " + words[-1])
        os.makedirs(os.path.dirname(certificates), exist_ok=True)
        open(certificates, "w").close()
    elif "purge" in words and "-s" not in words:
        note("purge " + words[-1])
        os.unlink(certificates)
    else:
        new, old = "install" in words and not there, "purge" in words
        print("0 upgraded, %d newly installed, %d to remove and 0 not upgraded." % (new, old))
        if new or old:
            print("Inst ca-certificates (20230311 Debian:12 [all])" if new else "Purg ca-certificates [20230311]")
"""

#: Runs inside: puts the stand-in in its places, and hands over to the play.
INSIDE = f"""
import os, shutil, sys
folder, command = sys.argv[1], sys.argv[2:]
os.makedirs("/stand-in")
for name in ("systemctl", "apt-get", "apt-mark", "dpkg-query"):
    os.unlink("/usr/bin/" + name) if os.path.lexists("/usr/bin/" + name) else None
    shutil.copy(folder + "/stand_in", "/usr/bin/" + name)
for path in ({MASK!r}, {CERTIFICATES!r}, "/var/lib/tokforge", "/etc/apt/sources.list.d"):
    shutil.rmtree(path) if os.path.isdir(path) else os.path.lexists(path) and os.unlink(path)
for path in ("/run/systemd/system", os.path.dirname({MASK!r}), os.path.dirname({UNIT!r})):
    os.makedirs(path, exist_ok=True)
open({UNIT!r}, "w").close()
open("/stand-in/running", "w").close()
os.chdir({str(CHECKOUT)!r})
sys.exit(os.spawnv(os.P_WAIT, command[0], command) and print("PLAY FAILED"))
"""

#: What there is after a step; the calls are those of this step.
LOOK = f"""
import json, os
notes = "/var/lib/tokforge/host/previous.json"
calls = "/stand-in/calls"
print(json.dumps({{
    "calls": open(calls).read().splitlines() if os.path.exists(calls) else [],
    "mask": os.path.islink({MASK!r}) and os.readlink({MASK!r}),
    "running": os.path.exists("/stand-in/running"),
    "notes": json.load(open(notes))["values"] if os.path.exists(notes) else {{}},
}}))
os.path.exists(calls) and os.unlink(calls)
"""


@dataclass(frozen=True)
class After:
    """What a step changed, and what there is after it."""

    changed: int
    calls: list[str]
    mask: str | bool
    running: bool
    notes: dict[str, Any]


def step(role: str, tasks: str = "main", check: bool = False, before: str = "", **variables: Any) -> list[Any]:
    """Tasks that run a role, and a look at what there is then. `before` is a command for what happens meanwhile."""
    command = {"argv": ["sh", "-c", before]}
    meanwhile = {"name": "Meanwhile", "ansible.builtin.command": command, "changed_when": False}
    include: dict[str, Any] = {"name": f"tokforge.sglang.{role}", "tasks_from": tasks}
    if check:
        include["apply"] = {"check_mode": True}
    return [
        *([meanwhile] if before else []),
        {"name": "STEP", "ansible.builtin.include_role": include, "vars": variables},
        {
            "name": "Look",
            "ansible.builtin.command": {"argv": [sys.executable, "-c", LOOK]},
            "register": "look",
            "changed_when": False,
            "check_mode": False,
        },
        {"name": "Tell", "ansible.builtin.debug": {"msg": "{{ 'AFTER' ~ (look.stdout | b64encode) ~ 'END' }}"}},
    ]


def run(folder: Path, *steps: list[Any], options: tuple[str, ...] = ()) -> list[After]:
    """Run steps one after another in one copy of the machine."""
    folder.mkdir(exist_ok=True)
    (folder / "stand_in").write_text(STAND_IN)
    (folder / "stand_in").chmod(0o755)
    (folder / "inside.py").write_text(INSIDE)
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [t for s in steps for t in s]}
    (folder / "play.yml").write_text(json.dumps([play]))
    python = json.dumps({"ansible_python_interpreter": sys.executable})
    command = [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", "-e", python, *options]
    inside = [sys.executable, str(folder / "inside.py"), str(folder)]
    said = own_root.run(folder, [*inside, *command, str(folder / "play.yml")])
    assert "PLAY FAILED" not in said, said
    parts = said.split("TASK [STEP]")[1:]
    return [_after(part) for part in parts]


def _after(part: str) -> After:
    told = json.loads(base64.b64decode(part.partition("AFTER")[2].partition("END")[0]))
    return After(changed=part.count("changed: ["), **told)


def test_daemon_of_a_container_is_masked_and_stopped_and_comes_back_only_when_it_ran(tmp_path: Path) -> None:
    out, back = ("gpu_driver", "daemon_out"), ("gpu_driver", "daemon_back")
    stop, note = "stop nvidia-persistenced", {"gpu_driver_persistence_daemon": "running"}
    steps = {
        "predicted out": step(*out, check=True),
        "out": step(*out),
        "out again": step(*out),
        "predicted back": step(*back, check=True),
        "back": step(*back),
        "back again": step(*back),
        "idle out": step(*out, before="rm /stand-in/running"),
        "idle back": step(*back),
        "ran, and its package went": step(*out, before="touch /stand-in/running"),
        "back without it": step(*back, before=f"rm {UNIT}"),
        "no systemd": step(*out, before="rm -r /run/systemd"),
    }
    after = dict(zip(steps, run(tmp_path, *steps.values()), strict=True))
    assert after["predicted out"] == After(2, [], False, True, {})
    assert after["out"] == After(2, [stop], "/dev/null", False, note)
    assert after["out again"] == After(0, [], "/dev/null", False, note)
    assert after["predicted back"] == After(2, [], "/dev/null", False, note)
    assert after["back"] == After(2, ["daemon-reload", "start nvidia-persistenced"], False, True, {})
    assert after["back again"] == After(0, [], False, True, {})
    assert after["idle out"] == After(1, [], "/dev/null", False, {})
    assert after["idle back"] == After(1, [], False, False, {})
    assert after["ran, and its package went"].notes == note
    assert after["back without it"] == After(1, [], False, False, {})
    assert after["no systemd"] == After(1, [], "/dev/null", False, {})


@IN_FULL
def test_certificates_are_installed_for_https_only_and_go_with_the_repository(tmp_path: Path) -> None:
    (tmp_path / "key.asc").write_text(KEY)
    https = {"nvidia_repository_url": "https://mirror.example/", "nvidia_repository_fingerprint": FINGERPRINT}
    handed = {"nvidia_repository_key_file": str(tmp_path / "key.asc")}
    remote = {"nvidia_repository_key_url": "https://mirror.example/key.asc"}
    local = {**https, "nvidia_repository_url": f"{tmp_path.as_uri()}/none"}
    near = {"nvidia_repository_key_url": (tmp_path / "key.asc").as_uri()}

    def have(owner: str, before: str = "", **more: Any) -> list[Any]:
        return step("nvidia_repository", before=before, nvidia_repository_owner=owner, **more)

    def drop(owner: str) -> list[Any]:
        return have(owner, nvidia_repository_state="absent")

    # In check mode too nothing is had from an address that does not exist.
    checks = [have("one", **https, **handed), have("one", **local, **remote)]
    for predicted in run(tmp_path / "check", *checks, options=("--check",)):
        assert (predicted.changed, predicted.calls, predicted.notes) == (1, [], {})
    steps = {
        "not for a file": have("one", **local, **near),
        "installed": have("one", **https, **handed),
        "again": have("two", **https, **handed),
        "still needed": drop("one"),
        "gone": drop("two"),
        "gone again": drop("two"),
        "was there": have("one", before=f"touch {CERTIFICATES}", **https, **handed),
        "stays": drop("one"),
    }
    after = dict(zip(steps, run(tmp_path, *steps.values()), strict=True))
    ours = {"nvidia_repository/asked/ca-certificates": True, "nvidia_repository/package/ca-certificates": ""}
    one, two = "apt_source/tokforge-nvidia/one", "apt_source/tokforge-nvidia/two"
    told = {name: (each.changed, each.calls, each.notes) for name, each in after.items()}
    assert told == {
        "not for a file": (1, ["update without certificates"], {one: True}),
        "installed": (2, ["install ca-certificates", "update with certificates"], {one: True, **ours}),
        "again": (0, [], {one: True, two: True, **ours}),
        "still needed": (0, [], {two: True, **ours}),
        "gone": (2, ["purge ca-certificates"], {}),
        "gone again": (0, [], {}),
        "was there": (1, ["update with certificates"], {one: True}),
        "stays": (1, [], {}),
    }
