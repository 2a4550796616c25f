# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The release store: what makes two releases equal, what a kill at any moment leaves, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.tokforge.sglang.plugins.module_utils import release_store as store

ENVIRONMENT = "0123456789ab"
THEN = "2026-01-02T03:04:05Z"


def content(root: Path, **changes: Any) -> store.Content:
    """A release's content with one change against a plain one."""
    values: dict[str, Any] = {
        "environment": ENVIRONMENT,
        "sglang_version": "0.5.23",
        "backend": "auto",
        "argv": ["-m", "sglang.launch_server", "--port", "30000"],
        "env": {"HF_HUB_OFFLINE": "1"},
        "cwd": str(root),
        "model": {"path": "/m", "served_name": "m", "random_weights": True, "revision": "recipe-1"},
        "args": {"port": 30000},
    }
    return store.Content(**{**values, **changes})


def port(root: Path, number: int) -> store.Content:
    """Different content for every number."""
    return content(root, argv=["-m", "sglang.launch_server", "--port", str(number)])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with one complete environment and nothing else."""
    install(tmp_path, ENVIRONMENT)
    return tmp_path


def install(root: Path, environment: str) -> None:
    """An environment as an install leaves it."""
    (root / "venvs" / environment).mkdir(parents=True)
    marker = root / "venvs" / environment / "environment.json"
    marker.write_text('{"schema_version": 1, "versions": {"sglang": "0.5.23"}}')


def stage(root: Path, what: store.Content) -> int:
    """Stage and give the number."""
    return store.stage(str(root), what, THEN).release


def tree(root: Path) -> list[str]:
    """Every path below releases, for comparing."""
    return sorted(str(path.relative_to(root)) for path in (root / "releases").rglob("*"))


# --- identity ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"environment": "ba9876543210"},
        {"sglang_version": "0.5.12.post1"},
        {"backend": "triton"},
        {"argv": ["-m", "sglang.launch_server", "--port", "30001"]},
        {"argv": ["-m", "sglang.launch_server", "30000", "--port"]},
        {"env": {"HF_HUB_OFFLINE": "0"}},
        {"env": {}},
        {"cwd": "/elsewhere"},
        {"model": {"path": "/m", "served_name": "m", "random_weights": True, "revision": "recipe-2"}},
        {"model": {"path": "/m", "served_name": "other", "random_weights": True, "revision": "recipe-1"}},
    ],
)
def test_everything_that_changes_what_is_started_changes_the_identity(tmp_path: Path, change: dict[str, Any]) -> None:
    assert content(tmp_path, **change).content_id() != content(tmp_path).content_id()


def test_what_only_explains_does_not_change_the_identity(tmp_path: Path) -> None:
    assert content(tmp_path, args={"port": 1}).content_id() == content(tmp_path).content_id()


@given(
    st.dictionaries(st.text(min_size=1), st.text(), max_size=5),
    st.lists(st.text(), max_size=5),
)
def test_identity_does_not_depend_on_the_order_of_a_mapping(env: dict[str, str], argv: list[str]) -> None:
    turned = dict(reversed(list(env.items())))
    one = content(Path("/r"), env=env, argv=argv).content_id()
    assert one == content(Path("/r"), env=turned, argv=tuple(argv)).content_id()
    assert len(one) == 16 and set(one) <= set("0123456789abcdef")


def test_equal_content_is_the_same_release_and_writes_nothing(root: Path) -> None:
    first = store.stage(str(root), content(root), THEN)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}
    second = store.stage(str(root), content(root), "2027-01-01T00:00:00Z")
    assert (first.release, first.reused, second.release, second.reused) == (1, False, 1, True)
    assert second.content_id == first.content_id
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()} == before


def test_older_equal_release_is_used_again(root: Path) -> None:
    assert [stage(root, port(root, number)) for number in (1, 2, 3, 1)] == [1, 2, 3, 1]


def test_of_equal_releases_the_current_one_is_taken_else_the_newest(root: Path) -> None:
    stage(root, content(root))
    subprocess.run(["cp", "-a", str(root / "releases" / "1"), str(root / "releases" / "4")], check=True)
    assert stage(root, content(root)) == 4
    store.switch(str(root), 1)
    assert stage(root, content(root)) == 1


# --- what is written --------------------------------------------------------------------------------------------------


def test_release_holds_what_the_launcher_and_people_read(root: Path) -> None:
    staged = store.stage(str(root), content(root), THEN)
    path = root / "releases" / "1"
    assert staged.path == str(path)
    assert json.loads((path / "launch.json").read_text()) == {
        "schema_version": 1,
        "argv": ["-m", "sglang.launch_server", "--port", "30000"],
        "env": {"HF_HUB_OFFLINE": "1"},
        "cwd": str(root),
    }
    assert json.loads((path / "manifest.json").read_text()) == {
        "schema_version": 1,
        "environment": ENVIRONMENT,
        "sglang_version": "0.5.23",
        "backend": "auto",
        "model": {"path": "/m", "served_name": "m", "random_weights": True, "revision": "recipe-1"},
        "args": {"port": 30000},
        "env": {"HF_HUB_OFFLINE": "1"},
        "content_id": staged.content_id,
        "created": THEN,
    }
    assert os.readlink(path / "venv") == f"../../venvs/{ENVIRONMENT}"
    assert (path / "venv" / "environment.json").exists()
    assert tree(root) == ["releases/1", "releases/1/launch.json", "releases/1/manifest.json", "releases/1/venv"]


def test_service_user_can_read_a_release_whatever_the_umask(root: Path) -> None:
    before = os.umask(0o077)
    try:
        stage(root, content(root))
    finally:
        os.umask(before)
    assert (root / "releases").stat().st_mode & 0o777 == 0o755
    assert (root / "releases" / "1").stat().st_mode & 0o777 == 0o755
    assert (root / "releases" / "1" / "launch.json").stat().st_mode & 0o777 == 0o644


def test_environment_must_be_complete_before_anything_is_written(root: Path) -> None:
    (root / "venvs" / ENVIRONMENT / "environment.json").unlink()
    with pytest.raises(
        store.StoreError, match=f"environment {ENVIRONMENT} is not there or not complete; install it first"
    ):
        stage(root, content(root))
    assert not (root / "releases").exists()


def test_check_mode_predicts_number_and_reuse_and_writes_nothing(tmp_path: Path) -> None:
    predicted = store.stage(str(tmp_path), content(tmp_path), THEN, check_mode=True)
    assert (predicted.release, predicted.reused) == (1, False)
    assert list(tmp_path.iterdir()) == []
    assert store.switch(str(tmp_path), 1, check_mode=True) == store.Switched(True, None, 1)
    assert list(tmp_path.iterdir()) == []
    install(tmp_path, ENVIRONMENT)
    stage(tmp_path, content(tmp_path))
    assert store.stage(str(tmp_path), content(tmp_path), THEN, check_mode=True).reused is True
    assert store.stage(str(tmp_path), port(tmp_path, 7), THEN, check_mode=True).release == 2
    assert tree(tmp_path)[0] == "releases/1" and not (tmp_path / "releases" / "2").exists()


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_number_of_a_removed_release_is_not_given_again(root: Path) -> None:
    for number in (1, 2, 3):
        stage(root, port(root, number))
    assert store.remove(str(root), 3) is True
    assert stage(root, port(root, 4)) == 4
    assert store.remove(str(root), 3) is False


def test_numbers_go_on_when_the_counter_is_lost_or_damaged(root: Path) -> None:
    stage(root, port(root, 1))
    stage(root, port(root, 2))
    counter = root / "state" / "releases.json"
    values = ('"many"', "1e999", "NaN", "true", "2.0", "{}")
    texts = [f'{{"schema_version": 1, "highest": {value}}}' for value in values]
    for text in ("{", "[]", "", '{"highest": 2}', '{"schema_version": "1"}', "[" * 100_000, *texts):
        counter.write_text(text)
        predicted = store.stage(str(root), port(root, 3), THEN, check_mode=True)
        assert predicted.release == 3
        assert str(counter) in predicted.warnings[0]
    counter.unlink()
    assert store.stage(str(root), port(root, 3), THEN).warnings == []
    assert json.loads(counter.read_text())["highest"] == 3


def test_number_of_a_release_removed_by_hand_is_not_given_again(root: Path) -> None:
    stage(root, port(root, 1))
    stage(root, port(root, 2))
    subprocess.run(["rm", "-r", str(root / "releases" / "2")], check=True)
    assert stage(root, port(root, 3)) == 3


def test_numbers_are_ordered_as_numbers(root: Path) -> None:
    for number in range(1, 12):
        stage(root, port(root, number))
    assert [release.number for release in store.list_releases(str(root))] == list(range(1, 12))


# --- damage -----------------------------------------------------------------------------------------------------------


def damage_launch(path: Path) -> None:
    (path / "launch.json").write_text('{"schema_version": 1, "argv": [')


def damage_manifest(path: Path) -> None:
    (path / "manifest.json").write_text("")


def other_port(path: Path) -> None:
    (path / "launch.json").write_text((path / "launch.json").read_text().replace("30000", "31000"))


def newer_schema(path: Path) -> None:
    (path / "manifest.json").write_text(
        (path / "manifest.json").read_text().replace('"schema_version": 1', '"schema_version": 2')
    )


def list_manifest(path: Path) -> None:
    (path / "manifest.json").write_text("[]")


def lost_key(path: Path) -> None:
    (path / "launch.json").write_text('{"schema_version": 1, "argv": []}')


def other_environment(path: Path) -> None:
    (path / "venv").unlink()
    (path / "venv").symlink_to("../../venvs/ffffffffffff")


def copied_environment(path: Path) -> None:
    (path / "venv").unlink()
    (path / "venv").mkdir()


def lost_environment(path: Path) -> None:
    (path / "venv" / "environment.json").unlink()


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (damage_launch, "launch.json is damaged"),
        (damage_manifest, "manifest.json is damaged"),
        (list_manifest, "manifest.json is damaged (not an object)"),
        (other_port, "launch.json is not what manifest.json was made for"),
        (newer_schema, "manifest.json has schema 2, this collection writes 1"),
        (lost_key, "lacks what a release has"),
        (other_environment, "venv points to ../../venvs/ffffffffffff"),
        (copied_environment, "venv is not a link"),
        (lost_environment, f"environment {ENVIRONMENT} is not there any more"),
    ],
)
def test_damaged_release_is_reported_and_neither_reused_nor_switched_to(root: Path, harm: Any, says: str) -> None:
    stage(root, content(root))
    harm(root / "releases" / "1")
    with pytest.raises(store.StoreError) as caught:
        store.switch(str(root), 1)
    assert says in str(caught.value)
    assert not (root / "current").is_symlink()
    (root / "venvs" / ENVIRONMENT / "environment.json").write_text("{}")
    staged = store.stage(str(root), content(root), THEN)
    if harm is lost_environment:
        # Installed again, so the release is sound again.
        assert (staged.release, staged.reused) == (1, True)
    else:
        assert (staged.release, staged.reused) == (2, False)
        assert says in staged.broken[0]["reason"] and staged.broken[0]["release"] == 1


def test_missing_file_is_damage_too(root: Path) -> None:
    stage(root, content(root))
    (root / "releases" / "1" / "manifest.json").unlink()
    assert store.stage(str(root), content(root), THEN).broken == [{"release": 1, "reason": "manifest.json is missing"}]


def test_what_only_has_the_name_of_a_release_is_none_and_blocks_nothing(root: Path, tmp_path: Path) -> None:
    (root / "releases").mkdir()
    for name in ("1", "77"):
        (root / "releases" / name).write_text("")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("")
    for name in ("500", ".5.partial"):
        (root / "releases" / name).symlink_to(outside)
    (root / "releases" / ".6.partial").write_text("")
    (root / ".current.partial").mkdir()
    (root / ".current.partial" / "x").write_text("")
    assert [stage(root, port(root, number)) for number in (1, 2, 3)] == [2, 3, 4]
    assert store.switch(str(root), 4).current == 4
    assert store.prune(str(root), 1).removed == [2, 3]
    assert store.stage(str(root), port(root, 3), THEN).broken == []
    with pytest.raises(store.StoreError, match=r"release 500 below .*: there is none; the releases are 4"):
        store.switch(str(root), 500)
    assert (outside / "kept").exists()
    assert sorted(os.listdir(root / "releases")) == ["1", "4", "500", "77"]
    assert not (root / ".current.partial").exists()


# --- the link ---------------------------------------------------------------------------------------------------------


def test_switch_says_what_was_there_before_and_links_relatively(root: Path) -> None:
    for number in (1, 2):
        stage(root, port(root, number))
    assert store.switch(str(root), 1) == store.Switched(True, None, 1)
    assert store.switch(str(root), 2) == store.Switched(True, 1, 2)
    assert store.switch(str(root), 2) == store.Switched(False, 2, 2)
    assert os.readlink(root / "current") == "releases/2"
    assert store.switch(str(root), None) == store.Switched(True, 2, None)
    assert not (root / "current").is_symlink()
    assert store.switch(str(root), None) == store.Switched(False, None, None)


def test_switch_in_check_mode_leaves_the_link(root: Path) -> None:
    for number in (1, 2):
        stage(root, port(root, number))
    store.switch(str(root), 1)
    assert store.switch(str(root), 2, check_mode=True) == store.Switched(True, 1, 2)
    assert store.read_current(str(root)) == 1


def test_release_that_is_not_there_cannot_be_switched_to(root: Path) -> None:
    stage(root, content(root))
    with pytest.raises(store.StoreError, match=r"release 7 below .*: there is none; the releases are 1"):
        store.switch(str(root), 7)


def test_current_as_a_directory_or_file_is_refused_by_staging_already(root: Path) -> None:
    (root / "current").mkdir()
    with pytest.raises(store.StoreError, match=r"current: it is a directory, not a link to a release; move it away"):
        stage(root, content(root))
    assert tree(root) == []
    (root / "current").rmdir()
    (root / "current").write_text("")
    with pytest.raises(store.StoreError, match="it is a file, not a link"):
        stage(root, content(root))


@pytest.mark.parametrize(
    "target", ["/etc", "releases", "releases/one", "../releases/1", "/other/releases/1", "releases/1/venv"]
)
def test_current_that_points_elsewhere_is_refused(root: Path, target: str) -> None:
    stage(root, content(root))
    (root / "current").symlink_to(target)
    with pytest.raises(store.StoreError, match="which is no release below"):
        store.switch(str(root), 1)
    assert os.readlink(root / "current") == target


def test_absolute_link_to_a_release_of_ours_is_understood(root: Path) -> None:
    stage(root, content(root))
    (root / "current").symlink_to(root / "releases" / "1")
    assert store.read_current(str(root)) == 1


def test_root_and_link_spelled_through_different_links_are_understood(root: Path, tmp_path: Path) -> None:
    stage(root, content(root))
    alias = tmp_path / "alias"
    alias.symlink_to(root)
    (root / "current").symlink_to(f"{alias}/releases/1/")
    for spelled in (f"{root}/", str(root), str(alias)):
        assert store.read_current(spelled) == 1
        assert store.switch(spelled, 1).changed is False


def test_dangling_current_is_an_error_that_removing_the_link_repairs(root: Path) -> None:
    stage(root, content(root))
    (root / "current").symlink_to("releases/9")
    with pytest.raises(
        store.StoreError, match="it points to release 9, which does not exist any more; remove the link"
    ):
        stage(root, content(root))
    assert store.switch(str(root), None) == store.Switched(True, None, None)
    assert store.switch(str(root), 1).changed is True


def test_restore_mends_a_dangling_current(root: Path) -> None:
    two_proven(root)
    (root / "current").unlink()
    (root / "current").symlink_to("releases/9")
    assert store.restore(str(root), failed=3, check_mode=True) == store.Switched(True, None, 1)
    assert os.readlink(root / "current") == "releases/9"
    assert store.restore(str(root), failed=3) == store.Switched(True, None, 1)
    assert store.read_current(str(root)) == 1


# --- removing ---------------------------------------------------------------------------------------------------------


def test_current_release_cannot_be_removed(root: Path) -> None:
    stage(root, content(root))
    store.switch(str(root), 1)
    with pytest.raises(store.StoreError, match="it is the current one"):
        store.remove(str(root), 1)


def test_restore_goes_to_the_release_that_served_last_whatever_current_was(root: Path) -> None:
    for number in (1, 2, 3):
        stage(root, port(root, number))
    store.switch(str(root), 1)
    assert store.prove(str(root), 1) == store.Proved(True, None, 1)
    assert store.prove(str(root), 1) == store.Proved(False, 1, 1)
    store.switch(str(root), 2)
    store.switch(str(root), 3)
    assert store.restore(str(root)) == store.Switched(True, 3, 1)
    assert store.restore(str(root)) == store.Switched(False, 1, 1)


def two_proven(root: Path) -> None:
    """Releases 1 and 2 served, 2 last but one; release 3 is current and fails."""
    for number in (1, 2, 3):
        stage(root, port(root, number))
    for number in (1, 2, 1):
        store.switch(str(root), number)
        store.prove(str(root), number)
    store.switch(str(root), 3)


@pytest.mark.parametrize("text", ["", "{", '{"schema_version": 1, "proven": 1e999}', None])
@pytest.mark.parametrize("staged_since", [False, True])
def test_what_served_last_is_known_without_the_state_file(root: Path, text: str | None, staged_since: bool) -> None:
    two_proven(root)
    counter = root / "state" / "releases.json"
    counter.unlink() if text is None else counter.write_text(text)
    if staged_since:
        assert stage(root, port(root, 4)) == 4
        assert json.loads(counter.read_text())["proven"] == 1
    assert store.prune(str(root), 0, check_mode=True).removed == ([2, 4] if staged_since else [2])
    assert store.restore(str(root), failed=3, fallback=2) == store.Switched(True, 3, 1)


@pytest.mark.parametrize("staged_since", [False, True])
def test_forgotten_is_not_never_proven(root: Path, staged_since: bool) -> None:
    two_proven(root)
    for number in (1, 2):
        (root / "releases" / str(number) / "proven").unlink()
    (root / "state" / "releases.json").write_text("")
    if staged_since:
        stage(root, port(root, 4))
    with pytest.raises(
        store.StoreError, match=r"cannot tell which release .* served last: .*releases.json was damaged"
    ):
        store.restore(str(root), failed=3)
    assert store.read_current(str(root)) == 3
    assert store.restore(str(root), failed=3, fallback=2) == store.Switched(True, 3, 2)
    store.prove(str(root), 2)
    store.switch(str(root), 3)
    assert store.restore(str(root), failed=3) == store.Switched(True, 3, 2)


def test_release_of_another_rollout_is_not_undone(root: Path) -> None:
    two_proven(root)
    assert store.restore(str(root), failed=2) == store.Switched(False, 3, 3)
    assert store.read_current(str(root)) == 3
    store.switch(str(root), None)
    assert store.restore(str(root), failed=3) == store.Switched(False, None, None)


def test_state_of_a_newer_collection_is_refused_and_left_as_it_is(root: Path) -> None:
    two_proven(root)
    counter = root / "state" / "releases.json"
    counter.write_text('{"schema_version": 2, "new": 1}')
    before = tree(root)
    for change in (
        lambda: stage(root, port(root, 4)),
        lambda: store.switch(str(root), 1).current,
        lambda: store.prove(str(root), 3).proven,
        lambda: store.restore(str(root)).current,
        lambda: store.remove(str(root), 2),
        lambda: store.prune(str(root), 0).removed,
    ):
        with pytest.raises(store.StoreError, match=r"written with schema 2, this version .* knows 1; use the newer"):
            change()
    assert (counter.read_text(), tree(root)) == ('{"schema_version": 2, "new": 1}', before)
    assert store.read_current(str(root)) == 3


def test_less_than_no_release_cannot_be_kept(root: Path) -> None:
    two_proven(root)
    with pytest.raises(store.StoreError, match="cannot keep -1 releases"):
        store.prune(str(root), -1)
    assert store.prune(str(root), 0).removed == [2]


def test_current_release_is_described_with_what_its_environment_holds(root: Path) -> None:
    stage(root, port(root, 1))
    with pytest.raises(store.StoreError, match="nothing is deployed below"):
        store.describe_current(str(root))
    store.switch(str(root), 1)
    told = store.describe_current(str(root))
    what = port(root, 1)
    assert (told["release"], told["path"], told["content_id"]) == (1, f"{root}/releases/1", what.content_id())
    assert told["environment"]["python"] == f"{root}/venvs/{what.environment}/bin/python"
    assert told["environment"]["versions"] == {"sglang": "0.5.23"}
    assert told["args"] == what.args and told["env"] == what.env and told["model"] == what.model
    (root / "releases" / "1" / "launch.json").write_text("{}")
    with pytest.raises(store.StoreError, match="cannot use release 1"):
        store.describe_current(str(root))


def test_restore_removes_current_when_nothing_ever_served(root: Path) -> None:
    stage(root, port(root, 1))
    store.switch(str(root), 1)
    assert store.restore(str(root)) == store.Switched(True, 1, None)
    assert not os.path.lexists(root / "current")


def test_only_the_current_release_can_be_proven_and_check_mode_writes_nothing(root: Path) -> None:
    stage(root, port(root, 1))
    stage(root, port(root, 2))
    with pytest.raises(store.StoreError, match="none is current"):
        store.prove(str(root), 1)
    store.switch(str(root), 1)
    with pytest.raises(store.StoreError, match="1 is current"):
        store.prove(str(root), 2)
    before = tree(root)
    assert store.prove(str(root), 2, check_mode=True) == store.Proved(True, None, 2)
    assert tree(root) == before


def test_pruning_keeps_the_release_that_served_last(root: Path) -> None:
    for number in (1, 2, 3, 4):
        stage(root, port(root, number))
    store.switch(str(root), 1)
    store.prove(str(root), 1)
    for number in (2, 3, 4):
        store.switch(str(root), number)
    assert store.prune(str(root), 0).removed == [2]


def compiling(root: Path, number: int, place: Path | str) -> store.Content:
    """Content of a release that compiles its kernels in this place."""
    return dataclasses.replace(port(root, number), env={store.ENV_JIT_CACHE: str(place)})


def kernels(root: Path, name: str) -> Path:
    """A directory with compiled kernels."""
    folder = root / "cache" / "jit" / name
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "kernel.so").write_text("")
    return folder


def test_pruning_removes_kernels_that_no_release_loads_any_more(root: Path) -> None:
    old, new = kernels(root, "flashinfer-0.6.11-cuda12.9"), kernels(root, "flashinfer-0.7.2-cuda13.0")
    unused = kernels(root, "flashinfer-0.7.2-cuda12.9")
    others = [kernels(root, "mine"), kernels(root, "flashinfer-0.7.2"), kernels(root, "../flashinfer-1-cuda1")]
    for number, place in enumerate([old, new, new, new], 1):
        stage(root, compiling(root, number, place))
        store.switch(str(root), number)
    # Release 1 is still there, and with it what it would load after a rollback.
    assert store.prune(str(root), 4).removed_jit_caches == [str(unused)]
    assert old.exists() and not unused.exists()
    told = store.prune(str(root), 1, check_mode=True)
    assert (told.removed, told.removed_jit_caches, old.exists()) == ([1, 2], [str(old)], True)
    assert store.prune(str(root), 1).removed_jit_caches == [str(old)]
    assert not old.exists() and (new / "deep" / "kernel.so").exists()
    assert all(other.exists() for other in others)
    assert store.prune(str(root), 1).removed_jit_caches == []
    assert sorted(os.listdir(root / "cache" / "jit")) == ["flashinfer-0.7.2", "flashinfer-0.7.2-cuda13.0", "mine"]


def test_release_that_cannot_be_read_may_load_any_kernels(root: Path) -> None:
    unused = kernels(root, "flashinfer-0.7.2-cuda13.0")
    number = stage(root, port(root, 1))
    launch = root / "releases" / str(number) / "launch.json"
    text = launch.read_text()
    for damaged in ("{", '{"schema_version": 1}', '{"schema_version": 1, "env": []}'):
        launch.write_text(damaged)
        assert store.prune(str(root), 1).removed_jit_caches == []
    launch.write_text(text)
    assert store.prune(str(root), 1).removed_jit_caches == [str(unused)]


def test_kernels_behind_links_stay(root: Path) -> None:
    elsewhere = root / "elsewhere" / "flashinfer-0.7.2-cuda13.0"
    elsewhere.mkdir(parents=True)
    (root / "cache" / "jit").mkdir(parents=True)
    (root / "cache" / "jit" / "flashinfer-1-cuda1").symlink_to(elsewhere)
    stage(root, port(root, 1))
    assert store.prune(str(root), 1).removed_jit_caches == []
    (root / "cache" / "jit" / "flashinfer-1-cuda1").unlink()
    (root / "cache" / "jit").rmdir()
    (root / "cache" / "jit").symlink_to(elsewhere.parent)
    assert store.prune(str(root), 1).removed_jit_caches == []
    assert elsewhere.exists()


def test_kernels_stay_while_a_release_compiles_below_their_directory(root: Path) -> None:
    used = kernels(root, "flashinfer-0.7.2-cuda13.0")
    unused = kernels(root, "flashinfer-0.7.2-cuda13.01")
    stage(root, compiling(root, 1, used / "deep"))
    assert store.prune(str(root), 1).removed_jit_caches == [str(unused)]
    assert (used / "deep" / "kernel.so").exists()


@pytest.mark.parametrize("cwd", ["", "work"])
def test_place_of_kernels_may_be_relative_to_where_the_server_works(
    root: Path, cwd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = kernels(root, "flashinfer-0.7.2-cuda13.0")
    (root / "work").mkdir()
    monkeypatch.chdir("/")
    place = os.path.relpath(used, root / cwd)
    stage(root, dataclasses.replace(compiling(root, 1, Path(place)), cwd=str(root / cwd)))
    assert store.prune(str(root), 1).removed_jit_caches == []


def test_place_of_kernels_may_be_given_beside_the_secrets(root: Path) -> None:
    used, unused = kernels(root, "flashinfer-0.7.2-cuda13.0"), kernels(root, "flashinfer-0.6.11-cuda13.0")
    stage(root, port(root, 1))
    secrets = root / "state" / "secrets.env"
    secrets.write_text(f"A=b\n{store.ENV_JIT_CACHE}={used}\n")
    assert store.prune(str(root), 1, check_mode=True).removed_jit_caches == [str(unused)]
    for odd in (lambda: secrets.write_bytes(b"\xff"), lambda: (secrets.unlink(), os.mkfifo(secrets))):
        odd()
        assert store.prune(str(root), 1).removed_jit_caches == []
    secrets.unlink()
    assert len(store.prune(str(root), 1).removed_jit_caches) == 2


def test_names_that_the_collection_does_not_give_are_nobodys_kernels(root: Path) -> None:
    stage(root, port(root, 1))
    mine = [kernels(root, name) for name in ("flashinfer-1-cuda\udc80", "flashinfer-1\n-cuda2", "flashinfer-a b-cuda1")]
    assert store.prune(str(root), 1).removed_jit_caches == []
    assert all(folder.exists() for folder in mine)


def test_root_without_releases_keeps_all_kernels(tmp_path: Path) -> None:
    mine = [kernels(tmp_path, name) for name in ("flashinfer-0.7.2-cuda13.0", ".flashinfer-0.7.2-cuda12.9.partial")]
    assert store.prune(str(tmp_path), 1).removed_jit_caches == []
    (tmp_path / "releases").mkdir()
    assert store.prune(str(tmp_path), 1).removed_jit_caches == []
    assert all(folder.exists() for folder in mine)


def test_kernels_of_a_cache_outside_of_the_root_stay(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    shared = tmp_path_factory.mktemp("shared")
    mine = [shared / "jit" / name for name in ("flashinfer-0.7.2-cuda13.0", ".flashinfer-0.7.2-cuda12.9.partial")]
    for folder in mine:
        folder.mkdir(parents=True)
    (root / "cache").symlink_to(shared)
    stage(root, port(root, 1))
    assert store.prune(str(root), 1).removed_jit_caches == []
    assert all(folder.exists() for folder in mine)


def test_pipe_in_the_place_of_launch_json_is_not_waited_for(root: Path) -> None:
    number = stage(root, port(root, 1))
    launch = root / "releases" / str(number) / "launch.json"
    launch.unlink()
    os.mkfifo(launch)
    assert "not a plain file" in str(store.load(str(root), number).broken)


def test_kernels_that_a_killed_run_removed_in_part_go_with_the_next(root: Path) -> None:
    stage(root, port(root, 1))
    half = kernels(root, ".flashinfer-0.7.2-cuda13.0.partial")
    store.prune(str(root), 1, check_mode=True)
    assert half.exists()
    assert store.prune(str(root), 1).removed_jit_caches == []
    assert not half.exists()


def test_root_may_be_spelled_through_a_link(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    link = tmp_path_factory.mktemp("links") / "root"
    link.symlink_to(root)
    used = kernels(root, "flashinfer-0.7.2-cuda13.0")
    stage(root, compiling(root, 1, used))
    assert store.prune(str(link), 1).removed_jit_caches == []
    assert used.exists()


def test_pruning_keeps_the_newest_the_current_and_the_one_before(root: Path) -> None:
    for number in range(1, 9):
        stage(root, port(root, number))
    store.switch(str(root), 2)
    store.switch(str(root), 4)
    assert store.prune(str(root), 2, check_mode=True).removed == [1, 3, 5, 6]
    assert [release.number for release in store.list_releases(str(root))] == list(range(1, 9))
    assert store.prune(str(root), 2) == store.Pruned([1, 3, 5, 6], [])
    assert [release.number for release in store.list_releases(str(root))] == [2, 4, 7, 8]
    assert store.prune(str(root), 2).removed == []
    assert (root / "venvs" / ENVIRONMENT / "environment.json").exists()


def test_release_that_served_last_is_told_and_described_while_another_is_current(root: Path) -> None:
    assert store.last_proven(str(root)) is None
    for number in (1, 2):
        stage(root, port(root, number))
    store.switch(str(root), 1)
    store.prove(str(root), 1)
    store.switch(str(root), 2)
    assert store.last_proven(str(root)) == 1
    assert [store.describe_current(str(root), number)["release"] for number in (1, 2, None)] == [1, 2, 2]
    with pytest.raises(store.StoreError):
        store.describe_current(str(root), 9)


def test_release_to_go_back_to_is_the_one_that_served_last_before_the_current_one(root: Path) -> None:
    for number in (1, 2, 3):
        stage(root, port(root, number))
    for number in (1, 3, 2):
        store.switch(str(root), number)
        if number == 1:
            with pytest.raises(store.StoreError, match="no other release than the current one, none, has served"):
                os.unlink(root / "current")
                store.proven_before(str(root))
            store.switch(str(root), 1)
        store.prove(str(root), number)
        marks = root / "releases" / str(number) / store.PROVEN
        os.utime(marks, ns=(number_of_turn(number), number_of_turn(number)))
    assert store.proven_before(str(root)) == 3
    store.switch(str(root), 3)
    assert store.proven_before(str(root)) == 2
    # One that is damaged by now is passed over.
    (root / "releases/2/launch.json").write_text("{")
    assert store.proven_before(str(root)) == 1
    (root / "releases/1/launch.json").write_text("{")
    with pytest.raises(
        store.StoreError, match=r"3, has served; 2, 1 served and cannot be used any more; the releases are 1, 2, 3"
    ):
        store.proven_before(str(root))


def number_of_turn(number: int) -> int:
    """Nanoseconds: release 1 served first, then 3, then 2."""
    return [1, 3, 2].index(number) * 10**9 + 10**18


def test_pruning_to_nothing_keeps_what_serves(root: Path) -> None:
    for number in (1, 2, 3):
        stage(root, port(root, number))
    store.switch(str(root), 2)
    assert store.prune(str(root), 0).removed == [1, 3]
    assert stage(root, port(root, 9)) == 4


def test_pruning_names_complete_environments_that_nobody_uses(root: Path) -> None:
    install(root, "unused000000")
    (root / "venvs" / "halfmade0000").mkdir()
    stage(root, content(root))
    assert store.prune(str(root), 10).unused_environments == ["unused000000"]


def test_environment_of_a_broken_release_still_counts_as_used(root: Path) -> None:
    stage(root, content(root))
    damage_manifest(root / "releases" / "1")
    assert store.prune(str(root), 10).unused_environments == []


# --- kills ------------------------------------------------------------------------------------------------------------

#: Runs one operation and kills itself with SIGKILL right before its n-th step that touches the file system below the
#: root.
KILLED_AT = """
import json, os, signal, sys
from ansible_collections.tokforge.sglang.plugins.module_utils import release_store as store
root, operation, steps, content = sys.argv[1], sys.argv[2], int(sys.argv[3]), store.Content(**json.loads(sys.argv[4]))
watched = {"open", "os.mkdir", "os.rename", "os.symlink", "os.remove", "os.rmdir", "os.chmod"}
def hook(event, args):
    global steps
    if event in watched and str(args[0]).startswith(root):
        steps -= 1
        if steps == 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
if operation == "stage":
    print(store.stage(root, content, "now").release)
elif operation == "switch":
    store.switch(root, 2)
else:
    store.prune(root, 1)
"""


def killed_at(root: Path, operation: str, step: int) -> bool:
    """Run the operation, killed before that step; False when it has fewer steps."""
    done = start(root, operation, step, port(root, 3))
    _out, err = done.communicate()
    assert done.returncode in (0, -signal.SIGKILL), err
    return done.returncode != 0


def start(root: Path, operation: str, step: int, what: store.Content) -> subprocess.Popen[str]:
    """Start the operation in a program of its own; step 0 is never reached."""
    words = [sys.executable, "-c", KILLED_AT, str(root), operation, str(step), json.dumps(dataclasses.asdict(what))]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def two_releases(root: Path) -> None:
    """Releases 1 (current) and 2."""
    install(root, ENVIRONMENT)
    for number in (1, 2):
        stage(root, port(root, number))
    store.switch(str(root), 1)


@pytest.mark.parametrize(("operation", "at_least"), [("stage", 10), ("switch", 5), ("prune", 5)])
def test_kill_at_any_step_leaves_a_state_that_the_next_run_completes(
    tmp_path: Path, operation: str, at_least: int
) -> None:
    step = 0
    while True:
        step += 1
        root = tmp_path / str(step)
        two_releases(root)
        if operation == "prune":
            stage(root, port(root, 3))
            store.switch(str(root), 3)
            store.switch(str(root), 1)
        killed = killed_at(root, operation, step)
        # Whatever was begun: what serves still serves, and every numbered release is sound.
        assert store.read_current(str(root)) in ({1, 2} if operation == "switch" else {1}), step
        assert [release.broken for release in store.list_releases(str(root)) if release.broken] == [], step
        if operation == "stage":
            finish = store.stage(str(root), port(root, 3), THEN).release
            # Killed before the rename the number is lost, since it was begun; after it the release is found.
            assert finish in (3, 4), step
            assert store.load(str(root), finish).broken is None
            assert store.stage(str(root), port(root, 3), THEN).reused is True
        elif operation == "switch":
            assert store.switch(str(root), 2).current == 2
            assert os.readlink(root / "current") == "releases/2"
            assert store.prune(str(root), 0).removed == []  # 1 is the one before, 2 the current one
        else:
            store.prune(str(root), 1)
            assert [release.number for release in store.list_releases(str(root))] == [1, 3]
        left = [path for path in root.rglob(".*") if path.name.endswith((".partial", ".tmp"))]
        assert left == [], step
        if not killed:
            break
    assert step > at_least


def test_two_stagings_at_once_get_two_numbers(root: Path) -> None:
    runs = [start(root, "stage", 0, port(root, number)) for number in range(4)]
    numbers = sorted(int(run.communicate()[0]) for run in runs)
    assert numbers == [1, 2, 3, 4]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_root_that_cannot_be_written_is_an_error_of_ours(root: Path) -> None:
    root.chmod(0o555)
    with pytest.raises(store.StoreError, match="cannot change the releases below"):
        stage(root, content(root))


def test_file_in_place_of_the_store_is_an_error_of_ours(root: Path) -> None:
    (root / "releases").write_text("")
    with pytest.raises(store.StoreError, match=r"cannot change the releases below .*: Not a directory"):
        stage(root, content(root))


def test_fastest_release_is_kept_and_a_content_that_no_release_has_keeps_none(root: Path) -> None:
    for number in range(1, 6):
        stage(root, port(root, number))
    store.switch(str(root), 5)
    content = store.load(str(root), 2).content
    assert content
    assert store.prune(str(root), 1, True, "0" * 16).removed == [1, 2, 3, 4]
    assert store.prune(str(root), 1, fastest=content.content_id()).removed == [1, 3, 4]
    # One that cannot be read is nobody's.
    (root / "releases/2/launch.json").write_text("{")
    assert store.prune(str(root), 1, fastest=content.content_id()).removed == [2]
