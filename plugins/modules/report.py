#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: report
short_description: Write a report of recorded benchmarks of several hosts on the controller
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Writes C(report.html) (one file with plots, which loads nothing and needs no script), C(report.md) (for a comment of
    a CI job), C(report.xml) (JUnit) and C(tokforge_sglang.prom) (for the textfile collector of node_exporter) from the
    fact files of several hosts.
  - A host that cannot be reached, has no facts or a damaged fact file is told in the report. It is no failure.
  - The files hold no time of their own. The same facts give the same bytes, and a file is written only when it differs.
  - This is an action plugin. It runs on the controller, asks no host, and needs matplotlib beside Ansible.
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - Plots are left out of the difference.
options:
  dir:
    description: Directory on the controller. It is made when it does not exist.
    type: str
    required: true
  facts:
    description:
      - For each host what M(ansible.builtin.slurp) returned for its fact file. What M(ansible.builtin.stat) returned of
        a file that does not exist, and a task that was skipped, stand for a host without results, one that failed or
        was unreachable for a host of which nobody knows anything.
    type: dict
    required: true
  prometheus:
    description: Where the file for node_exporter goes on the controller. By default C(tokforge_sglang.prom) in O(dir).
    type: str
seealso:
  - module: tokforge.sglang.benchmark
"""

EXAMPLES = r"""
- name: Read the fact file
  ansible.builtin.slurp:
    src: /opt/sglang/facts/sglang.fact
  register: fact_file

- name: Write the report
  tokforge.sglang.report:
    dir: "{{ playbook_dir }}/report"
    facts: "{{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all | map('extract', hostvars, 'fact_file'))) }}"
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
files:
  description: The four files, whether they were written or not.
  type: list
  elements: str
  returned: success
hosts:
  description:
    - Host to its C(state), V(measured), V(empty) (no benchmark is on record) or V(unreadable), and C(why) in the last
      two.
  type: dict
  returned: success
  sample:
    box1: {state: measured, why: ""}
recorded_at:
  description: Time of the newest record, empty when there is none.
  type: str
  returned: success
  sample: "2026-03-15T09:15:23Z"
cases:
  description:
    - Test cases in C(report.xml), C(tests). How many of them are C(failures), C(errors) (hosts that could not be read)
      and C(skipped) (nothing was measured, or the run cannot be compared).
  type: dict
  returned: success
  sample: {tests: 30, failures: 0, errors: 1, skipped: 1}
"""
