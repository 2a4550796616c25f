# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which tuning file of a directory is used, what is wrong with the near ones, and damaged files and directories.

What is used and what is fatal was compared with the releases' own functions on thousands of made-up directories.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import moe_config, moe_config_content, moe_config_look
from ansible_collections.tokforge.sglang.plugins.module_utils.moe_config import Format, Key, Layer
from ansible_collections.tokforge.sglang.plugins.module_utils.moe_config_answer import answer, keys_of, wanted_files
from ansible_collections.tokforge.sglang.plugins.module_utils.moe_config_content import ContentError
from ansible_collections.tokforge.sglang.plugins.module_utils.moe_config_judge import (
    Asked,
    Entry,
    Judgement,
    judge_directory,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.moe_config_path import Setup
from ansible_collections.tokforge.sglang.plugins.module_utils.moe_config_request import Question

BLOCKS = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1}
GOOD = json.dumps({"1": BLOCKS, "64": {**BLOCKS, "num_warps": 4, "num_stages": 3}})
LAYER = Layer(64, 1024, tp=4)
FP8 = Format("fp8_w8a8", (128, 128))
KEY = Key(64, 256, "NVIDIA_H200", "fp8_w8a8", (128, 128))
H200 = "NVIDIA H200"


def asked(release: str = "0.5.23", layer: Layer = LAYER, kept: Format = FP8, **more: Any) -> Asked:
    key = moe_config.key_of(release, layer, kept, more.pop("device", H200))
    directories = more.pop("directories", ("triton_3_8_0", "triton_3_6_0"))
    return Asked(release, layer, (key, *more.pop("others", ())), directories)


def judge(want: Asked, *files: str, **contents: str) -> Judgement:
    """Files as version/name; what is not in `contents` (by version) is a good file."""
    entries = [Entry(file, file.rpartition("/")[2], file.rpartition("/")[0]) for file in files]
    return judge_directory(want, entries, lambda entry: contents.get(entry.version, GOOD))


def reason(want: Asked, name: str, version: str = "triton_3_8_0") -> str:
    found = judge(want, f"{version}/{name}" if version else name)
    assert found.applies is None and len(found.nearby) == 1, found
    return found.nearby[0].reason


# --- which one is used ------------------------------------------------------------------------------------------------


def test_file_of_the_own_triton_is_used_and_older_ones_are_not_reached() -> None:
    name = KEY.name()
    found = judge(asked(), f"triton_3_6_0/{name}", f"triton_3_8_0/{name}", f"triton_3_1_0/{name}", name)
    assert found.applies == f"triton_3_8_0/{name}"
    assert (found.fatal, found.notes, found.others) == ("", (), 0)
    assert {near.file: near.reason for near in found.nearby} == {
        name: "it lies outside of triton_3_8_0, where SGLang looks",
        f"triton_3_1_0/{name}": "SGLang 0.5.23 does not look into triton_3_1_0 here",
        f"triton_3_6_0/{name}": f"another directory comes before triton_3_6_0, and has it: triton_3_8_0/{name}",
    }


def test_file_of_another_triton_is_used_with_a_warning() -> None:
    found = judge(asked(), f"triton_3_6_0/{KEY.name()}")
    assert found.applies == f"triton_3_6_0/{KEY.name()}"
    assert "it was tuned for triton_3_6_0 and the Triton here is triton_3_8_0" in found.notes[0]


def test_down_projections_file_goes_with_the_other() -> None:
    up, down = f"triton_3_8_0/{KEY.name()}", f"triton_3_6_0/{replace(KEY, down=True).name()}"
    found = judge(asked(), up, down)
    assert (found.applies, found.applies_down, found.nearby) == (up, down, ())
    early = judge(asked("0.5.4.post1"), up, down)
    assert (early.applies, early.applies_down) == (up, None)
    assert "for the down projection alone, which SGLang looks for from 0.5.4.post2 on" in early.nearby[0].reason


def test_unlike_block_sizes_of_the_two_files_end_releases_before_0_5_13() -> None:
    up, down = f"triton_3_8_0/{KEY.name()}", f"triton_3_6_0/{replace(KEY, down=True).name()}"
    other = json.dumps({"1": BLOCKS, "64": {**BLOCKS, "BLOCK_SIZE_M": 32}})
    found = judge(asked("0.5.12.post1"), up, down, triton_3_6_0=other)
    assert (found.applies, found.applies_down) == (up, None)
    assert found.fatal == f"{down}: at batch size 33 its BLOCK_SIZE_M is not the one in {KEY.name()}"
    assert judge(asked("0.5.13"), up, down, triton_3_6_0=other).applies_down == down
    assert judge(asked("0.5.12.post1"), up, down).applies_down == down


@pytest.mark.parametrize(
    ("kept", "block_m", "batch"),
    [
        (Format(), {"1": 16, "64": 16, "65": 64}, None),
        (Format(), {"1": 16}, 65),
        (Format(), {"1": 64}, 1),
        (Format("fp8_w8a8"), {"1": 64, "64": 64, "65": 128}, None),
        (Format("fp8_w8a8"), {"1": 64}, 65),
        (FP8, {"1": 64}, None),
        (FP8, {"1": 16}, 1),
    ],
)
def test_down_file_alone_has_to_fit_the_defaults_before_0_5_13(
    kept: Format, block_m: dict[str, int], batch: int | None
) -> None:
    want = asked("0.5.12.post1", kept=kept)
    down = f"triton_3_8_0/{replace(want.wants[0], down=True).name()}"
    content = json.dumps({size: {**BLOCKS, "BLOCK_SIZE_M": value} for size, value in block_m.items()})
    found = judge(want, down, triton_3_8_0=content)
    if batch is None:
        assert (found.applies_down, found.fatal) == (down, "")
    else:
        assert f"at batch size {batch} its BLOCK_SIZE_M is not the default" in found.fatal
        assert found.nearby[0].reason.startswith("SGLang opens it and ends with it: at batch size")


def test_file_that_cannot_be_used_hides_a_good_one_behind_it() -> None:
    first, second = f"triton_3_8_0/{KEY.name()}", f"triton_3_6_0/{KEY.name()}"
    found = judge(asked(), first, second, triton_3_8_0="{")
    assert (found.applies, found.fatal) == (None, f"{first}: it is no valid JSON at line 1")
    assert found.nearby[0].file == first
    assert found.nearby[0].reason == "SGLang opens it and ends with it: it is no valid JSON at line 1"
    empty = judge(asked(), first, second, triton_3_8_0="{}")
    assert (empty.applies, empty.fatal) == (None, "")
    assert empty.nearby[0].reason.startswith("SGLang opens it, and it has no batch size, so SGLang takes its defaults")


def test_both_names_are_tried_where_it_is_not_known_whether_shared_experts_count() -> None:
    counted = replace(KEY, experts=65)
    want = asked(others=(counted,))
    with_, without = f"triton_3_8_0/{counted.name()}", f"triton_3_8_0/{KEY.name()}"
    only = judge(want, with_)
    assert only.applies == with_ and "it applies if shared experts are counted as experts" in only.notes[0]
    both = judge(want, with_, without)
    assert both.applies == without and "are not counted as experts" in both.notes[0]
    assert both.nearby[0].reason.startswith("it applies instead if shared experts are counted the other way")


# --- what is wrong with the others ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"experts": 65}, "E=65 is with a shared expert counted as an expert; here a rank has 64"),
        ({"experts": 16}, "E=16 is for ep 4; here a rank has 64"),
        ({"experts": 60}, "E=60 is for another number of experts; here a rank has 64"),
        ({"experts": 0}, "E=0 is for another number of experts"),
        ({"size": 1024}, "N=1024 is the whole model's and not one rank's, that is tp 1; here a rank has 256 with tp 4"),
        ({"size": 512}, "N=512 is for tp 2; here a rank has 256 with tp 4"),
        ({"size": 128}, "N=128 is for tp 8; here"),
        ({"size": 384}, "N=384 is for another intermediate size; here"),
        ({"size": 0}, "N=0 is for another intermediate size"),
        ({"device": "NVIDIA_H100"}, "device_name=NVIDIA_H100 is another GPU than NVIDIA_H200"),
        ({"device": "nvidia-h200"}, f"its name is spelt otherwise than SGLang looks for: {KEY.name()}"),
        ({"dtype": ""}, "it has no dtype, and these experts are fp8_w8a8"),
        ({"dtype": "int8_w8a8"}, "it has dtype=int8_w8a8, and these experts are fp8_w8a8"),
        ({"block": None}, "it has no block_shape, and these experts have scales for blocks of [128, 128]"),
        ({"block": (64, 128)}, "it has block_shape=[64, 128], and these experts have scales for blocks of [128, 128]"),
        ({"per_channel": True}, "it has per_channel_quant=True, and SGLang 0.5.23 looks for none"),
        ({"experts": 65, "down": True}, "E=65 is with a shared expert"),
    ],
)
def test_reason_names_what_differs(changed: dict[str, Any], said: str) -> None:
    assert said in reason(asked(), replace(KEY, **changed).name())


def test_reason_with_expert_parallelism_speaks_of_it() -> None:
    want = asked(layer=Layer(64, 1024, tp=4, ep=2))
    key = want.wants[0]
    assert (key.experts, key.size) == (32, 512)
    assert reason(want, replace(key, experts=64).name()) == (
        "E=64 is for all experts on each rank, that is ep 1; here a rank has 32 with ep 2"
    )
    assert reason(want, replace(key, experts=16).name()) == "E=16 is for ep 4; here a rank has 32 with ep 2"
    assert reason(want, replace(key, size=1024).name()) == (
        "N=1024 is the whole model's and not one rank's, that is tp 2; here a rank has 512 with tp 4 and ep 2"
    )
    assert reason(want, replace(key, experts=33).name()).startswith("E=33 is for another number")


def test_reason_for_a_file_without_the_shared_expert() -> None:
    want = asked(layer=replace(LAYER, fused_shared=1))
    said = "E=64 is without the shared experts, which are counted; here a rank has 65"
    assert reason(want, KEY.name()) == said


def test_reason_for_sizes_of_packed_weights() -> None:
    want = asked(kept=Format("int4_w4a16", packed=2))
    assert want.wants[0].size == 128
    assert reason(want, replace(want.wants[0], size=256).name()).startswith(
        "N=256 counts single weights, and 2 of them"
    )
    assert reason(want, replace(want.wants[0], size=512).name()).startswith("N=512 is the whole model's")
    assert reason(want, replace(want.wants[0], size=64).name()).startswith("N=64 is for tp 8")


def test_unquantized_experts_want_no_dtype_and_no_blocks() -> None:
    said = reason(asked(kept=Format()), KEY.name())
    assert "it has dtype=fp8_w8a8, and these experts are not quantized" in said
    assert "it has block_shape=[128, 128], and these experts have no scales for blocks" in said


def test_missing_per_channel_is_named() -> None:
    want = asked(kept=Format("fp8_w8a8", per_channel=True))
    said = reason(want, Key(64, 256, "NVIDIA_H200", "fp8_w8a8").name())
    assert said == "it has no per_channel_quant, and SGLang 0.5.23 looks for one"


def test_unknown_gpu_makes_nothing_apply() -> None:
    want = asked(device=moe_config.DEVICE_UNKNOWN)
    assert reason(want, KEY.name()) == "it is for NVIDIA_H200, and the GPU here is not known"
    assert "it is for a GPU without a name" in reason(want, replace(KEY, device="").name())


def test_blank_that_is_missing_in_the_block_shape_is_a_spelling() -> None:
    assert "its name is spelt otherwise" in reason(asked(), KEY.name().replace(", ", ","))


def test_near_ones_come_first_and_are_bounded() -> None:
    far = [
        f"triton_3_8_0/{replace(KEY, device='AMD', experts=60).name()}",
        f"triton_3_8_0/{replace(KEY, size=7, experts=60).name()}",
    ]
    sizes = [f"triton_3_8_0/{replace(KEY, size=2000 + number).name()}" for number in range(12)]
    spelt = f"triton_3_8_0/{KEY.name().upper()}"
    found = judge(
        asked(), *far, *sizes, spelt, "triton_3_8_0/README.md", "triton_3_8_0/other.json", "triton_3_8_0/E=1.json"
    )
    assert found.nearby[0].reason.startswith("its name is spelt otherwise")
    assert [near.file for near in found.nearby[1:]] == sorted(sizes)[:9]
    assert (len(found.nearby), found.left_out, found.others) == (10, 4, 2)


def test_name_that_cannot_be_understood_is_told_with_a_right_one() -> None:
    assert reason(asked(), "E=64,N=256.json") == f"its name is none that SGLang makes; one is {KEY.name()}"


# --- contents ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no valid JSON at line 1"),
        ('{"1": {', "no valid JSON at line 1"),
        ("[" * 100_000, "no valid JSON"),
        ("[]", "no JSON object"),
        ("null", "no JSON object"),
        ('{"x": {}}', "its key 'x' is no batch size"),
        (json.dumps({"1.5": BLOCKS}), "its key '1.5' is no batch size"),
        (json.dumps({"9" * 5000: BLOCKS}), "its key '999"),
        ('{"1": []}', "at batch size 1 it has no object"),
        ('{"1": {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_K": 16}}', "at batch size 1 it lacks BLOCK_SIZE_N, GROUP_SIZE_M"),
        (json.dumps({"1": BLOCKS, "8": {**BLOCKS, "BLOCK_SIZE_N": "64"}}), "at batch size 8 its BLOCK_SIZE_N is '64'"),
        (json.dumps({"1": {**BLOCKS, "num_warps": True}}), "its num_warps is True and no number"),
        (json.dumps({"1": {**BLOCKS, "num_stages": 0}}), "its num_stages is 0 and no number above 0"),
        (json.dumps({"1": {**BLOCKS, "GROUP_SIZE_M": float("nan")}}), "its GROUP_SIZE_M is nan"),
        (json.dumps({"1": {**BLOCKS, "BLOCK_SIZE_K": 96}}), "its BLOCK_SIZE_K is 96 and no power of two"),
        (json.dumps({"1": {**BLOCKS, "BLOCK_SIZE_K": -64}}), "its BLOCK_SIZE_K is -64 and no number"),
        (json.dumps({"1": {**BLOCKS, "BLOCK_SIZE_K": 3 * 2**200}}), "its BLOCK_SIZE_K is a huge number and no power"),
        (json.dumps({"1": {**BLOCKS, "BLOCK_SIZE_K": "x" * 99}}), "xxx... and no number"),
        (
            json.dumps({"1": {**BLOCKS, "USE_TMA": True}}),
            "has USE_TMA, which a file like this may have from SGLang 0.5.18",
        ),
    ],
)
def test_content_that_ends_a_server_is_named(content: str, said: str) -> None:
    with pytest.raises(ContentError) as caught:
        moe_config_content.read(content, "0.5.17")
    assert said in str(caught.value) and caught.value.fatal


def test_content_that_is_fine() -> None:
    content = json.dumps({"16": {**BLOCKS, "GROUP_SIZE_M": 3, "waves_per_eu": 0}, " 1": {**BLOCKS, "USE_TMA": True}})
    assert sorted(moe_config_content.read(content, "0.5.18")) == [1, 16]
    assert sorted(moe_config_content.read(content, "0.5.12", down=True)) == [1, 16]


def test_nearest_batch_size_is_taken() -> None:
    settings = {1: {"a": 1}, 8: {"a": 8}, 64: {"a": 64}}
    assert [moe_config_content.nearest(settings, batch)["a"] for batch in (1, 4, 5, 36, 37, 9999)] == [
        1,
        1,
        8,
        8,
        64,
        64,
    ]


# --- directories ------------------------------------------------------------------------------------------------------


def put(root: Path, *paths: str, content: str = GOOD) -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    return root


def question(release: str = "0.5.23", backend: str = "triton", **more: Any) -> Question:
    return Question(Setup(release, backend, "fp8"), more.pop("layer", LAYER), more.pop("kept", FP8), **more)


def ask(directory: Path | str, release: str = "0.5.23", device: str = H200, triton: str = "3.8.0") -> dict[str, Any]:
    one = question(release)
    listing = moe_config_look.listing(
        str(directory), release, triton, keys_of(one, device or moe_config.DEVICE_UNKNOWN)
    )
    return answer(one, device, triton, listing)


@pytest.mark.parametrize("below", ["", "configs", "configs/triton_3_6_0"])
def test_directory_is_understood_from_any_of_its_levels(tmp_path: Path, below: str) -> None:
    put(tmp_path, f"configs/triton_3_8_0/{KEY.name()}", "configs/triton_3_6_0/x.json")
    found = ask(tmp_path / below)
    assert found["applies"] == f"{tmp_path}/configs/triton_3_8_0/{KEY.name()}"
    assert any(f"SGLANG_MOE_CONFIG_DIR={tmp_path};" in note for note in found["notes"])
    assert found["message"] == f"the triton runner reads tuning files: it uses {found['applies']}"
    assert found["wanted"] == [f"configs/triton_3_8_0/{KEY.name()}", f"configs/triton_3_6_0/{KEY.name()}"]
    assert found["wanted_down"][0] == f"configs/triton_3_8_0/{replace(KEY, down=True).name()}"


def test_packages_own_directory_needs_no_variable(tmp_path: Path) -> None:
    own = tmp_path / moe_config.package_directory("0.5.23")
    put(own, f"configs/triton_3_8_0/{KEY.name()}")
    assert not any("SGLANG_MOE_CONFIG_DIR" in note for note in ask(own)["notes"])


def test_releases_before_the_variable_read_their_package_only(tmp_path: Path) -> None:
    put(tmp_path, f"configs/triton_3_4_0/{KEY.name()}")
    notes = ask(tmp_path, "0.5.3rc0", triton="3.4.0")["notes"]
    assert any(
        note.startswith("SGLang 0.5.3rc0 reads files only from sglang/srt/layers/moe/fused_moe_triton")
        for note in notes
    )


def test_heap_of_files_is_not_found_by_sglang(tmp_path: Path) -> None:
    put(tmp_path, KEY.name())
    found = ask(tmp_path)
    assert found["applies"] is None
    assert found["nearby"] == [
        {"file": f"{tmp_path}/{KEY.name()}", "reason": "it lies outside of triton_3_8_0, where SGLang looks"}
    ]
    assert any("has no such directory; move the files there" in note for note in found["notes"])
    assert any("the first forward fails" in note for note in found["notes"])
    assert "no file of the directory applies, it looks for configs/triton_3_8_0/" in found["message"]
    assert "nearest is" in found["message"]


def test_directory_must_be_called_configs(tmp_path: Path) -> None:
    put(tmp_path, f"triton_3_8_0/{KEY.name()}")
    found = ask(tmp_path)
    problem = f"SGLang reads {tmp_path} only once it is called configs; rename it"
    assert (found["applies"], found["fatal"]) == (None, "")
    assert found["nearby"] == [{"file": f"{tmp_path}/triton_3_8_0/{KEY.name()}", "reason": problem}]
    put(tmp_path, f"triton_3_8_0/{KEY.name()}", content="{")
    assert ask(tmp_path)["fatal"] == ""


def test_directory_that_is_not_there_is_an_answer() -> None:
    found = ask("/nonexistent/tuned")
    assert found["applies"] is None and found["nearby"] == []
    assert any(note.startswith("cannot read the directory /nonexistent/tuned: No such file") for note in found["notes"])


@pytest.mark.parametrize(("release", "fatal"), [("0.5.11", False), ("0.5.12", True)])
def test_stray_entry_among_the_versions_ends_releases_that_list_them(tmp_path: Path, release: str, fatal: bool) -> None:
    put(tmp_path, f"configs/triton_3_6_0/{KEY.name()}", "configs/triton_3_6_0.tgz")
    found = ask(tmp_path, release, triton="3.6.0")
    assert bool(found["fatal"]) is fatal
    if fatal:
        assert "has triton_3_6_0.tgz, which SGLang takes for a Triton version" in found["message"]
        put(tmp_path, f"configs/triton_3_6_0/{replace(KEY, down=True).name()}")
        assert ask(tmp_path, release, triton="3.6.0")["fatal"] == ""


def test_links_to_nothing_are_no_files(tmp_path: Path) -> None:
    put(tmp_path, f"configs/triton_3_6_0/{KEY.name()}", "configs/triton_3_8_0/x.json")
    os.symlink("/nonexistent", tmp_path / "configs/triton_3_8_0" / KEY.name())
    found = ask(tmp_path)
    assert found["applies"] == f"{tmp_path}/configs/triton_3_6_0/{KEY.name()}"
    assert any("is a link to nothing" in note for note in found["notes"])


def test_directory_or_pipe_in_the_place_of_a_file_is_fatal(tmp_path: Path) -> None:
    (tmp_path / "configs/triton_3_8_0" / KEY.name()).mkdir(parents=True)
    assert ask(tmp_path)["fatal"].endswith("it is no file")
    (tmp_path / "configs/triton_3_8_0" / KEY.name()).rmdir()
    os.mkfifo(tmp_path / "configs/triton_3_8_0" / KEY.name())
    assert ask(tmp_path)["fatal"].endswith("it is no file")


def test_file_that_is_no_text_or_huge(tmp_path: Path) -> None:
    path = tmp_path / "configs/triton_3_8_0" / KEY.name()
    put(tmp_path, f"configs/triton_3_8_0/{KEY.name()}")
    path.write_bytes(b"\xff\xfe{}")
    assert ask(tmp_path)["fatal"].endswith("it is no UTF-8 text")
    path.write_bytes(b" " * (moe_config_look.LARGEST_CONFIG_BYTES + 1))
    found = ask(tmp_path)
    assert (found["applies"], found["fatal"]) == (None, "")
    assert "has more than 1048576 bytes" in found["nearby"][0]["reason"]


def test_file_that_vanishes_is_said_to_be_unreadable(tmp_path: Path) -> None:
    place = moe_config_look.Place(str(tmp_path))
    with pytest.raises(ContentError, match="it cannot be read: No such file"):
        moe_config_look.read_entry(place, Entry("x", "x.json", "triton_1"))


def test_more_files_than_are_looked_at_still_find_the_right_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moe_config_look, "MOST_FILES", 3)
    put(tmp_path, *(f"configs/triton_3_8_0/{number}.json" for number in range(9)))
    put(tmp_path, f"configs/triton_3_6_0/{KEY.name()}")
    found = ask(tmp_path)
    assert found["applies"] == f"{tmp_path}/configs/triton_3_6_0/{KEY.name()}"
    assert any(note.startswith("the directory has more files than were looked at") for note in found["notes"])


def test_more_versions_than_are_looked_at_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moe_config_look, "MOST_DIRECTORIES", 1)
    put(tmp_path, "configs/triton_1/a.json", "configs/triton_2/b.json")
    assert not moe_config_look.listing(str(tmp_path), "0.5.23", "3.8.0", (KEY,)).complete


def test_line_ends_in_names_do_not_reach_the_answer(tmp_path: Path) -> None:
    put(tmp_path, "configs/triton_3_8_0/E=1\n,N=2.json")
    os.mkdir(os.fsencode(tmp_path) + b"/configs/triton_\xff\n")
    found = ask(tmp_path)
    assert found["nearby"][0]["file"].endswith("E=1?,N=2.json")
    assert "triton_\\udcff?" in found["fatal"]
    json.dumps(found).encode("utf-8")


def test_configs_that_is_a_file(tmp_path: Path) -> None:
    put(tmp_path, "configs")
    assert moe_config_look.place_of(str(tmp_path)).configs == ""
    assert moe_config_look.place_of(str(tmp_path / "configs")).problem.startswith("cannot read the directory")


def test_configs_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "configs/triton_3_8_0/x.json")
    real = os.listdir

    def refuse(path: str) -> list[str]:
        if path.endswith("configs"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(moe_config_look.os, "listdir", refuse)
    found = ask(tmp_path)
    assert f"cannot read the directory {tmp_path}/configs: Permission denied; make it readable" in found["notes"]
    assert (found["applies"], found["fatal"]) == (None, "")


# --- answers ----------------------------------------------------------------------------------------------------------


def test_kernel_that_reads_nothing_ends_the_question() -> None:
    found = answer(question(backend="flashinfer_trtllm"), H200, "3.8.0")
    assert (
        found["message"]
        == "no tuning file is read: the flashinfer_trtllm runner never reads tuning files, only triton does"
    )
    assert (found["wanted"], found["wanted_down"], found["notes"]) == ([], [], [])
    dense = answer(Question(Setup("0.5.23"), None, None), "", "3.8.0")
    assert dense["message"] == "no tuning file is read: the model has no experts, so there is no MoE kernel to tune"
    assert dense["path"] == {
        "backend": "",
        "reads_configs": False,
        "reason": "the model has no experts, so there is no MoE kernel to tune",
    }


def test_directory_is_not_judged_for_a_kernel_that_reads_nothing(tmp_path: Path) -> None:
    put(tmp_path, f"configs/triton_3_8_0/{KEY.name()}")
    listing = moe_config_look.listing(str(tmp_path), "0.5.23", "3.8.0", (KEY,))
    found = answer(question(backend="flashinfer_trtllm"), H200, "3.8.0", listing)
    assert (found["applies"], found["nearby"], found["fatal"]) == (None, [], "")


def test_without_a_directory_the_name_is_told() -> None:
    found = answer(question(), H200, "3.8.0")
    assert found["message"] == f"the triton runner reads tuning files: it looks for configs/triton_3_8_0/{KEY.name()}"
    assert found["notes"] == [
        "the file for the down projection alone is optional: without it the other one serves both"
    ]
    early = answer(question("0.5.4"), H200, "3.4.0")
    assert (early["wanted_down"], early["notes"]) == ([], [])
    assert len(early["wanted"]) == 4


def test_unknown_kernel_gpu_and_kind_of_weights_are_said_to_be_unknown() -> None:
    found = answer(question(backend="auto"), "", "3.8.0")
    assert found["path"]["reads_configs"] is None
    assert found["message"].startswith("whether tuning files are read is not known: what auto becomes")
    assert "If triton runs, it looks for configs/triton_3_8_0/E=64,N=256,device_name=<GPU_name>" in found["message"]
    assert any("give device_name" in note for note in found["notes"])
    unknown = answer(question(kept=None), H200, "3.8.0")
    assert unknown["message"] == "the triton runner reads tuning files: the name of its file is not known"
    assert any("what files for quantization fp8 are called depends on" in note for note in unknown["notes"])


def test_both_names_are_wanted_where_shared_experts_may_count() -> None:
    found = answer(question(shared=1), H200, "3.8.0")
    assert [name.partition("E=")[2][:3] for name in found["wanted"]] == ["64,", "65,"]


def test_wanted_files_of_a_fixed_list_need_no_directory() -> None:
    wanted = wanted_files("0.5.11", "3.6.0", (KEY,))
    assert wanted.directories == ("triton_3_6_0", "triton_3_4_0", "triton_3_3_1", "triton_3_2_0", "triton_3_1_0")
    assert wanted.files[1] == f"configs/triton_3_4_0/{KEY.name()}"
    assert wanted.down_files[0] == f"configs/triton_3_6_0/{replace(KEY, down=True).name()}"


# --- models -----------------------------------------------------------------------------------------------------------


def test_quantization_settings_are_found_one_level_down() -> None:
    inner = {"weight_block_size": [1, 2]}
    assert moe_config_look.quantization_settings({"quantization_config": inner}) == inner
    assert moe_config_look.quantization_settings({"text_config": {"quantization_config": inner}}) == inner
    assert moe_config_look.quantization_settings({"quantization_config": [1], "text_config": 7}) == {}


def test_release_that_nobody_read_is_said_to_be_one() -> None:
    told = [note for note in answer(question(release="0.5.24"), H200, "3.8.0")["notes"] if "was not read" in note]
    assert told == ["SGLang 0.5.24 was not read: its files are named as in 0.5.23, or otherwise"]
    assert not [note for note in answer(question(), H200, "3.8.0")["notes"] if "was not read" in note]
