# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at a host, and what role cuda_toolkit does there: which toolkit, from where, and what of /usr/local/cuda."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    cuda_driver,
    cuda_toolkit,
    gpu,
    gpu_look,
    host_files,
    toolkit_choice,
    toolkit_default,
    toolkit_state,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.cuda_toolkit import Toolkit
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import Report
from ansible_collections.tokforge.sglang.plugins.module_utils.toolkit_choice import Choice, Host, ToolkitError, Wanted
from ansible_collections.tokforge.sglang.plugins.module_utils.toolkit_default import Fix

WHEEL_ROOT = "/opt/tokforge/cuda"

#: What a Blackwell GPU is taken for before its driver runs. Others of them need no newer toolkit.
_BLACKWELL = (12, 0)

Run = Callable[[Sequence[str]], str]


def plan(
    params: Mapping[str, Any],
    look: Callable[[], Report] = gpu_look.look,
    nvcc: Run = cuda_toolkit.run_nvcc,
    alternatives: Run = toolkit_default.run,
    compiler: Callable[[str], str | None] = shutil.which,
) -> dict[str, Any]:
    """The result of module cuda_toolkit_info for its arguments. Raises ToolkitError and RecordError."""
    root = params["system_root"]
    noted = toolkit_state.read(params["record_dir"])
    now = toolkit_default.look(root, alternatives)
    if params["state"] == "absent":
        fix = toolkit_default.restore(now, noted.default, noted.movers)
        return _result(fix=fix, repository=bool(noted.packaged))
    wanted = Wanted(params["version"], params["source"], params["sglang_version"], params["lane"])
    host = _host(look(), params["driver_version"])
    choice = toolkit_choice.decide(wanted, host)
    seen = cuda_toolkit.look(cuda_toolkit.Request(), root, nvcc)
    result = {**_settle(wanted, choice, seen.toolkits, host, params, noted), "toolkits": _shown(seen.toolkits)}
    if result["install"]:
        result["compilers"] = [] if all(map(compiler, ("c++", "cc"))) else ["g++"]
    ours = {*noted.movers, *([result["home"]] if result["install"] else [])}
    if params["default"] and result["home"]:
        fix = toolkit_default.take(now, result["home"])
    else:
        fix = toolkit_default.keep(now, noted.default, sorted(ours))
    if fix.problem:
        raise ToolkitError(fix.problem, path=toolkit_default.LINK)
    back = fix.how in (toolkit_default.SELECT, toolkit_default.MAKE) and not params["default"]
    if back and not host_files.is_directory(root, toolkit_default.resolved(fix.path)):
        fix = Fix(why=f"{fix.path}, where {toolkit_default.LINK} pointed before, is not there any more")
    return _result(fix=fix, repository=bool(result["packages"]), **result)


def _host(report: Report, driver_version: str | None) -> Host:
    cuda = cuda_driver.cuda_of(report.driver_version, report.cuda_version)
    driver = report.driver_version
    if driver_version:
        if cuda_driver.branch_of(driver_version) is None:
            raise ToolkitError(
                f"reading the driver's version {driver_version!r}: it is not of the form 580.95.05; give that",
                driver_version=driver_version,
            )
        cuda, driver = cuda_driver.cuda_of(driver_version), driver_version
    capabilities = {one.compute_capability for one in report.gpus if one.compute_capability}
    said = report.message
    if not capabilities and any(one.device_id >> 8 in gpu.BLACKWELL_IDS for one in report.pci):
        capabilities = {_BLACKWELL}
        said = f"{said}; the PCI bus shows Blackwell, taken for {_BLACKWELL[0]}.{_BLACKWELL[1]}"
    return Host(
        capabilities=tuple(sorted(capabilities)),
        driver_cuda=cuda,
        driver=f"driver {driver}" if driver else "",
        said=said,
    )


def _settle(
    wanted: Wanted,
    choice: Choice,
    toolkits: Sequence[Toolkit],
    host: Host,
    params: Mapping[str, Any],
    noted: toolkit_state.Noted,
) -> dict[str, Any]:
    """Version, whether to install it, where it is, and what is skipped."""
    if choice.version is None:
        why = choice.reasons[0]
        return _none(choice, why)
    root = params["system_root"]
    ours = {host_files.real(root, home) for home in noted.homes}
    # What this role brought comes first, and is not mistaken for somebody else's where both have the version.
    ordered = sorted(toolkits, key=lambda one: host_files.real(root, one.home) not in ours)
    there = toolkit_choice.fitting(ordered, choice, host)
    version = toolkit_choice.text(choice.version)
    if wanted.source == toolkit_choice.NONE:
        if there is None or (wanted.version != toolkit_choice.AUTO and there.version != choice.version):
            if wanted.version != toolkit_choice.AUTO:
                raise ToolkitError(
                    f"looking for CUDA toolkit {version}: no toolkit of this version that can compile FlashInfer's"
                    " kernels is here, and cuda_toolkit_source is none; set it to repository or wheel",
                    toolkits=_shown(toolkits),
                )
            return _none(choice, f"cuda_toolkit_source is none, and no toolkit that fits is here ({version} is needed)")
        return _there(there, choice, wanted)
    from_packages = wanted.source == toolkit_choice.REPOSITORY
    home = f"/usr/local/cuda-{version}" if from_packages else os.path.normpath(f"{params['root']}/{version}")
    # One of ours is brought by its source again: that is what keeps it whole.
    foreign = there is not None and host_files.real(root, there.home) not in ours
    if wanted.version == toolkit_choice.AUTO and foreign and there is not None:
        return _there(there, choice, wanted)
    names = list(toolkit_choice.packages(choice.version)) if from_packages else []
    return {
        "version": version,
        "reasons": list(choice.reasons),
        "install": True,
        "home": home,
        "packages": names,
        "skipped": [],
    }


def _there(toolkit: Toolkit, choice: Choice, wanted: Wanted) -> dict[str, Any]:
    version = toolkit_choice.text(toolkit.version) if toolkit.version else ""
    why = f"nvcc {version} of {toolkit.home} has everything that FlashInfer's kernels are compiled with"
    return {
        "version": version,
        "reasons": [*choice.reasons, why],
        "install": False,
        "home": toolkit.home,
        "packages": [],
        "skipped": [{"what": f"installing a CUDA toolkit (source {wanted.source})", "why": why}],
    }


def _none(choice: Choice, why: str) -> dict[str, Any]:
    return {
        "version": "",
        "reasons": list(choice.reasons),
        "install": False,
        "home": "",
        "packages": [],
        "skipped": [{"what": "providing a CUDA toolkit", "why": why}],
    }


def _shown(toolkits: Sequence[Toolkit]) -> list[dict[str, Any]]:
    return [
        {
            "home": one.home,
            "version": toolkit_choice.text(one.version) if one.version else "",
            "origin": one.origin,
            "missing": list(one.missing),
            "problem": one.problem,
        }
        for one in toolkits
    ]


def _result(fix: Fix, **more: Any) -> dict[str, Any]:
    empty = {
        "version": "",
        "reasons": [],
        "install": False,
        "home": "",
        "packages": [],
        "compilers": [],
        "repository": False,
        "skipped": [],
        "toolkits": [],
    }
    shown = {key: value for key, value in asdict(fix).items() if key != "problem"}
    return {**empty, **more, "default_fix": shown}
