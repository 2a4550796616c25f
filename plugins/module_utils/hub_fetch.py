# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The half of a hub download that runs in the environment's Python, where the ``huggingface_hub`` package is.

The module sends this source to that Python (``python -I - REQUEST``), so it imports nothing of this collection. REQUEST
is a JSON object with ``action`` (``list`` or ``fetch``), ``repo_id``, ``revision`` and, for ``fetch``, ``directory``.
The token and the endpoint come through the environment (``HF_TOKEN``, ``HF_ENDPOINT``), never through the arguments.
The last line on standard output is the answer, a JSON object: ``{"files": {name: bytes}}``, ``{}``, or ``{"error":
kind, "detail": text}``.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
import time
from typing import Any

#: How often (seconds) the download looks whether the module that started it still lives.
PARENT_POLL_S = 1.0


def end_with_parent(parent: int) -> None:
    """End this process when `parent` is gone, so that a killed play leaves no download behind that writes unseen."""
    while os.getppid() == parent:
        time.sleep(PARENT_POLL_S)
    os._exit(1)


def list_files(repo_id: str, revision: str) -> dict[str, Any]:
    """Name and size in bytes of every file of the repository at this commit."""
    from huggingface_hub import HfApi

    info = HfApi().model_info(repo_id, revision=revision, files_metadata=True)
    return {"files": {entry.rfilename: entry.size for entry in info.siblings or []}}


def fetch(repo_id: str, revision: str, directory: str) -> dict[str, Any]:
    """Download what is missing into `directory`; files that are there already are kept."""
    from huggingface_hub import snapshot_download

    snapshot_download(repo_id, revision=revision, local_dir=directory)
    return {}


def classify(error: BaseException) -> str:
    """The kind of a failure, one of: gated, refused, no_repository, no_revision, disk_full, unreachable, other.

    By name, because the classes moved between modules in huggingface_hub's releases; and over the whole chain, because
    the download wraps what the hub answered.
    """
    seen: BaseException | None = error
    while seen is not None:
        names = {cls.__name__ for cls in type(seen).__mro__}
        status = getattr(getattr(seen, "response", None), "status_code", None)
        if "GatedRepoError" in names:
            return "gated"
        if "RevisionNotFoundError" in names:
            return "no_revision"
        # The hub answers 401 for a repository that does not exist and for a private one alike.
        if status in (401, 403):
            return "refused"
        if "RepositoryNotFoundError" in names or status == 404:
            return "no_repository"
        if isinstance(seen, OSError) and seen.errno == errno.ENOSPC:
            return "disk_full"
        if names & {"ConnectError", "TimeoutException", "ReadError", "RemoteProtocolError", "ConnectionError"}:
            return "unreachable"
        seen = seen.__cause__ or seen.__context__
    return "other"


def main(request: dict[str, str]) -> dict[str, Any]:
    """Do what `request` asks and give the answer, also for failures."""
    try:
        if request["action"] == "list":
            return list_files(request["repo_id"], request["revision"])
        return fetch(request["repo_id"], request["revision"], request["directory"])
    except Exception as error:  # every failure becomes an answer; the module decides what to say
        return {"error": classify(error), "detail": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True).start()
    sys.stdout.write(json.dumps(main(json.loads(sys.argv[1]))) + "\n")
