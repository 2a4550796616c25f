# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import gzip
import json
import os
import shutil
import socket
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from profiled_server import Faults, serve

from ansible_collections.tokforge.sglang.plugins.module_utils import profile_run, profile_server
from ansible_collections.tokforge.sglang.plugins.module_utils.profile_run import Outcome, Request, floor, prune, run
from ansible_collections.tokforge.sglang.plugins.module_utils.profile_server import ProfileRunError


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_run, "_POLL_S", 0.005)
    monkeypatch.setattr(profile_run, "_STEADY_S", 0.02)
    monkeypatch.setattr(profile_server, "_JOIN_S", 0.05)


def profile(root: Path, faults: Faults | None = None, **more: Any) -> tuple[Outcome, Any]:
    with serve(faults or Faults()) as (url, seen):
        return run(Request(url, str(root), **{"batch": 3, "steps": 4, "input_len": 8, "timeout_s": 10.0, **more})), seen


def failure(root: Path, faults: Faults, **more: Any) -> ProfileRunError:
    with pytest.raises(ProfileRunError) as caught:
        profile(root, faults, **more)
    # Nothing of a profile that failed is left.
    assert [name for name in os.listdir(root / "bench") if name.startswith("profile-")] == []
    return caught.value


def test_a_profile_starts_when_all_requests_decode_and_is_read(tmp_path: Path) -> None:
    outcome, seen = profile(tmp_path)
    assert [path for path in seen.paths if path != "/stop_profile"] == ["/server_info", "/generate", "/start_profile"]
    body = seen.bodies["/start_profile"]
    assert body == {
        "output_dir": outcome.directory, "num_steps": 4, "activities": ["CPU"], "profile_by_stage": False,
        "with_stack": False, "record_shapes": False,
    }  # fmt: skip
    (found,) = outcome.profiles
    assert (found.rank, found.steps, found.device) == ("TP-0", 3, "cpu")
    assert outcome.context >= 8 + 2 + 2
    assert outcome.notes == ()
    assert outcome.directory is not None
    assert os.listdir(outcome.directory) == ["1796028295.81-TP-0.trace.json.gz"]
    assert os.stat(outcome.directory).st_mode & 0o777 == 0o700


def test_prompts_differ_and_answers_outlast_the_profile(tmp_path: Path) -> None:
    body = profile(tmp_path)[1].bodies["/generate"]
    assert len({tuple(prompt) for prompt in body["input_ids"]}) == 3
    assert {len(prompt) for prompt in body["input_ids"]} == {8}
    assert body["sampling_params"] == {"max_new_tokens": 2056, "ignore_eos": True, "temperature": 0}
    assert body["stream"] is True


def test_the_load_is_ended_with_the_profile(tmp_path: Path) -> None:
    assert profile(tmp_path)[1].hung_up.wait(2)


def test_keys_go_where_they_belong_and_none_is_told(tmp_path: Path) -> None:
    outcome, seen = profile(tmp_path, api_key="k1", admin_api_key="k2")
    assert seen.keys["/server_info"] == seen.keys["/generate"] == "Bearer k1"
    assert seen.keys["/start_profile"] == "Bearer k2"
    assert outcome.server == {"version": "0.5.23", "device": "cpu", "tp_size": 1}
    assert profile(tmp_path, api_key="k1")[1].keys["/start_profile"] == "Bearer k1"
    assert profile(tmp_path)[1].keys["/start_profile"] is None


def test_all_ranks_are_waited_for(tmp_path: Path) -> None:
    outcome, _seen = profile(tmp_path, Faults(ranks_written=4, about={"tp_size": 2, "pp_size": 2}))
    assert [found.rank for found in outcome.profiles] == ["TP-0", "TP-1", "TP-2", "TP-3"]


@pytest.mark.parametrize(
    ("about", "ranks"),
    [
        ({}, 1),
        ({"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}, 8),
        ({"tp_size": 2, "dp_size": 2}, 4),
        ({"tp_size": 16, "nnodes": 2}, 8),
        ({"tp_size": "x", "pp_size": True}, 1),
    ],
)
def test_which_ranks_write_on_this_machine(about: dict[str, Any], ranks: int) -> None:
    assert profile_run._ranks(about) == ranks


def test_a_rank_that_writes_nothing_is_told_after_the_time(tmp_path: Path) -> None:
    error = failure(tmp_path, Faults(about={"tp_size": 2}), timeout_s=0.25)
    assert "1 of 2 ranks wrote a trace in 0.25 s" in str(error)
    assert error.facts["traces"] == ["1796028295.81-TP-0.trace.json.gz"]


def test_a_gpu_server_records_both_sides_and_kernels_are_required(tmp_path: Path) -> None:
    with serve(Faults(about={"device": "cuda"})) as (url, seen), pytest.raises(ProfileRunError, match="no kernels"):
        run(Request(url, str(tmp_path), batch=3, steps=4, input_len=8, timeout_s=10.0))
    assert seen.bodies["/start_profile"]["activities"] == ["CPU", "GPU"]


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        (Faults(deny=("/server_info",)), ("/server_info is refused (HTTP 401)", "api_key")),
        (Faults(deny=("/start_profile",)), ("/start_profile is refused (HTTP 401)", "admin_api_key")),
        (Faults(missing=("/start_profile",)), ("it has no /start_profile", "another program")),
        (Faults(busy=True), ("HTTP 500 (Internal Server Error)", "another profile may be running")),
        (Faults(missing=("/generate",)), ("its load failed (HTTP 404",)),
        (Faults(error_line=True), ("its load failed (ValueError: ", "out of memory")),
        (Faults(tokens=1), ("its load failed (it ended too early)",)),
        (Faults(trace=gzip.compress(b'{"traceEvents": []}')), ("holds no kernel and no operation",)),
        (Faults(trace=gzip.compress(b"<html>")), ("it is no trace",)),
    ],
)
def test_what_the_server_refuses_is_told(tmp_path: Path, faults: Faults, words: tuple[str, ...]) -> None:
    (tmp_path / "bench").mkdir()
    error = failure(tmp_path, faults)
    for word in words:
        assert word in str(error)
    assert "; " in str(error)


def test_requests_that_never_decode_are_given_up(tmp_path: Path) -> None:
    assert "were not all decoding within 0.25 s" in str(failure(tmp_path, Faults(silent=True), timeout_s=0.25))


def test_a_trace_that_is_never_finished_is_told_and_the_profiler_ended(tmp_path: Path) -> None:
    faults = Faults(trace=Faults().trace[:3000])
    with serve(faults) as (url, seen), pytest.raises(ProfileRunError, match="compression is broken or not finished"):
        run(Request(url, str(tmp_path), batch=3, steps=4, input_len=8, timeout_s=0.25))
    assert seen.paths[-1] == "/stop_profile"


def test_a_load_that_ends_first_ends_the_profile_early(tmp_path: Path) -> None:
    outcome, seen = profile(tmp_path, Faults(tokens=6, only_when_stopped=True))
    assert "/stop_profile" in seen.paths
    assert outcome.profiles[0].steps == 3
    assert "the load ended before the profile did" in outcome.notes[0]


def test_traces_that_go_elsewhere_are_not_waited_for(tmp_path: Path) -> None:
    error = failure(tmp_path, Faults(tokens=40, elsewhere=True))
    assert "0 of 1 ranks wrote a trace into" in str(error)
    assert "another profile was running" in str(error)


def test_no_server_at_all_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ProfileRunError, match="start the server or correct host and port"):
        run(Request(f"http://127.0.0.1:{port}", str(tmp_path)))
    assert os.listdir(tmp_path) == []


def test_a_server_that_tells_nothing_of_itself_is_profiled_all_the_same(tmp_path: Path) -> None:
    with serve(Faults(missing=("/server_info",))) as (url, seen), pytest.raises(ProfileRunError, match="no kernels"):
        run(Request(url, str(tmp_path), batch=3, steps=4, input_len=8, timeout_s=10.0))
    assert seen.bodies["/generate"]["sampling_params"]["max_new_tokens"] == 2056


@pytest.mark.parametrize(
    ("name", "value"),
    [("steps", 3), ("steps", 257), ("steps", True), ("batch", 0), ("batch", 2.0), ("input_len", 0), ("timeout_s", 0),
     ("timeout_s", float("nan"))],
)  # fmt: skip
def test_sizes_that_cannot_be_are_refused_before_anything_is_sent(tmp_path: Path, name: str, value: Any) -> None:
    with pytest.raises(ProfileRunError, match=f"{name} is {value!r}"):
        run(Request("http://127.0.0.1:9", str(tmp_path), **{name: value}))


@pytest.mark.parametrize(
    ("about", "batch", "words"),
    [
        ({"max_total_num_tokens": 100}, 3, "leave room for 4 tokens each, and 4 steps need 12"),
        ({"max_req_input_len": 20}, 3, "leave room for 4 tokens each"),
        ({"max_running_requests": 2}, 3, "at most 2 requests at once"),
    ],
)
def test_a_load_that_the_server_cannot_hold_is_refused(
    tmp_path: Path, about: dict[str, Any], batch: int, words: str
) -> None:
    with serve(Faults(about=about)) as (url, seen), pytest.raises(ProfileRunError, match=words):
        run(Request(url, str(tmp_path), batch=batch, steps=4, input_len=8))
    assert seen.paths == ["/server_info"]


def test_a_small_cache_shortens_the_answers(tmp_path: Path) -> None:
    body = profile(tmp_path, Faults(about={"max_total_num_tokens": 364}))[1].bodies["/generate"]
    assert body["sampling_params"]["max_new_tokens"] == (364 - 64) // 3 - 8


def test_the_last_profiles_are_kept_and_nothing_else_touched(tmp_path: Path) -> None:
    bench = tmp_path / "bench"
    old = [bench / f"profile-2026010{n}T000000Z-00000{n}" for n in range(1, 5)]
    other = [bench / "20260101T000000Z-000001", bench / "profile-mine", tmp_path / "profile-20260101T000000Z-000001"]
    for path in [*old, *other]:
        path.mkdir(parents=True)
    outcome, _seen = profile(tmp_path)
    assert [path.exists() for path in old] == [False, False, True, True]
    assert all(path.exists() for path in other)
    assert outcome.directory is not None
    assert Path(outcome.directory).exists()
    assert prune(str(tmp_path / "gone")) == []
    assert prune(str(tmp_path), 0) == []
    assert sorted(os.listdir(bench)) == sorted(path.name for path in other[:2])


def test_traces_are_removed_when_asked(tmp_path: Path) -> None:
    outcome, _seen = profile(tmp_path, keep_traces=False)
    assert outcome.directory is None
    assert outcome.trace_bytes > 1000
    assert os.listdir(tmp_path / "bench") == []


def test_a_disk_that_is_nearly_full_stops_it_before_the_server_would_die(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(1 << 40, 1 << 40, 100 << 20))
    with serve(Faults()) as (url, seen), pytest.raises(ProfileRunError, match="100 MiB are free"):
        run(Request(url, str(tmp_path), batch=3, steps=4))
    assert seen.paths == ["/server_info"]
    assert os.listdir(tmp_path / "bench") == []


def test_a_root_that_is_no_directory_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with serve(Faults()) as (url, _seen), pytest.raises(ProfileRunError, match="directory for traces"):
        run(Request(url, str(tmp_path / "file"), batch=3, steps=4))


def outcome_with(server: dict[str, Any]) -> Outcome:
    return Outcome((), None, 0, 100, 8, "gpu", server, 1.0)


def test_the_floor_is_of_the_model_and_layout_that_the_server_runs(tmp_path: Path) -> None:
    config = {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128,
        "vocab_size": 1000, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "torch_dtype": "bfloat16", "decoder_sparse_step": 1, "mlp_only_layers": [],
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    server = {"model_path": str(tmp_path), "tp_size": 1, "kv_cache_dtype": "auto"}
    one = floor(outcome_with(server), 1e12)
    two = floor(outcome_with({**server, "tp_size": 2}), 1e12)
    assert one is not None
    assert two is not None
    assert (one.batch, one.context) == (8, 100)
    # 2 layers, 8 x (1 - (3/4)^8) experts of 3 matrices 64 x 32 in bfloat16.
    assert one.bytes_by_part["experts"] == pytest.approx(2 * 8 * (1 - 0.75**8) * 3 * 64 * 32 * 2)
    assert two.bytes_by_part["experts"] == pytest.approx(one.bytes_by_part["experts"] / 2)
    half = floor(outcome_with({**server, "quantization": "fp8"}), 1e12)
    assert half is not None and half.bytes_by_part["experts"] == one.bytes_by_part["experts"] / 2


@pytest.mark.parametrize(
    ("server", "bandwidth"),
    [
        ({}, 1e12),
        ({"model_path": 5}, 1e12),
        ({"model_path": "/nonexistent"}, 1e12),
        ({"model_path": "/nonexistent"}, None),
        ({"model_path": "/nonexistent", "tp_size": 3, "ep_size": 2}, 1e12),
    ],
)
def test_without_model_or_bandwidth_there_is_no_floor(server: dict[str, Any], bandwidth: float | None) -> None:
    assert floor(outcome_with(server), bandwidth) is None


def test_an_answer_that_is_no_json_is_told(tmp_path: Path) -> None:
    faults = Faults(about_text=b"<html>hello</html>")
    with serve(faults) as (url, _seen), pytest.raises(ProfileRunError, match="is no JSON"):
        run(Request(url + "/", str(tmp_path)))
