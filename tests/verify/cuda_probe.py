# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether CUDA works on this host: starts, sees every GPU, and copies between each two of them what was written.

    cuda_probe.py LIMIT_S        prints one JSON object and ends within LIMIT_S seconds and a few more

A copy between two GPUs over PCI Express can hang for ever where access control or an IOMMU sends it astray, and a
process that hangs in the driver cannot always be killed. So the work is done by a child that says before each step what
it is about to do, and when the time is over the last thing it said is what hung.

Runs on the host that is verified: standard library and the driver's own libcuda only, Python 3.9 or newer.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from typing import Any

LIBRARY = "libcuda.so.1"
INSIDE = "--inside"
COPIED_BYTES = 32 << 20
COPIES = 8
# Other bytes on each device, so that a copy that did not arrive cannot look like one that did.
PATTERNS = tuple(range(17, 251, 13))
# CUresult values (cuda.h) that are no failure of a pair: peer access is on already; more peers than the hardware has.
PEER_ACCESS_ALREADY_ENABLED = 704
TOO_MANY_PEERS = 711
KILL_S = 2.0


def read(path: str) -> str:
    """A small file's text, "" when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(1 << 16)
    except OSError:
        return ""


def devices(root: str = "/") -> list[str]:
    """PCI addresses of NVIDIA's display controllers (class 3) on the bus."""
    bus = os.path.join(root, "sys/bus/pci/devices")
    names = sorted(os.listdir(bus)) if os.path.isdir(bus) else []
    return [
        name
        for name in names
        if read(os.path.join(bus, name, "vendor")).strip() == "0x10de"
        and read(os.path.join(bus, name, "class")).startswith("0x03")
    ]


def nodes(root: str = "/") -> dict[str, Any]:
    """The device files that CUDA opens: which GPUs have one here, and which shared ones are missing."""
    folder = os.path.join(root, "dev")
    names = os.listdir(folder) if os.path.isdir(folder) else []
    shared = ["nvidiactl", "nvidia-uvm"]
    return {
        "gpus": sorted(int(name[6:]) for name in names if re.fullmatch(r"nvidia[0-9]+", name)),
        "missing": [f"/dev/{name}" for name in shared if name not in names],
    }


def module_version(root: str = "/") -> str:
    """Version of the loaded kernel module, "" for none."""
    found = re.search(
        r"Kernel Module(?: for \S+)?\s+([0-9][0-9.]*)", read(os.path.join(root, "proc/driver/nvidia/version"))
    )
    return found[1] if found else ""


def library_version() -> str:
    """Version of the libcuda that is loaded: its own file's name ends with it."""
    for line in read("/proc/self/maps").splitlines():
        found = re.search(r"/libcuda\.so\.([0-9]+(?:\.[0-9]+)+)$", line)
        if found:
            return found[1]
    return ""


class CudaError(Exception):
    """A call of the driver that failed."""


class Cuda:
    """The few calls of the driver that are needed."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(LIBRARY)

    def code(self, name: str, *arguments: Any) -> int:
        """The call's CUresult."""
        return int(getattr(self.library, name)(*arguments))

    def call(self, name: str, *arguments: Any) -> None:
        """Raises CudaError with the driver's own words."""
        code = self.code(name, *arguments)
        if code:
            text = ctypes.c_char_p()
            known = self.library.cuGetErrorString(code, ctypes.byref(text)) == 0 and text.value
            raise CudaError(f"{name}: {text.value.decode() if known and text.value else 'error'} ({code})")


def tell(**line: Any) -> None:
    """One line for the parent; at once, since the next step may be the last."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


class Device:
    """One GPU with its context and a piece of its memory."""

    def __init__(self, cuda: Cuda, ordinal: int) -> None:
        self.cuda, self.ordinal = cuda, ordinal
        self.handle, self.context, self.memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        cuda.call("cuDeviceGet", ctypes.byref(self.handle), ordinal)
        address = ctypes.create_string_buffer(32)
        cuda.call("cuDeviceGetPCIBusId", address, 32, self.handle)
        self.address = address.value.decode()
        cuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self.handle)
        self.enter()
        cuda.call("cuMemAlloc_v2", ctypes.byref(self.memory), ctypes.c_size_t(COPIED_BYTES))

    def enter(self) -> None:
        """Make its context the one that calls are for."""
        self.cuda.call("cuCtxSetCurrent", self.context)

    def fill(self, value: int) -> None:
        """Write one byte all over its memory."""
        self.enter()
        self.cuda.call("cuMemsetD8_v2", self.memory, ctypes.c_ubyte(value), ctypes.c_size_t(COPIED_BYTES))
        self.cuda.call("cuCtxSynchronize")

    def wrong_bytes(self, value: int) -> int:
        """How many bytes of its memory are not this one."""
        self.enter()
        there = ctypes.create_string_buffer(COPIED_BYTES)
        self.cuda.call("cuMemcpyDtoH_v2", there, self.memory, ctypes.c_size_t(COPIED_BYTES))
        return COPIED_BYTES - there.raw.count(bytes([value]))


def look() -> None:
    """All steps, each told before it is taken."""
    tell(step=f"loading {LIBRARY}")
    cuda = Cuda()
    tell(step="cuInit")
    cuda.call("cuInit", 0)
    tell(library_version=library_version())
    count = ctypes.c_int()
    cuda.call("cuDeviceGetCount", ctypes.byref(count))
    found = []
    for ordinal in range(count.value):
        tell(step=f"a context and memory on GPU {ordinal}")
        one = Device(cuda, ordinal)
        value = PATTERNS[ordinal % len(PATTERNS)]
        one.fill(value)
        found.append(one)
        tell(gpu={"ordinal": ordinal, "address": one.address, "wrong_bytes": one.wrong_bytes(value)})
    for source in found:
        for target in found:
            if source is not target:
                tell(step=f"a copy from GPU {source.ordinal} to GPU {target.ordinal}")
                tell(pair=pair(cuda, source, target))
    tell(done=True)


def pair(cuda: Cuda, source: Device, target: Device) -> dict[str, Any]:
    """Copy from one to the other: `p2p` is whether the driver does it directly, `gb_s` the rate in 10^9 bytes/s."""
    possible = ctypes.c_int()
    cuda.call("cuDeviceCanAccessPeer", ctypes.byref(possible), target.handle, source.handle)
    direct = bool(possible.value)
    if direct:
        target.enter()
        code = cuda.code("cuCtxEnablePeerAccess", source.context, 0)
        if code == TOO_MANY_PEERS:
            direct = False
        elif code not in (0, PEER_ACCESS_ALREADY_ENABLED):
            raise CudaError(f"cuCtxEnablePeerAccess from GPU {target.ordinal} to GPU {source.ordinal}: error {code}")
    sent, other = PATTERNS[source.ordinal % len(PATTERNS)], 255 - PATTERNS[target.ordinal % len(PATTERNS)]
    source.fill(sent)
    target.fill(other)
    began = 0.0
    for number in range(COPIES + 1):
        if number == 1:
            # The first copy sets things up and is not timed.
            cuda.call("cuCtxSynchronize")
            began = time.monotonic()
        cuda.call(
            "cuMemcpyPeer",
            target.memory,
            target.context,
            source.memory,
            source.context,
            ctypes.c_size_t(COPIED_BYTES),
        )
    source.enter()
    cuda.call("cuCtxSynchronize")
    target.enter()
    cuda.call("cuCtxSynchronize")
    elapsed_s = time.monotonic() - began
    return {
        "from": source.ordinal,
        "to": target.ordinal,
        "p2p": direct,
        "wrong_bytes": target.wrong_bytes(sent),
        "gb_s": round(COPIES * COPIED_BYTES / elapsed_s / 1e9, 1) if elapsed_s > 0 else None,
    }


def watch(command: list[str], limit_s: float) -> dict[str, Any]:
    """Run the child, collect what it says, and end it after `limit_s` seconds whatever it does."""
    seen: dict[str, Any] = {"library_version": "", "gpus": [], "pairs": [], "error": "", "hung": ""}
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    if child.stdout is None:
        raise RuntimeError("the child has no output")
    deadline = time.monotonic() + limit_s
    text, step, done, told = b"", "", False, []
    while time.monotonic() < deadline:
        if not select.select([child.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            break
        piece = os.read(child.stdout.fileno(), 65536)
        if not piece:
            break
        *lines, text = (text + piece).split(b"\n")
        for raw in lines:
            try:
                line = json.loads(raw)
            except ValueError:
                line = None
            if not isinstance(line, dict):
                told.append(raw.decode("utf-8", "replace"))
                continue
            step, done = line.get("step", step), done or "done" in line
            seen["library_version"] = line.get("library_version", seen["library_version"])
            seen["gpus"] += [line["gpu"]] if "gpu" in line else []
            seen["pairs"] += [line["pair"]] if "pair" in line else []
            seen["error"] = line.get("error", seen["error"])
    if done or seen["error"]:
        return seen
    # A process that closed its output may still hang in the driver, on its way out.
    with contextlib.suppress(subprocess.TimeoutExpired):
        code = child.wait(max(0.0, deadline - time.monotonic()))
        words = " ".join(told)[-400:]
        seen["error"] = f"{step or 'the probe'} ended with code {code}: {words or 'it said nothing'}"
        return seen
    seen["hung"] = step or "its start"
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    try:
        child.wait(KILL_S)
    except subprocess.TimeoutExpired:
        # It waits inside the driver. Told as finished, so that Python does not wait for it at its own end.
        child.returncode = -signal.SIGKILL
        seen["unkillable"] = child.pid
    return seen


def main(arguments: list[str]) -> None:
    """Command line."""
    if arguments == [INSIDE]:
        try:
            look()
        except (CudaError, OSError) as error:
            tell(error=str(error))
        return
    here = {"devices": devices(), "nodes": nodes(), "module_version": module_version()}
    sys.stdout.write(
        json.dumps({**here, **watch([sys.executable, os.path.abspath(__file__), INSIDE], float(arguments[0]))})
    )


if __name__ == "__main__":
    main(sys.argv[1:])
