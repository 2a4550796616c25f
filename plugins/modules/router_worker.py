#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: router_worker
short_description: Let an SGLang router send requests to a server, or not
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Adds a server to the workers of a running router, or takes it out, over the router's HTTP API, and reads back that
    it is so. Requests that a server works on when it is taken out go on to their end.
  - Knows the APIs of sglang-router 0.2 and 0.3 (C(/workers)) and of older ones (C(/add_worker)).
  - Works on the running router only. A router that is started again has the workers that it was configured with.
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - Shows the router's workers before and after.
options:
  router_url:
    description: Base URL of the router.
    type: str
    required: true
  url:
    description: Base URL of the server, as the router reaches it.
    type: str
    required: true
  state:
    description:
      - V(present) also waits until the router calls the server healthy. One that it lists and calls unhealthy is taken
        out and added again, once, since a router looks at once at what is added and otherwise only every 60 s.
      - V(absent) is reached once it is not listed. When it was not listed before, a warning says what is.
    type: str
    choices: [present, absent]
    default: present
  root:
    description:
      - Root directory, of a server or a router, on the machine where this runs, whose C(state/secrets.env) holds the
        API key as C(TOKFORGE_API_KEY). The router is asked with it, and told to send it to the server. Left out, there
        is no key.
    type: path
  timeout_s:
    description: How long to wait until it is so, in seconds.
    type: float
    default: 60
seealso:
  - module: tokforge.sglang.server_drain
"""

EXAMPLES = r"""
- name: Send nothing new to this server
  tokforge.sglang.router_worker:
    router_url: http://10.0.0.1:30100
    url: http://10.0.0.2:30000
    state: absent
    root: /opt/sglang

- name: Send to it again
  tokforge.sglang.router_worker:
    router_url: http://10.0.0.1:30100
    url: http://10.0.0.2:30000
    root: /opt/sglang
"""

RETURN = r"""
workers:
  description: URLs of the router's workers now, or in check mode as they would be.
  type: list
  elements: str
  returned: success
  sample: ["http://10.0.0.2:30000"]
router_url:
  description: The router, in the form that is compared.
  type: str
  returned: success
  sample: http://10.0.0.1:30100
url:
  description: The server, in the form that is compared.
  type: str
  returned: success
  sample: http://10.0.0.2:30000
status:
  description: The router's HTTP status, 0 when it did not answer.
  type: int
  returned: when it refused
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import readiness, redact, router_api
from ansible_collections.tokforge.sglang.plugins.module_utils.service import Paths


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "router_url": {"type": "str", "required": True},
            "url": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "root": {"type": "path"},
            "timeout_s": {"type": "float", "default": 60.0},
        },
        supports_check_mode=True,
    )
    given = module.params
    secrets = readiness.read_secrets(Paths(given["root"])) if given["root"] else {}
    key = secrets.get(readiness.API_KEY_NAME, "")
    try:
        call = router_api.caller(given["router_url"], key)
        router = router_api.Router(given["router_url"], call, key, given["timeout_s"])
        result = router_api.settle(router, given["url"], given["state"], module.check_mode)
    except router_api.RouterError as error:
        module.fail_json(**redact.hide_values({"msg": str(error), **error.facts}, secrets.values()))
    for warning in result.pop("warnings"):
        module.warn(redact.hide_values(warning, secrets.values()))
    module.exit_json(**redact.hide_values(result, secrets.values()))


if __name__ == "__main__":
    main()
