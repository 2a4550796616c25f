# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stands for ssh to this machine. While the file that TOKFORGE_DROPPED names is there, it has no connection.

A new connection fails at once; one that is open ends, as ssh ends (255), and leaves its command running.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

NO_CONNECTION = 255
dropped = os.environ["TOKFORGE_DROPPED"]
if os.path.exists(dropped):
    sys.stderr.write("ssh: connect to host localhost port 22: Connection timed out\n")
    sys.exit(NO_CONNECTION)
command = subprocess.Popen(["/bin/sh", "-c", sys.argv[-1]], start_new_session=True)
while command.poll() is None:
    if os.path.exists(dropped):
        sys.stderr.write("client_loop: send disconnect: Broken pipe\n")
        sys.stderr.flush()
        os._exit(NO_CONNECTION)
    time.sleep(0.01)
sys.exit(command.returncode)
