# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CUDA toolkit that compiles kernels: which is used, why it cannot, and what is missing. Drivers against CUDA."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_machine import machine

from ansible_collections.tokforge.sglang.plugins.module_utils import cuda_driver, cuda_toolkit, host_files
from ansible_collections.tokforge.sglang.plugins.module_utils.cuda_toolkit import Request, Seen, Toolkit

FILES = ("include/cuda_runtime.h", "include/curand_kernel.h", "include/nvrtc.h", "include/cublasLt.h")
LIBRARIES = ("lib64/libcudart.so", "lib64/stubs/libcuda.so")
TOOLS = {"/usr/bin/ninja": "", "/usr/bin/c++": "", "/usr/bin/gcc": ""}

#: SM120 with the FlashInfer of SGLang 0.5.12.post1.
SM120 = Request(capabilities=((12, 0),), packages={"flashinfer-python": "0.6.11.post1"}, cuda_major=13)


def toolkit(home: str, version: str, leave_out: Sequence[str] = ()) -> dict[str, str]:
    """A complete toolkit; its nvcc's content is its version, which `said` gives."""
    major, minor = version.split(".")
    files = {f"{home}/{name}": "" for name in (*FILES, *LIBRARIES) if name not in leave_out}
    number = f"{int(major) * 1000 + int(minor) * 10}"
    files[f"{home}/include/cuda_runtime_api.h"] = f"/* x */\n#define CUDART_VERSION  {number}\n#define Y 1\n"
    return files


def said(argv: Sequence[str]) -> str:
    version = Path(argv[0]).read_text(encoding="utf-8")
    return f"nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release {version}, V{version}.88\n"


def place(tmp_path: Path, toolkits: Mapping[str, str], more: Mapping[str, str] | None = None, **leave_out: Any) -> str:
    files: dict[str, str] = {}
    nvcc = {}
    for home, version in toolkits.items():
        files.update(toolkit(home, version, leave_out.get("leave_out", ())))
        nvcc[f"{home}/bin/nvcc"] = version
    return machine(tmp_path, files, {**nvcc, **(TOOLS if more is None else more)})


def look(request: Request, root: str) -> Seen:
    return cuda_toolkit.look(request, root, said)


def findings(request: Request, root: str) -> list[tuple[str, str, str]]:
    return [(one.level, one.message, one.remedy) for one in cuda_toolkit.check(look(request, root), request)]


# --- which one ---


def test_distributions_old_nvcc_in_path_is_refused_for_the_toolkit_beside_it(tmp_path: Path) -> None:
    root = place(tmp_path, {"/usr": "11.5", "/usr/local/cuda-13.0": "13.0"})
    [(level, message, remedy)] = findings(SM120, root)
    assert level == "fail"
    assert "must be compiled with nvcc 13.0 of /usr/local/cuda-13.0" in message
    assert "/usr (PATH, /usr/bin/nvcc) cannot: nvcc 11.5 is older than 12.9" in message
    assert remedy == "set sglang_server_env: {CUDA_HOME: /usr/local/cuda-13.0}"
    chosen = cuda_toolkit.choose(look(SM120, root), SM120)
    assert chosen is not None
    assert chosen.home == "/usr/local/cuda-13.0"


def test_toolkit_that_the_rollout_sets_passes_and_is_printed(tmp_path: Path) -> None:
    root = place(tmp_path, {"/usr": "11.5", "/usr/local/cuda-13.0": "13.0"})
    [(level, message, _remedy)] = findings(replace(SM120, automatic=True), root)
    assert level == "ok"
    assert "kernels are compiled with nvcc 13.0 of /usr/local/cuda-13.0 (CUDA_HOME is set to it)" in message


def test_own_cuda_home_that_cannot_is_never_overruled_silently(tmp_path: Path) -> None:
    root = place(tmp_path, {"/opt/old": "12.8", "/usr/local/cuda-13.0": "13.0"})
    request = replace(SM120, env={"CUDA_HOME": "/opt/old"}, automatic=True)
    [(level, message, remedy)] = findings(request, root)
    assert (level, remedy) == ("fail", "set sglang_server_env: {CUDA_HOME: /usr/local/cuda-13.0}")
    assert "/opt/old (CUDA_HOME) cannot: nvcc 12.8 is older than 12.9" in message


def test_only_old_ones_fail_early(tmp_path: Path) -> None:
    root = place(tmp_path, {"/usr": "11.5", "/usr/local/cuda-12.8": "12.8"})
    [(level, message, remedy)] = findings(SM120, root)
    assert level == "fail"
    assert "/usr (PATH, /usr/bin/nvcc): nvcc 11.5 is older than 12.9, which compute capability 12.0" in message
    assert "/usr/local/cuda-12.8 (installed): nvcc 12.8 is older" in message
    assert remedy.startswith("install cuda-toolkit-13-0 of NVIDIA's repository")


def test_order_is_variable_then_path_then_the_usual_place(tmp_path: Path) -> None:
    root = place(tmp_path, {"/a": "13.0", "/b": "13.0", "/usr/local/cuda": "13.0", "/usr/local/cuda-12.9": "12.9"})
    env = {"PATH": "relative:/nowhere:/b/bin:/a/bin"}
    homes = [home for home, _origin in cuda_toolkit.homes(replace(SM120, env=env), env["PATH"], root)]
    assert homes == ["/b", "/usr/local/cuda", "/usr/local/cuda-12.9"]
    both = {"CUDA_HOME": "/a/", "CUDA_PATH": "/b"}
    assert cuda_toolkit.homes(replace(SM120, env=both), "", root)[0] == ("/a", "CUDA_HOME")
    # An empty CUDA_HOME lets CUDA_PATH decide.
    empty = {"CUDA_HOME": "", "CUDA_PATH": "/b"}
    assert cuda_toolkit.homes(replace(SM120, env=empty), "", root)[0] == ("/b", "CUDA_PATH")


def test_newest_installed_one_is_offered_first_and_links_count_once(tmp_path: Path) -> None:
    root = place(
        tmp_path, {"/usr/local/cuda-9.2": "9.2", "/usr/local/cuda-12.9": "12.9", "/usr/local/cuda-13.0": "13.0"}
    )
    (tmp_path / "usr/local/cuda").symlink_to("cuda-12.9")
    (tmp_path / "usr/local/cuda-old").mkdir()
    homes = [home for home, _origin in cuda_toolkit.homes(SM120, "", root)]
    assert homes == ["/usr/local/cuda", "/usr/local/cuda-13.0", "/usr/local/cuda-9.2"]


def test_toolkit_that_nobody_finds_must_be_named(tmp_path: Path) -> None:
    root = place(tmp_path, {"/usr/local/cuda-13.0": "13.0"})
    [(level, message, remedy)] = findings(SM120, root)
    assert (level, remedy) == ("fail", "set sglang_server_env: {CUDA_HOME: /usr/local/cuda-13.0}")
    assert "without CUDA_HOME nobody finds it" in message
    assert findings(replace(SM120, automatic=True), root)[0][0] == "ok"


def test_used_one_that_fits_is_printed_with_how_it_was_found(tmp_path: Path) -> None:
    root = place(tmp_path, {"/usr/local/cuda": "13.0"})
    assert findings(SM120, root) == [
        ("ok", "kernels are compiled with nvcc 13.0 of /usr/local/cuda (the usual place)", "")
    ]


def test_lanes_own_major_version_is_chosen_before_a_newer_one(tmp_path: Path) -> None:
    root = place(tmp_path, {"/usr/local/cuda-13.0": "13.0", "/usr/local/cuda-12.9": "12.9"})
    request = replace(SM120, cuda_major=12)
    chosen = cuda_toolkit.choose(look(request, root), request)
    assert chosen is not None
    assert chosen.home == "/usr/local/cuda-12.9"


def test_other_major_version_than_the_lanes_warns(tmp_path: Path) -> None:
    [first, (level, message, remedy)] = findings(SM120, place(tmp_path, {"/usr/local/cuda": "12.9"}))
    assert (first[0], level) == ("ok", "warn")
    assert "nvcc 12.9 of /usr/local/cuda has another major version than the environment's CUDA 13" in message
    assert remedy == "install cuda-toolkit-13-0, and set CUDA_HOME to it"


def test_toolkit_newer_than_the_drivers_major_version_does_not_fit(tmp_path: Path) -> None:
    root = place(tmp_path, {"/usr/local/cuda-13.0": "13.0", "/usr/local/cuda-12.9": "12.9"})
    request = replace(SM120, cuda_major=13, driver_cuda=(12, 9))
    seen = look(request, root)
    assert "does not run on a driver of CUDA 12" in cuda_toolkit.unfit(seen.toolkits[0], request)
    chosen = cuda_toolkit.choose(seen, request)
    assert chosen is not None
    assert chosen.home == "/usr/local/cuda-12.9"


# --- which version ---


@pytest.mark.parametrize(
    ("capability", "flashinfer", "least"),
    [
        ((12, 0), "0.6.8.post1", (12, 9)),
        ((12, 0), "0.6.18", (12, 9)),
        ((12, 0), "0.7.0.post1", (12, 9)),
        ((12, 0), "0.7.1", (12, 8)),
        ((12, 0), "0.7.2", (12, 8)),
        ((12, 0), None, (12, 9)),
        ((12, 0), "unknown", (12, 9)),
        ((12, 1), "0.7.2", (12, 9)),
        ((10, 0), "0.6.12", (12, 8)),
        ((10, 3), "0.6.12", (12, 9)),
        ((11, 0), "0.6.12", (12, 9)),
        ((9, 0), "0.6.12", (12, 3)),
        ((9, 0), "0.6.18", (12, 8)),
        ((8, 0), "0.6.12", (12, 0)),
        ((8, 0), "0.7.2", (12, 8)),
    ],
)
def test_least_version_is_by_gpu_and_flashinfer(
    capability: tuple[int, int], flashinfer: str | None, least: tuple[int, int]
) -> None:
    assert cuda_toolkit.least_version([capability], flashinfer)[0] == least


def test_most_demanding_gpu_decides() -> None:
    assert cuda_toolkit.least_version([(8, 9), (12, 0), (9, 0)], "0.6.12") == (
        (12, 9),
        "compute capability 12.0 with FlashInfer before 0.7.1",
    )


def broken(error: Exception) -> Callable[[Sequence[str]], str]:
    def run(argv: Sequence[str]) -> str:
        raise error

    return run


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (broken(subprocess.TimeoutExpired("nvcc", 2)), "did not say its version within 2 s"),
        (broken(PermissionError(13, "Permission denied")), "cannot be run: [Errno 13] Permission denied"),
        (broken(subprocess.CalledProcessError(127, "nvcc")), "cannot be run"),
        (lambda argv: "", "says no version"),
        (lambda argv: "release 13, V13", "says no version"),
        (lambda argv: "release 99999.1, V", "says no version"),
    ],
)
def test_nvcc_that_says_nothing_is_told(tmp_path: Path, run: Callable[[Sequence[str]], str], words: str) -> None:
    root = place(tmp_path, {"/usr/local/cuda": "13.0"})
    (tmp_path / "usr/local/cuda/version.json").write_text('{"cuda": {"version": "13.0.1"}}')
    seen = cuda_toolkit.look(SM120, root, run)
    assert seen.toolkits[0].version == (13, 0)
    finding = cuda_toolkit.check(seen, SM120)[0]
    assert finding.level == "fail"
    assert words in finding.message
    assert "(its version.json says 13.0)" in finding.message


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"cuda": 1}', '{"cuda": {"version": 13}}', "[" * 5000, '{"cuda": {"version": "x"}}']
)
def test_damaged_version_file_gives_no_version(tmp_path: Path, text: str) -> None:
    root = machine(tmp_path, {"/usr/local/cuda/version.json": text})
    [seen] = look(SM120, root).toolkits
    assert (seen.version, seen.problem) == (None, "there is no /usr/local/cuda/bin/nvcc")


def test_real_program_is_run(tmp_path: Path) -> None:
    root = machine(tmp_path, {}, {"/usr/local/cuda/bin/nvcc": "#!/bin/sh\necho 'tools, release 12.9, V12.9.41'\n"})
    assert cuda_toolkit.look(SM120, root).toolkits[0].version == (12, 9)


def test_compiler_beside_headers_of_another_version_does_not_fit(tmp_path: Path) -> None:
    root = place(tmp_path, {"/usr/local/cuda": "13.0"})
    (tmp_path / "usr/local/cuda/bin/nvcc").write_text("13.5")
    assert cuda_toolkit.unfit(look(SM120, root).toolkits[0], SM120) == "nvcc 13.5 lies beside headers of CUDA 13.0"


# --- what is missing ---


def test_missing_headers_and_libraries_name_their_packages(tmp_path: Path) -> None:
    left_out = ("include/curand_kernel.h", "include/nvrtc.h", "lib64/stubs/libcuda.so")
    root = place(tmp_path, {"/usr/local/cuda": "13.0"}, leave_out=left_out)
    [(level, message, remedy)] = findings(SM120, root)
    assert level == "fail"
    assert "curand_kernel.h, nvrtc.h, libcuda.so are missing" in message
    assert remedy == "apt-get install cuda-driver-dev-13-0 cuda-nvrtc-dev-13-0 libcurand-dev-13-0"


def test_every_needed_file_has_a_package(tmp_path: Path) -> None:
    root = place(tmp_path, {"/usr/local/cuda": "12.9"}, leave_out=(*FILES, *LIBRARIES))
    remedy = findings(replace(SM120, cuda_major=12), root)[0][2]
    assert remedy == (
        "apt-get install cuda-cudart-dev-12-9 cuda-driver-dev-12-9 cuda-nvrtc-dev-12-9 libcublas-dev-12-9"
        " libcurand-dev-12-9"
    )


def test_real_toolkit_is_completed_not_the_wrapper_before_it(tmp_path: Path) -> None:
    root = place(tmp_path, {"/usr/local/cuda": "13.0"}, leave_out=("include/nvrtc.h",))
    machine(tmp_path, {}, {"/usr/local/bin/nvcc": "13.0"})
    [(_level, message, remedy)] = findings(SM120, root)
    assert "/usr/local (PATH, /usr/local/bin/nvcc): cuda_runtime.h" in message
    assert remedy == "apt-get install cuda-nvrtc-dev-13-0, and set sglang_server_env: {CUDA_HOME: /usr/local/cuda}"


def test_headers_of_the_target_and_libraries_of_the_system_count(tmp_path: Path) -> None:
    root = place(tmp_path, {"/usr/local/cuda": "13.0"}, leave_out=("include/nvrtc.h", "lib64/stubs/libcuda.so"))
    machine(
        tmp_path,
        {"/usr/local/cuda/targets/sbsa-linux/include/nvrtc.h": "", "/usr/lib/x86_64-linux-gnu/libcuda.so": ""},
    )
    assert findings(SM120, root)[0][0] == "ok"


def test_package_in_the_environment_is_offered_only_when_it_is_whole(tmp_path: Path) -> None:
    nvidia = "/venv/lib/python3.11/site-packages/nvidia/cu13"
    request = replace(SM120, environment="/venv")
    root = place(tmp_path, {nvidia: "13.0"}, leave_out=LIBRARIES)
    [(level, message, remedy)] = findings(request, root)
    assert level == "fail"
    assert f"{nvidia} (a package in the environment): libcudart.so, libcuda.so are missing" in message
    assert "cuda-toolkit-13-0" in remedy
    machine(tmp_path, {f"{nvidia}/{name}": "" for name in LIBRARIES})
    [(level, _message, remedy)] = findings(request, root)
    assert (level, remedy) == ("fail", f"set sglang_server_env: {{CUDA_HOME: {nvidia}}}")


def test_no_toolkit_fails_and_with_compiled_kernels_warns(tmp_path: Path) -> None:
    root = machine(tmp_path, {}, TOOLS)
    [(level, message, remedy)] = findings(SM120, root)
    assert level == "fail"
    assert "neither CUDA_HOME nor an nvcc in PATH nor /usr/local/cuda" in message
    assert remedy.startswith("install cuda-toolkit-13-0")
    packages = {**SM120.packages, "flashinfer-jit-cache": "0.6.11.post1+cu130"}
    [(level, message, _remedy)] = findings(replace(SM120, packages=packages), root)
    assert level == "warn"
    assert "flashinfer-jit-cache 0.6.11.post1+cu130 brings compiled kernels, and one that is not in it fails" in message


def test_lane_of_cuda_12_is_told_the_newest_version_that_is_needed(tmp_path: Path) -> None:
    request = replace(SM120, cuda_major=12)
    assert "cuda-toolkit-12-9" in findings(request, machine(tmp_path, {}, TOOLS))[0][2]
    unknown = replace(SM120, cuda_major=None, capabilities=())
    assert "cuda-toolkit-12-0" in findings(unknown, machine(tmp_path, {}, TOOLS))[0][2]


# --- programs ---


def programs(request: Request, root: str) -> list[tuple[str, str, str]]:
    return findings(request, root)[1:]


def test_missing_programs_name_their_packages(tmp_path: Path) -> None:
    root = place(tmp_path, {"/usr/local/cuda": "13.0"}, more={})
    assert [remedy for _level, _message, remedy in programs(SM120, root)] == [
        "apt-get install ninja-build",
        "apt-get install g++",
        "apt-get install gcc",
    ]
    assert {level for level, _message, _remedy in programs(SM120, root)} == {"fail"}


def test_file_that_is_not_executable_is_no_program(tmp_path: Path) -> None:
    root = place(tmp_path, {"/usr/local/cuda": "13.0"}, more={**TOOLS, "/usr/bin/ninja": ""})
    (tmp_path / "usr/bin/ninja").chmod(0o644)
    assert [remedy for _level, _message, remedy in programs(SM120, root)] == ["apt-get install ninja-build"]


def test_environments_ninja_helps_only_when_it_is_in_path(tmp_path: Path) -> None:
    more = {"/usr/bin/c++": "", "/usr/bin/gcc": "", "/venv/bin/ninja": ""}
    root = place(tmp_path, {"/usr/local/cuda": "13.0"}, more=more)
    request = replace(SM120, environment="/venv")
    [(level, message, _remedy)] = programs(request, root)
    assert level == "fail"
    assert "; /venv/bin/ninja of the environment is not in PATH" in message
    assert programs(replace(request, environment_on_path=True), root) == []


def test_ninja_of_an_environment_that_is_not_made_yet_counts(tmp_path: Path) -> None:
    root = place(tmp_path, {"/usr/local/cuda": "13.0"}, more={"/usr/bin/c++": "", "/usr/bin/clang": ""})
    request = replace(SM120, packages={**SM120.packages, "ninja": "1.13.2"})
    assert programs(request, root)[0][0] == "fail"
    [(level, message, _remedy)] = programs(replace(request, environment_on_path=True), root)
    assert (level, message) == ("ok", "ninja comes with the environment: ninja 1.13.2")


def test_own_compilers_are_looked_for(tmp_path: Path) -> None:
    more = {"/usr/bin/ninja": "", "/usr/bin/c++": "", "/usr/bin/gcc": "", "/opt/gcc/bin/g++-13": ""}
    root = place(tmp_path, {"/usr/local/cuda": "13.0"}, more=more)
    env = {"CXX": "/opt/gcc/bin/g++-13 -pipe", "CC": "gcc-13"}
    [(_level, message, remedy)] = programs(replace(SM120, env=env), root)
    assert "there is no C compiler (gcc-13)" in message
    assert remedy == "apt-get install gcc"
    [(_level, message, _remedy)] = programs(replace(SM120, env={"CXX": "/opt/gcc/bin/g++-9"}), root)
    assert "/opt/gcc/bin/g++-9 is not in the server's PATH" in message


def test_python_header_is_needed_beside_the_interpreter(tmp_path: Path) -> None:
    more = {**TOOLS, "/usr/bin/python3.11": ""}
    root = place(tmp_path, {"/usr/local/cuda": "13.0"}, more=more)
    (tmp_path / "usr/bin/python3").symlink_to("python3.11")
    request = replace(SM120, python="/usr/bin/python3")
    [(level, message, remedy)] = programs(request, root)
    assert (level, remedy) == ("fail", "apt-get install python3.11-dev")
    assert "Python.h" in message
    machine(tmp_path, {"/usr/include/python3.11/Python.h": ""})
    assert programs(request, root) == []
    # An interpreter whose name does not say its version is not judged.
    assert programs(replace(SM120, python="/opt/pypy"), root) == []


def test_path_of_the_server_counts_not_ours(tmp_path: Path) -> None:
    root = place(
        tmp_path, {"/usr/local/cuda": "13.0"}, more={f"/srv/bin/{name}": "" for name in ("ninja", "c++", "gcc")}
    )
    assert len(programs(SM120, root)) == 3
    assert programs(replace(SM120, env={"PATH": "/srv/bin"}), root) == []
    assert programs(replace(SM120, path="/srv/bin"), root) == []


def test_machine_itself_can_be_looked_at() -> None:
    assert isinstance(cuda_toolkit.look(SM120), Seen)


def test_hostile_names_are_no_error(tmp_path: Path) -> None:
    request = replace(SM120, env={"CUDA_HOME": "/a\0b", "PATH": "\0:/x\0", "CXX": " ", "CC": "\0"}, environment="/e\0")
    seen = look(request, str(tmp_path))
    assert seen.toolkits[0] == Toolkit(
        "/a\0b", "CUDA_HOME", True, None, None, seen.toolkits[0].missing, "there is no /a\0b/bin/nvcc"
    )


def test_reads_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_files, "MOST_BYTES", 4)
    assert host_files.read(machine(tmp_path, {"/long": "123456"}), "/long") == "1234"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12\n", 12),
        ("0", 0),
        ("max", None),
        ("-1", None),
        ("1.5", None),
        ("", None),
        (None, None),
        ("²", None),
        ("9" * 30, None),
    ],
)
def test_only_whole_numbers_are_numbers(text: str | None, number: int | None) -> None:
    assert host_files.whole(text) == number


# --- driver ---


@pytest.mark.parametrize(
    ("driver", "told", "cuda"),
    [
        ("570.124.06", "", (12, 8)),
        ("575.51.03", "", (12, 9)),
        ("580.65.06", "", (13, 0)),
        ("590.44.01", "13.1", (13, 1)),
        ("615.10.01", "", (13, 0)),
        ("565.57.01", "", (12, 6)),
        ("525.60.13", "", (12, 0)),
        ("470.82.01", "", (11, 0)),
        ("390.1", "", None),
        ("N/A", "12.8", (12, 8)),
        ("N/A", "N/A", None),
        ("", "", None),
        ("999999999.1", "", None),
    ],
)
def test_cuda_of_a_driver_is_told_or_by_its_branch(driver: str, told: str, cuda: tuple[int, int] | None) -> None:
    assert cuda_driver.cuda_of(driver, told) == cuda


def test_driver_of_an_older_major_version_fails_with_the_branch() -> None:
    [finding] = cuda_driver.check("570.124.06", "12.8", (13, 0))
    assert finding.level == "fail"
    assert finding.message == "driver 570.124.06 supports CUDA 12.8, CUDA 13 needs a driver of branch >= 580"
    assert "branch >= 580" in finding.remedy
    assert "lane cuda12" in finding.remedy
    assert "cuda11" not in cuda_driver.check("470.82.01", "", (12, 8))[0].remedy
    assert "a newer driver" in cuda_driver.check("580.65.06", "", (14, 0))[0].message


def test_driver_of_the_same_major_version_passes_and_newer_ones_too() -> None:
    [finding] = cuda_driver.check("535.54.03", "12.2", (12, 9))
    assert finding.level == "ok"
    assert "minor version compatibility" in finding.message
    assert (
        cuda_driver.check("580.65.06", "", (13, 0))[0].message
        == "driver 580.65.06 supports CUDA 13.0, and 13.0 is needed"
    )
    assert cuda_driver.check("580.65.06", "", (12, 8))[0].level == "ok"


def test_unknown_driver_warns() -> None:
    [finding] = cuda_driver.check("[N/A]", "", (13, 0))
    assert (finding.level, finding.check) == ("warn", "driver")
    assert "'[N/A]'" in finding.message
