# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What weight files hold, read from real safetensors files and from damaged ones."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

import pytest
from model_configs import shape

from ansible_collections.tokforge.sglang.plugins.module_utils import weight_index, weight_shards
from ansible_collections.tokforge.sglang.plugins.module_utils.model_matrices import (
    EMBEDDING,
    HEAD,
    KV_HEADS,
    ROUTED,
    SHARED,
    SPLIT,
    SPLIT_ATTENTION,
    WHOLE,
    Portion,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.weight_index import (
    ABSENT,
    DAMAGED,
    HEADERS,
    TOTAL,
    Tensor,
    WeightIndex,
)

ONE = {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}


def write(path: pathlib.Path, header: Any, data_bytes: int = 12, raw: bytes | None = None) -> None:
    """A safetensors file with this header, or these bytes as header, and zeros as weights."""
    text = raw if raw is not None else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"\0" * data_bytes)


def index_of(directory: pathlib.Path, files: dict[str, str], **metadata: Any) -> None:
    """An index file."""
    (directory / weight_index.INDEX).write_text(json.dumps({"metadata": metadata, "weight_map": files}))


def test_tensors_of_one_file_are_read_without_loading_it(tmp_path: pathlib.Path) -> None:
    entries = {
        "__metadata__": {"format": "pt"},
        "a.weight": ONE,
        "b.weight_packed": {"dtype": "F4", "shape": [3], "data_offsets": [12, 14]},
        "c.scale": {"dtype": "F8_E4M3", "shape": [], "data_offsets": [14, 15]},
    }
    write(tmp_path / "model.safetensors", entries, 15)
    assert weight_index.read(str(tmp_path)) == WeightIndex(
        HEADERS,
        15,
        (
            Tensor("a.weight", "BF16", (2, 3), 12, "model.safetensors"),
            Tensor("b.weight_packed", "F4", (3,), 2, "model.safetensors"),
            Tensor("c.scale", "F8_E4M3", (), 1, "model.safetensors"),
        ),
        1,
    )


def test_the_index_says_which_files_and_tensors_count(tmp_path: pathlib.Path) -> None:
    for number in (1, 2):
        write(
            tmp_path / f"model-{number}.safetensors",
            {f"t{number}": ONE, "again": {**ONE, "data_offsets": [12, 24]}},
            24,
        )
    write(tmp_path / "consolidated.safetensors", {"t1": ONE})
    index_of(tmp_path, {"t1": "model-1.safetensors", "again": "model-1.safetensors", "t2": "model-2.safetensors"})
    found = weight_index.read(str(tmp_path))
    assert (found.state, found.total_bytes, found.files) == (HEADERS, 36, 2)
    assert [(tensor.name, tensor.file[:7]) for tensor in found.tensors] == [
        ("t1", "model-1"),
        ("again", "model-1"),
        ("t2", "model-2"),
    ]


def test_without_headers_the_total_of_the_index_is_known(tmp_path: pathlib.Path) -> None:
    (tmp_path / "m.safetensors").write_bytes(b"")
    index_of(tmp_path, {"t": "m.safetensors"}, total_size=1_506_659_919_872)
    assert weight_index.read(str(tmp_path), headers=False) == WeightIndex(TOTAL, 1_506_659_919_872, (), 1)


@pytest.mark.parametrize(
    ("value", "total"), [(1.5e12, 1_500_000_000_000), (1.5, None), ("12", None), (True, None), (-1, None), (None, None)]
)
def test_a_total_that_is_no_size_is_not_believed(tmp_path: pathlib.Path, value: Any, total: int | None) -> None:
    (tmp_path / "m.safetensors").write_bytes(b"")
    index_of(tmp_path, {"t": "m.safetensors"}, total_size=value)
    assert weight_index.read(str(tmp_path), headers=False).total_bytes == total


def test_consolidated_copies_count_only_when_alone(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "consolidated.safetensors", {"t": ONE})
    assert weight_index.read(str(tmp_path)).total_bytes == 12
    write(tmp_path / "model.safetensors", {"t": ONE})
    found = weight_index.read(str(tmp_path))
    assert [tensor.file for tensor in found.tensors] == ["model.safetensors"]


def test_no_weights_and_no_directory_are_told_apart(tmp_path: pathlib.Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    assert weight_index.read(str(tmp_path)) == WeightIndex(ABSENT)
    missing = weight_index.read(str(tmp_path / "none"))
    assert missing.state == DAMAGED
    assert missing.problems == (f"cannot list {tmp_path / 'none'}: No such file or directory",)
    assert weight_index.read("a\0b").state == DAMAGED


#: Headers that are no description of a file with 12 bytes of weights, and what must be told.
BAD_HEADERS: list[tuple[Any, str]] = [
    ([1], "is no safetensors file: its header is no JSON object"),
    ({"t": [1]}, "is no safetensors file: tensor 't' has no description"),
    ({"t": {**ONE, "dtype": "INT3"}}, "has tensor 't' of the unknown type 'INT3'"),
    ({"t": {**ONE, "dtype": ["BF16"]}}, "of the unknown type"),
    ({"t": {**ONE, "shape": [2, "3"]}}, "has tensor 't' without a usable shape"),
    ({"t": {**ONE, "shape": [2, True]}}, "without a usable shape"),
    ({"t": {**ONE, "shape": [-2, -3]}}, "without a usable shape"),
    ({"t": {**ONE, "shape": None}}, "without a usable shape"),
    ({"t": {**ONE, "shape": [1] * 33}}, "without a usable shape"),
    ({"t": {**ONE, "data_offsets": [0]}}, "has tensor 't' without a usable place"),
    ({"t": {**ONE, "data_offsets": [0, 12.0]}}, "without a usable place"),
    ({"t": {**ONE, "data_offsets": [-12, 0]}}, "without a usable place"),
    ({"t": {**ONE, "data_offsets": "ab"}}, "without a usable place"),
    ({"t": {**ONE, "data_offsets": [12, 0]}}, "has tensor 't' with -12 bytes for 6 elements of type BF16"),
    ({"t": {**ONE, "shape": [9**15] * 20}}, "has tensor 't' with 12 bytes for "),
    ({"t": {**ONE, "data_offsets": [4, 16]}}, "is cut off: tensor 't' ends at byte 16 and there are 12"),
    ({"t\0" * 900: 1}, "has no description"),
]


@pytest.mark.parametrize(("header", "message"), BAD_HEADERS, ids=range(len(BAD_HEADERS)))
def test_a_header_that_contradicts_itself_or_the_file_is_told(
    tmp_path: pathlib.Path, header: Any, message: str
) -> None:
    write(tmp_path / "m.safetensors", header)
    found = weight_index.read(str(tmp_path))
    assert (found.state, found.tensors, len(found.problems)) == (DAMAGED, (), 1)
    assert found.problems[0].startswith("m.safetensors ")
    assert message in found.problems[0]
    assert len(found.problems[0]) < 1000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is cut off: it has 0 bytes"),
        (b"\x02\0\0", "is cut off: it has 3 bytes"),
        (b"\xff" * 8, "says its header has 18446744073709551615 bytes"),
        ((100_000_001).to_bytes(8, "little"), "says its header has 100000001 bytes"),
        ((50).to_bytes(8, "little") + b"{}", "is cut off: its header has 50 bytes and the file 10"),
        ((2).to_bytes(8, "little") + b"{,", "cannot be read: Expecting"),
        ((2).to_bytes(8, "little") + b"\xff\xfe", "cannot be read: "),
        ((9).to_bytes(8, "little") + b'{"a":NaN}', "tensor 'a' has no description"),
        ((13).to_bytes(8, "little") + b'{"a":1,"a":2}', "its header has a name twice"),
        ((36).to_bytes(8, "little") + b'{"a":' + b"9" * 30 + b"}", "holds a number of 30 digits"),
        ((40_000).to_bytes(8, "little") + b"[" * 40_000, "cannot be read: "),
    ],
)
def test_a_file_that_is_cut_off_or_no_safetensors_is_told(tmp_path: pathlib.Path, content: bytes, message: str) -> None:
    (tmp_path / "m.safetensors").write_bytes(content)
    found = weight_index.read(str(tmp_path))
    assert found.state == DAMAGED
    assert message in found.problems[0]


def test_all_headers_together_have_a_limit(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        write(tmp_path / f"{name}.safetensors", {name: ONE})
    monkeypatch.setattr(weight_index, "LARGEST_HEADERS_BYTES", 100)
    found = weight_index.read(str(tmp_path))
    assert found.problems == ("b.safetensors has a header of 66 bytes, and all headers together may have 34 more",)


def test_a_pipe_is_not_waited_for(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "m.safetensors")
    assert weight_index.read(str(tmp_path)).problems == ("m.safetensors is no plain file",)
    os.mkfifo(tmp_path / weight_index.INDEX)
    assert weight_index.read(str(tmp_path)).problems[0] == f"{weight_index.INDEX} is no plain file"


def test_a_tensor_in_two_files_is_told(tmp_path: pathlib.Path) -> None:
    for name in "ab":
        write(tmp_path / f"{name}.safetensors", {"t": ONE})
    assert weight_index.read(str(tmp_path)).problems == ("b.safetensors has tensor 't', which a.safetensors has too",)


def test_missing_files_and_tensors_are_told(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "a.safetensors", {"t": ONE})
    index_of(tmp_path, {"t": "a.safetensors", "u": "a.safetensors"}, total_size=24)
    assert weight_index.read(str(tmp_path)).problems == ("1 tensors of the index are in no file, 'u' first",)
    index_of(tmp_path, {"t": "a.safetensors", "u": "b.safetensors", "v": "c.safetensors"}, total_size=36)
    found = weight_index.read(str(tmp_path))
    assert (found.state, found.total_bytes, found.files) == (DAMAGED, 36, 3)
    assert found.problems == ("2 of 3 weight files are missing, b.safetensors first",)
    assert weight_index.read(str(tmp_path), headers=False).state == DAMAGED


def test_many_problems_are_counted(tmp_path: pathlib.Path) -> None:
    for number in range(9):
        (tmp_path / f"{number}.safetensors").write_bytes(b"")
    problems = weight_index.read(str(tmp_path)).problems
    assert (len(problems), problems[-1]) == (6, "and 4 more")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read: Expecting value"),
        ("[]", "has no weight_map that names files"),
        ('{"weight_map": {}}', "has no weight_map that names files"),
        ('{"weight_map": {"t": 5}}', "has a weight_map with something other than file names"),
        ('{"weight_map": {"t": "model.bin"}}', "names 'model.bin', which is no safetensors file beside it"),
        ('{"weight_map": {"t": "../a.safetensors"}}', "which is no safetensors file beside it"),
        ('{"weight_map": {"t": "/etc/passwd"}}', "which is no safetensors file beside it"),
        ('{"weight_map": {"t": "a\\u0000.safetensors"}}', "which is no safetensors file beside it"),
        ('{"metadata": {"total_size": ' + "9" * 40 + "}}", "holds a number of 40 digits"),
        ("[" * 100_000, "cannot be read: "),
    ],
)
def test_an_index_that_is_none_is_told(tmp_path: pathlib.Path, text: str, message: str) -> None:
    (tmp_path / weight_index.INDEX).write_text(text)
    write(tmp_path / "a.safetensors", {"t": ONE})
    found = weight_index.read(str(tmp_path))
    assert found.state == DAMAGED
    assert message in found.problems[0]


def test_an_index_of_absurd_size_is_not_read(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index_of(tmp_path, {"t": "a.safetensors"})
    monkeypatch.setattr(weight_index, "LARGEST_INDEX_BYTES", 10)
    assert "more than the 10 that an index can have" in weight_index.read(str(tmp_path)).problems[0]


def test_an_unreadable_file_is_told(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.safetensors").symlink_to(tmp_path / "gone")
    assert weight_index.read(str(tmp_path)).problems == ("a.safetensors cannot be read: No such file or directory",)


# --- which part a rank holds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "portion"),
    [
        ("model.embed_tokens.weight", ("embedding", EMBEDDING, 0)),
        ("lm_head.weight", ("lm_head", HEAD, 77)),
        ("model.norm.weight", ("norms", WHOLE, 0)),
        ("model.layers.5.input_layernorm.weight", ("norms", WHOLE, 5)),
        ("model.layers.5.self_attn.q_a_proj.weight", ("attention", WHOLE, 5)),
        ("model.layers.5.self_attn.kv_a_proj_with_mqa.weight", ("attention", WHOLE, 5)),
        ("model.layers.5.self_attn.kv_a_layernorm.weight", ("norms", WHOLE, 5)),
        ("model.layers.5.self_attn.q_b_proj.weight", ("attention", SPLIT_ATTENTION, 5)),
        ("model.layers.5.self_attn.o_proj.weight", ("attention", SPLIT_ATTENTION, 5)),
        ("model.layers.5.self_attn.k_proj.weight", ("attention", KV_HEADS, 5)),
        ("model.layers.5.self_attn.indexer.wq_b.weight", ("indexer", WHOLE, 5)),
        ("model.layers.5.mlp.gate.weight", ("router", WHOLE, 5)),
        ("model.layers.5.mlp.gate.e_score_correction_bias", ("router", WHOLE, 5)),
        ("model.layers.5.mlp.experts.77.down_proj.weight_scale", ("experts", ROUTED, 5)),
        ("model.layers.5.mlp.experts.gate_up_proj_blocks", ("experts", ROUTED, 5)),
        ("model.layers.5.block_sparse_moe.experts.7.w1.weight", ("experts", ROUTED, 5)),
        ("model.layers.5.mlp.shared_experts.up_proj.weight", ("shared experts", SHARED, 5)),
        ("model.layers.5.mlp.shared_expert.up_proj.weight", ("shared experts", SHARED, 5)),
        ("model.layers.5.mlp.shared_expert_gate.weight", ("router", WHOLE, 5)),
        ("model.layers.0.mlp.gate_proj.weight", ("dense", SPLIT, 0)),
        ("model.language_model.layers.5.linear_attn.in_proj_qkvz.weight", ("linear attention", SPLIT_ATTENTION, 5)),
        ("model.visual.blocks.80.attn.qkv.weight", ("tower", WHOLE, 0)),
        ("vision_tower.encoder.layers.3.mlp.fc0.weight", ("tower", WHOLE, 0)),
        ("model.rotary.inv_freq", ("other", WHOLE, 0)),
    ],
)
def test_a_name_tells_how_a_tensor_is_shared(name: str, portion: tuple[str, str, int]) -> None:
    model, drafts = weight_shards.portions([Tensor(name, "BF16", (4,), 8, "f")], shape("glm-5"))
    assert (model, drafts) == ([Portion(*portion, 8.0)], [])


@pytest.mark.parametrize(
    "name", ["model.layers.78.mlp.experts.1.up_proj.weight", "mtp.layers.0.mlp.experts.1.w.weight"]
)
def test_draft_layers_are_kept_apart(name: str) -> None:
    model, drafts = weight_shards.portions([Tensor(name, "BF16", (4,), 8, "f")], shape("glm-5"))
    assert (model, drafts) == ([], [Portion("experts", ROUTED, 78, 8.0)])


def test_tensors_of_a_kind_and_layer_are_added_up() -> None:
    tensors = [
        Tensor(f"model.layers.{layer}.mlp.experts.{number}.up_proj.weight", "U8", (1,), 10 + layer, "f")
        for layer in (3, 4)
        for number in range(100)
    ]
    assert weight_shards.portions(tensors, shape("glm-5"))[0] == [
        Portion("experts", ROUTED, 3, 1300.0),
        Portion("experts", ROUTED, 4, 1400.0),
    ]
