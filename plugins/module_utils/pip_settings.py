# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where packages come from, as one value: read from pip's settings or given, and told to pip or to uv.

uv reads none of pip's settings. On a machine whose pip points at a mirror or at a directory of wheels, uv would quietly
take other packages from elsewhere (the CUDA build of torch instead of a local CPU build, several GB). So pip's settings
are read once and handed on. Addresses may hold passwords, so they travel in environment variables, never in arguments.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

# Variables of the caller that would change what is installed or where: they belong to the caller's shell, not to us.
_FOREIGN = ("PIP_", "UV_", "PYTHON", "VIRTUAL_ENV", "CONDA_", "__PYVENV_LAUNCHER__", "SETUPTOOLS_")
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@")


@dataclass(frozen=True)
class PackageSources:
    """Indexes, wheel directories and how to reach them. `timeout_s` in seconds; None means the installer's default."""

    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    cert: str | None = None
    client_cert: str | None = None
    proxy: str | None = None
    trusted_hosts: tuple[str, ...] = ()
    timeout_s: str | None = None


def read_pip_config(listing: str) -> PackageSources:
    """The settings in what `pip config list` prints: lines such as `global.index-url='...'` or `:env:.cert='...'`.

    pip's own order holds: a value of the environment wins over one of the `install` section, that one over `global`.
    A value is never joined with that of another place. pip's constraints are left out on purpose: a lock is exact.
    """
    values: dict[str, str] = {}
    for section in ("global", "install", ":env:"):
        for line in listing.splitlines():
            name, separator, text = line.partition("=")
            place, _dot, key = name.rpartition(".")
            if separator and place == section:
                values[key.replace("_", "-")] = _unquoted(text)

    def words(key: str) -> tuple[str, ...]:
        return tuple(values.get(key, "").split())

    return PackageSources(
        index_url=values.get("index-url") or None,
        extra_index_urls=words("extra-index-url"),
        find_links=words("find-links"),
        no_index=values.get("no-index", "").lower() in ("1", "true", "yes", "on"),
        cert=values.get("cert") or None,
        client_cert=values.get("client-cert") or None,
        proxy=values.get("proxy") or None,
        trusted_hosts=words("trusted-host"),
        timeout_s=values.get("default-timeout") or values.get("timeout") or None,
    )


def _unquoted(text: str) -> str:
    # pip prints Python string literals.
    try:
        return str(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return text


def overridden(
    base: PackageSources, index_url: str | None, extra_index_urls: Iterable[str], find_links: Iterable[str]
) -> PackageSources:
    """`base` with what the caller names itself: a given index replaces pip's, more places come before pip's own."""
    return replace(
        base,
        index_url=index_url or base.index_url,
        extra_index_urls=(*extra_index_urls, *base.extra_index_urls),
        find_links=(*find_links, *base.find_links),
    )


def only_directory(path: str) -> PackageSources:
    """Nothing but the wheels in one directory, and no network."""
    return PackageSources(find_links=(path,), no_index=True)


def clean_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment an installer gets: the caller's, without what would silently change its work.

    A PIP_EXTRA_INDEX_URL in a login shell is enough to get the CPU build of torch on a GPU host (pytorch/ci-infra#661).
    Proxy and certificate variables stay: without them there may be no network at all.
    """
    return {name: value for name, value in environ.items() if not name.startswith(_FOREIGN)}


def pip_environ(sources: PackageSources) -> dict[str, str]:
    """`sources` as environment variables for pip, which then reads no configuration file."""
    variables = {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_INDEX_URL": sources.index_url,
        "PIP_EXTRA_INDEX_URL": " ".join(map(_url, sources.extra_index_urls)),
        "PIP_FIND_LINKS": " ".join(map(_url, _present(sources.find_links))),
        "PIP_NO_INDEX": "1" if sources.no_index else None,
        "PIP_CERT": sources.cert,
        "PIP_CLIENT_CERT": sources.client_cert,
        "PIP_PROXY": sources.proxy,
        "PIP_TRUSTED_HOST": " ".join(sources.trusted_hosts),
        "PIP_DEFAULT_TIMEOUT": sources.timeout_s,
    }
    return {name: value for name, value in variables.items() if value}


def uv_environ(sources: PackageSources) -> dict[str, str]:
    """`sources` as environment variables for uv, which then reads no configuration file and brings no Python."""
    variables = {
        "UV_NO_CONFIG": "1",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_DEFAULT_INDEX": sources.index_url,
        "UV_INDEX": " ".join(map(_url, sources.extra_index_urls)),
        # uv takes the first index that knows a name, pip the best version of all. Same settings, same choice.
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": ",".join(_present(sources.find_links)),
        "UV_OFFLINE": "1" if sources.no_index else None,
        "UV_INSECURE_HOST": " ".join(sources.trusted_hosts),
        "UV_HTTP_TIMEOUT": sources.timeout_s,
        "SSL_CERT_FILE": sources.cert,
        "SSL_CLIENT_CERT": sources.client_cert,
        "ALL_PROXY": sources.proxy,
    }
    return {name: value for name, value in variables.items() if value}


def uv_arguments(sources: PackageSources) -> list[str]:
    """What uv has no environment variable for."""
    return ["--no-index"] if sources.no_index else []


def _present(find_links: Iterable[str]) -> list[str]:
    # pip passes over a directory that is not there; uv ends with an error.
    paths = (link if "://" in link else os.path.expanduser(link) for link in find_links)
    return [path for path in paths if "://" in path or os.path.exists(path)]


def _url(text: str) -> str:
    """Lists are separated by spaces: one inside a path must not split it."""
    if " " not in text:
        return text
    address = text if "://" in text else "file://" + os.path.abspath(text)
    return address.replace(" ", "%20")


def redacted(text: str) -> str:
    """`text` without user names and passwords in addresses."""
    return _CREDENTIALS.sub("***@", text)
