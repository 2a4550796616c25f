# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a virtual environment on the controller hold exactly what a requirements file locks.

    python3 tools/make_venv.py .venv requirements/deploy.txt

Runs with nothing but Python's standard library. pip (from Python's own bundled wheel, or from Debian's package of it)
installs the pinned uv, uv installs the rest with hashes. The environment counts as complete only when its stamp,
written last, names the same inputs; anything else is built again. Nothing is printed when there is nothing to do.
"""

import contextlib
import fcntl
import glob
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time

MINIMUM = (3, 11)
TOOLS = os.path.dirname(os.path.abspath(__file__))
BOOTSTRAP = os.path.join(TOOLS, "..", "requirements", "bootstrap.txt")
STAMP = "complete.json"
# The checkout's command for CI. Installed with pip it would need a build backend, from outside of the locks.
COMMAND = "tokforge-rollout"
LAUNCHER = """\
#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import sys

sys.path.append({root!r})
from tokforge_rollout.command import main

sys.exit(main())
"""


class VenvError(Exception):
    """The environment cannot be made; the text says where, why and what to do."""


def works(name):
    """Whether the command runs: a version manager's stand-in for a Python that is not installed does not."""
    return bool(shutil.which(name)) and subprocess.call([name, "-c", ""], stderr=subprocess.DEVNULL) == 0


def old_python_message(version, works=works):
    """Say that this Python is too old, and name a newer one when the machine has it."""
    found = next((name for name in ("python3.13", "python3.12", "python3.11") if works(name)), None)
    advice = (
        "run 'make PYTHON=%s ...'" % found
        if found
        else "install Python 3.11 or newer, then run 'make PYTHON=python3.11 ...'"
    )
    return "The controller needs Python %d.%d or newer: %s is Python %s; %s." % (
        MINIMUM[0],
        MINIMUM[1],
        sys.executable,
        ".".join(map(str, version[:3])),
        advice,
    )


def inputs_id(venv, requirements):
    """Digest of everything that decides what the environment holds: both lock files, this script, the interpreter.

    And where it lies: its scripts name the interpreter by its whole path, so a moved or copied one is of no use.
    """
    digest = hashlib.sha256()
    for path in (requirements, BOOTSTRAP, os.path.abspath(__file__)):
        with open(path, "rb") as stream:
            digest.update(stream.read() + b"\0")
    digest.update(("%s %s\0" % (sys.version, os.path.realpath(sys.executable))).encode())
    digest.update(os.fsencode(os.path.abspath(venv)))
    return digest.hexdigest()


def is_complete(venv, wanted):
    """Whether the environment was finished for exactly these inputs."""
    try:
        with open(os.path.join(venv, STAMP), encoding="utf-8") as stream:
            return json.load(stream).get("inputs") == wanted
    except (OSError, ValueError, AttributeError):
        return False


def bundled_pip():
    """pip's wheel as Python or the distribution ships it, or None. pip runs from it without being installed."""
    places = [sysconfig.get_config_var("WHEEL_PKG_DIR")]
    with contextlib.suppress(ImportError):
        places += [os.path.join(place, "_bundled") for place in importlib.import_module("ensurepip").__path__]
    for place in filter(None, places):
        for wheel in sorted(glob.glob(os.path.join(place, "pip-*.whl")), reverse=True):
            return wheel
    return None


def debian_pip(scratch):
    """Fetch and unpack Debian's package of pip's wheel below scratch, without root; the wheel's path or None."""
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        return None
    # A fresh image has no package lists and only root may write the system's: keep our own.
    lists = os.path.join(scratch, "lists")
    os.makedirs(os.path.join(lists, "partial"))
    private = ["-o", "Dir::State::lists=" + lists, "-o", "Dir::Cache=" + scratch, "-o", "Debug::NoLocking=1"]
    for steps in ([["download"]], [[*private, "update"], [*private, "download"]]):
        for step in steps:
            package = ["python3-pip-whl"] if step[-1] == "download" else []
            subprocess.run(["apt-get", "-qq", *step, *package], cwd=scratch, capture_output=True, check=False)
        for archive in glob.glob(os.path.join(scratch, "python3-pip-whl_*.deb")):
            subprocess.run(["dpkg", "-x", archive, os.path.join(scratch, "root")], capture_output=True, check=False)
        for wheel in glob.glob(os.path.join(scratch, "root", "usr", "share", "*", "pip-*.whl")):
            return wheel
    return None


def find_pip(scratch):
    """The command that runs some pip, as a list without the interpreter. VenvError names the package to install."""
    wheel = bundled_pip()
    if not wheel and importlib.util.find_spec("pip"):
        return [os.path.dirname(importlib.util.find_spec("pip").origin)]
    if not wheel:
        say("this Python has no pip of its own: fetching Debian's package python3-pip-whl")
        wheel = debian_pip(scratch)
    if not wheel:
        raise VenvError(
            "No pip for %s: it has no ensurepip and the package python3-pip-whl could not be fetched; "
            "install it as root ('apt-get install python3-venv', or your system's package of it) and run again."
            % sys.executable
        )
    return [os.path.join(wheel, "pip")]


def load_pip_settings():
    """The collection's own reader of pip's settings, loaded by path because Ansible is not installed yet."""
    path = os.path.join(TOOLS, "..", "plugins", "module_utils", "pip_settings.py")
    spec = importlib.util.spec_from_file_location("pip_settings", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["pip_settings"] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


def uv_environment(pip, **changes):
    """The environment for uv: what the caller set for uv itself, then what the machine's pip is set up with.

    changes replace fields of what pip says.
    """
    import dataclasses  # not in Python 3.6, which must come as far as the message that it is too old

    settings = load_pip_settings()
    listing = subprocess.run([*pip, "config", "list"], capture_output=True, text=True, check=False).stdout
    sources = dataclasses.replace(settings.read_pip_config(listing), **changes)
    return {**settings.uv_environ(sources), **os.environ}


def say(text):
    """One line of progress."""
    print("[venv] " + text, flush=True)


def run(command, what, env=None, quiet=False):
    """Run one step with its output shown, when quiet only if it fails; VenvError when it fails."""
    output = subprocess.PIPE if quiet else None
    done = subprocess.run(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if quiet else None,
        check=False,
    )
    if done.returncode:
        sys.stderr.write((done.stdout or b"").decode(errors="replace"))
        raise VenvError("%s failed with exit code %d; the lines above say why." % (what, done.returncode))


def build(venv, requirements):
    """Build the environment from nothing and stamp it."""
    wanted = inputs_id(venv, requirements)
    started = time.monotonic()
    if os.path.lexists(venv):
        # Moved away first: a removal that is interrupted must not leave half an environment under the name.
        say("%s is incomplete or out of date: building it again" % venv)
        old = tempfile.mkdtemp(prefix=os.path.basename(venv) + ".old-", dir=os.path.dirname(venv))
        os.rename(venv, os.path.join(old, "venv"))
        shutil.rmtree(old, ignore_errors=True)
    say("making %s with %s" % (venv, sys.executable))
    run([sys.executable, "-m", "venv", "--without-pip", venv], "python -m venv %s" % venv)
    python = os.path.join(venv, "bin", "python")
    with tempfile.TemporaryDirectory(prefix="tokforge-venv-") as scratch:
        pip = [python, *find_pip(scratch)]
        say("installing uv")
        run(
            [*pip, "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r", BOOTSTRAP],
            "pip install -r %s" % os.path.relpath(BOOTSTRAP),
            quiet=True,
        )
        env = uv_environment(pip)
    say("installing %s with uv" % os.path.relpath(requirements))
    run(
        [os.path.join(venv, "bin", "uv"), "pip", "install", "--python", python, "--require-hashes", "-r", requirements],
        "uv pip install -r %s" % requirements,
        env=env,
    )
    write_command(os.path.join(venv, "bin", COMMAND), python)
    write_stamp(venv, wanted)
    say("%s is ready after %.0f s" % (venv, time.monotonic() - started))


def write_command(path, python):
    """Write the script that runs the command of this checkout, wherever it is called from."""
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(LAUNCHER.format(python=python, root=os.path.dirname(TOOLS)))
    os.chmod(path, 0o755)  # noqa: S103 - as pip's scripts are


def write_stamp(venv, wanted):
    """Write the stamp by one rename, after everything else."""
    stamp = os.path.join(venv, STAMP)
    with open(stamp + ".new", "w", encoding="utf-8") as stream:
        json.dump({"inputs": wanted}, stream)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(stamp + ".new", stamp)


def main(argv):
    """Command line: DIRECTORY REQUIREMENTS. Returns the exit code."""
    if sys.version_info[:2] < MINIMUM:
        print(old_python_message(sys.version_info), file=sys.stderr)
        return 1
    venv, requirements = (os.path.abspath(path) for path in argv)
    try:
        with open(requirements, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # a second make waits and then finds the work done
            if not is_complete(venv, inputs_id(venv, requirements)):
                build(venv, requirements)
    except (VenvError, OSError) as error:
        print("Cannot make %s: %s" % (venv, error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: the next run starts %s anew" % venv, file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
