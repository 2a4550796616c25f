# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading a release's command line from its sources, which are never imported."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import flag_reader
from ansible_collections.tokforge.sglang.plugins.module_utils.flags import FLOAT, INT, SIZE, Flag
from ansible_collections.tokforge.sglang.plugins.module_utils.source_values import ExtractionError


def read_flags(root: Path) -> dict[str, Flag]:
    """The flags below `root`, nothing of them unread."""
    found = flag_reader.read(root)
    assert found.unread == ()
    return dict(found.flags)


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

    class DeprecatedRefusal(argparse.Action):
        def __init__(self, option_strings, dest, nargs=0, **kwargs):
            pass

        def __call__(self, parser, namespace, values, option_string=None):
            raise ValueError(self.help)

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
        ('parser.add_argument("--a-b", "--c", type=int)', Flag("a-b", aliases=("c",), type=INT)),
        ('parser.add_argument("--a", type=float)', Flag("a", type=FLOAT)),
        ('parser.add_argument("--a", type=human_readable_int)', Flag("a", type=SIZE)),
        ('parser.add_argument("--a", type=nullable_str, default=None)', Flag("a")),
        ('parser.add_argument("--a", action="store_true", type=int)', Flag("a", takes_value=False)),
        ('parser.add_argument("--a", "--b", dest="c")', Flag("a", aliases=("b",), dest="c")),
        ('parser.add_argument("--a-b", dest="a_b")', Flag("a-b")),
        ('parser.add_argument("--a", choices=None)', Flag("a")),
        ('parser.add_argument("--a", action="store_true")', Flag("a", takes_value=False)),
        ('parser.add_argument("--a", nargs="+", choices=[1, 2])', Flag("a", nargs="+", choices=(1, 2))),
        ('parser.add_argument("--a", choices=MORE)', Flag("a", choices=("auto", "triton", "extra"))),
        ('parser.add_argument("--a", choices=[*BACKENDS, "x"])', Flag("a", choices=("auto", "triton", "x"))),
        ('parser.add_argument("--a", choices=["auto"] + names)', Flag("a", choices=("auto", "d1", "d2"))),
        ('parser.add_argument("--a", choices=set(MORE))', Flag("a", choices=("auto", "extra", "triton"))),
        ('parser.add_argument("--a", choices=[m.name.lower() for m in Mode])', Flag("a", choices=("none", "all"))),
        ('parser.add_argument("--a", choices=[m.value for m in Mode])', Flag("a", choices=(0, 1))),
        ('parser.add_argument("--a", choices=lazy())', Flag("a", choices=("p1", "p2"))),
        (
            'parser.add_argument("--a", action=argparse.BooleanOptionalAction)',
            Flag("a", takes_value=False, negatable=True),
        ),
        ('parser.add_argument("--a", action=DeprecatedAction)', Flag("a", takes_value=False, deprecated=True)),
        ('parser.add_argument("--a", action=DeprecatedAction, nargs=None)', Flag("a", deprecated=True)),
        (
            'parser.add_argument("--a", action=DeprecatedAction, new_flag="--b-{x,y}=off")',
            Flag("a", takes_value=False, deprecated=True, successor="--b-{x,y}=off"),
        ),
        (
            'parser.add_argument("--a", action=DeprecatedAction, error_message="gone")',
            Flag("a", takes_value=False, deprecated=True, retired=True),
        ),
        (
            'parser.add_argument("--a", action=DeprecatedAction, error_message=None)',
            Flag("a", takes_value=False, deprecated=True),
        ),
        (
            'parser.add_argument("--a", action=DeprecatedRefusal)',
            Flag("a", takes_value=False, deprecated=True, retired=True),
        ),
        (
            'parser.add_argument("--a", action="store_true", help="(Deprecated: use --b=auto) Old " + "text.")',
            Flag("a", takes_value=False, deprecated=True, successor="--b=auto"),
        ),
        (
            'parser.add_argument("--a", help=f"Deprecated. Use --b-c instead of {names}")',
            Flag("a", deprecated=True, successor="--b-c"),
        ),
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
        ('A[int, Arg(aliases=["--other"])]', Flag("some-name", aliases=("other",), type=INT)),
        ('A[int, Arg(cli_name="--short")]', Flag("short", type=INT, dest="some_name")),
        ("A[float | None, Arg(choices=None)]", Flag("some-name", type=FLOAT)),
        ("A[int, Arg(type_parser=human_readable_int)]", Flag("some-name", type=SIZE)),
        ('A[List[float], "help"]', Flag("some-name", nargs="+", type=FLOAT)),
        ('A[List, "help"]', Flag("some-name", nargs="+")),
        (
            'A[bool, "[Deprecated] Use --other-name instead."]',
            Flag("some-name", takes_value=False, deprecated=True, successor="--other-name"),
        ),
        ('A[str, "It is deprecated to leave this out."]', Flag("some-name")),
        ('A[bool, "help"]', Flag("some-name", takes_value=False)),
        ('A[Optional[bool], Arg(help="h")]', Flag("some-name", takes_value=False)),
        ('A[bool | None, "help"]', Flag("some-name", takes_value=False)),
        ('A[Literal["x", "y"], "help"]', Flag("some-name", choices=("x", "y"))),
        ('A[Optional[Literal["x"]], "help"]', Flag("some-name", choices=("x",))),
        ('A[Literal["x", "y"], Arg(choices=Backend.ALL)]', Flag("some-name", choices=("full", "disabled"))),
        ('A[List[int], "help"]', Flag("some-name", nargs="+", type=INT)),
        ('A[Union[List[str], None], Arg(nargs="*")]', Flag("some-name", nargs="*")),
        ("A[List[str], Arg(type_parser=json_list_type)]", Flag("some-name", json=True)),
        ('A[Union[set, List[str]], Arg(nargs="*", choices=["q"])]', Flag("some-name", nargs="*", choices=("q",))),
        ("A[bool, Arg(action=argparse.BooleanOptionalAction)]", Flag("some-name", takes_value=False, negatable=True)),
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
    assert read_flags(root)["a"] == Flag("a", takes_value=False)


@pytest.mark.parametrize(
    ("call", "flag", "said"),
    [
        ('parser.add_argument("--a", type=int, choices=torch.names())', Flag("a", type=INT), "the choices of --a: "),
        (
            'parser.add_argument("--a", choices=[x for x in MORE if x])',
            Flag("a"),
            "cannot tell `[x for x in MORE if x]`",
        ),
        ('parser.add_argument("--a", choices=NOWHERE)', Flag("a"), "NOWHERE is defined nowhere"),
        ('parser.add_argument("--a", choices=MORE + 1)', Flag("a"), "cannot tell `MORE + 1`"),
        ('parser.add_argument("--a", choices=sorted([1, "x"]))', Flag("a"), "cannot tell `sorted([1, 'x'])`"),
        ('parser.add_argument("--a", choices=[1.5])', Flag("a"), "cannot tell `[1.5]`"),
        ('parser.add_argument("--a", choices=3)', Flag("a"), "cannot tell `3`"),
        (
            'parser.add_argument("--a", "--b", action=made())',
            Flag("a", aliases=("b",), unread=True),
            "the form of --a: ",
        ),
        ('parser.add_argument("--a", nargs=how_many())', Flag("a", unread=True), "the form of --a: "),
    ],
)
def test_what_cannot_be_read_of_a_flag_is_said_and_never_guessed(
    tmp_path: Path, call: str, flag: Flag, said: str
) -> None:
    calls = f"{BACKEND}\n            {call}"
    found = flag_reader.read(package(tmp_path, server_args=CALLS.replace("{calls}", calls)))
    assert found.flags["a"] == flag
    assert set(found.flags) == {"a", "moe-runner-backend"}
    [message] = found.unread
    assert said in message and "server_args.py" in message


def test_flag_whose_name_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    found = flag_reader.read(
        package(tmp_path, server_args=CALLS.replace("{calls}", f'parser.add_argument(f"--{{a}}"); {BACKEND}'))
    )
    assert set(found.flags) == {"moe-runner-backend"}
    assert "the name of a flag: reading server_args.py:" in found.unread[0]


def test_field_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    fields = """
    class First:
        a: A[int] = 1
        b: A[int, Arg(cli_name=make())] = 1
        c: A[int, "h"] = 1
    """
    found = flag_reader.read(package(tmp_path, server_args=FIELDS.replace("{calls}", "pass"), fields=fields))
    assert list(found.flags) == ["c"]
    assert [said.split(":")[0] for said in found.unread] == ["the field a", "the field b"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (CALLS.replace("{calls}", f"{BACKEND}; {BACKEND}"), "--moe-runner-backend is there twice"),
        (CALLS.replace("add_cli_args", "other"), "ServerArgs has no add_cli_args"),
        ("ServerArgs = 1", "ServerArgs is no class"),
        ("x = 1", "ServerArgs is defined nowhere"),
        (FIELDS.replace("First]", "First, Second]").replace("{calls}", "pass"), "Second is defined nowhere"),
        ("class ServerArgs(:", "line 1: Python 3"),
        ("x = '\0'", "cannot parse it"),
        ("class ServerArgs:\n  def add_cli_args(parser):\n    x = " + "(" * 3000 + ")" * 3000, "cannot parse it"),
    ],
)
def test_sources_that_are_none_are_an_error_with_the_reason(tmp_path: Path, source: str, message: str) -> None:
    fields = "class First:\n    a: A[int, 'h'] = 1\n"
    with pytest.raises(ExtractionError) as raised:
        flag_reader.read(package(tmp_path, server_args=source, fields=fields))
    assert message in str(raised.value)


def test_imports_in_a_circle_are_an_error_and_no_endless_search(tmp_path: Path) -> None:
    source = "from sglang.srt.other import ServerArgs"
    with pytest.raises(ExtractionError, match="without an end"):
        flag_reader.read(package(tmp_path, server_args=source, other="from sglang.srt.server_args import ServerArgs"))


@pytest.mark.parametrize("star", ["from sglang.srt.names import *", "from .names import *"])
def test_names_of_a_star_import_are_found(tmp_path: Path, star: str) -> None:
    source = CALLS.replace("from sglang.srt.names import PARSERS, Detector, Mode", star)
    call = 'parser.add_argument("--a", choices=PARSERS)'
    root = package(tmp_path, server_args=source.replace("{calls}", call))
    assert read_flags(root)["a"].choices == ("p1", "p2")


def test_missing_release_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ExtractionError, match="no such file below"):
        flag_reader.read(tmp_path)


def test_file_too_large_to_be_source_is_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ansible_collections.tokforge.sglang.plugins.module_utils.source_values.GREATEST_BYTES", 10)
    with pytest.raises(ExtractionError, match="more than 10 bytes"):
        flag_reader.read(package(tmp_path, server_args="x = 1 # long enough"))


def test_file_that_may_not_be_read_is_an_error_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: Path, **_how: str) -> str:
        raise PermissionError(13, "Permission denied")

    root = package(tmp_path, server_args="x = 1")
    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(ExtractionError, match=r"server_args.py: Permission denied; see that this user may read it"):
        flag_reader.read(root)
