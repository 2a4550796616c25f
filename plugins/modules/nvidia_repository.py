#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_repository
short_description: Add NVIDIA's package repository, or a mirror of it, whose key is known by its fingerprint
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Gets the repository's key, holds it against O(fingerprint) before apt can see it, writes a source of the deb822 kind
    that trusts this key for this repository only, and fetches the lists of this repository and of no other.
  - The key file must hold exactly one primary key, and it must have the fingerprint. That is computed from the file's
    bytes, C(gpg) is not needed.
  - When the repository cannot be read, its files are put back as they were, since a broken source is in the way of
    every later C(apt-get update).
  - Lists are fetched after a change, and when apt does not know one of O(needs). A mere fetch is not a change.
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
    details:
      - The key is read and held against the fingerprint, nothing is written or fetched.
  diff_mode:
    support: full
    details:
      - Shows the source's file before and after.
options:
  owner:
    description:
      - Who needs the repository. With O(state=absent) its files are removed when nobody else does any more.
    type: str
    required: true
  state:
    description: Whether the repository is there.
    type: str
    choices: [present, absent]
    default: present
  url:
    description:
      - Address of the repository, C(https:), C(http:) or C(file:), with packages and lists in one directory.
      - Empty for NVIDIA's own, which is known for Debian 12 and 13, Ubuntu 22.04 and 24.04, and so for Proxmox VE 8 and
        9.
    type: str
    default: ""
  key_url:
    description: Address of the key file. Empty for the name that NVIDIA gives it, below the repository.
    type: str
    default: ""
  key:
    description:
      - The key itself, instead of O(key_url), ASCII-armored, or the bytes of its file in Base64.
    type: str
    default: ""
  fingerprint:
    description:
      - Fingerprint of the key, 40 hexadecimal digits. Empty for that of NVIDIA's key for this distribution, as
        independent projects pin it.
    type: str
    default: ""
  host:
    description: What M(tokforge.sglang.host_info) returned as C(host). Needed for what is left empty.
    type: dict
    default: {}
  needs:
    description: Packages that the repository must offer, each C(name), C(name=version) or C(name=version*).
    type: list
    elements: str
    default: []
  timeout_s:
    description: Seconds to wait for the key file's server.
    type: int
    default: 30
  name:
    description:
      - What the repository's files are called, without extension. This option and those below are for tests and images.
    type: str
    default: tokforge-nvidia
  record_dir:
    description: Directory for the notes of who needs the repository.
    type: path
    default: /var/lib/tokforge/host
  sources_dir:
    description: Directory of the source.
    type: path
    default: /etc/apt/sources.list.d
  keyring_dir:
    description: Directory of the key.
    type: path
    default: /etc/apt/keyrings
"""

EXAMPLES = r"""
- name: Add NVIDIA's repository for this host
  tokforge.sglang.nvidia_repository:
    owner: gpu_driver
    host: "{{ look.host }}"
    needs:
      - nvidia-driver-cuda=580.95.05-*

- name: Add a mirror of it with a key of its own
  tokforge.sglang.nvidia_repository:
    owner: gpu_driver
    url: https://mirror.example.com/nvidia/debian12
    key_url: https://mirror.example.com/mirror.asc
    fingerprint: 0123 4567 89AB CDEF 0123 4567 89AB CDEF 0123 4567
"""

RETURN = r"""
file:
  description: File that names the repository.
  returned: success
  type: str
  sample: /etc/apt/sources.list.d/tokforge-nvidia.sources
keyring:
  description: File with the key.
  returned: success
  type: str
  sample: /etc/apt/keyrings/tokforge-nvidia.gpg
refreshed:
  description: Whether lists were fetched, in check mode whether they would be.
  returned: success
  type: bool
  sample: true
lacking:
  description: Those of O(needs) that apt does not know, each with the versions that it does. Empty in check mode when
    the repository is not there yet.
  returned: success
  type: dict
  sample: {}
kept_for:
  description: With O(state=absent), who else needs the repository, so that it stays.
  returned: success
  type: list
  elements: str
  sample: [cuda_toolkit]
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    apt_run,
    apt_source,
    driver_plan,
    installed_packages,
    previous_values,
    signing_key,
    url_password,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.apt_source import Source, SourceError
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError


def key_of(params: dict[str, Any], source: Source) -> bytes:
    """The key, checked. What is there already is not fetched again. Raises KeyFileError and SourceError."""
    wanted = signing_key.normal_fingerprint(params["fingerprint"])
    if params["key"]:
        return signing_key.checked(signing_key.handed_over(params["key"]), wanted, "that was handed over")
    known = apt_source.current_key(source, wanted)
    if known is not None:
        return known
    url = params["key_url"]
    try:
        with open_url(url, timeout=params["timeout_s"]) as answer:
            data = answer.read(signing_key.MAX_BYTES + 1)
    except Exception as error:  # urllib's errors have no common base
        bare = "CERTIFICATE_VERIFY_FAILED" in str(error)
        remedy = "install ca-certificates, which apt needs too, and set the clock; or " if bare else ""
        raise SourceError(
            f"getting the key {url_password.shown(url)}: {url_password.shown(str(error))}; {remedy}correct the "
            "address or the network, or hand the key over as a file",
            url=url_password.shown(url),
        ) from error
    return signing_key.checked(data, wanted, url_password.shown(url))


def have(params: dict[str, Any], source: Source, check: bool, run: apt_run.Run) -> dict[str, Any]:
    """Have the repository. Raises SourceError, KeyFileError and RecordError."""
    source.check()
    files: dict[str, bytes | None] = {source.keyring: key_of(params, source), source.file: source.text()}
    before = {path: apt_source.read(path) for path in files}
    note = f"apt_source/{source.name}/{params['owner']}"
    changed = before != files
    needs = params["needs"]
    lacking = {} if changed else installed_packages.unknown(needs, run)
    refreshed = changed or bool(lacking)
    if not check:
        noted = note in previous_values.read(params["record_dir"])
        previous_values.remember(params["record_dir"], {note: True})
        if changed:
            apt_source.write(files)
        if refreshed:
            try:
                apt_source.refresh(source, run)
            except SourceError:
                apt_source.write(before)
                if not noted:
                    previous_values.forget(params["record_dir"], [note])
                raise
            lacking = installed_packages.unknown(needs, run)
        if lacking:
            raise SourceError(_lacking(source, lacking), lacking=lacking)
    return {
        "changed": changed,
        "refreshed": refreshed,
        "lacking": lacking,
        "kept_for": [],
        "diff": _diff(source, before[source.file], files[source.file]),
    }


def drop(params: dict[str, Any], source: Source, check: bool) -> dict[str, Any]:
    """Take the repository away when nobody needs it any more. Raises SourceError and RecordError."""
    head = f"apt_source/{source.name}/"
    owners = [key[len(head) :] for key in previous_values.read(params["record_dir"]) if key.startswith(head)]
    others = sorted(name for name in owners if name != params["owner"])
    files: dict[str, bytes | None] = {} if others else {source.keyring: None, source.file: None}
    before = {path: apt_source.read(path) for path in files}
    if not check:
        apt_source.write(files)
        previous_values.forget(params["record_dir"], [head + params["owner"]])
    return {
        "changed": before != files,
        "refreshed": False,
        "lacking": {},
        "kept_for": others,
        "diff": _diff(source, before.get(source.file), None),
    }


def _lacking(source: Source, lacking: dict[str, tuple[str, ...]]) -> str:
    told = "; ".join(
        f"{package} (there are {', '.join(known[:6]) or 'none'}{' ...' if known[6:] else ''})"
        for package, known in lacking.items()
    )
    return (
        f"looking for packages in {source.url}: it does not offer {told}; ask for a version that it has, or take "
        "another repository"
    )


def _diff(source: Source, before: bytes | None, after: bytes | None) -> dict[str, str]:
    return {
        "before_header": source.file,
        "after_header": source.file,
        "before": (before or b"").decode("utf-8", "replace"),
        "after": (after or b"").decode("utf-8", "replace"),
    }


def completed(params: dict[str, Any]) -> dict[str, Any]:
    """The options with NVIDIA's own for what is left empty. Raises DriverError where NVIDIA has none."""
    full = dict(params)
    needed = not (full["url"] and full["fingerprint"] and (full["key"] or full["key_url"]))
    if params["state"] == "absent" or not needed:
        return full
    host = {name: params["host"].get(name, "") for name in ("os", "os_version")}
    architecture = os.uname().machine
    known = driver_plan.repository_for(host, architecture)
    full["url"] = full["url"] or known.url(architecture)
    full["fingerprint"] = full["fingerprint"] or known.fingerprint
    full["key_url"] = full["key_url"] or full["url"].rstrip("/") + "/" + known.key_file
    return full


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "owner": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "url": {"type": "str", "default": ""},
            "key_url": {"type": "str", "default": "", "no_log": False},
            "key": {"type": "str", "default": "", "no_log": False},
            "fingerprint": {"type": "str", "default": ""},
            "host": {"type": "dict", "default": {}},
            "needs": {"type": "list", "elements": "str", "default": []},
            "timeout_s": {"type": "int", "default": 30},
            "name": {"type": "str", "default": "tokforge-nvidia"},
            "record_dir": {"type": "path", "default": "/var/lib/tokforge/host"},
            "sources_dir": {"type": "path", "default": "/etc/apt/sources.list.d"},
            "keyring_dir": {"type": "path", "default": "/etc/apt/keyrings"},
        },
        supports_check_mode=True,
    )
    # So that no message, and no list of arguments, shows them.
    module.no_log_values |= url_password.passwords(f"{module.params['url']} {module.params['key_url']}")
    try:
        params = completed(module.params)
        source = Source(params["name"], params["url"], params["sources_dir"], params["keyring_dir"])
        if params["state"] == "present":
            result = have(params, source, module.check_mode, apt_run.run_apt)
        else:
            result = drop(params, source, module.check_mode)
    except HostError as error:
        module.fail_json(msg=str(error), **error.facts)
    diff = result.pop("diff")
    module.exit_json(file=source.file, keyring=source.keyring, **result, **({"diff": diff} if module._diff else {}))


if __name__ == "__main__":
    main()
