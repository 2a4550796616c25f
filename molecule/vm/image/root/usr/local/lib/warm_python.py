# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run Python programs in copies of one process that has the standard library in memory already.

On an emulated processor most of the time of an Ansible task is Python's start, imports of the standard library, and the
compiling of what comes from Ansible as an archive of sources. This process has done the first two, and keeps on disk
what sources were compiled to. Everything else is as if Python had been started for the program.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib
import marshal
import os
import runpy
import signal
import socket
import sys
import traceback
import types
import zipimport

SOCKET = "/run/warm-python"
CACHE = "/var/cache/warm-python"
# What Ansible's modules import.
LIBRARY = [
    "base64",
    "ctypes",
    "configparser",
    "copy",
    "dataclasses",
    "datetime",
    "glob",
    "grp",
    "hashlib",
    "importlib.metadata",
    "inspect",
    "json",
    "locale",
    "logging",
    "pathlib",
    "platform",
    "pwd",
    "queue",
    "random",
    "selectors",
    "shlex",
    "shutil",
    "subprocess",
    "syslog",
    "tempfile",
    "textwrap",
    "threading",
    "typing",
    "uuid",
    "zipfile",
]
compile_source = zipimport._compile_source


def compiled(path: str, source: bytes) -> types.CodeType:
    """Code of a source file in an archive, from the cache where the same source was compiled before."""
    file = os.path.join(CACHE, hashlib.sha256(source).hexdigest())
    try:
        with open(file, "rb") as stream:
            return marshal.load(stream)  # noqa: S302 -- root's own
    except (OSError, EOFError, ValueError):
        code = compile_source(path, source)
    partial = f"{file}.{os.getpid()}"
    with open(partial, "wb") as stream:
        marshal.dump(code, stream)
    os.replace(partial, file)
    return code


def receive(connection: socket.socket) -> tuple[list[int], list[bytes]]:
    """Descriptors and request of a client: directory, umask, arguments, environment."""
    head, descriptors, flags, sender = socket.recv_fds(connection, 4, 3)
    del flags, sender
    size = int.from_bytes(head, "big")
    request = b""
    while len(request) < size:
        request += connection.recv(size - len(request))
    return descriptors, request.split(b"\0\0", 3)


def become(descriptors: list[int], request: list[bytes]) -> None:
    """Take over streams, directory, umask, arguments and environment of the client."""
    directory, umask, arguments, environment = request
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.chdir(directory)
    os.umask(int(umask))
    os.environ.clear()
    for line in environment.split(b"\0"):
        name, equals, value = line.partition(b"=")
        if equals:
            os.environb[name] = value
    sys.argv = [""] + [os.fsdecode(word) for word in arguments.split(b"\0") if arguments]


def run() -> None:
    """Do what Python does with these arguments: a program from standard input, from -c, or from a file."""
    if sys.argv[1:2] == ["-c"]:
        source: str | bytes = sys.argv[2]
        sys.argv = ["-c", *sys.argv[3:]]
    elif sys.argv[1:] and sys.argv[1] != "-":
        sys.argv = sys.argv[1:]
        sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
        runpy.run_path(sys.argv[0], run_name="__main__")
        return
    else:
        source = sys.stdin.buffer.read()
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    sys.path.insert(0, "")
    exec(compile(source, "<stdin>", "exec"), main.__dict__)  # noqa: S102 -- the client is root on this machine


def work(connection: socket.socket) -> int:
    """Run one program and return its exit status."""
    try:
        descriptors, request = receive(connection)
        connection.close()
        become(descriptors, request)
        run()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def serve(connection: socket.socket) -> None:
    """Run one program in a process of its own and tell the client how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    worker = os.fork()
    if worker == 0:
        status = work(connection)
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    connection.sendall(bytes([status if status >= 0 else 128 - status]))


# The directory of this program is none of theirs.
del sys.path[0]
for library in LIBRARY:
    importlib.import_module(library)
os.makedirs(CACHE, mode=0o700, exist_ok=True)
zipimport._compile_source = compiled
os.umask(0o077)
listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listener.bind(SOCKET)
listener.listen()
# Nobody waits for the processes that serve.
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    client = listener.accept()[0]
    if os.fork() == 0:
        listener.close()
        serve(client)
        os._exit(0)
    client.close()
