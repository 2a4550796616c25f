# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what `nvidia-smi -q -x` writes, of driver branches 418 to 595 (format versions 10 to 13).

Names of elements moved between branches, any value can be N/A or an error text instead, and elements can be missing.
What cannot be read as what it should be is None; what makes a GPU unusable is said in words. The document type that the
real output names is never loaded, and one that declares entities is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from ansible_collections.tokforge.sglang.plugins.module_utils import gpu_text, proc
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import (
    OK,
    UNREADABLE,
    Gpu,
    GpuProcess,
    MigInstance,
    Report,
    normal_bus_id,
)

#: More output than this is not nvidia-smi's: 16 GPUs with all their clocks make 2 MB.
MAX_BYTES = 16 << 20

#: Elements lie at most this deep in each other; the real output goes to 7.
MAX_DEPTH = 40

#: More memory than this in one GPU is a misreading (bytes).
MAX_MEMORY_BYTES = 1 << 44

#: A process name is cut to this length: it is for a person, and may be a whole command line.
MAX_NAME = 120

_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

_NUMBER = re.compile(r"(-?[0-9]{1,12}(?:\.[0-9]{1,9})?)\s*([A-Za-z%/]*)")

#: What XML 1.0 does not allow. Process names can hold it.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")

_BARE_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos);)")

#: What the driver writes in place of values of a GPU that does not answer.
_FAULTS = ("unknown error", "err!", "gpu is lost", "gpu requires reset", "gpu has fallen off the bus")

#: Values that every working GPU has. A fault in one of them is the GPU's, elsewhere it is one reading's.
_VITAL = ("product_name", "fb_memory_usage/total", "fb_memory_usage/used", "temperature/gpu_temp", "performance_state")


class _RefusedError(Exception):
    """The document has what nvidia-smi never writes."""


@dataclass(frozen=True)
class _Document:
    """What was read before the end or the first error: whole GPUs, and why not all ("" for all)."""

    gpus: list[Element]
    values: dict[str, str]
    text: str
    error: str


def read(out: bytes, err: bytes = b"", code: int = 0) -> Report:
    """The report that the output of `nvidia-smi -q -x` is, with GPUs as they are listed.

    :param code: what nvidia-smi ended with. It can be other than 0 with every GPU read (14: a damaged infoROM).
    """
    if len(out) > MAX_BYTES:
        return _unreadable(f"its output has more than {MAX_BYTES >> 20} MiB")
    text = _FORBIDDEN.sub("\ufffd", out.decode("utf-8", "replace"))
    said = err[:MAX_BYTES].decode("utf-8", "replace")
    start = min((at for at in (text.find("<?xml"), text.find("<nvidia_smi_log")) if at >= 0), default=-1)
    if start < 0:
        return gpu_text.explain(f"{text}\n{said}", code)
    body, closing, after = text[start:].partition("</nvidia_smi_log>")
    document = _parse(body + closing)
    gpus, notes = _gpus(document)
    # Its messages stand before the list, in it and after it.
    around = "\n".join((text[:start], document.text, after, said))
    report = Report(
        OK,
        f"{len(gpus)} GPUs",
        driver_version=_known(document.values.get("driver_version", "")),
        cuda_version=_known(document.values.get("cuda_version", "")),
        gpus=tuple(gpus),
        notes=tuple(notes),
    )
    return gpu_text.judge(report, around, code, document.error, _number(document.values.get("attached_gpus", "")))


def _unreadable(why: str) -> Report:
    return Report(UNREADABLE, f"nvidia-smi -q -x: {why}", gpu_text.RUN_IT)


def _parse(text: str) -> _Document:
    """Build each GPU as its element closes, so that what was whole before an error is not lost."""
    gpus: list[Element] = []
    values: dict[str, str] = {}
    loose: list[str] = []
    path: list[str] = []
    builder: list[TreeBuilder] = []
    written: list[str] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        if not path and tag != "nvidia_smi_log":
            raise _RefusedError(f"it begins with the element {tag[:40]} and not with nvidia_smi_log")
        path.append(tag)
        if len(path) > MAX_DEPTH:
            raise _RefusedError(f"more than {MAX_DEPTH} elements lie in each other")
        written.clear()
        if path[1:] == ["gpu"]:
            builder[:] = [TreeBuilder()]
        for tree in builder:
            tree.start(tag, attributes)

    def end(tag: str) -> None:
        for tree in builder:
            tree.end(tag)
        if path[1:] == ["gpu"]:
            gpus.append(builder.pop().close())
        elif len(path) == 2:
            values.setdefault(tag, "".join(written).strip())
        written.clear()
        path.pop()

    def data(piece: str) -> None:
        written.append(piece)
        for tree in builder:
            tree.data(piece)
        if len(path) < 2:
            loose.append(piece)

    def refuse(*_what: object) -> None:
        raise _RefusedError("its document type declares entities")

    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = data
    parser.EntityDeclHandler = refuse
    error = ""
    try:
        parser.Parse("".join(_tidied(text)).encode("utf-8", "replace"), True)
    except _RefusedError as refused:
        error = str(refused)
    except expat.ExpatError as problem:
        error = f"line {problem.lineno}: {expat.ErrorString(problem.code)}"
    finally:
        # The handlers hold the parser and it holds them.
        parser.StartElementHandler = parser.EndElementHandler = parser.CharacterDataHandler = None
        parser.EntityDeclHandler = None
    return _Document(gpus, values, "".join(loose), error)


def _tidied(text: str) -> Iterator[str]:
    """The lines with the signs of process names that would be read as markup written as XML wants them."""
    opening, closing = "<process_name>", "</process_name>"
    for line in text.splitlines(keepends=True):
        first, last = line.find(opening), line.rfind(closing)
        if 0 <= first < last:
            name = line[first + len(opening) : last]
            line = line[: first + len(opening)] + name.replace("<", "&lt;") + line[last:]
            line = _BARE_AMPERSAND.sub("&amp;", line)
        yield line


def _gpus(document: _Document) -> tuple[list[Gpu], list[str]]:
    """The GPUs, each once, and notes about what is wrong with the list."""
    gpus: list[Gpu] = []
    notes: list[str] = []
    seen: set[str] = set()
    for index, element in enumerate(document.gpus):
        one = _gpu(element, len(gpus))
        if one.bus_id and one.bus_id in seen:
            notes.append(f"nvidia-smi lists the GPU at {one.bus_id} more than once; the first one counts")
            continue
        seen.add(one.bus_id)
        gpus.append(one)
        hidden = sum(
            (leaf.text or "").strip(" []\t\r\n").lower() == "insufficient permissions" for leaf in element.iter()
        )
        if hidden:
            notes.append(f"GPU {one.index}: {hidden} values are not told for lack of permission; ask as root")
        if not one.name:
            notes.append(f"GPU {one.index}: nvidia-smi gives it no name (entry {index + 1} of its list)")
    return gpus, notes


def _gpu(element: Element, index: int) -> Gpu:
    power = next(
        (
            section
            for section in (
                element.find(name) for name in ("gpu_power_readings", "power_readings", "module_power_readings")
            )
            if section is not None and _first(section, *_POWER_LIMIT) is not None
        ),
        Element("none"),
    )
    processes = element.find("processes")
    return Gpu(
        index=index,
        name=_text(element, "product_name"),
        bus_id=normal_bus_id(_text(element, "pci/pci_bus_id")) or normal_bus_id(element.get("id", "")),
        uuid=_text(element, "uuid"),
        architecture=_text(element, "product_architecture"),
        memory_total_bytes=_bytes(element, "fb_memory_usage/total"),
        memory_reserved_bytes=_bytes(element, "fb_memory_usage/reserved"),
        memory_used_bytes=_bytes(element, "fb_memory_usage/used"),
        memory_free_bytes=_bytes(element, "fb_memory_usage/free"),
        persistence=_flag(element, "persistence_mode"),
        performance_state=_text(element, "performance_state"),
        utilization_percent=_whole(element, "utilization/gpu_util", "%"),
        temperature_c=_whole(element, "temperature/gpu_temp", "C"),
        power_draw_w=_first(power, "power_draw", "instant_power_draw", "average_power_draw"),
        power_limit_w=_first(power, *_POWER_LIMIT),
        power_default_w=_first(power, "default_power_limit"),
        power_min_w=_first(power, "min_power_limit"),
        power_max_w=_first(power, "max_power_limit"),
        clock_graphics_mhz=_whole(element, "clocks/graphics_clock", "MHz"),
        clock_sm_mhz=_whole(element, "clocks/sm_clock", "MHz"),
        clock_memory_mhz=_whole(element, "clocks/mem_clock", "MHz"),
        clock_graphics_max_mhz=_whole(element, "max_clocks/graphics_clock", "MHz"),
        clock_sm_max_mhz=_whole(element, "max_clocks/sm_clock", "MHz"),
        clock_memory_max_mhz=_whole(element, "max_clocks/mem_clock", "MHz"),
        pcie_gen_now=_whole(element, "pci/pci_gpu_link_info/pcie_gen/current_link_gen"),
        pcie_gen_max=_whole(element, "pci/pci_gpu_link_info/pcie_gen/max_link_gen"),
        pcie_gen_device_max=_whole(element, "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen"),
        pcie_gen_host_max=_whole(element, "pci/pci_gpu_link_info/pcie_gen/max_host_link_gen"),
        pcie_width_now=_whole(element, "pci/pci_gpu_link_info/link_widths/current_link_width", "x"),
        pcie_width_max=_whole(element, "pci/pci_gpu_link_info/link_widths/max_link_width", "x"),
        ecc=_flag(element, "ecc_mode/current_ecc"),
        ecc_volatile_uncorrected=_uncorrected(element.find("ecc_errors/volatile")),
        ecc_aggregate_uncorrected=_uncorrected(element.find("ecc_errors/aggregate")),
        remap_pending=_any_flag(element, "remapped_rows/remapped_row_pending", "retired_pages/pending_retirement"),
        remap_failed=_any_flag(element, "remapped_rows/remapped_row_failure", "ecc_errors/unrepairable_memory"),
        recovery=_recovery(element),
        mig=_flag(element, "mig_mode/current_mig"),
        mig_instances=tuple(_instance(one) for one in element.findall("mig_devices/mig_device")),
        throttle_reasons=_reasons(element),
        processes=tuple(_processes(processes)),
        processes_known=processes is not None and (len(processes) > 0 or not (processes.text or "").strip()),
        virtualization=_text(element, "gpu_virtualization_mode/virtualization_mode"),
        fabric_state=_text(element, "fabric/state"),
        fabric_status=_text(element, "fabric/status"),
        problem=_problem(element),
    )


#: What holds, under the names that branches gave it; where there are two, the first is what is enforced.
_POWER_LIMIT = ("enforced_power_limit", "current_power_limit", "power_limit")


def _raw(element: Element, path: str) -> str:
    """The text at `path` without the brackets of [N/A], "" when it is not there."""
    return (element.findtext(path) or "").strip().strip("[]").strip()


def _known(text: str) -> str:
    """The text, "" where it says that the driver has nothing to tell."""
    plain = text.strip("[]").strip()
    lower = plain.lower()
    nothing = ("n/a", "none", "not found", "insufficient permissions", "not supported", "unknown", "not available")
    if lower in nothing or lower in _FAULTS or lower.startswith("requested functionality"):
        return ""
    return plain[:MAX_NAME]


def _text(element: Element, path: str) -> str:
    return _known(_raw(element, path))


def _number(text: str) -> int | None:
    found = _NUMBER.fullmatch(text.strip())
    return int(float(found[1])) if found and not found[2] else None


def _measure(text: str, *units: str) -> float | None:
    """The number of a text such as "78.46 W" whose unit is one of `units`."""
    found = _NUMBER.fullmatch(text)
    return float(found[1]) if found and found[2] in units else None


def _whole(element: Element, path: str, *units: str) -> int | None:
    value = _measure(_raw(element, path), *(units or ("",)))
    return None if value is None or value < 0 else int(value)


def _bytes(element: Element, path: str) -> int | None:
    found = _NUMBER.fullmatch(_raw(element, path))
    if not found or found[2] not in _UNITS:
        return None
    value = int(float(found[1]) * _UNITS[found[2]])
    return value if 0 <= value <= MAX_MEMORY_BYTES else None


def _first(element: Element, *paths: str) -> float | None:
    """The first of the values in watts that is told."""
    return next((value for path in paths if (value := _measure(_raw(element, path), "W")) is not None), None)


def _flag(element: Element, path: str) -> bool | None:
    return {"enabled": True, "disabled": False, "yes": True, "no": False}.get(_raw(element, path).lower())


def _any_flag(element: Element, *paths: str) -> bool | None:
    told = [flag for flag in (_flag(element, path) for path in paths) if flag is not None]
    return any(told) if told else None


def _uncorrected(section: Element | None) -> int | None:
    """Errors that ECC could not correct. Up to branch 450 they are below double_bit and summed up in `total`."""
    if section is None:
        return None
    counts = [_number(_raw(one, ".")) for one in section if "uncorrectable" in one.tag and len(one) == 0]
    counts.append(_number(_raw(section, "double_bit/total")))
    told = [count for count in counts if count is not None]
    return sum(told) if told else None


def _recovery(element: Element) -> str:
    """What the driver wants done. Branches before 570 have two flags for it."""
    if _flag(element, "gpu_reset_status/reset_required"):
        return "Reset"
    if _flag(element, "gpu_reset_status/drain_and_reset_recommended"):
        return "Drain and Reset"
    return _text(element, "gpu_recovery_action")


def _reasons(element: Element) -> tuple[str, ...]:
    """Active reasons for lower clocks, by the part of their name that all branches share."""
    return tuple(
        one.tag.partition("_reason_")[2]
        for section in ("clocks_event_reasons", "clocks_throttle_reasons")
        for one in element.iterfind(f"{section}/*")
        if "_reason_" in one.tag and _raw(one, ".").lower() == "active"
    )


def _instance(element: Element) -> MigInstance:
    return MigInstance(
        index=_whole(element, "index"),
        gpu_instance_id=_whole(element, "gpu_instance_id"),
        compute_instance_id=_whole(element, "compute_instance_id"),
        memory_total_bytes=_bytes(element, "fb_memory_usage/total"),
        memory_free_bytes=_bytes(element, "fb_memory_usage/free"),
    )


def _processes(section: Element | None) -> Iterator[GpuProcess]:
    """Processes with a pid, each once. Their names may be command lines, so secrets are taken out."""
    seen: set[int] = set()
    for one in section if section is not None else ():
        pid = _whole(one, "pid")
        if pid is None or pid in seen:
            continue
        seen.add(pid)
        name = " ".join(proc.hide_secrets(_raw(one, "process_name").split()))
        yield GpuProcess(pid, name[:MAX_NAME], _bytes(one, "used_memory"), _text(one, "type"))


def _problem(element: Element) -> str:
    """The fault that stands where the GPU's own values should, "" when it answers."""
    for path in _VITAL:
        said = _raw(element, path)
        if any(fault in said.lower() for fault in _FAULTS):
            return said[:MAX_NAME]
    return ""
