#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_info
short_description: Look at the NVIDIA GPUs of a machine
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Says which NVIDIA GPUs the target has and how they are, from C(nvidia-smi), the kernel and the PCI bus.
  - Never fails for what it finds. A missing tool, no device, a GPU that fell off the bus, a driver that does not match
    its library or a hanging C(nvidia-smi) is a RV(state) with a message and a remedy.
  - What the driver does not tell (N/A, not supported, no permission) is V(null) for numbers and empty for texts.
  - Needs nothing of SGLang on the target. Understands the output of driver branches 418 to 595.
extends_documentation_fragment:
  - tokforge.sglang.attributes
  - tokforge.sglang.attributes.info_module
options:
  timeout_s:
    description:
      - Seconds that each question to C(nvidia-smi) may take. All are asked at once.
    type: float
    default: 10
  xml:
    description:
      - Path of a file on the target with the output of C(nvidia-smi -q -x). It is looked at in place of the machine,
        and nothing is run.
    type: path
  topology_text:
    description: Path of a file on the target with the output of C(nvidia-smi topo -m). Needs O(xml).
    type: path
  p2p_text:
    description: Path of a file on the target with the output of C(nvidia-smi topo -p2p r). Needs O(xml).
    type: path
seealso:
  - module: tokforge.sglang.preflight
"""

EXAMPLES = r"""
- name: Look at the GPUs
  tokforge.sglang.gpu_info:
  register: look

- name: Say what is in the way
  ansible.builtin.assert:
    that: look.state == 'ok'
    fail_msg: "{{ look.message }}; {{ look.remedy }}"

- name: Look at what another machine recorded
  tokforge.sglang.gpu_info:
    xml: /var/tmp/nvidia-smi.xml
    topology_text: /var/tmp/topo-m.txt
    p2p_text: /var/tmp/topo-p2p-r.txt
"""

RETURN = r"""
state:
  description:
    - V(ok) when every GPU was read.
    - V(no_tool) when C(nvidia-smi) or its library is not there, V(no_device) when the driver is not loaded or shows no
      GPU here, V(mismatch) when library and kernel module are of different versions, V(lost) when a GPU does not answer
      any more, V(unreadable) when the output is not what C(nvidia-smi) writes, V(timeout) when it does not end.
    - With V(lost) and V(unreadable) the GPUs that could be read are in RV(gpus) all the same.
  returned: success
  type: str
  sample: ok
message:
  description: What RV(state) means on this target, in one sentence.
  returned: success
  type: str
  sample: 8 GPUs
remedy:
  description: What to do about it, empty when there is nothing to do.
  returned: success
  type: str
  sample: ""
driver_version:
  description: Version of the loaded kernel module.
  returned: success
  type: str
  sample: 580.95.05
library_version:
  description: Version of the driver's library where RV(state) is V(mismatch), otherwise empty.
  returned: success
  type: str
  sample: ""
cuda_version:
  description: Newest CUDA version that the driver supports.
  returned: success
  type: str
  sample: "13.0"
kernel_module:
  description: Whether the kernel module is V(open) or V(proprietary), or V(unknown).
  returned: success
  type: str
  sample: open
gpus:
  description:
    - The GPUs in the order of C(nvidia-smi), which is that of their PCI addresses. Units are in the names.
  returned: success
  type: list
  elements: dict
  contains:
    index:
      description: Number that C(nvidia-smi) gives it.
      type: int
    name:
      description: Product name.
      type: str
    bus_id:
      description: PCI address as the kernel writes it.
      type: str
    uuid:
      description: UUID, empty in some virtual machines.
      type: str
    architecture:
      description: Name of the architecture.
      type: str
    compute_capability:
      description: Compute capability, from the driver or for old ones from the model's name.
      type: str
    capability_source:
      description: V(driver), V(name), or empty where it is not known.
      type: str
    memory_total_bytes:
      description: All memory.
      type: int
    memory_reserved_bytes:
      description: Memory that driver and firmware keep.
      type: int
    memory_used_bytes:
      description: Memory in use.
      type: int
    memory_free_bytes:
      description: Free memory.
      type: int
    memory_bandwidth_bytes_s:
      description: Peak bandwidth of the model, V(null) for one that this collection does not know.
      type: int
    persistence:
      description: Whether persistence mode is on.
      type: bool
    performance_state:
      description: P0 (fastest) to P15.
      type: str
    utilization_percent:
      description: Share of the time in which it worked.
      type: int
    temperature_c:
      description: Temperature.
      type: int
    power_draw_w:
      description: Power it draws.
      type: float
    power_limit_w:
      description: Power it may draw.
      type: float
    power_default_w:
      description: What the limit is by default.
      type: float
    power_min_w:
      description: Lowest limit that can be set.
      type: float
    power_max_w:
      description: Highest limit that can be set.
      type: float
    clock_graphics_mhz:
      description: Clock now.
      type: int
    clock_sm_mhz:
      description: Clock now.
      type: int
    clock_memory_mhz:
      description: Clock now.
      type: int
    clock_graphics_max_mhz:
      description: Highest clock.
      type: int
    clock_sm_max_mhz:
      description: Highest clock.
      type: int
    clock_memory_max_mhz:
      description: Highest clock.
      type: int
    pcie_gen_now:
      description: PCIe generation now. It falls while the GPU idles.
      type: int
    pcie_gen_max:
      description: PCIe generation that GPU and slot can do together.
      type: int
    pcie_gen_device_max:
      description: PCIe generation that the GPU can do.
      type: int
    pcie_gen_host_max:
      description: PCIe generation that the slot can do, V(null) in virtual machines.
      type: int
    pcie_width_now:
      description: PCIe lanes now.
      type: int
    pcie_width_max:
      description: PCIe lanes at most.
      type: int
    numa_node:
      description: NUMA node it is at.
      type: int
    cpu_affinity:
      description: CPUs near it.
      type: str
    ecc:
      description: Whether ECC is on.
      type: bool
    ecc_volatile_uncorrected:
      description: Memory errors since the last reset that ECC could not correct.
      type: int
    ecc_aggregate_uncorrected:
      description: The same since the GPU was made.
      type: int
    remap_pending:
      description: Whether bad memory waits for a reset to be replaced.
      type: bool
    remap_failed:
      description: Whether there is bad memory that cannot be replaced.
      type: bool
    recovery:
      description: What the driver wants done, such as Reset, empty for nothing.
      type: str
    mig:
      description: Whether it is in MIG mode.
      type: bool
    mig_instances:
      description: Its MIG instances, with their ids and memory.
      type: list
      elements: dict
    throttle_reasons:
      description: Active reasons for lower clocks, in the words of C(nvidia-smi). V(gpu_idle) is one.
      type: list
      elements: str
    processes:
      description: Processes with memory on it, as in RV(processes).
      type: list
      elements: dict
    processes_known:
      description: Whether the driver lists processes at all.
      type: bool
    virtualization:
      description: How it is virtualized, empty for not.
      type: str
    fabric_state:
      description: State of the NVSwitch fabric, empty without one.
      type: str
    fabric_status:
      description: Result of its registration there.
      type: str
    problem:
      description: What the driver says in place of values for a GPU that does not answer, empty for one that does.
      type: str
processes:
  description:
    - Processes with memory on a GPU, as far as they are seen from here. A container sees few or none of the others'.
    - Values of secret-looking arguments are hidden in their names. V(null) as RV(processes[].memory_bytes) is an
      unknown share.
  returned: success
  type: list
  elements: dict
  contains:
    gpu:
      description: Number of the GPU.
      type: int
      sample: 0
    pid:
      description: Process id.
      type: int
      sample: 4242
    name:
      description: Name or command line, cut to 120 signs.
      type: str
      sample: sglang::scheduler_TP0
    memory_bytes:
      description: Its memory on this GPU.
      type: int
      sample: 79678144512
    kind:
      description: C for compute, G for graphics, M for MPS, or several of them.
      type: str
      sample: C
links:
  description: How each two GPUs are connected, in the words of C(nvidia-smi topo -m).
  returned: success
  type: list
  elements: dict
  sample: [{"first": 0, "second": 1, "kind": NV18}]
p2p:
  description:
    - Whether each two GPUs can read and write each other's memory, in the words of C(nvidia-smi topo -p2p). Empty
      where it is not told.
  returned: success
  type: list
  elements: dict
  sample: [{"first": 0, "second": 1, "read": OK, "write": OK}]
missing_nodes:
  description: Device files that CUDA opens and that are not there although the driver is loaded.
  returned: success
  type: list
  elements: str
  sample: []
pci:
  description: NVIDIA GPUs on the PCI bus, with or without a driver. A container can see more of them than it may use.
  returned: success
  type: list
  elements: dict
  sample: [{"bus_id": "0000:01:00.0", "device_id": 11189}]
allowed_cpus:
  description: CPUs that processes may use here.
  returned: success
  type: str
  sample: 0-95
notes:
  description: What could not be read beside that, in words.
  returned: success
  type: list
  elements: str
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import gpu_look, gpu_xml


def recording(module: AnsibleModule, name: str) -> bytes | None:
    """What the file of an option holds, None without one; fails the module when it cannot be read."""
    path = module.params[name]
    if path is None:
        return None
    try:
        with open(path, "rb") as stream:
            return stream.read(gpu_xml.MAX_BYTES + 1)
    except OSError as exc:
        module.fail_json(msg=f"reading {name} {path}: {exc.strerror}; give the path of a file on the target", path=path)
    return None


def main() -> None:
    """Look once; never changes anything."""
    module = AnsibleModule(
        argument_spec={
            "timeout_s": {"type": "float", "default": 10},
            "xml": {"type": "path"},
            "topology_text": {"type": "path"},
            "p2p_text": {"type": "path"},
        },
        required_by={"topology_text": ["xml"], "p2p_text": ["xml"]},
        supports_check_mode=True,
    )
    timeout_s = module.params["timeout_s"]
    if not 0 < timeout_s <= 600:
        module.fail_json(msg=f"timeout_s is {timeout_s}; give seconds above 0 and up to 600")
    xml = recording(module, "xml")
    if xml is None:
        report = gpu_look.look(timeout_s=timeout_s)
    else:
        report = gpu_look.recorded(xml, recording(module, "topology_text"), recording(module, "p2p_text"))
    module.exit_json(changed=False, **report.as_dict())


if __name__ == "__main__":
    main()
