# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The model core: what a text asks for, what a directory must hold, when it is complete, what failures say."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import builtin_models, model

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def directory(tmp_path: Path, config: Any = None, **files: str) -> Path:
    """A model directory with a config and further files (dots in their names written as __)."""
    tmp_path.mkdir(parents=True, exist_ok=True)
    if config is not None:
        (tmp_path / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    for name, text in files.items():
        (tmp_path / name.replace("__", ".")).write_text(text)
    return tmp_path


# --- what a text asks for ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tiny-moe", "moe-30b"])
def test_builtin_text_names_the_recipe_as_its_revision(name: str) -> None:
    source = model.parse(f"builtin:{name}")
    assert source == model.Source("builtin", name, name, revision="recipe-1")
    assert model.expected_config(source)["num_experts"] == builtin_models.CONFIGS[name]["num_experts"]


def test_directory_is_served_under_its_own_name_and_has_no_revision() -> None:
    assert model.parse("/data/models/GLM-5-NVFP4/") == model.Source(
        "directory", "/data/models/GLM-5-NVFP4", "GLM-5-NVFP4"
    )


def test_hub_text_gives_every_revision_a_directory_of_its_own() -> None:
    source = model.parse(f"Qwen/Qwen3-0.6B@{COMMIT}")
    assert source == model.Source("hub", "Qwen--Qwen3-0.6B@0123456789ab", "Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B", COMMIT)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("builtin:huge-moe", "no built-in model 'huge-moe'; write builtin:tiny-moe or builtin:moe-30b, an absolute"),
        ("Qwen/Qwen3-0.6B", "it names no revision"),
        ("Qwen/Qwen3-0.6B@main", "revision 'main' is a branch, a tag or a short hash"),
        ("Qwen/Qwen3-0.6B@0123456", "write Qwen/Qwen3-0.6B@<40 hex digits>"),
        (f"Qwen/Qwen3-0.6B@{COMMIT.upper()}", "is a branch, a tag or a short hash"),
        ("models/mine", "or an absolute path when you meant a directory"),
        ("tiny-moe", "none of the known forms"),
        ("", "none of the known forms"),
        (f"a/b/c@{COMMIT}", "none of the known forms"),
        (f"../etc@{COMMIT}", "none of the known forms"),
        (f"a/..@{COMMIT}", "none of the known forms"),
        (f"a/b--c@{COMMIT}", "none of the known forms"),
    ],
)
def test_other_texts_are_refused_with_what_to_write(text: str, says: str) -> None:
    with pytest.raises(model.ModelError) as caught:
        model.parse(text)
    assert says in str(caught.value)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("name", ["", "base:adapter", " padded", "line\nend"])
def test_names_that_stop_the_server_are_refused(name: str) -> None:
    with pytest.raises(model.ModelError, match="set sglang_served_model_name"):
        model.check_served_name(name)


@pytest.mark.parametrize("name", ["tiny-moe", "Qwen/Qwen3-0.6B", "glm 5"])
def test_names_that_a_server_can_carry_pass(name: str) -> None:
    assert model.check_served_name(name) == name


# --- a directory that is there ----------------------------------------------------------------------------------------


def test_sound_directory_gives_config_and_size_of_its_files(tmp_path: Path) -> None:
    path = directory(tmp_path, {"model_type": "glm"}, model__safetensors="12345")
    config, size_bytes = model.inspect_directory(str(path))
    assert config == {"model_type": "glm"}
    assert size_bytes == len('{"model_type": "glm"}') + 5


@pytest.mark.parametrize(
    ("config", "files", "says"),
    [
        (None, {"model__safetensors": "x"}, "it has no config.json"),
        ("", {}, "it is not JSON"),
        ('{"model_type":', {}, "it is not JSON"),
        ("[1]", {}, "it holds a list, not an object"),
        ("[" * 100_000, {}, "it is not JSON"),
        ({}, {"model__safetensors": ""}, "it has no weights"),
        ("null", {}, "it holds null, not an object"),
        ('"text"', {}, "it holds a text, not an object"),
        ({}, {}, "it has no weights"),
        ({}, {"tokenizer__json": "{}"}, "set sglang_model_random_weights"),
    ],
)
def test_directory_that_cannot_be_served_is_named_with_the_reason(
    tmp_path: Path, config: Any, files: dict[str, str], says: str
) -> None:
    path = directory(tmp_path / "m", config, **files)
    with pytest.raises(model.ModelError) as caught:
        model.inspect_directory(str(path))
    assert says in str(caught.value)
    assert str(path) in str(caught.value)


def test_missing_directory_and_a_file_in_its_place_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(model.ModelError, match="there is no such directory"):
        model.inspect_directory(str(tmp_path / "nothing"))
    with pytest.raises(model.ModelError, match="it is not a directory"):
        model.inspect_directory(str(tmp_path / "file"))


def test_binary_config_is_an_error_of_ours_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(model.ModelError, match="it is not JSON"):
        model.inspect_directory(str(tmp_path))


def test_random_weights_need_no_weight_files(tmp_path: Path) -> None:
    assert model.inspect_directory(str(directory(tmp_path, {})), random_weights=True) == ({}, 2)


@pytest.mark.parametrize("name", ["model__safetensors", "pytorch_model__bin", "consolidated__00__pth", "q4__gguf"])
def test_every_usual_kind_of_weights_counts(tmp_path: Path, name: str) -> None:
    assert model.inspect_directory(str(directory(tmp_path, {}, **{name: "x"})))[1] == 3


def test_half_copied_weights_are_found_through_the_index(tmp_path: Path) -> None:
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-3.safetensors"}}
    path = directory(tmp_path, {}, **{"model.safetensors.index.json": json.dumps(index), "model-1.safetensors": "x"})
    with pytest.raises(model.ModelError) as caught:
        model.inspect_directory(str(path))
    assert "2 of 3 weight files are missing or empty, model-2.safetensors first" in str(caught.value)
    assert caught.value.facts["missing"] == ["model-2.safetensors", "model-3.safetensors"]


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"weight_map": {}}',
        '{"weight_map": {"a": "model-1.safetensors", "b": 1, "c": null}}',
        '{"weight_map": {"a": []}}',
        "[" * 100_000,
    ],
)
def test_damaged_index_is_named(tmp_path: Path, text: str) -> None:
    path = directory(tmp_path, {}, **{"model.safetensors.index.json": text, "model-1.safetensors": "x"})
    with pytest.raises(model.ModelError, match=r"cannot read .*model\.safetensors\.index\.json"):
        model.inspect_directory(str(path))


def test_empty_shard_of_an_index_is_found(tmp_path: Path) -> None:
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    files = {"model-1.safetensors": "x", "model-2.safetensors": ""}
    path = directory(tmp_path, {}, **{"model.safetensors.index.json": json.dumps(index), **files})
    with pytest.raises(model.ModelError, match=r"1 of 2 weight files are missing or empty, model-2\.safetensors first"):
        model.inspect_directory(str(path))


def test_link_to_nothing_is_found(tmp_path: Path) -> None:
    path = directory(tmp_path, {}, **{"model.safetensors": "x"})
    (path / "tokenizer.json").symlink_to("../blobs/gone")
    with pytest.raises(model.ModelError, match=r"tokenizer\.json is a link to nothing"):
        model.inspect_directory(str(path))


def test_linked_files_count_as_files(tmp_path: Path) -> None:
    blob = tmp_path / "blob"
    blob.write_text("12345")
    path = directory(tmp_path / "m", {})
    (path / "model.safetensors").symlink_to(blob)
    assert model.inspect_directory(str(path))[1] == 7


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can look with another user's eyes")
def test_file_that_the_servers_user_cannot_read_is_named_with_the_user(tmp_path: Path) -> None:
    for parent in [tmp_path, *tmp_path.parents]:
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    path = directory(tmp_path / "m", {}, **{"model.safetensors": "x"})
    path.chmod(0o755)
    (path / "config.json").chmod(0o644)
    (path / "model.safetensors").chmod(0o600)
    assert model.inspect_directory(str(path))[1] == 3
    with pytest.raises(model.ModelError) as caught:
        model.inspect_directory(str(path), user="nobody")
    assert f"cannot use model file {path}/model.safetensors: user nobody cannot read it" in str(caught.value)
    (path / "model.safetensors").chmod(0o644)
    assert model.inspect_directory(str(path), user="nobody")[1] == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can look with another user's eyes")
def test_unknown_user_is_an_error_that_names_the_variable(tmp_path: Path) -> None:
    path = directory(tmp_path, {}, **{"model.safetensors": "x"})
    with pytest.raises(model.ModelError, match="no such user; create it, or set sglang_user"):
        model.inspect_directory(str(path), user="no-such-user-here")


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_own_unreadable_file_is_found_without_root(tmp_path: Path) -> None:
    path = directory(tmp_path, {}, **{"model.safetensors": "x"})
    (path / "model.safetensors").chmod(0)
    with pytest.raises(model.ModelError, match="cannot read it"):
        model.inspect_directory(str(path))


def test_description_takes_the_first_architecture_and_survives_a_config_without_any() -> None:
    told = model.describe(
        "/m", model.parse(f"org/name@{COMMIT}"), "name", {"architectures": ["A", "B"], "model_type": "t"}, 7, False
    )
    assert told == model.Model("/m", "name", False, COMMIT, 7, "A", "t")
    bad: tuple[dict[str, Any], ...] = ({}, {"architectures": []}, {"architectures": "A"})
    for config in bad:
        bare = model.describe("/m", model.parse(f"org/name@{COMMIT}"), "name", config, 7, True)
        assert (bare.architecture, bare.model_type, bare.random_weights) == (None, None, True)
