# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading a release's command line from its sources."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from server_flags import ExtractionError, Flag, read_flags

BACKEND = 'parser.add_argument("--moe-runner-backend", type=str, choices=BACKENDS)'
CALLS = """
    import argparse
    from sglang.srt.names import PARSERS, Detector, Mode
    BACKENDS = ["auto", "triton"]
    if True:
        MORE = BACKENDS + ["extra"]

    class DeprecatedAction(argparse.Action):
        def __init__(self, option_strings, dest, nargs=0, **kwargs):
            pass

    class PathsAction(argparse.Action):
        def __call__(self):
            pass

    def lazy():
        if False:
            return ["wrong"]
        from sglang.srt.names import PARSERS as found
        return list(found)

    class ServerArgs:
        @staticmethod
        def add_cli_args(parser):
            names = list(Detector.MAP.keys())
            {calls}

    ServerArgs = ServerArgs
"""
FIELDS = """
    from sglang.srt.fields import First
    _INPUT_NAMESPACES = [First]

    class ServerArgs:
        @staticmethod
        def add_cli_args(parser):
            add_cli_args_from_dataclass(parser, ServerArgs)
            {calls}

    ServerArgs = defstruct("ServerArgs", [])
"""
NAMES = """
    from enum import IntEnum
    PARSERS = ["p1", "p2"]
    class Detector:
        MAP: dict = {"d1": 1, "d2": 2}
    class Mode(IntEnum):
        NONE = 0
        ALL = 1
    class Backend:
        FULL = "full"
        OFF = "disabled"
        ALL = (FULL, OFF)
"""


def package(root: Path, **modules: str) -> Path:
    """A `sglang` package with these modules below `sglang/srt`."""
    folder = root / "sglang" / "srt"
    folder.mkdir(parents=True)
    for name, text in {"names": NAMES, **modules}.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    return root


def from_call(root: Path, call: str) -> Flag:
    """The flag one `add_argument` call makes."""
    calls = f"{BACKEND}\n            {call}"
    found = read_flags(package(root, server_args=CALLS.replace("{calls}", calls)))
    assert len(found) == 2
    return next(flag for name, flag in found.items() if name != "moe-runner-backend")


def from_field(root: Path, annotation: str) -> Flag | None:
    """The flag one annotated field makes; None when it makes none."""
    fields = f"""
    from sglang.srt.names import Backend
    class First:
        some_name: {annotation} = None
    """
    found = read_flags(
        package(root, server_args=FIELDS.replace("{calls}", BACKEND.replace("BACKENDS", "['auto']")), fields=fields)
    )
    return next((flag for name, flag in found.items() if name != "moe-runner-backend"), None)


@pytest.mark.parametrize(
    ("call", "flag"),
    [
        ('parser.add_argument("--a-b", "--c", type=int)', Flag("a-b", ("c",))),
        ('parser.add_argument("--a", action="store_true")', Flag("a", nargs=0)),
        ('parser.add_argument("--a", nargs="+", choices=[1, 2])', Flag("a", nargs="+", choices=(1, 2))),
        ('parser.add_argument("--a", choices=MORE)', Flag("a", choices=("auto", "triton", "extra"))),
        ('parser.add_argument("--a", choices=[*BACKENDS, "x"])', Flag("a", choices=("auto", "triton", "x"))),
        ('parser.add_argument("--a", choices=["auto"] + names)', Flag("a", choices=("auto", "d1", "d2"))),
        ('parser.add_argument("--a", choices=set(MORE))', Flag("a", choices=("auto", "extra", "triton"))),
        ('parser.add_argument("--a", choices=[m.name.lower() for m in Mode])', Flag("a", choices=("none", "all"))),
        ('parser.add_argument("--a", choices=[m.value for m in Mode])', Flag("a", choices=(0, 1))),
        ('parser.add_argument("--a", choices=lazy())', Flag("a", choices=("p1", "p2"))),
        ('parser.add_argument("--a", action=argparse.BooleanOptionalAction)', Flag("a", nargs=0, negatable=True)),
        ('parser.add_argument("--a", action=DeprecatedAction)', Flag("a", nargs=0, deprecated=True)),
        ('parser.add_argument("--a", action=DeprecatedAction, nargs=None)', Flag("a", deprecated=True)),
        ('parser.add_argument("--a", action=PathsAction, nargs="*")', Flag("a", nargs="*")),
        ('parser.add_argument("--a", action=PathsAction)', Flag("a")),
        ('parser.add_argument("--a", type=json.loads)', Flag("a", json=True)),
        ('parser.add_argument("--a", help=argparse.SUPPRESS)', Flag("a", hidden=True)),
    ],
)
def test_call_becomes_the_flag_argparse_would_make(tmp_path: Path, call: str, flag: Flag) -> None:
    assert from_call(tmp_path, call) == flag


@pytest.mark.parametrize(
    ("annotation", "flag"),
    [
        ('A[Optional[str], "help"]', Flag("some-name")),
        ('A[int, Arg(aliases=["--other"])]', Flag("some-name", ("other",))),
        ('A[int, Arg(cli_name="--short")]', Flag("short")),
        ('A[bool, "help"]', Flag("some-name", nargs=0)),
        ('A[Optional[bool], Arg(help="h")]', Flag("some-name", nargs=0)),
        ('A[bool | None, "help"]', Flag("some-name", nargs=0)),
        ('A[Literal["x", "y"], "help"]', Flag("some-name", choices=("x", "y"))),
        ('A[Optional[Literal["x"]], "help"]', Flag("some-name", choices=("x",))),
        ('A[Literal["x", "y"], Arg(choices=Backend.ALL)]', Flag("some-name", choices=("full", "disabled"))),
        ('A[List[int], "help"]', Flag("some-name", nargs="+")),
        ('A[Union[List[str], None], Arg(nargs="*")]', Flag("some-name", nargs="*")),
        ("A[List[str], Arg(type_parser=json_list_type)]", Flag("some-name", json=True)),
        ('A[Union[set, List[str]], Arg(nargs="*", choices=["q"])]', Flag("some-name", nargs="*", choices=("q",))),
        ("A[bool, Arg(action=argparse.BooleanOptionalAction)]", Flag("some-name", nargs=0, negatable=True)),
        ('A[List[str], Arg(action="append", action_kwargs={"nargs": "*"})]', Flag("some-name", nargs="*")),
        ("A[str, Arg(help=argparse.SUPPRESS)]", Flag("some-name", hidden=True)),
        ("A[str, Arg(no_cli=True)]", None),
        ('A[str, NS("model")]', None),
        ('A[str, NS("model"), "help"]', Flag("some-name")),
        ("Optional[str]", None),
    ],
)
def test_field_becomes_the_flag_sglang_would_make(tmp_path: Path, annotation: str, flag: Flag | None) -> None:
    assert from_field(tmp_path, annotation) == flag


def test_field_annotated_twice_counts_as_its_last_annotation(tmp_path: Path) -> None:
    fields = """
    class First:
        a: A[int, "h"] = 1
        a: A[bool, "h"] = False
    """
    root = package(
        tmp_path, server_args=FIELDS.replace("{calls}", BACKEND.replace("BACKENDS", "['auto']")), fields=fields
    )
    assert read_flags(root)["a"] == Flag("a", nargs=0)


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ("pass", "no choices found for --moe-runner-backend"),
        ('parser.add_argument("--moe-runner-backend", type=str)', "no choices found for --moe-runner-backend"),
        ('parser.add_argument("--moe-runner-backend", choices=[])', "no choices found for --moe-runner-backend"),
        (f"{BACKEND}; {BACKEND}", "--moe-runner-backend is there twice"),
        (f'{BACKEND}; parser.add_argument("--a", choices=torch.names())', "cannot tell `torch.names()`"),
        (f'{BACKEND}; parser.add_argument("--a", choices=[x for x in MORE if x])', "cannot tell"),
        (f'{BACKEND}; parser.add_argument(f"--{{a}}")', "cannot tell"),
        (f'{BACKEND}; parser.add_argument("--a", choices=NOWHERE)', "NOWHERE is defined nowhere"),
    ],
)
def test_what_cannot_be_read_is_an_error_and_never_a_guess(tmp_path: Path, calls: str, message: str) -> None:
    with pytest.raises(ExtractionError) as raised:
        read_flags(package(tmp_path, server_args=CALLS.replace("{calls}", calls)))
    assert message in str(raised.value)


def test_wheel_without_the_known_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ExtractionError, match="no such file; its layout changed"):
        read_flags(tmp_path)
