# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What role cuda_toolkit does on a host: install, or take what is there; what is noted, linked and taken back."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from module_args import patch_module_args

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    cuda_toolkit as core,
)
from ansible_collections.tokforge.sglang.plugins.module_utils import (
    gpu,
    previous_values,
    toolkit_plan,
    toolkit_provide,
    toolkit_state,
    toolkit_wheels,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import Gpu, PciDevice, Report
from ansible_collections.tokforge.sglang.plugins.module_utils.toolkit_choice import ToolkitError
from ansible_collections.tokforge.sglang.plugins.module_utils.toolkit_default import Default
from ansible_collections.tokforge.sglang.plugins.modules import cuda_toolkit

SM120 = Report(
    gpu.OK,
    "1 GPU",
    driver_version="580.95.05",
    cuda_version="13.0",
    gpus=(Gpu(0, "RTX PRO 6000", compute_capability=(12, 0)),),
)
BARE = Report(gpu.NO_TOOL, "nvidia-smi is not there", pci=(PciDevice("0000:61:00.0", 0x2BB1),))


@dataclass
class Box:
    """A directory that stands for a machine."""

    root: Path
    report: Report = SM120
    compilers: set[str] = field(default_factory=lambda: {"c++", "cc"})
    query: str = "Status: auto\n"

    @property
    def record_dir(self) -> str:
        return str(self.root / "record")

    def plan(self, **params: Any) -> dict[str, Any]:
        given: dict[str, Any] = {
            "state": "present",
            "version": "auto",
            "source": "repository",
            "sglang_version": "auto",
            "lane": "auto",
            "driver_version": None,
            "default": False,
            "root": "/opt/tokforge/cuda",
            "record_dir": self.record_dir,
            "system_root": str(self.root),
            **params,
        }
        return toolkit_plan.plan(
            given,
            look=lambda: self.report,
            nvcc=said,
            alternatives=lambda _argv: self.query,
            compiler=lambda name: name if name in self.compilers else None,
        )

    def put(self, home: str, version: str) -> None:
        place = self.root / home.lstrip("/")
        for folder in ("bin", "include", "lib64"):
            (place / folder).mkdir(parents=True)
        (place / "bin/nvcc").write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {version}, V{version}.88'\n")
        (place / "bin/nvcc").chmod(0o755)
        major, minor = map(int, version.split("."))
        (place / "include/cuda_runtime_api.h").write_text(f"#define CUDART_VERSION {major * 1000 + minor * 10}\n")
        for name in core.HEADERS:
            (place / "include" / name).touch()
        for name in core.LIBRARIES:
            (place / "lib64" / name).touch()

    def default(self, target: str, alternative: bool = False) -> None:
        link = self.root / "usr/local/cuda"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        if alternative:
            chosen = self.root / "etc/alternatives/cuda"
            chosen.parent.mkdir(parents=True, exist_ok=True)
            chosen.unlink(missing_ok=True)
            chosen.symlink_to(target)
            target = "/etc/alternatives/cuda"
        link.symlink_to(target)


def said(argv: Sequence[str]) -> str:
    return Path(argv[0]).read_text(encoding="utf-8")


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_bare_host_gets_packages_and_what_compiles(box: Box) -> None:
    box.compilers.clear()
    plan = box.plan()
    assert (plan["version"], plan["home"], plan["install"]) == ("13.0", "/usr/local/cuda-13.0", True)
    assert (plan["repository"], plan["compilers"], plan["skipped"]) == (True, ["g++"], [])
    assert "cuda-nvcc-13-0" in plan["packages"]
    assert plan["default_fix"] == {"how": "none", "path": "", "why": ""}


def test_wheels_need_no_repository_and_lie_below_their_own_directory(box: Box) -> None:
    plan = box.plan(source="wheel", root="/srv/cuda/")
    assert (plan["home"], plan["install"], plan["packages"], plan["repository"], plan["compilers"]) == (
        "/srv/cuda/13.0",
        True,
        [],
        False,
        [],
    )


def test_driver_that_does_not_run_yet_is_reckoned_with_and_blackwell_is_seen_on_the_bus(box: Box) -> None:
    box.report = BARE
    plan = box.plan(driver_version="570.124.06")
    assert plan["version"] == "12.9"
    assert "compute capability 12.0" in plan["reasons"][1]
    assert box.plan()["version"] == "13.0"
    with pytest.raises(ToolkitError, match="'580': it is not of the form"):
        box.plan(driver_version="580")


def test_toolkit_of_somebody_else_that_fits_is_taken_with_auto_alone(box: Box) -> None:
    box.put("/usr/local/cuda-13.0", "13.0")
    plan = box.plan()
    assert (plan["install"], plan["home"], plan["packages"]) == (False, "/usr/local/cuda-13.0", [])
    assert plan["skipped"][0]["why"].startswith("nvcc 13.0 of /usr/local/cuda-13.0 has everything")
    assert box.plan(version="13.0")["install"] is True
    assert box.plan(source="wheel", version="13.0")["home"] == "/opt/tokforge/cuda/13.0"


def test_toolkit_of_ours_is_brought_by_its_source_again_also_through_the_usual_link(box: Box) -> None:
    box.put("/usr/local/cuda-13.0", "13.0")
    box.default("cuda-13.0")
    toolkit_state.note(box.record_dir, Default(), "/usr/local/cuda-13.0", built=False)
    assert box.plan()["install"] is True


def test_toolkit_that_was_only_linked_is_no_toolkit_of_ours(box: Box) -> None:
    box.put("/usr/local/cuda-13.0", "13.0")
    toolkit_state.link("13.0", "/usr/local/cuda-13.0", str(box.root))
    toolkit_state.note_default(box.record_dir, Default(), "/usr/local/cuda-13.0")
    assert box.plan()["install"] is False


def test_no_source_takes_what_fits_or_says_that_nothing_does(box: Box) -> None:
    plan = box.plan(source="none")
    assert (plan["version"], plan["home"]) == ("", "")
    assert plan["skipped"] == [
        {
            "what": "providing a CUDA toolkit",
            "why": "cuda_toolkit_source is none, and no toolkit that fits is here (13.0 is needed)",
        }
    ]
    box.put("/usr/local/cuda-13.1", "13.1")
    assert box.plan(source="none")["home"] == "/usr/local/cuda-13.1"
    with pytest.raises(ToolkitError, match=r"looking for CUDA toolkit 13\.0: no toolkit of this version"):
        box.plan(source="none", version="13.0")


def test_cpu_lane_is_skipped_with_its_reason(box: Box) -> None:
    plan = box.plan(lane="cpu")
    assert (plan["home"], plan["install"]) == ("", False)
    assert plan["skipped"][0]["why"] == "a server of lane cpu compiles no CUDA kernel"


# --- the default ---


def test_default_that_packages_moved_is_put_back_to_what_was_noted(box: Box) -> None:
    box.put("/usr/local/cuda-12.8", "12.8")
    box.put("/usr/local/cuda-13.0", "13.0")
    box.default("/usr/local/cuda-12.8", alternative=True)
    before = Default("alternatives", "/usr/local/cuda-12.8", "auto")
    toolkit_state.note(box.record_dir, before, "/usr/local/cuda-13.0", built=False)
    assert box.plan()["default_fix"]["how"] == "none"
    box.default("/usr/local/cuda-13.0", alternative=True)
    fix = box.plan()["default_fix"]
    assert (fix["how"], fix["path"]) == ("select", "/usr/local/cuda-12.8")
    assert box.plan(default=True)["default_fix"]["how"] == "none"
    box.default("/usr/local/cuda-12.8", alternative=True)
    box.query = "Status: manual\n"
    fix = box.plan(state="absent")["default_fix"]
    assert (fix["how"], fix["path"]) == ("auto", "/usr/local/cuda-12.8")


def test_default_whose_toolkit_is_gone_is_not_put_back_and_that_is_said(box: Box) -> None:
    box.put("/usr/local/cuda-13.0", "13.0")
    box.default("/usr/local/cuda-13.0")
    toolkit_state.note(box.record_dir, Default("link", "/opt/gone"), "/usr/local/cuda-13.0", built=False)
    fix = box.plan()["default_fix"]
    assert (fix["how"], fix["why"]) == (
        "none",
        "/opt/gone, where /usr/local/cuda pointed before, is not there any more",
    )


def test_directory_in_the_way_of_the_default_is_a_failure_before_anything(box: Box) -> None:
    (box.root / "usr/local/cuda").mkdir(parents=True)
    with pytest.raises(ToolkitError, match="/usr/local/cuda is no link"):
        box.plan(default=True)
    assert box.plan()["default_fix"]["how"] == "none"


def test_absent_says_whether_the_repository_was_used(box: Box) -> None:
    assert box.plan(state="absent")["repository"] is False
    toolkit_state.note(box.record_dir, Default(), "/usr/local/cuda-13.0", built=False)
    assert box.plan(state="absent")["repository"] is True


# --- the module ---


def answer(capsys: pytest.CaptureFixture[str], box: Box, check: bool = False, **params: Any) -> dict[str, Any]:
    given = {"record_dir": box.record_dir, "system_root": str(box.root), **params}
    given.update(_ansible_check_mode=check, _ansible_diff=True)
    with patch_module_args(given), pytest.raises(SystemExit):
        cuda_toolkit.main()
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


PACKAGED: dict[str, Any] = {"version": "13.0", "home": "/usr/local/cuda-13.0"}


def test_packages_are_noted_linked_and_forgotten(box: Box, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, box, state="prepared", **PACKAGED)["changed"] is False
    assert toolkit_state.read(box.record_dir).packaged == ("/usr/local/cuda-13.0",)
    told = answer(capsys, box, **PACKAGED)
    assert (
        "looking at CUDA toolkit 13.0 in /usr/local/cuda-13.0: there is no /usr/local/cuda-13.0/bin/nvcc" in told["msg"]
    )
    box.put("/usr/local/cuda-13.0", "13.0")
    link = box.root / "var/lib/tokforge/cuda/13.0"
    predicted = answer(capsys, box, check=True, **PACKAGED)
    assert (predicted["changed"], link.is_symlink()) == (True, False)
    made = answer(capsys, box, **PACKAGED)
    assert made["diff"] == predicted["diff"]
    assert made["diff"]["after"].endswith("/var/lib/tokforge/cuda/13.0 -> ../../../../usr/local/cuda-13.0\n")
    assert link.resolve() == (box.root / "usr/local/cuda-13.0").resolve()
    assert answer(capsys, box, **PACKAGED)["changed"] is False
    previous_values.remember(box.record_dir, {"cuda_toolkit/package/libnvvm-13-0": "", "host_tuning/x": 1})
    assert answer(capsys, box, check=True, state="absent")["changed"] is True
    assert link.is_symlink()
    gone = answer(capsys, box, state="absent")
    assert (gone["changed"], gone["removed"]) == (True, [str(link)])
    assert not link.parent.exists()
    assert (box.root / "usr/local/cuda-13.0/bin/nvcc").exists()
    # What apt_transaction and others noted is theirs.
    assert previous_values.read(box.record_dir) == {"cuda_toolkit/package/libnvvm-13-0": "", "host_tuning/x": 1}
    assert answer(capsys, box, state="absent")["changed"] is False


def test_packages_that_brought_another_version_or_half_of_it_are_refused(
    box: Box, capsys: pytest.CaptureFixture[str]
) -> None:
    box.put("/usr/local/cuda-13.0", "13.1")
    assert "its nvcc is 13.1" in answer(capsys, box, **PACKAGED)["msg"]
    box.put("/usr/local/cuda-12.9", "12.9")
    (box.root / "usr/local/cuda-12.9/include/curand_kernel.h").unlink()
    told = answer(capsys, box, version="12.9", home="/usr/local/cuda-12.9")
    assert "curand_kernel.h are missing" in told["msg"]
    assert not (box.root / "var").exists()


def test_wheels_that_are_not_known_are_refused(box: Box, capsys: pytest.CaptureFixture[str]) -> None:
    told = answer(capsys, box, source="wheel", version="13.7", home="/opt/x/13.7")
    assert "building CUDA toolkit 13.7: no wheels are known for it; use 13.0" in told["msg"]


def test_build_is_noted_before_it_starts_and_removed_with_its_link(
    box: Box, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[tuple[str, ...]] = []

    def build(place: str, *_rest: object) -> None:
        noted.append(toolkit_state.read(box.record_dir).built)
        box.put("/opt/tokforge/cuda/13.0", "13.0")
        marker = {"schema_version": 1, "wheels": toolkit_wheels.identity(wheels)}
        (Path(place) / toolkit_wheels.MARKER).write_text(json.dumps(marker))

    wheels = toolkit_provide.WHEELS[13, 0]
    monkeypatch.setattr(toolkit_wheels, "build", build)
    wanted: dict[str, Any] = {"source": "wheel", "version": "13.0", "home": "/opt/tokforge/cuda/13.0"}
    assert answer(capsys, box, check=True, **wanted)["changed"] is True
    assert (noted, os.path.exists(box.record_dir)) == ([], False)
    assert answer(capsys, box, **wanted)["changed"] is True
    assert noted == [("/opt/tokforge/cuda/13.0",)]
    assert answer(capsys, box, **wanted)["changed"] is False
    gone = answer(capsys, box, state="absent")
    assert gone["removed"] == ["/opt/tokforge/cuda/13.0", str(box.root / "var/lib/tokforge/cuda/13.0")]
    assert not (box.root / "opt/tokforge/cuda").exists()


def test_damaged_notes_are_a_failure_and_stay(box: Box, capsys: pytest.CaptureFixture[str]) -> None:
    os.makedirs(box.record_dir)
    notes = Path(box.record_dir, "previous.json")
    notes.write_text("{")
    assert "not JSON" in answer(capsys, box, state="absent")["msg"]
    assert notes.read_text() == "{"
    damaged = json.dumps({"schema_version": 1, "values": {"cuda_toolkit/default": {"kind": "door"}}})
    notes.write_text(damaged)
    assert "is not as this collection notes it" in answer(capsys, box, state="absent")["msg"]
    assert notes.read_text() == damaged


def test_what_a_killed_build_left_goes_with_absent(box: Box, capsys: pytest.CaptureFixture[str]) -> None:
    toolkit_state.note(box.record_dir, Default(), "/opt/tokforge/cuda/13.0", built=True)
    left = box.root / "opt/tokforge/cuda/.tokforge-new-ab"
    left.mkdir(parents=True)
    assert answer(capsys, box, check=True, state="absent")["removed"] == [str(left)] and left.exists()
    assert answer(capsys, box, state="absent")["changed"] is True
    assert not left.parent.exists()
    assert answer(capsys, box, state="absent")["changed"] is False


def test_link_that_points_nowhere_is_no_toolkit_for_the_server_and_still_goes(
    box: Box, capsys: pytest.CaptureFixture[str]
) -> None:
    toolkit_state.link("13.0", "/usr/local/cuda-13.0", str(box.root))
    assert core.provided(str(box.root)) == []
    assert answer(capsys, box, state="absent")["changed"] is True
    assert toolkit_state.links(str(box.root)) == []


# --- the server's choice ---


def test_provided_toolkit_of_the_lane_wins_over_the_one_in_path_but_not_over_a_variable(box: Box) -> None:
    for home, version in (("/usr/local/cuda-12.9", "12.9"), ("/usr/local/cuda-13.0", "13.0"), ("/opt/own", "13.0")):
        box.put(home, version)
    box.default("cuda-12.9")
    toolkit_state.link("13.0", "/usr/local/cuda-13.0", str(box.root))

    def chosen(**more: Any) -> str:
        request = core.Request(capabilities=((12, 0),), **more)
        found = core.choose(core.look(request, str(box.root), said), request)
        return found.home if found else ""

    assert chosen(cuda_major=13) == "/usr/local/cuda-13.0"
    assert chosen() == "/usr/local/cuda-13.0"
    assert chosen(cuda_major=12) == "/usr/local/cuda"
    assert chosen(cuda_major=13, driver_cuda=(12, 8)) == "/usr/local/cuda"
    assert chosen(cuda_major=13, env={"CUDA_HOME": "/opt/own"}) == "/opt/own"
    request = core.Request(cuda_major=13, automatic=True)
    first = core.check(core.look(request, str(box.root), said), request)[0]
    assert first.level == "ok"
    assert "role cuda_toolkit provides it, and without CUDA_HOME /usr/local/cuda (the usual place)" in first.message


def test_newest_provided_version_comes_first_and_other_names_are_passed_over(box: Box) -> None:
    for version in ("12.9", "13.0", "9.10"):
        box.put(f"/usr/local/cuda-{version}", version)
        toolkit_state.link(version, f"/usr/local/cuda-{version}", str(box.root))
    (box.root / "var/lib/tokforge/cuda/13.0.new").symlink_to("nowhere")
    (box.root / "var/lib/tokforge/cuda/13.9").mkdir()
    assert core.provided(str(box.root)) == ["/usr/local/cuda-13.0", "/usr/local/cuda-12.9", "/usr/local/cuda-9.10"]
