# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at this machine's GPUs: nvidia-smi, the kernel module, the device files and the PCI bus.

Reading only, and never an exception: what could not be read is in the report's state, message, remedy and notes. All
questions are asked at once, since each start of nvidia-smi takes up to some seconds on a machine with many GPUs.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import IO

from ansible_collections.tokforge.sglang.plugins.module_utils import gpu, gpu_text, gpu_topology, gpu_xml
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import PciDevice, Report

#: Runs a command with a time limit in seconds: its exit code, standard output and standard error. Raises TimeoutError
#: when it does not end, FileNotFoundError when there is no such program, another OSError when it cannot be run.
Run = Callable[[Sequence[str], float], "tuple[int, bytes, bytes]"]

QUERY = ("nvidia-smi", "-q", "-x")
CAPABILITIES = ("nvidia-smi", "--query-gpu=pci.bus_id,compute_cap", "--format=csv,noheader")
TOPOLOGY = ("nvidia-smi", "topo", "-m")
P2P_READ = ("nvidia-smi", "topo", "-p2p", "r")
P2P_WRITE = ("nvidia-smi", "topo", "-p2p", "w")
LICENSE = ("modinfo", "-F", "license", "nvidia")

#: Where nvidia-smi and modinfo are when the PATH of a session without login does not say.
_MORE_PATH = (
    "/usr/local/bin",
    "/usr/bin",
    "/bin",
    "/usr/sbin",
    "/sbin",
    "/usr/lib/wsl/lib",
    "/run/current-system/sw/bin",
)

#: A killed command is waited for this long. One that hangs in the kernel does not end even then, and is left behind.
_KILL_S = 1.0

_NVIDIA = "0x10de"

_MODULE_VERSION = re.compile(r"Kernel Module(?: for \S+)?\s+([0-9][0-9.]*)")


@dataclass(frozen=True)
class Places:
    """Where the kernel tells things; other directories in tests."""

    proc: str = "/proc"
    sys: str = "/sys"
    dev: str = "/dev"
    libraries: tuple[str, ...] = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")


@dataclass(frozen=True)
class _Answer:
    """What a command wrote, or in words why it has no answer."""

    code: int = 0
    out: bytes = b""
    err: bytes = b""
    failure: Report | None = None

    @property
    def text(self) -> str:
        """The text of a command that went well, "" otherwise."""
        return self.out.decode("utf-8", "replace") if self.failure is None and self.code == 0 else ""

    def why(self, otherwise: str) -> str:
        """Why there is no text, or `otherwise` when there is one that says nothing."""
        if self.failure is not None:
            return self.failure.message
        said = gpu_text.short(f"{self.out.decode('utf-8', 'replace')} {self.err.decode('utf-8', 'replace')}")
        return f"it ended with code {self.code}: {said}" if self.code else otherwise


def run_command(command: Sequence[str], timeout_s: float) -> tuple[int, bytes, bytes]:
    """Run a program as `Run` describes. Output beyond what gpu_xml reads is cut off."""
    path = os.pathsep.join([os.environ.get("PATH", ""), *_MORE_PATH]).lstrip(os.pathsep)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        # Files and not pipes: waiting for the end of a pipe would wait for a process that cannot be killed.
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env={**os.environ, "PATH": path},
            start_new_session=True,
        )
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            try:
                process.wait(_KILL_S)
            except subprocess.TimeoutExpired:
                # It waits inside the driver. Told as finished, so that Python does not speak of it at its own end.
                process.returncode = -signal.SIGKILL
            raise TimeoutError(f"{command[0]} did not end within {timeout_s:g} s") from None
        return code, _start(out), _start(err)


def _start(stream: IO[bytes]) -> bytes:
    stream.seek(0)
    return stream.read(gpu_xml.MAX_BYTES + 1)


def look(run: Run = run_command, places: Places | None = None, timeout_s: float = 10) -> Report:
    """The report on this machine's GPUs. Takes at most about `timeout_s` seconds, twice that when a GPU is lost."""
    at = places or Places()
    commands = (QUERY, CAPABILITIES, TOPOLOGY, P2P_READ, P2P_WRITE, LICENSE)
    with ThreadPoolExecutor(len(commands)) as pool:
        answers = dict(zip(commands, pool.map(lambda command: _ask(run, command, timeout_s), commands)))
    report = _report(answers[QUERY])
    if report.state == gpu.LOST:
        report = _with_others(report, run, at, timeout_s)
    report = _with_machine(report, at, answers[LICENSE].text)
    report = gpu.with_capabilities(report, gpu.parse_capabilities(answers[CAPABILITIES].text))
    return _with_connections(report, at, answers[TOPOLOGY], answers[P2P_READ], answers[P2P_WRITE])


def recorded(xml: bytes, topology: bytes | None = None, p2p: bytes | None = None) -> Report:
    """The report on outputs that were recorded: of `nvidia-smi -q -x`, `topo -m` and `topo -p2p r`."""
    report = gpu.with_capabilities(gpu_xml.read(xml), {})
    none = _Answer(failure=Report(gpu.NO_TOOL, "it was not recorded"))
    table, read = (none if out is None else _Answer(out=out) for out in (topology, p2p))
    return _with_connections(report, None, table, read, none)


def _ask(run: Run, command: Sequence[str], timeout_s: float) -> _Answer:
    try:
        return _Answer(*run(command, timeout_s))
    except TimeoutError:
        return _Answer(failure=gpu_text.not_ended(" ".join(command), timeout_s))
    except FileNotFoundError:
        return _Answer(failure=gpu_text.no_tool())
    except OSError as error:
        return _Answer(failure=gpu_text.cannot_run(error.strerror or str(error)))


def _report(answer: _Answer) -> Report:
    return answer.failure or gpu_xml.read(answer.out, answer.err, answer.code)


def _with_others(report: Report, run: Run, at: Places, timeout_s: float) -> Report:
    """Ask for each GPU alone: some versions stop listing at the first one that does not answer."""
    # nvidia-smi numbers GPUs by their bus ids.
    bus_ids = _listed(os.path.join(at.proc, "driver/nvidia/gpus"))
    have = {one.bus_id: one for one in report.gpus}
    missing = [bus_id for bus_id in bus_ids if bus_id not in have]
    if not missing:
        return report
    with ThreadPoolExecutor(len(missing)) as pool:
        answers = list(pool.map(lambda bus_id: _report(_ask(run, (*QUERY, "-i", bus_id), timeout_s)), missing))
    for answer in answers:
        have.update({one.bus_id: one for one in answer.gpus})
        report = replace(
            report,
            driver_version=report.driver_version or answer.driver_version,
            cuda_version=report.cuda_version or answer.cuda_version,
        )
    gpus = [replace(have[bus_id], index=index) for index, bus_id in enumerate(bus_ids) if bus_id in have]
    silent = [bus_id for bus_id in bus_ids if bus_id not in have or have[bus_id].problem]
    said = report.message.partition(";")[0]
    good = len(bus_ids) - len(silent)
    told = (
        f"of {len(bus_ids)} GPUs {good} answer, and {', '.join(silent)} does not" if silent else "asked alone, all do"
    )
    return replace(report, gpus=tuple(gpus), message=f"{said}; {told}")


def _with_machine(report: Report, at: Places, license_: str) -> Report:
    """The report with the kernel module's kind and version, device files and the PCI bus."""
    version_text = _text(os.path.join(at.proc, "driver/nvidia/version"))
    found = _MODULE_VERSION.search(version_text)
    version = found[1] if found else _text(os.path.join(at.sys, "module/nvidia/version")).strip()
    loaded = _taint(_text(os.path.join(at.proc, "modules")))
    report = replace(
        report,
        driver_version=version or report.driver_version,
        kernel_module=module_kind(version_text, loaded, license_),
        pci=_pci(at),
        allowed_cpus=_allowed_cpus(at),
        missing_nodes=_missing_nodes(at) if version or loaded is not None else (),
    )
    if report.state == gpu.MISMATCH:
        return _with_library(report, at, version)
    if report.state == gpu.NO_DEVICE and report.kernel_module == gpu.PROPRIETARY and report.blackwell:
        message, remedy = gpu_text.closed_module(report.driver_version)
        return replace(report, message=f"{report.message}: {message}", remedy=remedy)
    if report.state == gpu.NO_DEVICE and report.missing_nodes:
        words = ", ".join(report.missing_nodes)
        return replace(
            report,
            message=f"{report.message}; missing here: {words}",
            remedy="in a container pass these device files and allow them in its device cgroup; on the host make them "
            "with `nvidia-modprobe -c 0 -u`",
        )
    return report


def _with_library(report: Report, at: Places, version: str) -> Report:
    """The report of a mismatch with both versions. NVML tells only two parts of its own, and old ones none."""
    names = [name for directory in at.libraries for name in _listed(directory)]
    files = [found[1] for name in names if (found := re.fullmatch(r"libnvidia-ml\.so\.([0-9]+(?:\.[0-9]+)+)", name))]
    told = report.library_version
    library = next((one for one in files if one == told or one.startswith(f"{told}.") or not told), told)
    return replace(
        report,
        library_version=library,
        message=f"the NVIDIA library has version {library or 'unknown'} and the loaded kernel module has "
        f"{version or 'unknown'}",
        remedy=f"{report.remedy} ({version})" if version else report.remedy,
    )


def module_kind(version_text: str, taint: str | None, license_: str) -> str:
    """Open or proprietary, from the first that tells it.

    :param version_text: /proc/driver/nvidia/version; only the open module calls itself so there.
    :param taint: flags of the module in /proc/modules, None when it is not loaded; P is a proprietary licence.
    :param license_: of the installed module, as modinfo prints it: NVIDIA, or Dual MIT/GPL for the open one.
    """
    if "Kernel Module" in version_text:
        return gpu.OPEN if "Open Kernel Module" in version_text else gpu.PROPRIETARY
    if taint:
        return gpu.PROPRIETARY if "P" in taint else gpu.OPEN
    return {"NVIDIA": gpu.PROPRIETARY, "Dual MIT/GPL": gpu.OPEN}.get(license_.strip(), gpu.UNKNOWN)


def _with_connections(report: Report, at: Places | None, topology: _Answer, read: _Answer, write: _Answer) -> Report:
    """The report with links, NUMA nodes and P2P, and notes on those of them that nobody told."""
    table = gpu_topology.parse_topology(topology.text)
    nodes = {one.bus_id: node for one in report.gpus if at and (node := _numa_node(at, one.bus_id)) is not None}
    report = gpu.with_topology(report, table, nodes)
    reads = gpu_topology.parse_p2p(read.text)
    report = gpu.with_p2p(report, reads, gpu_topology.parse_p2p(write.text))
    if report.state != gpu.OK or len(report.gpus) < 2:
        return report
    notes = []
    if table.problem:
        notes.append(
            f"how the GPUs are connected is not known, from `{' '.join(TOPOLOGY)}`: {topology.why(table.problem)}"
        )
    if not reads:
        why = read.why("no table of GPUs in its output")
        notes.append(f"whether P2P works between the GPUs is not known, from `{' '.join(P2P_READ)}`: {why}")
    return gpu.noted(report, notes)


def _text(path: str) -> str:
    """A small file's text, "" when it is not there or may not be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(1 << 20)
    except OSError:
        return ""


def _listed(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def _taint(modules: str) -> str | None:
    """Taint flags of the loaded module nvidia, None when it is not loaded: the last word of its line, (POE)."""
    for line in modules.splitlines():
        words = line.split()
        if words and words[0] == "nvidia":
            return words[-1].strip("()") if words[-1].startswith("(") else ""
    return None


def _pci(at: Places) -> tuple[PciDevice, ...]:
    """NVIDIA's display controllers (PCI class 3) on the bus."""
    root = os.path.join(at.sys, "bus/pci/devices")
    found = []
    for name in _listed(root):
        vendor, kind, device = (_text(os.path.join(root, name, key)).strip() for key in ("vendor", "class", "device"))
        if vendor == _NVIDIA and kind.startswith("0x03") and re.fullmatch(r"0x[0-9a-f]{1,4}", device):
            found.append(PciDevice(name, int(device, 16)))
    return tuple(found)


def _numa_node(at: Places, bus_id: str) -> int | None:
    """The node of a PCI device; the kernel writes -1 for a machine that does not say."""
    text = _text(os.path.join(at.sys, "bus/pci/devices", bus_id, "numa_node")).strip() if bus_id else ""
    return int(text) if re.fullmatch(r"[0-9]{1,4}", text) else None


def _missing_nodes(at: Places) -> tuple[str, ...]:
    """Device files that CUDA opens and that are not there: for all GPUs together, and for each that the driver has."""
    gpus = os.path.join(at.proc, "driver/nvidia/gpus")
    minors = [
        found[1]
        for name in _listed(gpus)
        if (found := re.search(r"Device Minor:\s*([0-9]{1,4})", _text(os.path.join(gpus, name, "information"))))
    ]
    names = ["nvidiactl", "nvidia-uvm", *(f"nvidia{minor}" for minor in minors or ["0"])]
    return tuple(f"/dev/{name}" for name in names if not os.path.exists(os.path.join(at.dev, name)))


def _allowed_cpus(at: Places) -> str:
    """The CPUs that a process here may run on, after cpusets of containers: Cpus_allowed_list of our own status."""
    found = re.search(r"^Cpus_allowed_list:\s*(\S+)$", _text(os.path.join(at.proc, "self/status")), re.MULTILINE)
    return found[1] if found else ""
