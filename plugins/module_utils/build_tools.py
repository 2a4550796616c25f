# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a server compiles kernels with: how many compilers at once, and with which CUDA toolkit.

Both depend on the machine as it is when the server is started, so they are no part of a release: state/build_tools.json
is written before each start on request and read by the launcher, also when a manager starts the server again. What the
release's own environment says wins.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    cuda_driver,
    cuda_toolkit,
    gpu_look,
    host_cpus,
    host_memory,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import Report
from ansible_collections.tokforge.sglang.plugins.module_utils.json_file import read_object

#: Below <root>/state.
FILE = "build_tools.json"


def write(root: str, look: Callable[[], Report] = gpu_look.look) -> dict[str, str]:
    """Note for the launcher what the current release is to compile with; nothing for one that uses no GPU.

    Returns what was noted. Raises OSError.
    """
    launch = read_object(os.path.join(root, "current", "launch.json"))
    told = launch.get("env")
    env: dict[str, str] = told if isinstance(told, dict) else {}
    found = {} if env.get("SGLANG_USE_CPU_ENGINE") == "1" else choose(root, env, look())
    path = os.path.join(root, "state", FILE)
    if found or os.path.exists(path):
        write_atomic(path, (json.dumps(found, indent=2, sort_keys=True) + "\n").encode(), 0o644)
    return found


def toolkit_request(
    report: Report,
    env: Mapping[str, str],
    packages: Mapping[str, str],
    environment: str,
    cuda_major: int | None,
    python: str = "",
) -> cuda_toolkit.Request:
    """What the toolkit has to do for a server on these GPUs; before a rollout and at its start the same."""
    return cuda_toolkit.Request(
        capabilities=tuple(sorted({one.compute_capability for one in report.gpus if one.compute_capability})),
        packages=packages,
        env=env,
        environment=environment,
        python=python,
        cuda_major=cuda_major,
        driver_cuda=cuda_driver.cuda_of(report.driver_version, report.cuda_version),
        automatic=True,
        environment_on_path=True,
    )


def choose(root: str, env: Mapping[str, str], report: Report) -> dict[str, str]:
    """MAX_JOBS, and CUDA_HOME where another toolkit than the one found unasked has to be used.

    :param env: the release's own environment; a variable that it has is left to it.
    """
    found: dict[str, str] = {}
    cpus, available = host_cpus.look().count, host_memory.look().available_bytes
    if "MAX_JOBS" not in env and cpus is not None and available is not None:
        found["MAX_JOBS"] = str(host_memory.max_jobs(cpus, available))
    if "CUDA_HOME" in env or not report.gpus:
        return found
    environment = os.path.join(root, "current", "venv")
    marker = read_object(os.path.join(environment, "environment.json"))
    versions, torch = marker.get("versions"), marker.get("torch")
    major = str(torch.get("cuda") or "").partition(".")[0] if isinstance(torch, dict) else ""
    request = toolkit_request(
        report,
        env,
        packages=versions if isinstance(versions, dict) else {},
        environment=os.path.realpath(environment),
        cuda_major=int(major) if major.isdigit() else None,
    )
    toolkit = cuda_toolkit.choose(cuda_toolkit.look(request), request)
    if toolkit is not None and not toolkit.unasked:
        found["CUDA_HOME"] = toolkit.home
    return found
