# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Making a model's directory: when it is complete, what is refused before a download, and what failures say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import hub_fetch, model
from ansible_collections.tokforge.sglang.plugins.module_utils import model_store as store

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def finished(path: Path, source: model.Source, **files: str) -> Path:
    """A directory as a finished run leaves it."""
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text)
    listed = {name.replace("__", "."): len(text) for name, text in files.items()}
    store._finish(str(path), source, listed)
    return path


HUB = model.parse(f"org/name@{COMMIT}")


def test_finished_directory_is_complete(tmp_path: Path) -> None:
    assert store.incomplete_because(str(finished(tmp_path, HUB, config__json="{}")), HUB) is None


def test_missing_and_unfinished_directories_are_told_apart(tmp_path: Path) -> None:
    assert store.incomplete_because(str(tmp_path / "x"), HUB) == "it is not there"
    assert store.incomplete_because(str(tmp_path), HUB) == "it was never finished"


def test_truncated_and_deleted_files_make_it_incomplete(tmp_path: Path) -> None:
    path = finished(tmp_path, HUB, config__json="{}", model__safetensors="12345")
    (path / "model.safetensors").write_text("1234")
    assert store.incomplete_because(str(path), HUB) == "model.safetensors is missing or has the wrong size"
    (path / "model.safetensors").unlink()
    assert store.incomplete_because(str(path), HUB) == "model.safetensors is missing or has the wrong size"


def test_other_content_is_not_taken_for_the_asked_one(tmp_path: Path) -> None:
    finished(tmp_path, HUB, config__json="{}")
    other = model.parse(f"org/name@{COMMIT[:12]}{'f' * 28}")
    assert other.name == HUB.name
    assert store.incomplete_because(str(tmp_path), other) == f"it holds org/name {COMMIT}"


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema_version": 1}', '{"files": 3}', "[" * 100_000])
def test_damaged_marker_makes_it_incomplete(tmp_path: Path, text: str) -> None:
    path = finished(tmp_path, HUB, config__json="{}")
    (path / "model.json").write_text(text)
    assert store.incomplete_because(str(path), HUB) == "its model.json is damaged"


@pytest.mark.parametrize(
    "files",
    ["{}", '{"model.safetensors": 1}', '{"config.json": 1e999}', '{"config.json": "2"}', '{"config.json": true}'],
)
def test_marker_whose_files_say_nothing_makes_it_incomplete(tmp_path: Path, files: str) -> None:
    path = finished(tmp_path, HUB, config__json="{}")
    (path / "model.json").write_text(
        re.sub(r'"files": \{.*?\}', f'"files": {files}', (path / "model.json").read_text(), flags=re.DOTALL)
    )
    assert store.incomplete_because(str(path), HUB) == "its model.json is damaged"


def test_older_recipe_of_the_builtin_model_is_made_again(tmp_path: Path) -> None:
    older = model.Source("builtin", "tiny-moe", "tiny-moe", revision="recipe-0")
    finished(tmp_path, older, config__json="{}")
    assert store.incomplete_because(str(tmp_path), model.parse("builtin:tiny-moe")) == "it holds builtin recipe-0"


def test_check_mode_makes_nothing(tmp_path: Path) -> None:
    hub = store.Hub(python="/no/such/python")
    path, reason = store.provide(model.parse("builtin:tiny-moe"), str(tmp_path / "models"), hub, check_mode=True)
    assert (path, reason) == (str(tmp_path / "models" / "tiny-moe"), "it is not there")
    assert not (tmp_path / "models").exists()


def test_missing_python_is_an_error_that_names_the_role_to_run(tmp_path: Path) -> None:
    with pytest.raises(
        model.ModelError, match="cannot run /no/such/python: No such file or directory; install the env"
    ):
        store.provide(model.parse("builtin:tiny-moe"), str(tmp_path), store.Hub(python="/no/such/python"))
    assert not (tmp_path / "tiny-moe").exists()


def test_python_without_the_package_leaves_no_model(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\ncat >/dev/null\necho 'ModuleNotFoundError: tokenizers' >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(model.ModelError) as caught:
        store.provide(model.parse("builtin:tiny-moe"), str(tmp_path / "m"), store.Hub(python=str(program)))
    assert "ended with 1 (ModuleNotFoundError: tokenizers)" in str(caught.value)
    assert not (tmp_path / "m" / "tiny-moe").exists()


def test_second_play_does_not_make_the_same_model_at_once(tmp_path: Path) -> None:
    hub = store.Hub(python="/no/such/python")
    with (
        store._locked(str(tmp_path), "tiny-moe"),
        pytest.raises(model.ModelError, match="another play is doing so right now"),
    ):
        store.provide(model.parse("builtin:tiny-moe"), str(tmp_path), hub)


def test_path_that_cannot_be_made_is_an_error_with_the_variable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(model.ModelError, match="set sglang_models_dir"):
        store.provide(model.parse("builtin:tiny-moe"), str(tmp_path / "file"), store.Hub(python="/no/such/python"))


# --- the hub ----------------------------------------------------------------------------------------------------------


def test_room_is_what_is_still_to_come_plus_what_must_stay_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 10_000_000_000

    asked: list[str] = []

    def usage(path: str) -> type[Usage]:
        asked.append(path)
        return Usage

    monkeypatch.setattr("shutil.disk_usage", usage)
    target = str(tmp_path / "not" / "yet")
    store.room_or_raise(target, 9_000_000_000, 1_000_000_000)
    with pytest.raises(model.ModelError) as caught:
        store.room_or_raise(target, 9_000_000_001, 1_000_000_000)
    assert "9.00 GB still to come and 1.00 GB to stay free do not fit into the 10.00 GB free at" in str(caught.value)
    assert caught.value.facts["free_bytes"] == 10_000_000_000
    assert set(asked) == {str(tmp_path)}


def test_nothing_to_come_needs_no_room(tmp_path: Path) -> None:
    store.room_or_raise(str(tmp_path), 0, 10**18)


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "a/../../b", "model.json", ".cache/huggingface/x"])
def test_names_that_leave_the_directory_or_hide_our_files_are_refused(name: str) -> None:
    with pytest.raises(model.ModelError) as caught:
        store._checked_listing({"config.json": 2, name: 3}, HUB)
    assert caught.value.facts["file"] == name


def test_repository_that_cannot_be_served_is_refused_before_the_download() -> None:
    with pytest.raises(model.ModelError, match=r"the repository has no config\.json at 0123"):
        store._checked_listing({"q4.gguf": 10**9}, HUB)


def test_file_without_a_size_is_refused() -> None:
    with pytest.raises(model.ModelError, match=r"the hub gives no size for 'config\.json'"):
        store._checked_listing({"config.json": None}, HUB)


def test_ordinary_listing_passes_with_its_folders() -> None:
    listing = {"config.json": 2, "original/params.json": 3, ".gitattributes": 4}
    assert store._checked_listing(listing, HUB) == listing


@pytest.mark.parametrize(
    ("kind", "token", "says"),
    [
        ("gated", "", "accept its terms at https://hub.test/org/name and set sglang_hub_token"),
        ("refused", "", "https://hub.test refuses it; check the name, and for a private or gated"),
        ("refused", "hf_x", "https://hub.test refuses it to the token in sglang_hub_token"),
        ("no_repository", "", "has no such repository"),
        ("no_revision", "", f"it has no commit {COMMIT}"),
        ("disk_full", "", "the disk ran full on the way; free space and run again"),
        ("unreachable", "", "https://hub.test cannot be reached"),
        ("other", "", "the download program failed"),
        ("crashed", "", "the download program failed"),
    ],
)
def test_every_failure_of_the_hub_has_its_own_message(kind: str, token: str, says: str) -> None:
    hub = store.Hub(python="python", endpoint="https://hub.test", token=token)
    text = store.hub_problem(kind, {"repo_id": "org/name", "revision": COMMIT}, hub, "/models/x", "Detail: here\nmore")
    assert text.startswith("cannot download org/name to /models/x: ")
    assert says in text
    assert text.endswith("(Detail: here)")


def test_token_goes_through_the_environment_and_shows_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    hub = store.Hub(python="python", endpoint="https://hub.test", token="hf_canary")
    env = store._hub_environment(hub, "/models/x")
    assert env["HF_TOKEN"] == "hf_canary"
    assert env["HF_ENDPOINT"] == "https://hub.test"
    assert "HF_HUB_OFFLINE" not in env
    assert "hf_canary" not in repr(hub)


def test_answer_that_carries_the_token_is_scrubbed(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\ncat >/dev/null\necho \'{"error": "other", "detail": "bad hf_canary"}\'\n')
    program.chmod(0o755)
    hub = store.Hub(python=str(program), token="hf_canary")
    with pytest.raises(model.ModelError) as caught:
        store.provide(HUB, str(tmp_path / "m"), hub)
    assert "bad ***" in str(caught.value)
    assert "hf_canary" not in str(caught.value) + repr(caught.value.facts)


def test_only_parts_that_no_later_run_can_use_are_dropped(tmp_path: Path) -> None:
    notes = tmp_path / ".cache" / "huggingface" / "download"
    notes.mkdir(parents=True)
    etag = "a" * 64
    kept = [f"hash.{etag}.incomplete", "config.json.metadata", "config.json.lock"]
    for name in [*kept, f"hash.{etag}.0a1b2c3d.incomplete"]:
        (notes / name).write_text("")
    store._drop_dead_parts(str(tmp_path))
    assert sorted(entry.name for entry in notes.iterdir()) == sorted(kept)


class _Response:
    def __init__(self, status_code: int) -> None:
        self.status_code = status_code


def _error(name: str, status: int | None = None, base: type[Exception] = Exception, *args: Any) -> Exception:
    error: Exception = type(name, (base,), {"response": _Response(status)} if status else {})(*args)
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (_error("GatedRepoError", 403), "gated"),
        (_error("RevisionNotFoundError", 404), "no_revision"),
        (_error("RepositoryNotFoundError", 401), "refused"),
        (_error("RepositoryNotFoundError", 404), "no_repository"),
        (_error("HfHubHTTPError", 403), "refused"),
        (_error("HfHubHTTPError", 500), "other"),
        (_error("ConnectError"), "unreachable"),
        (OSError(28, "No space left on device"), "disk_full"),
        (ImportError("huggingface_hub"), "other"),
    ],
)
def test_failures_are_told_apart_by_class_and_status(error: Exception, kind: str) -> None:
    assert hub_fetch.classify(error) == kind


def test_wrapped_failures_are_judged_by_what_they_wrap() -> None:
    outer = _error("LocalEntryNotFoundError", None, OSError)
    outer.__cause__ = _error("ConnectError")
    assert hub_fetch.classify(outer) == "unreachable"
