# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start the server that <root>/current describes, in place of this process.

    launch.py ROOT

The same file runs under systemd and under supervisor. It reads ROOT/current/launch.json (the link is resolved once, so
a switch
in mid-start cannot mix two releases) and ROOT/state/secrets.env, marks the environment with TOKFORGE_RELEASE and
TOKFORGE_LAUNCH_ID, and becomes the release's own interpreter. Other names that begin with TOKFORGE_ are heeded in
launch.json only, but for those of the two keys in secrets.env.

Tuning results. Every rank keeps FlashInfer's results in a file of its own, and a server in which only some ranks find
theirs can hang. A crash while they are written leaves just that, and it is this file that starts the server again after
a crash. So it makes them consistent (autotune_cache.py beside it) before every start, and does not start without that.

Secrets. SGLang takes its API keys from arguments only (--api-key, --admin-api-key, or a --config file that is turned
into the same
arguments) and logs all of them in one `server_args=` line at start (read in 0.5.12.post1 and 0.5.23). So a server with
secrets is not started as `python -m sglang.launch_server`: the release's interpreter runs this file once more
(`--inside`), which
takes the keys out of the environment, adds them to sys.argv inside the process, where neither ps nor
/proc/<pid>/cmdline shows
them, and replaces every secret value in log records. Without secrets the plain command line runs.

Standard library only; Python 3.9 or newer, and whatever interpreter the release has.
Exit code 78 (EX_CONFIG): the files are not fit to start from; the reason is the only line printed.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import logging
import os
import runpy
import stat
import sys
from typing import Any, NoReturn

EX_CONFIG = 78
INSIDE = "--inside"
# Environment name in secrets.env -> the SGLang flag it becomes.
KEY_FLAGS = {"TOKFORGE_API_KEY": "--api-key", "TOKFORGE_ADMIN_API_KEY": "--admin-api-key"}
# Names of what to hide, handed to the second stage; values stay where they are.
SECRET_NAMES = "TOKFORGE_SECRET_NAMES"  # noqa: S105 (a name)
REDACTED = "<redacted>"
# A shorter value would be found inside ordinary words and numbers of the log.
SHORTEST_SECRET = 8
# Names that the collection decides. From elsewhere only the keys above are taken.
OWN_PREFIX = "TOKFORGE_"
LARGEST_FILE = 16 << 20
LONGEST_LINE = 1500


def tell(line: str) -> None:
    """Write one line to the log. A log that cannot be written is no reason to be down."""
    shown = "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in line)
    if len(shown) > LONGEST_LINE:
        shown = f"{shown[: LONGEST_LINE - 505]} ... {shown[-500:]}"
    if sys.stderr is None:  # it was closed, and something else may have its number now
        return
    with contextlib.suppress(OSError):
        # Not through sys.stderr, which would try once more, and fail, when the interpreter ends.
        os.write(2, (shown + "\n").encode("utf-8"))


def refuse(message: str) -> NoReturn:
    tell("launch.py: " + message)
    sys.exit(EX_CONFIG)


def say(line: str) -> None:
    tell("tokforge: " + line)


def read_regular(descriptor: int, path: str) -> bytes:
    """What is in an open file. It was opened without waiting, so that a pipe in its place is seen here."""
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST_FILE:
            refuse(f"cannot read {path}: it is not a plain file of at most {LARGEST_FILE >> 20} MiB; write it again")
        return stream.read(LARGEST_FILE)


def read_launch(release: str) -> tuple[bytes, dict[str, Any]]:
    path = os.path.join(release, "launch.json")
    try:
        raw = read_regular(os.open(path, os.O_RDONLY | os.O_NONBLOCK), path)
        launch = json.loads(raw)
    except OSError as error:
        refuse(f"cannot read {path}: {error.strerror}; stage and activate a release first")
    except (ValueError, RecursionError) as error:
        refuse(f"{path} is not JSON: {error}; stage the release again")
    if not isinstance(launch, dict) or launch.get("schema_version") != 1 or not isinstance(launch.get("argv"), list):
        refuse(f"{path} has no schema_version 1 with a list argv; stage the release again")
    if not isinstance(launch.get("env") or {}, dict) or not isinstance(launch.get("cwd") or "", str):
        refuse(f"{path} has an env that is no object or a cwd that is no text; stage the release again")
    return raw, launch


def read_secrets(path: str) -> tuple[bytes, dict[str, str]]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return b"", {}
    except OSError as error:
        refuse(f"cannot read {path}: {error.strerror}; it must be a plain file that the server's user can read")
    mode = os.fstat(descriptor).st_mode
    if mode & 0o077:
        refuse(f"{path} has mode {stat.S_IMODE(mode):04o}: others may read secrets; set it to 0600")
    raw = read_regular(descriptor, path)
    secrets = {}
    for number, line in enumerate(raw.decode("utf-8").split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, separator, value = line.partition("=")
        if not separator or not name.isidentifier():
            refuse(f"{path} line {number} is not NAME=value; write the file again")
        if name in KEY_FLAGS or not name.startswith(OWN_PREFIX):
            secrets[name] = value
    return raw, secrets


def settle_autotune_cache(venv: str, arguments: list[str], environment: dict[str, str], cwd: str) -> None:
    """Make the tuning results of this server the same for all ranks, and say so in one line."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "autotune_cache.py")
    # What is compiled would lie beside the launcher; this process loads it once and is replaced.
    sys.dont_write_bytecode = True
    try:
        spec = importlib.util.spec_from_file_location("tokforge_autotune_cache", path)
        if spec is None or spec.loader is None:
            raise ImportError(path)
        core = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = core  # dataclasses look their module up there
        spec.loader.exec_module(core)
    except FileNotFoundError:
        say(f"autotune cache not checked: {path} is missing; run the role sglang_server again")
        return
    except (Exception, SystemExit) as error:
        say(f"autotune cache not checked: {path} cannot be loaded ({error!r}); run the role sglang_server again")
        return
    try:
        line = core.before_start(arguments, environment, venv, cwd)
        if isinstance(line, str):
            say(line)
        elif line is not None:
            raise TypeError(f"{path} gave {line!r}")
    except (Exception, SystemExit) as error:
        # By name: a file that was cut has no such class.
        if type(error).__name__ == "AutotuneCacheError":
            refuse(f"{error}. The server is not started: ranks that disagree about it can wait for each other and hang")
        # A fault in the check is no reason to be down.
        say(f"autotune cache not checked: {error!r}; run the role sglang_server again, the server starts all the same")


def read_build_tools(path: str) -> dict[str, str]:
    """What to compile kernels with on this machine, noted when the start was asked for. Without it the tools choose."""
    if not os.path.isfile(path):
        return {}
    try:
        with open(path, "rb") as stream:
            found = json.loads(stream.read(LARGEST_FILE))
    except (OSError, ValueError, RecursionError):
        return {}
    wanted = ("MAX_JOBS", "CUDA_HOME")
    found = found if isinstance(found, dict) else {}
    return {name: found[name] for name in wanted if isinstance(found.get(name), str) and "\0" not in found[name]}


def with_programs(environment: dict[str, str], venv: str) -> None:
    """Let the server find what it compiles with by name: ninja is in its own environment, nvcc in the toolkit."""
    home = environment.get("CUDA_HOME")
    first = [os.path.join(venv, "bin"), *([os.path.join(home, "bin")] if home else [])]
    rest = [part for part in environment.get("PATH", os.defpath).split(os.pathsep) if part not in first]
    environment["PATH"] = os.pathsep.join([*first, *rest])


def built(marker: str) -> bytes:
    """What says when and from what the environment was built: one that was built anew is another launch."""
    try:
        with open(marker, "rb") as stream:
            return stream.read()
    except OSError:
        return b""


def outside(root: str) -> NoReturn:
    """First stage: any interpreter. Build the environment and become the release's interpreter."""
    root = os.path.abspath(root)
    release = os.path.realpath(os.path.join(root, "current"))
    launch_bytes, launch = read_launch(release)
    secret_bytes, secrets = read_secrets(os.path.join(root, "state", "secrets.env"))
    python = os.path.join(release, "venv", "bin", "python")
    if not os.access(python, os.X_OK):
        refuse(f"{python} cannot be executed; build the environment of this release again")

    # What the shell of whoever started the service manager says about Python is not this server's: PYTHONPATH mixes
    # packages into the environment, and PYTHONDONTWRITEBYTECODE makes every start compile 6,800 files again (15 s).
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", OWN_PREFIX))}
    environment["PYTHONUNBUFFERED"] = "1"
    tools = read_build_tools(os.path.join(root, "state", "build_tools.json"))
    environment.update(tools)
    environment.update({str(name): str(value) for name, value in (launch.get("env") or {}).items()})
    environment.update(secrets)
    with_programs(environment, os.path.join(release, "venv"))
    environment["TOKFORGE_RELEASE"] = release
    content = launch_bytes + secret_bytes + built(os.path.join(release, "venv", "environment.json"))
    environment["TOKFORGE_LAUNCH_ID"] = hashlib.sha256(content).hexdigest()[:16]
    arguments = [str(argument) for argument in launch["argv"]]
    cwd = launch.get("cwd") or root
    # Whoever reads the log sees where this start begins: a manager starts a server again without asking anybody.
    say(f"starting release {os.path.basename(release)} as process {os.getpid()}")
    if tools:
        say("kernels are compiled with " + ", ".join(f"{name}={environment[name]}" for name in sorted(tools)))
    settle_autotune_cache(os.path.join(release, "venv"), arguments, environment, cwd)
    if secrets:
        environment[SECRET_NAMES] = ",".join(secrets)
        arguments = [os.path.abspath(__file__), INSIDE, *arguments]
    try:
        os.chdir(cwd)
    except OSError as error:
        refuse(f"cannot work in {cwd}: {error.strerror}; check the release's cwd")
    try:
        os.execve(python, [python, *arguments], environment)  # noqa: S606 (that there is no shell is the point)
    except (OSError, ValueError) as error:
        refuse(f"cannot run {python}: {error}; check the arguments and the environment in launch.json")


def hide_in_logs(values: list[str]) -> None:
    """Replace the values in every record of this process, whatever handler or format SGLang sets up later."""
    make_record = logging.getLogRecordFactory()
    hidden = sorted((value for value in values if len(value) >= SHORTEST_SECRET), key=len, reverse=True)

    def redacting(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make_record(*args, **kwargs)
        try:
            text = record.getMessage()
        except Exception:  # a record whose arguments do not fit its format: logging itself reports it
            return record
        if any(value in text for value in hidden):
            for value in hidden:
                text = text.replace(value, REDACTED)
            record.msg, record.args = text, None
        return record

    logging.setLogRecordFactory(redacting)


def inside(arguments: list[str]) -> None:
    """Second stage: the release's interpreter, with secrets. Run `-m MODULE args` or `FILE args` in this process."""
    names = [name for name in os.environ.pop(SECRET_NAMES, "").split(",") if name]
    hide_in_logs([os.environ.get(name, "") for name in names])
    keys = []
    for name, flag in KEY_FLAGS.items():
        value = os.environ.pop(name, None)  # children and the tools they call need not inherit it
        if value:
            keys.append(f"{flag}={value}")
    if arguments[:1] == ["-m"]:
        # As `python -m` has it: the working directory, not this file's, comes first.
        sys.path[0] = os.getcwd()
        sys.argv = [arguments[1], *arguments[2:], *keys]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
        sys.argv = [*arguments, *keys]
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    if sys.argv[1:2] == [INSIDE]:
        inside(sys.argv[2:])
    elif len(sys.argv) == 2:
        outside(sys.argv[1])
    else:
        refuse("usage: launch.py ROOT")
