# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at a deployed server from its own machine, as JSON on standard output. It changes nothing.

    python3 probe.py ROOT HOST PORT FACTS_DIR

Standard library only and Python 3.6 or newer: it runs on the target with whatever Python is there. It shares no code
with the collection, so that a mistake in the collection's own waiting and recording cannot hide itself here.
"""

import glob
import hashlib
import json
import os
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request

LISTEN = "0A"  # state column of /proc/net/tcp, include/net/tcp_states.h
TOKENS = 8
TIMEOUT_S = 60
# Asked without a key. Nothing happens when one of them is let through: the bodies are no JSON, which SGLang (FastAPI)
# refuses before it calls anything, and DELETE is no method of /flush_cache. With a key, SGLang looks at it before that.
ORDINARY = ["GET /v1/models", "GET /server_info", "POST /generate"]
ADMIN = ["POST /update_weights_from_disk", "POST /load_lora_adapter", "POST /set_internal_state"]
OTHER = ["DELETE /flush_cache"]
# SGLang asks for no key at /health. With this header the path of /server_info begins with /health for whoever takes it
# from an address that is put together.
MISLEADING_HOST = "localhost/health?"
VERSION = "import importlib.metadata as m; print(m.version('sglang'))"


def read_json(path):
    """The file's content, or {"error": why}."""
    try:
        with open(path) as stream:
            return json.load(stream)
    except (OSError, ValueError) as error:
        return {"error": "%s: %s" % (path, error)}


def address(text):
    """Printable address of a /proc/net/tcp column: groups of 32 bits in the machine's byte order."""
    words = [int(text[start : start + 8], 16) for start in range(0, len(text), 8)]
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    return socket.inet_ntop(family, struct.pack("=%dI" % len(words), *words))


def listening(port, tables=("/proc/net/tcp", "/proc/net/tcp6")):
    """Addresses on which anything listens on the port, sorted."""
    found = set()
    for table in tables:
        try:
            with open(table) as stream:
                rows = [line.split() for line in stream.readlines()[1:]]
        except OSError:
            continue
        found.update(
            address(row[1].split(":")[0]) for row in rows if row[3] == LISTEN and int(row[1].split(":")[1], 16) == port
        )
    return sorted(found)


def processes(root):
    """Processes that the launcher under root started: process id and the release that they run."""
    found = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as stream:
                names = dict(item.partition(b"=")[::2] for item in stream.read().split(b"\0"))
        except OSError:  # ended meanwhile, or another user's
            continue
        release = names.get(b"TOKFORGE_RELEASE", b"").decode(errors="replace")
        if release.startswith(os.path.join(root, "releases") + os.sep):
            found.append({"pid": int(path.split("/")[2]), "release": release})
    return sorted(found, key=lambda process: process["pid"])


def secrets(root):
    """The server's secrets from its own file, by name; they never leave this machine. None when they cannot be read."""
    try:
        with open(os.path.join(root, "state", "secrets.env")) as stream:
            return {name: value for name, _equals, value in (line.rstrip("\n").partition("=") for line in stream)}
    except FileNotFoundError:
        return {}
    except OSError:
        return None


def ask(url, key, body=None):
    """JSON answer of one request, or {"error": why}."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    if key:
        request.add_header("Authorization", "Bearer " + key)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the server is never behind the proxy
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            return json.loads(answer.read().decode())
    except (OSError, ValueError) as error:
        return {"error": "%s: %s" % (url, error)}


def status(base, request, key=None, host=None):
    """HTTP status of "METHOD /path", 0 without an answer."""
    method, path = request.split()
    body = b"no JSON" if method == "POST" else None
    asked = urllib.request.Request(base + path, data=body, method=method, headers={"Content-Type": "application/json"})
    if key:
        asked.add_header("Authorization", "Bearer " + key)
    if host:
        asked.add_header("Host", host)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(asked, timeout=TIMEOUT_S) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return 0


def access(base, known):
    """Which keys are set, and what was answered (status by request) to whoever has none, or the clients' key only."""
    if known is None:
        return {"keys": None, "without_key": {}, "with_client_key": {}}
    client, admin = known.get("TOKFORGE_API_KEY"), known.get("TOKFORGE_ADMIN_API_KEY")
    without, with_client = {}, {}
    if client:
        without = {request: status(base, request) for request in ORDINARY + ADMIN + OTHER}
        without["GET /server_info for a misleading host"] = status(base, "GET /server_info", host=MISLEADING_HOST)
    if client and admin:
        with_client = {request: status(base, request, client) for request in ADMIN}
    return {
        "keys": {"client": bool(client), "admin": bool(admin)},
        "without_key": without,
        "with_client_key": with_client,
    }


def installed_version(current):
    """Version of the sglang distribution that the release's interpreter finds, or why none."""
    try:
        done = subprocess.run(
            [os.path.join(current, "venv", "bin", "python"), "-c", VERSION],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "none: %s" % error
    return done.stdout.strip() or "none: %s" % done.stderr.strip()[-500:]


def mode(path):
    """Permission bits as four octal digits, or None for a file that is not there."""
    try:
        return "%04o" % (os.stat(path).st_mode & 0o7777)
    except OSError:
        return None


def gate(current):
    """The file with SGLang's autotune gate: its path, and whether it is what the environment recorded; None without."""
    recorded = read_json(os.path.join(current, "venv", "environment.json")).get("autotune_gate")
    if not isinstance(recorded, dict) or "file" not in recorded:
        return None
    try:
        with open(recorded["file"], "rb") as stream:
            digest = hashlib.sha256(stream.read()).hexdigest()
    except OSError as error:
        return {"file": recorded["file"], "as_recorded": False, "error": str(error)}
    return {"file": recorded["file"], "as_recorded": digest == recorded.get("sha256")}


def addresses(host):
    """The addresses that the host's name stands for on this machine, sorted; empty when it stands for none."""
    try:
        return sorted({found[4][0] for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})
    except (OSError, UnicodeError):
        return []


def observe(root, host, port, facts_dir):
    """Everything the tests ask about, as one mapping."""
    root = os.path.realpath(root)
    current = os.path.realpath(os.path.join(root, "current"))
    base = "http://%s:%d" % (host, port)
    known = secrets(root)
    key = (known or {}).get("TOKFORGE_API_KEY")
    prompt = {"text": "The way", "sampling_params": {"max_new_tokens": TOKENS, "ignore_eos": True, "temperature": 0}}
    started = time.monotonic()
    generation = ask(base + "/generate", key, prompt)
    return {
        "current": current if os.path.isdir(current) else None,
        "manifest": read_json(os.path.join(current, "manifest.json")),
        "installed_version": installed_version(current),
        "autotune_gate": gate(current),
        "processes": processes(root),
        "asked_addresses": addresses(host),
        "listening": listening(port),
        "models": ask(base + "/v1/models", key),
        "generation": generation,
        "generation_s": round(time.monotonic() - started, 3),
        "tokens_asked": TOKENS,
        "fact_mode": mode(os.path.join(facts_dir, "sglang.fact")),
        "access": access(base, known),
        "secrets_mode": mode(os.path.join(root, "state", "secrets.env")),
    }


if __name__ == "__main__":
    print(json.dumps(observe(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])))
