# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""pip's settings as one value, and how both installers are told it."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.tokforge.sglang.plugins.module_utils import pip_settings
from ansible_collections.tokforge.sglang.plugins.module_utils.pip_settings import PackageSources

LISTING = """\
:env:.cert='/etc/ssl/ca.crt'
:env:.default-timeout='180'
:env:.find-links='/opt/wheels'
global.cert='/other.crt'
global.constraint='/etc/constraints.txt'
global.extra-index-url='https://one.example/simple\\nhttps://two.example/simple'
global.find-links='/global/wheels'
global.index-url='https://global.example/simple'
install.index-url='https://install.example/simple'
list.index-url='https://list.example/simple'
global.trusted-host='one.example two.example'
"""


def test_the_environment_wins_over_install_and_install_over_global() -> None:
    sources = pip_settings.read_pip_config(LISTING)
    assert sources == PackageSources(
        index_url="https://install.example/simple",
        extra_index_urls=("https://one.example/simple", "https://two.example/simple"),
        find_links=("/opt/wheels",),
        cert="/etc/ssl/ca.crt",
        trusted_hosts=("one.example", "two.example"),
        timeout_s="180",
    )


def test_no_settings_are_no_settings() -> None:
    assert pip_settings.read_pip_config("") == PackageSources()


def test_no_index_is_read_as_a_flag() -> None:
    assert pip_settings.read_pip_config("global.no-index='true'\n").no_index is True
    assert pip_settings.read_pip_config("global.no-index='0'\n").no_index is False


def test_uv_gets_pips_places_and_pips_way_of_choosing_among_them(tmp_path: Path) -> None:
    wheels = tmp_path / "my wheels"
    wheels.mkdir()
    sources = PackageSources(
        index_url="https://i.example/simple",
        extra_index_urls=("file:///a/simple", "https://b.example/simple"),
        find_links=(str(wheels), "https://page.example/"),
        cert="/ca.crt",
        trusted_hosts=("b.example",),
        timeout_s="180",
        proxy="http://proxy.example:3128",
    )
    told = pip_settings.uv_environ(sources)
    assert told["UV_DEFAULT_INDEX"] == "https://i.example/simple"
    assert told["UV_INDEX"] == "file:///a/simple https://b.example/simple"
    assert told["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    assert told["UV_FIND_LINKS"] == f"{wheels},https://page.example/"
    assert (told["SSL_CERT_FILE"], told["UV_HTTP_TIMEOUT"], told["ALL_PROXY"]) == (
        "/ca.crt",
        "180",
        "http://proxy.example:3128",
    )
    assert told["UV_NO_CONFIG"] == "1"
    assert told["UV_PYTHON_DOWNLOADS"] == "never"
    assert "UV_OFFLINE" not in told


def test_a_wheel_directory_that_is_not_there_is_passed_over_as_pip_does() -> None:
    assert "UV_FIND_LINKS" not in pip_settings.uv_environ(PackageSources(find_links=("/nowhere/wheels",)))


def test_a_wheelhouse_means_no_index_and_no_network(tmp_path: Path) -> None:
    sources = pip_settings.only_directory(str(tmp_path))
    assert pip_settings.uv_arguments(sources) == ["--no-index"]
    assert pip_settings.uv_environ(sources)["UV_OFFLINE"] == "1"
    assert pip_settings.pip_environ(sources)["PIP_NO_INDEX"] == "1"
    assert pip_settings.uv_arguments(PackageSources()) == []


def test_pip_gets_a_path_with_a_space_as_one_place(tmp_path: Path) -> None:
    wheels = tmp_path / "my wheels"
    wheels.mkdir()
    told = pip_settings.pip_environ(PackageSources(find_links=(str(wheels),)))
    assert told["PIP_FIND_LINKS"] == f"file://{tmp_path}/my%20wheels"
    assert told["PIP_CONFIG_FILE"] == "/dev/null"


def test_nothing_of_the_login_shell_leaks_into_an_install() -> None:
    shell = {
        "PATH": "/bin",
        "HOME": "/root",
        "HTTPS_PROXY": "http://p",
        "SSL_CERT_FILE": "/ca",
        "PIP_EXTRA_INDEX_URL": "https://download.example/whl/cpu",
        "PIP_TARGET": "/elsewhere",
        "UV_INDEX_URL": "https://x",
        "PYTHONPATH": "/x",
        "PYTHONDONTWRITEBYTECODE": "1",
        "VIRTUAL_ENV": "/v",
        "CONDA_PREFIX": "/c",
    }
    assert sorted(pip_settings.clean_environ(shell)) == ["HOME", "HTTPS_PROXY", "PATH", "SSL_CERT_FILE"]


def test_given_places_come_before_pips_and_a_given_index_replaces_it() -> None:
    base = PackageSources(index_url="https://pip", extra_index_urls=("https://e",), find_links=("/p",), cert="/ca")
    joined = pip_settings.overridden(base, "https://mine", ["https://m"], ["/m"])
    assert joined == PackageSources("https://mine", ("https://m", "https://e"), ("/m", "/p"), cert="/ca")
    assert pip_settings.overridden(base, None, [], []) == base


def test_passwords_in_addresses_are_redacted() -> None:
    text = "error: https://me:s3cret@index.example/simple and https://token@two.example/x; mail a@b.example stays"
    assert pip_settings.redacted(text) == (
        "error: https://***@index.example/simple and https://***@two.example/x; mail a@b.example stays"
    )
