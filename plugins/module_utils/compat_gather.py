# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a `compat.Query` this machine can tell: GPU and driver, versions in an environment, a model's quantization.

SGLang is not imported for it: that takes half a minute and starts CUDA.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from ansible_collections.tokforge.sglang.plugins.module_utils import model_files, model_shape, site_packages
from ansible_collections.tokforge.sglang.plugins.module_utils.compat_match import CompatError
from ansible_collections.tokforge.sglang.plugins.module_utils.compat_query import Query, names_quantization
from ansible_collections.tokforge.sglang.plugins.module_utils.config_values import ShapeError
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import Report
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError
from ansible_collections.tokforge.sglang.plugins.module_utils.model import ModelError


@dataclass(frozen=True)
class Gathered:
    """The completed query, and in words what could not be told."""

    query: Query
    notes: tuple[str, ...] = ()


def complete(query: Query, look: Callable[[], Report], venv: str | None, model: str | None) -> Gathered:
    """The query with what it leaves out. `look` reports on the GPUs. Raises CompatError.

    An environment that is not there and a model that cannot be read are errors: somebody named them.
    """
    notes: list[str] = []
    if query.compute_capability is None or not query.driver_version:
        query = _with_gpu(query, look(), notes)
    if venv is not None and not (query.sglang_version and query.flashinfer_version):
        query = _with_versions(query, venv, notes)
    # A model without quantization may be quantized as it loads: what the arguments say counts.
    if model is not None and not names_quantization(query):
        query = replace(query, quantization=quantization_of(model))
    return Gathered(query, tuple(notes))


def _with_gpu(query: Query, report: Report, notes: list[str]) -> Query:
    capabilities = {gpu.compute_capability for gpu in report.gpus}
    told = sorted(capability for capability in capabilities if capability is not None)
    if query.compute_capability is None and len(told) > 1:
        listed = ", ".join(f"{major}.{minor}" for major, minor in told)
        raise CompatError(
            f"reading the compute capability of this machine: its GPUs have {listed}; give compute_capability of those "
            "that will serve"
        )
    if query.compute_capability is None and told:
        query = replace(query, compute_capability=f"{told[0][0]}.{told[0][1]}")
    elif query.compute_capability is None:
        notes.append(report.message or "no GPU says its compute capability")
    if not query.driver_version and report.driver_version:
        query = replace(query, driver_version=report.driver_version)
    return query


def _with_versions(query: Query, venv: str, notes: list[str]) -> Query:
    try:
        versions = site_packages.versions_of(*site_packages.places(venv))
    except (OSError, ValueError, InstallError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise CompatError(f"reading the versions in {os.fspath(venv)}: {why}; give an environment's directory") from exc
    needed = {"sglang": query.sglang_version, "flashinfer-python": query.flashinfer_version}
    notes += [f"{venv} has no {name}" for name, given in needed.items() if not given and name not in versions]
    return replace(
        query,
        sglang_version=query.sglang_version or versions.get("sglang", ""),
        flashinfer_version=query.flashinfer_version or versions.get("flashinfer-python", ""),
    )


def quantization_of(model: str) -> str:
    """SGLang's name for the quantization of a model directory, "none" for none. Raises CompatError."""
    try:
        config, quant = model_files.read(model)
        return model_shape.read(config, quant).quantization or "none"
    except (ModelError, ShapeError) as exc:
        raise CompatError(f"reading the quantization of {model}: {exc}") from exc
