#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cuda_toolkit_info
short_description: Decide which CUDA toolkit a host is to have, and how it gets there
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Looks at the GPUs, the driver and the toolkits that are there, and says which version FlashInfer's kernels for the
    SGLang release are to be compiled with, and which packages bring it.
  - With O(version=auto) it is the CUDA that the release's lane is built for, or a newer one of the same major version
    where the GPUs need it. A toolkit that is there and fits is taken as it is.
  - A version that is asked for and cannot work here (too old for the GPUs, too new for the driver, not to be had from
    the source) is a failure. A GPU or driver that cannot be asked is none; RV(reasons) says so.
  - Says also what has to be done so that C(/usr/local/cuda) points to where it is to point.
extends_documentation_fragment:
  - tokforge.sglang.attributes
  - tokforge.sglang.attributes.info_module
options:
  state:
    description:
      - Whether a toolkit is to be there. With V(absent) only RV(default_fix) is told, once the packages are gone.
    type: str
    choices: [present, absent]
    default: present
  version:
    description: Version to have, such as V(12.9), or V(auto).
    type: str
    default: auto
  source:
    description:
      - Where it is to come from. V(repository) is NVIDIA's package repository, V(wheel) are the wheels on PyPI.
      - V(none) takes what is there.
    type: str
    choices: [repository, wheel, none]
    default: repository
  sglang_version:
    description: SGLang release that is to run, V(auto) for the newest that is locked.
    type: str
    default: auto
  lane:
    description: Its lane, such as V(cuda13), V(auto) for the newest that the driver runs.
    type: str
    default: auto
  driver_version:
    description: Driver to reckon with, such as V(580.95.05), where it does not run yet. Left out, the one that runs.
    type: str
  default:
    description: Whether C(/usr/local/cuda) is to point to it.
    type: bool
    default: false
  root:
    description: Directory of toolkits that are built from wheels, one below it for each version.
    type: path
    default: /opt/tokforge/cuda
  record_dir:
    description: Directory where it is noted what was installed and what there was before.
    type: path
    default: /var/lib/tokforge/host
  system_root:
    description: Directory below which the machine's files are looked at. For tests and images.
    type: path
    default: /
seealso:
  - module: tokforge.sglang.cuda_toolkit
  - module: tokforge.sglang.gpu_info
"""

EXAMPLES = r"""
- name: Which toolkit does SGLang 0.5.23 need here?
  tokforge.sglang.cuda_toolkit_info:
    sglang_version: 0.5.23
  register: toolkit

- name: Say it
  ansible.builtin.debug:
    msg: "{{ toolkit.version }}: {{ toolkit.reasons | join('; ') }}"
"""

RETURN = r"""
version:
  description: Version to have, empty when none is needed or nothing of the kind is known.
  returned: success
  type: str
  sample: "13.0"
reasons:
  description: Each step that led to it.
  returned: success
  type: list
  elements: str
  sample: ["SGLang 0.5.23 (as asked) with FlashInfer 0.7.2, lane cuda13, is built for 13.0"]
install:
  description: Whether the source has to bring it.
  returned: success
  type: bool
  sample: true
home:
  description: Where it is or will be, empty when there is none and none is to be installed.
  returned: success
  type: str
  sample: /usr/local/cuda-13.0
packages:
  description: Packages of NVIDIA's repository that bring it; empty when the source has not to bring it that way.
  returned: success
  type: list
  elements: str
  sample: [cuda-cccl-13-0, cuda-nvcc-13-0]
compilers:
  description: The distribution's packages of compilers that nvcc needs and that are not there.
  returned: success
  type: list
  elements: str
  sample: [g++]
skipped:
  description: What is not done here, each with C(what) and C(why).
  returned: success
  type: list
  elements: dict
  sample: []
repository:
  description: Whether NVIDIA's package repository is needed, or with O(state=absent) whether the role had it.
  returned: success
  type: bool
  sample: true
default_fix:
  description:
    - What has to be done to C(/usr/local/cuda), as things are now. C(how) is V(none), V(select) or V(drop) an
      alternative named cuda, V(auto) for its automatic mode, V(link) or V(unlink) for a symbolic link; C(path) is the
      toolkit's directory, C(why) a sentence.
  returned: success
  type: dict
  sample: {how: select, path: /usr/local/cuda-12.8, why: /usr/local/cuda pointed to /usr/local/cuda-12.8 before}
toolkits:
  description: The toolkits that are there. C(missing) are headers and libraries that FlashInfer compiles with.
  returned: success
  type: list
  elements: dict
  sample: [{home: /usr/local/cuda-13.0, version: "13.0", origin: installed, missing: [], problem: ""}]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import previous_values, toolkit_choice, toolkit_plan
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError


def main() -> None:
    """Look once; never changes anything."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "version": {"type": "str", "default": toolkit_choice.AUTO},
            "source": {"type": "str", "choices": list(toolkit_choice.SOURCES), "default": toolkit_choice.REPOSITORY},
            "sglang_version": {"type": "str", "default": toolkit_choice.AUTO},
            "lane": {"type": "str", "default": toolkit_choice.AUTO},
            "driver_version": {"type": "str"},
            "default": {"type": "bool", "default": False},
            "root": {"type": "path", "default": toolkit_plan.WHEEL_ROOT},
            "record_dir": {"type": "path", "default": previous_values.RECORD_DIR},
            "system_root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    params: dict[str, Any] = module.params
    try:
        result = toolkit_plan.plan(params)
    except HostError as error:
        module.fail_json(msg=str(error), **error.facts)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
