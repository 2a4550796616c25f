#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cuda_toolkit
short_description: Provide a CUDA toolkit for a server, and take back what was provided
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - With O(source=wheel) it builds a whole toolkit in one directory from NVIDIA's wheels, each held against its hash,
    and tries its compiler before it counts. Nothing else on the host is touched.
  - With O(source=repository) packages bring the toolkit. The module notes before (O(state=prepared)) that they will,
    and where C(/usr/local/cuda) points, and looks afterwards (O(state=present)) whether the toolkit is whole.
  - Lets the server find the toolkit, by a link in C(/var/lib/tokforge/cuda). That is what the server's start and the
    checks before a rollout read, so that C(/usr/local/cuda) may point elsewhere.
  - Only what was noted before it was put there is ever removed.
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
    details:
      - Where the packages are not installed because of check mode, the toolkit is taken for good.
  diff_mode:
    support: full
    details:
      - Shows the links, and whether the directory is there.
options:
  state:
    description:
      - V(prepared) notes what is about to come and changes nothing on the host.
      - V(present) provides the toolkit.
      - V(absent) removes directories that were built and links, and forgets what was noted. Packages have to be removed
        before, with M(tokforge.sglang.apt_transaction).
    type: str
    choices: [prepared, present, absent]
    default: present
  source:
    description: Where it comes from. V(none) is for one that is there already, at O(home).
    type: str
    choices: [repository, wheel, none]
    default: repository
  version:
    description: Its version, such as V(13.0). Needed but for O(state=absent).
    type: str
  home:
    description: Its directory. Needed but for O(state=absent); for wheels it is made.
    type: path
  default:
    description:
      - Whether C(/usr/local/cuda) is about to be pointed to it, so that it is noted where it points. It is not
        moved here, see RV(tokforge.sglang.cuda_toolkit_info#module:default_fix).
    type: bool
    default: false
  index:
    description: Where wheels come from.
    type: dict
    default: {}
    suboptions:
      inherit_pip:
        description: Whether to take over the settings of the target's pip.
        type: bool
        default: true
      index_url:
        description: Package index that replaces the default one.
        type: str
      extra_index_urls:
        description: More package indexes.
        type: list
        elements: str
        default: []
      find_links:
        description: Directories of wheels on the target, or pages that link to them.
        type: list
        elements: str
        default: []
  wheelhouse:
    description: Directory of the target with all wheels. No network is used then.
    type: path
  record_dir:
    description: Directory where it is noted what was installed and what there was before.
    type: path
    default: /var/lib/tokforge/host
  system_root:
    description: Directory below which everything is looked at and made. For tests and images.
    type: path
    default: /
notes:
  - RV(ignore:changed) is about the host. That something is noted or forgotten is no change.
  - A toolkit from wheels takes 1.2 GB, and 2.4 GB while it is built.
seealso:
  - module: tokforge.sglang.cuda_toolkit_info
"""

EXAMPLES = r"""
- name: Provide a toolkit where NVIDIA's repository cannot be used
  tokforge.sglang.cuda_toolkit:
    source: wheel
    version: "13.0"
    home: /opt/tokforge/cuda/13.0

- name: Note what there is before packages bring one
  tokforge.sglang.cuda_toolkit:
    state: prepared
    version: "13.0"
    home: /usr/local/cuda-13.0
"""

RETURN = r"""
home:
  description: Directory of the toolkit, for C(CUDA_HOME).
  returned: success and state is not absent
  type: str
  sample: /usr/local/cuda-13.0
removed:
  description: Directories and links that went.
  returned: success and state is absent
  type: list
  elements: str
  sample: [/opt/tokforge/cuda/13.0]
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    previous_values,
    toolkit_choice,
    toolkit_provide,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError


def main() -> None:
    """Arguments, core, result."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["prepared", "present", "absent"], "default": "present"},
            "source": {"type": "str", "choices": list(toolkit_choice.SOURCES), "default": toolkit_choice.REPOSITORY},
            "version": {"type": "str"},
            "home": {"type": "path"},
            "default": {"type": "bool", "default": False},
            "index": {
                "type": "dict",
                "default": {},
                "options": {
                    "inherit_pip": {"type": "bool", "default": True},
                    "index_url": {"type": "str"},
                    "extra_index_urls": {"type": "list", "elements": "str", "default": []},
                    "find_links": {"type": "list", "elements": "str", "default": []},
                },
            },
            "wheelhouse": {"type": "path"},
            "record_dir": {"type": "path", "default": previous_values.RECORD_DIR},
            "system_root": {"type": "path", "default": "/"},
        },
        required_if=[
            ("state", "prepared", ["version", "home"]),
            ("state", "present", ["version", "home"]),
        ],
        supports_check_mode=True,
    )
    params: dict[str, Any] = module.params
    try:
        result = toolkit_provide.run(params, module.check_mode, dict(os.environ))
    except HostError as error:
        module.fail_json(msg=str(error), **error.facts)
    except OSError as error:
        where = error.filename or params["home"] or params["record_dir"]
        module.fail_json(
            msg=f"providing the CUDA toolkit at {where}: {error.strerror or error}; look at that and run again"
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
