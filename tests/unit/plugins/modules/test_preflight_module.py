# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Preflight's half on the target: what it is told of the server's environment."""

from __future__ import annotations

import json
from typing import Any

import pytest
from module_args import patch_module_args

from ansible_collections.tokforge.sglang.plugins.module_utils import server_fit
from ansible_collections.tokforge.sglang.plugins.module_utils.findings import OK, Finding
from ansible_collections.tokforge.sglang.plugins.modules import preflight


def test_other_checks_look_at_what_the_machine_sets_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[dict[str, Any]] = []

    def everything(params: dict[str, Any]) -> server_fit.Fit:
        looked.append(params["env"])
        return server_fit.Fit((Finding(OK, "port", "free"),), None, None)

    monkeypatch.setattr(preflight.host_checks, "everything", everything)
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    monkeypatch.setenv("NOT_NAMED", "1")
    monkeypatch.delenv("NVSHMEM_DISABLE_NVLS", raising=False)
    given = {"root": "/r", "lane": "cpu", "version": "auto", "min_free_bytes": 0, "env": {"A": "1"}}
    found = []
    for names in ([], ["NCCL_NVLS_ENABLE"], ["NVSHMEM_DISABLE_NVLS", "NCCL_NVLS_ENABLE"]):
        with patch_module_args({**given, "env_pass_on": names}), pytest.raises(SystemExit):
            preflight.main()
        found.append(json.loads(capsys.readouterr().out))
    assert looked == [{"A": "1"}, {"A": "1", "NCCL_NVLS_ENABLE": "0"}, {"A": "1", "NCCL_NVLS_ENABLE": "0"}]
    assert [one["passed_on"] for one in found] == [{}, {"NCCL_NVLS_ENABLE": "0"}, {"NCCL_NVLS_ENABLE": "0"}]
    assert [[finding["level"] for finding in one["findings"]] for one in found] == [
        ["ok"],
        ["ok", "ok"],
        ["fail", "ok", "ok"],
    ]
    assert "does not set NVSHMEM_DISABLE_NVLS, which" in found[2]["findings"][0]["message"]
