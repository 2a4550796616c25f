# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Making a model's directory complete: built-in models, and downloads from a Hugging Face hub.

A directory that this collection makes is complete only while its marker ``model.json`` (written last) names the asked
content and every file it lists is there in full; anything else is made or repaired. Complete means no program is run
and no network is asked.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import builtin_models, hub_fetch
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole
from ansible_collections.tokforge.sglang.plugins.module_utils.model import HUB_ENDPOINT, ModelError, Source

MARKER = "model.json"
SCHEMA_VERSION = 1

#: The server's user must be able to enter, whatever the umask of the play is.
_DIRECTORY_MODE = 0o755

#: Where huggingface_hub keeps notes about a local directory (etags, partial files) that let it go on after an
#: interruption.
_HUB_NOTES = os.path.join(".cache", "huggingface")

#: Partial files of huggingface_hub from 1.30 on carry a random part and are never looked at again after a kill.
_DEAD_PART = re.compile(r"\.[0-9a-f]{8}\.incomplete$")

#: Settings of the caller's environment that would break or redirect a download that we describe completely ourselves.
_NOT_INHERITED = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")


@dataclass(frozen=True)
class Hub:
    """How to reach the hub.

    `python` is the environment's own, which has huggingface_hub; `endpoint` the address; `token` a secret. The last two
    may be empty.
    """

    python: str
    endpoint: str = ""
    token: str = field(default="", repr=False)


def incomplete_because(directory: str, source: Source) -> str | None:
    """Why `directory` is not the complete content that `source` asks for; None when it is."""
    path = os.path.join(directory, MARKER)
    try:
        with open(path, encoding="utf-8") as handle:
            marker = json.load(handle)
        files: dict[str, int] = marker["files"]
        made = (marker["schema_version"], marker["source"], marker["repo_id"], marker["revision"])
        # Without a config nothing can be served, whatever else the marker says.
        if "config.json" not in files or not all(map(is_whole, files.values())):
            raise ValueError(files)
    except FileNotFoundError:
        return "it was never finished" if os.path.isdir(directory) else "it is not there"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return f"its {MARKER} is damaged"
    if made != (SCHEMA_VERSION, source.kind, source.repo_id, source.revision):
        return f"it holds {made[2] or made[1]} {made[3]}"
    wrong = wrong_files(directory, files)
    return f"{wrong[0]} is missing or has the wrong size" if wrong else None


def wrong_files(directory: str, files: Mapping[str, int]) -> list[str]:
    """Names of `files` (name -> bytes) that `directory` lacks or holds with another size, sorted."""
    return sorted(name for name, size in files.items() if _size_or_none(os.path.join(directory, name)) != size)


def provide(
    source: Source, models_dir: str, hub: Hub, min_free_bytes: int = 0, check_mode: bool = False
) -> tuple[str, str | None]:
    """Make the directory of a built-in or hub model complete.

    Gives its path and the reason why something was done (in check mode: would be), None when nothing was. Raises
    ModelError; what was downloaded by then stays, without a marker, for the next try.
    """
    directory = os.path.join(models_dir, source.name)
    reason = incomplete_because(directory, source)
    if reason is None or check_mode:
        return directory, reason
    try:
        _make_directory(models_dir)
        with _locked(models_dir, source.name) as lock:
            reason = incomplete_because(directory, source)
            if reason is not None and source.kind == "builtin":
                _build(source, directory, hub.python, lock)
            elif reason is not None:
                _download(source, directory, hub, min_free_bytes, lock)
    except OSError as error:
        raise ModelError(_io_problem(directory, error), path=directory) from error
    return directory, reason


@contextmanager
def _locked(models_dir: str, name: str) -> Iterator[int]:
    """Keep a second play from making the same model at once.

    The children inherit the lock, so it lasts as long as they do.
    """
    descriptor = os.open(os.path.join(models_dir, f".{name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ModelError(
                f"cannot provide model {name} in {models_dir}: another play is doing so right now; run again when it"
                " has ended"
            ) from None
        yield descriptor
    finally:
        os.close(descriptor)


def _build(source: Source, directory: str, python: str, lock: int) -> None:
    """Make a built-in model beside its place and move it there as a whole."""
    partial = f"{directory}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    _make_directory(partial)
    done = _run(python, _source_of(builtin_models), [partial, source.name], _child_environment(), lock)
    if done.returncode:
        raise ModelError(
            f"cannot make model {source.name} in {directory}: {python} ended with {done.returncode}"
            f" ({_last_line(done.stderr)}); the environment needs the tokenizers package",
            path=directory,
        )
    files = {name: os.stat(os.path.join(partial, name)).st_size for name in os.listdir(partial)}
    for name in files:
        os.chmod(os.path.join(partial, name), 0o644)
    _finish(partial, source, files)
    shutil.rmtree(directory, ignore_errors=True)
    os.rename(partial, directory)


def _download(source: Source, directory: str, hub: Hub, min_free_bytes: int, lock: int) -> None:
    """Fetch what a hub repository has and `directory` has not, as far as the disk allows."""
    request = {"repo_id": source.repo_id or "", "revision": source.revision or ""}
    listing = _ask_hub({"action": "list", **request}, hub, directory, lock)["files"]
    files = _checked_listing(listing, source)
    wrong = wrong_files(directory, files)
    room_or_raise(directory, sum(files[name] for name in wrong), min_free_bytes)
    _make_directory(directory)
    _unlink_quietly(os.path.join(directory, MARKER))
    _drop_dead_parts(directory)
    for name in wrong:
        # huggingface_hub trusts its notes: a file that it once finished is never looked at again, so a cut one would
        # stay.
        _unlink_quietly(os.path.join(directory, name))
    if wrong:
        _ask_hub({"action": "fetch", **request, "directory": directory}, hub, directory, lock)
    still = wrong_files(directory, files)
    if still:
        raise ModelError(
            f"cannot finish model {source.repo_id} in {directory}: after the download {still[0]} is missing or is not"
            f" of {files[still[0]]} bytes; run again",
            path=directory,
            wrong_files=still,
        )
    shutil.rmtree(os.path.join(directory, ".cache", "xet"), ignore_errors=True)
    _finish(directory, source, files)


def _checked_listing(listing: Mapping[str, Any], source: Source) -> dict[str, int]:
    """The hub's answer as name -> bytes. Raises ModelError for what cannot be served, before anything is downloaded."""
    if "config.json" not in listing:
        raise ModelError(
            f"cannot use model {source.repo_id}: the repository has no config.json at {source.revision}, so SGLang"
            " cannot serve it; choose a repository in the transformers layout",
            files=sorted(listing)[:20],
        )
    for name, size in listing.items():
        if name == MARKER or name.startswith("/") or ".." in name.split("/") or name.split("/")[0] == ".cache":
            raise ModelError(
                f"cannot download {source.repo_id}: its file {name!r} would be in the way of what this collection"
                " keeps there; use another repository, or download it yourself and give the directory",
                file=name,
            )
        if not isinstance(size, int):
            raise ModelError(
                f"cannot download {source.repo_id}: the hub gives no size for {name!r}; check sglang_hub_endpoint",
                file=name,
            )
    return dict(listing)


def room_or_raise(directory: str, need_bytes: int, min_free_bytes: int) -> None:
    """Raise ModelError unless `need_bytes` fit beside `directory` and leave `min_free_bytes` free."""
    place = directory
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    free_bytes = shutil.disk_usage(place).free
    if need_bytes and free_bytes < need_bytes + min_free_bytes:
        raise ModelError(
            f"cannot download to {directory}: {gigabytes(need_bytes)} still to come and {gigabytes(min_free_bytes)}"
            f" to stay free do not fit into the {gigabytes(free_bytes)} free at {place}; free space, or set"
            " sglang_models_dir to another file system",
            path=directory,
            need_bytes=need_bytes,
            free_bytes=free_bytes,
            min_free_bytes=min_free_bytes,
        )


def gigabytes(count: int) -> str:
    """A number of bytes for people, in decimal GB as disks and the hub count them."""
    return f"{count / 1e9:.2f} GB"


def _finish(directory: str, source: Source, files: Mapping[str, int]) -> None:
    marker = {
        "schema_version": SCHEMA_VERSION,
        "source": source.kind,
        "repo_id": source.repo_id,
        "revision": source.revision,
        "files": dict(files),
    }
    write_atomic(os.path.join(directory, MARKER), (json.dumps(marker, indent=2, sort_keys=True) + "\n").encode())


def _drop_dead_parts(directory: str) -> None:
    for folder, _folders, names in os.walk(os.path.join(directory, _HUB_NOTES, "download")):
        for name in names:
            if _DEAD_PART.search(name):
                _unlink_quietly(os.path.join(folder, name))


# --- programs run by the environment's Python -------------------------------------------------------------------------


def _ask_hub(request: Mapping[str, str], hub: Hub, directory: str, lock: int) -> dict[str, Any]:
    done = _run(hub.python, _source_of(hub_fetch), [json.dumps(request)], _hub_environment(hub, directory), lock)
    try:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        answer = {"error": "crashed", "detail": f"exit status {done.returncode}, {_last_line(done.stderr)}"}
    if "error" in answer:
        detail = answer["detail"].replace(hub.token, "***") if hub.token else answer["detail"]
        raise ModelError(
            hub_problem(answer["error"], request, hub, directory, detail), reason=answer["error"], detail=detail
        )
    return answer


def hub_problem(kind: str, request: Mapping[str, str], hub: Hub, directory: str, detail: str) -> str:
    """The message for a failure of the hub's; `kind` as in hub_fetch.classify, or crashed."""
    repo_id, endpoint = request["repo_id"], hub.endpoint or HUB_ENDPOINT
    to_whom = " to the token in sglang_hub_token" if hub.token else ""
    why = {
        "gated": f"it is gated; accept its terms at {endpoint}/{repo_id} and set sglang_hub_token to a token of that"
        " account",
        "refused": f"{endpoint} refuses it{to_whom}; check the name, and for a private or gated repository set"
        " sglang_hub_token to a token that may read it",
        "no_repository": f"{endpoint} has no such repository; check the name, and set sglang_hub_token when it is"
        " private",
        "no_revision": f"it has no commit {request['revision']}; check the revision",
        "disk_full": "the disk ran full on the way; free space and run again, what is complete by now is kept",
        "unreachable": f"{endpoint} cannot be reached; check the network, the proxy variables and sglang_hub_endpoint,"
        " then run again, what is complete by now is kept",
    }
    said = why.get(kind, "the download program failed; see detail, then run again")
    return f"cannot download {repo_id} to {directory}: {said} ({detail.splitlines()[0] if detail else kind})"


def _run(
    python: str, source: str, arguments: list[str], env: Mapping[str, str], lock: int
) -> subprocess.CompletedProcess[str]:
    """Run a program text in `python`, apart from the caller's PYTHON* settings and user packages. Raises ModelError."""
    try:
        return subprocess.run(
            [python, "-I", "-", *arguments],
            input=source,
            env=dict(env),
            capture_output=True,
            text=True,
            check=False,
            pass_fds=(lock,),
        )
    except OSError as error:
        raise ModelError(
            f"cannot run {python}: {error.strerror}; install the environment first (role sglang_install)", python=python
        ) from error


def _source_of(module: Any) -> str:
    """The text of one of our files.

    On a target it lies in the zip that Ansible sent, so only its loader can read it.
    """
    source: str = module.__loader__.get_source(module.__name__)
    return source


def _child_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}


def _hub_environment(hub: Hub, directory: str) -> dict[str, str]:
    env = _child_environment()
    env.update(
        HF_HUB_DISABLE_PROGRESS_BARS="1",
        HF_HUB_DISABLE_TELEMETRY="1",
        HF_XET_CACHE=os.path.join(directory, ".cache", "xet"),
    )
    if hub.endpoint:
        env["HF_ENDPOINT"] = hub.endpoint
    if hub.token:
        env["HF_TOKEN"] = hub.token
    return env


def _io_problem(directory: str, error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return f"cannot write model directory {directory}: the disk is full; free space and run again"
    return (
        f"cannot write model directory {directory}: {error.strerror} ({error.filename}); make it writable, or set"
        " sglang_models_dir"
    )


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no output"


def _size_or_none(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except OSError:
        return None


def _make_directory(path: str) -> None:
    """Make a directory that the server's user can enter, whatever the umask; one that is there is left as it is."""
    if not os.path.isdir(path):
        os.makedirs(path)
        os.chmod(path, _DIRECTORY_MODE)


def _unlink_quietly(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
