#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_driver_info
short_description: Decide which NVIDIA driver a host is to have, and tell whether it is there
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Decides the kernel module, the packages, the repository and what else is to be done for the driver on a host, from
    what M(tokforge.sglang.host_info) told and what is installed. Fails, before anything is changed, when the host
    cannot have what is asked for.
  - Names of packages and repositories are known for Debian 12 and 13, Ubuntu 22.04 and 24.04, and so for Proxmox VE 8
    and 9, which are built on Debian. From branch 590 on some of Ubuntu's names are not verified against the
    repository.
extends_documentation_fragment:
  - tokforge.sglang.attributes
  - tokforge.sglang.attributes.info_module
options:
  host:
    description: What M(tokforge.sglang.host_info) returned as C(host).
    type: dict
    required: true
  version:
    description:
      - Exact version of the driver. May be left out in a container, which has the version of its machine's kernel
        module, and with O(source=none).
    type: str
    default: ""
  source:
    description: Where the driver comes from, a package repository, a C(.run) file, or nowhere.
    type: str
    choices: [repository, runfile, none]
    default: repository
  kernel_module:
    description: Which kernel module; V(auto) is the open one where all GPUs can use it.
    type: str
    choices: [auto, open, closed]
    default: auto
  install_headers:
    description: Whether missing kernel headers may be installed. When not, they are an error.
    type: bool
    default: true
  expect:
    description:
      - V(nothing) decides only.
      - V(built) also fails on a machine when DKMS has no module for the running or the next kernel, or when another
        kernel starts next than O(next_kernel).
      - V(running) also fails when the loaded module is not the one that is asked for, or when the running kernel is not
        O(next_kernel), or O(kernel) when that is not given. For after a reboot. In a container it fails when libraries
        are of another version than the kernel module of its machine.
    type: str
    choices: [nothing, built, running]
    default: nothing
  kernel:
    description: Release of the kernel that ran before the driver was installed. Empty when it does not matter.
    type: str
    default: ""
  next_kernel:
    description: Release of the kernel that was to start next before the driver was installed. Empty when not known.
    type: str
    default: ""
  modprobe_file:
    description: Our file that keeps nouveau away. This option and those below are for tests and images.
    type: path
    default: /etc/modprobe.d/tokforge-nvidia-nouveau.conf
  boot_dir:
    description: Directory of the initial RAM disks.
    type: path
    default: /boot
  uninstaller:
    description: Program that is there when a C(.run) file installed the driver.
    type: path
    default: /usr/bin/nvidia-uninstall
  library_dirs:
    description: Directories with the driver's libraries.
    type: list
    elements: path
    default: [/usr/lib/x86_64-linux-gnu, /usr/lib/aarch64-linux-gnu, /usr/lib64, /usr/lib]
  unit_dirs:
    description: Directories with systemd's units.
    type: list
    elements: path
    default: [/etc/systemd/system, /usr/lib/systemd/system, /lib/systemd/system]
  systemd_run:
    description: Directory that is there where systemd runs.
    type: path
    default: /run/systemd/system
  architecture:
    description: Architecture of the machine, as C(uname -m) tells it; empty to ask.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Look at the host
  tokforge.sglang.host_info:
  register: look

- name: Decide
  tokforge.sglang.gpu_driver_info:
    host: "{{ look.host }}"
    version: 580.95.05
  register: plan

- name: See after the reboot that it runs
  tokforge.sglang.gpu_driver_info:
    host: "{{ look_again.host }}"
    version: 580.95.05
    next_kernel: "{{ look.host.next_kernel }}"
    expect: running
"""

RETURN = r"""
version:
  description: Version of the driver; empty when none is asked for and none is loaded.
  returned: success
  type: str
  sample: 580.95.05
container:
  description: Whether the host is a container, which gets libraries only.
  returned: success
  type: bool
  sample: false
kernel_module:
  description: V(open) or V(closed); empty in a container and when nothing is to be installed.
  returned: success
  type: str
  sample: open
packages:
  description: Packages to ask for, each with the pattern of its version.
  returned: success
  type: list
  elements: str
  sample: ["nvidia-kernel-open-dkms=580.95.05-*", "nvidia-driver-cuda=580.95.05-*"]
also:
  description: Installed packages of the driver that are of another version, each with the pattern of the asked one. Not
    all of them need to be there in that version.
  returned: success
  type: list
  elements: str
  sample: []
remove:
  description: Installed packages with another kernel module, of the other kind, branch or maker, which must go.
  returned: success
  type: list
  elements: str
  sample: []
other_versions:
  description: Installed packages of the driver that are of another version, with that version.
  returned: success
  type: dict
  sample: {}
changes:
  description: Whether something that is installed is not as asked.
  returned: success
  type: bool
  sample: true
headers:
  description: Packages of missing kernel headers.
  returned: success
  type: list
  elements: str
  sample: [linux-headers-6.1.0-40-amd64]
repository_url:
  description: NVIDIA's own repository for this host; empty for other sources.
  returned: success
  type: str
  sample: https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/
repository_key_file:
  description: Name of the key's file in it.
  returned: success
  type: str
  sample: 3bf863cc.pub
repository_fingerprint:
  description: Fingerprint of that key.
  returned: success
  type: str
  sample: EB693B3035CD5710E231E123A4B469963BF863CC
preferences:
  description: Text of apt's preferences that keep all packages of the driver at the version.
  returned: success
  type: str
  sample: "Package: nvidia-*\nPin: version 580.95.05-*\nPin-Priority: 1001\n"
unattended_blacklist:
  description: Text of apt's configuration that keeps unattended-upgrades off the driver.
  returned: success
  type: str
  sample: "Unattended-Upgrade::Package-Blacklist {\n    \"nvidia-\";\n};\n"
runfile_arguments:
  description: Arguments for the C(.run) file.
  returned: success
  type: list
  elements: str
  sample: [--silent, --dkms, --kernel-module-type=open]
installed_runfile:
  description: Version of a driver that a C(.run) file installed; empty for none.
  returned: success
  type: str
  sample: ""
initramfs_due:
  description: Whether an initial RAM disk of the running or the next kernel is older than O(modprobe_file).
  returned: success
  type: bool
  sample: false
pending_reboot:
  description: What waits for a reboot, a sentence each.
  returned: success
  type: list
  elements: str
  sample: [the kernel module of 580.95.05 is not loaded]
persistence:
  description: Whether the persistence daemon can be managed here, a machine with systemd and the daemon's unit.
  returned: success
  type: bool
  sample: true
skipped:
  description: What is not done on this host, C(what) and C(why).
  returned: success
  type: list
  elements: dict
  sample: []
"""

import glob
import os
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    apt_run,
    dkms_status,
    driver_check,
    driver_packages,
    driver_plan,
    installed_packages,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.driver_check import Kernels
from ansible_collections.tokforge.sglang.plugins.module_utils.driver_plan import Asked, DriverError, Found, Plan


def found(params: Mapping[str, Any], run: apt_run.Run) -> Found:
    """What of the driver is installed; nothing of packages where there is no dpkg."""
    packages = installed_packages.driver(run(installed_packages.QUERY)[1])
    if not os.path.lexists(params["uninstaller"]):
        return Found(packages)
    libraries = [path for folder in params["library_dirs"] for path in glob.glob(f"{folder}/libcuda.so.*.*")]
    versions = [os.path.basename(path).partition(".so.")[2] for path in libraries]
    if not versions or "libcuda1" in packages:
        return Found(packages)
    # The version says nothing of which of its two kernel modules was installed (modinfo: NVIDIA, or Dual MIT/GPL).
    license_of = run(["modinfo", "-k", params["host"]["kernel"], "-F", "license", "nvidia"])[1].strip()
    kind = {"NVIDIA": driver_packages.CLOSED, "": ""}.get(license_of, driver_packages.OPEN)
    return Found(packages, versions[0], kind)


def age_of_images(params: Mapping[str, Any], host: Mapping[str, Any]) -> bool:
    """Whether an initial RAM disk lacks our modprobe file."""
    images = [os.path.join(params["boot_dir"], f"initrd.img-{kernel}") for kernel in driver_check.kernels_of(host)]
    written = os.stat(params["modprobe_file"]).st_mtime if os.path.exists(params["modprobe_file"]) else None
    return driver_check.initramfs_due(written, [os.stat(path).st_mtime for path in images if os.path.exists(path)])


def persistence(params: Mapping[str, Any], plan: Plan) -> str:
    """Why the persistence daemon cannot be managed here; empty when it can."""
    if plan.container:
        return "this is a container"
    if plan.source == driver_plan.NONE:
        return "gpu_driver_source is none"
    if not os.path.isdir(params["systemd_run"]):
        return "systemd does not run here"
    if not any(os.path.exists(f"{folder}/nvidia-persistenced.service") for folder in params["unit_dirs"]):
        return "no systemd unit of it is installed (a .run file brings only a sample)"
    return ""


def check(params: Mapping[str, Any], plan: Plan, run: apt_run.Run) -> None:
    """Hold the host against what is expected. Raises DriverError."""
    host = params["host"]
    before = Kernels(params["kernel"], params["next_kernel"])
    if params["expect"] == "nothing":
        return
    if plan.container:
        if plan.source != driver_plan.NONE and params["expect"] == "running":
            driver_check.check_libraries(plan.version, plan.other_versions, plan.changes)
        return
    status = None
    if plan.source != driver_plan.NONE:
        status = dkms_status.parse(run(["dkms", "status"])[1])
    if params["expect"] == "running":
        driver_check.check_running(host, plan.version, plan.kernel_module, status, before)
    elif status is not None:
        driver_check.check_built(host, plan.version, status, before)


def settle(params: Mapping[str, Any], run: apt_run.Run) -> dict[str, Any]:
    """What the module returns, with `warnings`. Raises DriverError."""
    host = params["host"]
    asked = Asked(
        params["version"],
        params["source"],
        params["kernel_module"],
        params["install_headers"],
        params["architecture"] or os.uname().machine,
    )
    there = found(params, run)
    plan = driver_plan.decide(host, asked, there)
    check(params, plan, run)
    repository = plan.repository
    daemon = persistence(params, plan)
    skipped = list(plan.skipped)
    if daemon and params["expect"] != "nothing" and not plan.container:
        skipped.append({"what": "persistence daemon", "why": daemon})
    return {
        "version": plan.version,
        "container": plan.container,
        "kernel_module": plan.kernel_module,
        "packages": list(plan.packages),
        "also": list(plan.also),
        "remove": list(plan.remove),
        "other_versions": dict(plan.other_versions),
        "changes": plan.changes,
        "headers": list(plan.headers),
        "repository_url": plan.repository_url,
        "repository_key_file": repository.key_file if repository else "",
        "repository_fingerprint": repository.fingerprint if repository else "",
        "preferences": driver_packages.preferences(plan.version),
        "unattended_blacklist": driver_packages.unattended_blacklist(),
        "runfile_arguments": list(driver_plan.runfile_arguments(plan)),
        "installed_runfile": there.runfile,
        "initramfs_due": False if plan.container else age_of_images(params, host),
        "pending_reboot": [] if plan.container else list(driver_check.pending(host, plan.version, plan.kernel_module)),
        "persistence": not daemon,
        "skipped": skipped,
        "warnings": list(plan.warnings),
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "dict", "required": True},
            "version": {"type": "str", "default": ""},
            "source": {"type": "str", "choices": ["repository", "runfile", "none"], "default": "repository"},
            "kernel_module": {"type": "str", "choices": ["auto", "open", "closed"], "default": "auto"},
            "install_headers": {"type": "bool", "default": True},
            "expect": {"type": "str", "choices": ["nothing", "built", "running"], "default": "nothing"},
            "kernel": {"type": "str", "default": ""},
            "next_kernel": {"type": "str", "default": ""},
            "modprobe_file": {"type": "path", "default": "/etc/modprobe.d/tokforge-nvidia-nouveau.conf"},
            "boot_dir": {"type": "path", "default": "/boot"},
            "uninstaller": {"type": "path", "default": "/usr/bin/nvidia-uninstall"},
            "library_dirs": {
                "type": "list",
                "elements": "path",
                "default": ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"],
            },
            "unit_dirs": {
                "type": "list",
                "elements": "path",
                "default": ["/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"],
            },
            "systemd_run": {"type": "path", "default": "/run/systemd/system"},
            "architecture": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    try:
        result = settle(module.params, apt_run.run_apt)
    except DriverError as error:
        module.fail_json(msg=str(error), **error.facts)
    except KeyError as error:
        module.fail_json(msg=f"reading host: it has no {error}; give what tokforge.sglang.host_info returned as host")
    for warning in result.pop("warnings"):
        module.warn(warning)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
