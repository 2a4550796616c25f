# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Does CUDA work under the system calls that the server's unit denies? On a machine with GPUs, without systemd.

    python tests/gpu/call_filter.py

It denies itself the same calls, as systemd does (seccomp, EPERM, no new privileges), and then does what a server does:
copies and multiplies on every GPU, pins memory, compiles and runs a Triton kernel and one with nvcc, and sums over all
GPUs with NCCL from one process each. Prints a line of JSON for each, and fails when one of them fails. Needs torch with
CUDA, and x86_64.
"""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

# What systemd 252 has in the sets of SystemCallFilter= in roles/sglang_server/templates/sglang.service.j2:
# `systemd-analyze syscall-filter @clock` and so on. Names that x86_64 does not have are left out.
DENIED = [
    "_sysctl",
    "adjtimex",
    "afs_syscall",
    "chroot",
    "clock_adjtime",
    "clock_settime",
    "create_module",
    "delete_module",
    "finit_module",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "get_kernel_syms",
    "getpmsg",
    "init_module",
    "ioperm",
    "iopl",
    "kexec_file_load",
    "kexec_load",
    "modify_ldt",
    "mount",
    "mount_setattr",
    "move_mount",
    "open_tree",
    "pivot_root",
    "putpmsg",
    "query_module",
    "reboot",
    "security",
    "settimeofday",
    "swapoff",
    "swapon",
    "sysfs",
    "tuxcall",
    "umount2",
    "uselib",
    "ustat",
    "vserver",
]
HEADERS = ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h")
NO_NEW_PRIVS, SET_SECCOMP, MODE_FILTER = 38, 22, 2  # linux/prctl.h, linux/seccomp.h
ALLOW, ERRNO, EPERM, ARCH = 0x7FFF0000, 0x00050000, 1, 0xC000003E


class Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("k", ctypes.c_uint32)]


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(Instruction))]


def numbers() -> dict[str, int]:
    """Name -> number of each denied call that this machine's headers know."""
    header = next(pathlib.Path(path) for path in HEADERS if pathlib.Path(path).exists())
    known = dict(re.findall(r"#define __NR_(\w+) (\d+)", header.read_text()))
    return {name: int(known[name]) for name in DENIED if name in known}


def deny(calls: dict[str, int]) -> None:
    """Deny them to this process and all that it starts."""
    load, equal, give = 0x20, 0x15, 0x06
    program = [Instruction(load, 0, 0, 4), Instruction(equal, 1, 0, ARCH), Instruction(give, 0, 0, ALLOW)]
    program.append(Instruction(load, 0, 0, 0))
    for number in calls.values():
        program += [Instruction(equal, 0, 1, number), Instruction(give, 0, 0, ERRNO | EPERM)]
    program.append(Instruction(give, 0, 0, ALLOW))
    array = (Instruction * len(program))(*program)
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((NO_NEW_PRIVS, 1, 0, 0, 0), (SET_SECCOMP, MODE_FILTER, ctypes.byref(Program(len(array), array)))):
        if libc.prctl(*arguments):
            raise OSError(ctypes.get_errno(), "prctl")


def is_denied(calls: dict[str, int]) -> str:
    """Calls that root may make, or that the kernel does not have, end with EPERM now."""
    libc = ctypes.CDLL(None, use_errno=True)
    for name in ("uselib", "umount2", "sysfs"):
        ctypes.set_errno(0)
        result = libc.syscall(calls[name], 0, 0, 0)
        if (result, ctypes.get_errno()) != (-1, EPERM):
            raise AssertionError(f"{name}: {result}, errno {ctypes.get_errno()}")
    status = pathlib.Path("/proc/self/status").read_text()
    if "Seccomp:\t2" not in status or "NoNewPrivs:\t1" not in status:
        raise AssertionError("no filter is in /proc/self/status")
    return f"{len(calls)} calls"


def multiply() -> str:
    import torch

    for gpu in range(torch.cuda.device_count()):
        left = torch.randn(1024, 1024, device=f"cuda:{gpu}")
        there = (left @ left).cpu()
        here = left.cpu() @ left.cpu()
        assert torch.allclose(there, here, atol=1e-1, rtol=1e-3), (there - here).abs().max()
    return f"{torch.cuda.device_count()} GPUs, {torch.cuda.get_device_name()}, torch {torch.__version__}"


def pin() -> str:
    import torch

    pinned = torch.arange(1 << 26, dtype=torch.int32).pin_memory()
    assert int(pinned.to("cuda", non_blocking=True).sum(dtype=torch.int64)) == (1 << 26) * ((1 << 26) - 1) // 2
    return f"{pinned.numel() * 4 >> 20} MiB"


def triton() -> str:
    import torch

    def add(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return torch.relu(left) + right * 2

    compiled = torch.compile(add)
    left, right = torch.randn(4096, device="cuda"), torch.randn(4096, device="cuda")
    assert torch.allclose(compiled(left, right), add(left, right))
    import triton as package

    return f"triton {package.__version__}"


def nvcc() -> str:
    found = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not pathlib.Path(found).exists():
        return "no nvcc here: not tried"
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "one.cu")
        source.write_text(
            "#include <cstdio>\n__global__ void one(int *x) { *x = 41 + 1; }\n"
            "int main() { int *x; cudaMallocManaged(&x, 4); one<<<1, 1>>>(x); cudaDeviceSynchronize();\n"
            'printf("%d", *x); return *x != 42; }\n'
        )
        subprocess.run([found, "-o", f"{folder}/one", str(source)], check=True)
        said = subprocess.run([f"{folder}/one"], capture_output=True, text=True, check=True).stdout
    assert said == "42", said
    return found


def rank(number: int, ranks: int, port: int) -> None:
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(number)
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=number, world_size=ranks)
    value = torch.full((1 << 20,), float(number + 1), device="cuda")
    dist.all_reduce(value)
    assert float(value[7]) == ranks * (ranks + 1) / 2
    dist.destroy_process_group()


def nccl() -> str:
    import torch

    ranks = torch.cuda.device_count()
    started = [
        subprocess.Popen([sys.executable, __file__, str(number), str(ranks), "29511"]) for number in range(ranks)
    ]
    codes = [process.wait(timeout=180) for process in started]
    assert codes == [0] * ranks, codes
    return f"{ranks} ranks, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}"


def main() -> int:
    """All of it; 1 when something failed."""
    calls = numbers()
    deny(calls)
    failed = False
    steps: list[Callable[[], str]] = [multiply, pin, triton, nvcc, nccl]
    for name, step in [("denied", lambda: is_denied(calls)), *((step.__name__, step) for step in steps)]:
        began = time.monotonic()
        try:
            said, good = step(), True
        except Exception as error:
            said, good, failed = repr(error), False, True
        took_s = round(time.monotonic() - began, 1)
        print(json.dumps({"what": name, "ok": good, "said": said, "s": took_s}), flush=True)
    return int(failed)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        rank(*map(int, sys.argv[1:]))
        os._exit(0)
    sys.exit(main())
