# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether naming a backend in the collection decides that it is tuned, for gates written in many ways."""

from __future__ import annotations

import sys
import textwrap
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import gate_meaning

X = "flashinfer_cutlass"
NAME = "_should_run_flashinfer_autotune"
KNOWN = '["flashinfer_trtllm", "flashinfer_mxfp4"]'


def judged(body: str, before: str = "", after: str = "", backend: str = X) -> str:
    """The verdict on a method with this body; `b` is the MoE runner backend, KNOWN the collection, X the backend."""
    lines = ["b = self.server_args.moe_runner_backend", *textwrap.dedent(body).strip().splitlines()]
    method = f"class Runner:\n    def {NAME}(self):\n" + "".join(f"        {line}\n" for line in lines)
    text = (before + method + after).replace("X", f'"{X}"').replace("KNOWN", KNOWN, 1)
    start = text.index(KNOWN)
    line = text.count("\n", 0, start) + 1
    column = start - text.rfind("\n", 0, start) - 1
    defined = text[: text.index(f"def {NAME}")].count("\n") + 1
    return gate_meaning.judge(text, NAME, defined, [line, column], backend)


DECIDES = [
    "if b not in KNOWN: return False\nif torch.cuda.major() < 9: return False\nreturn True",
    "moe = b in KNOWN\nif not (moe or self.fp4()): return False\nreturn True",
    "return b in set(KNOWN)",
    "return bool(b in frozenset(KNOWN))",
    "if (missing := b not in KNOWN): return False\nreturn not self.draft",
    "if b in KNOWN:\n    if self.major >= 9:\n        return True\nreturn False",
    "return True if b in KNOWN else False",
    "try:\n    import flashinfer\nexcept ImportError:\n    return False\nreturn b in KNOWN",
    "try:\n    return b in KNOWN\nfinally:\n    self.done()",
    "with self.lock as held:\n    return b in KNOWN",
    "for device in self.devices:\n    if device.old: return False\nreturn b in KNOWN",
    "while self.busy():\n    self.wait()\nreturn b in KNOWN",
    # Shut out under a condition of its own, as releases do with cutedsl beside deepep.
    "if b == X and self.a2a == 'deepep': return False\nreturn b in KNOWN",
    "if self.old:\n    if b == X: return False\nreturn b in KNOWN",
    "log.info('backend %s', b)\nreturn b in KNOWN",
    "ok = False\nok |= b in KNOWN\nreturn ok",
    "b = str(b).lower()\nreturn b in KNOWN",
    "def helper(): return 1\nreturn b in KNOWN",
    "names = KNOWN\nreturn b in names",
    "first, second = b, self.other\nreturn first in KNOWN",
    "b: str = getattr(self.args, 'moe_runner_backend')\nreturn b in KNOWN",
    "b = self.args['moe_runner_backend']\nreturn b in KNOWN",
    "b = get_moe_runner_backend().value\nreturn b in KNOWN",
    "assert b\nreturn b in KNOWN",
    "b = self.spec.draft or b\nreturn b in KNOWN",
    "return self.cuda and b in KNOWN and not self.off",
    "for one in KNOWN:\n    if b == one: return True\nreturn False",
    # What has nothing to do with the backend may be anything.
    "x = self.kind.value\nif x: return False\nreturn b in KNOWN",
    "x = [*('p', 'q'), *self.more]\nif x: return False\nreturn b in KNOWN",
    "x = [*('p', 'q')]\nif 'r' in x: return False\nreturn b in KNOWN",
    "x = 1 * 2\nif x: return False\nreturn b in KNOWN",
    "x = 'a' + 1\nif x: return False\nreturn b in KNOWN",
    "x = self.one() & self.two()\nif x: return False\nreturn b in KNOWN",
    "x = {'a': 1}\nif x['b']: return False\nreturn b in KNOWN",
    "x = {'a': 0}\nif x['a']: return False\nreturn b in KNOWN",
    "x = {**self.x}\nif x: return False\nreturn b in KNOWN",
    "x = frozenset(5)\nif x: return False\nreturn b in KNOWN",
    "x = 'a'.startswith(1)\nif x: return False\nreturn b in KNOWN",
    "x = -self.size\nif x < 3: return False\nreturn b in KNOWN",
    "self.count += 1\nself.seen[0] = 1\nreturn b in KNOWN",
    "first, *rest = self.parts\nif first or rest: return False\nreturn b in KNOWN",
    "pair = ('', '')\nfirst, second = pair\nif first or second: return False\nreturn b in KNOWN",
    "first, second = self.pair()\nif first: return False\nreturn b in KNOWN",
    "x: int\nreturn b in KNOWN",
    "with self.lock:\n    pass\nreturn b in KNOWN",
    "try:\n    x = 1\nexcept ValueError:\n    return False\nelse:\n    x = 0\nif x: return False\nreturn b in KNOWN",
    "for one in ('p', 'q'):\n    if one == 'p': continue\n    break\nelse:\n    return False\nreturn b in KNOWN",
    "for one in range(3):\n    pass\nreturn b in KNOWN",
    "while self.busy():\n    if self.late(): break\n    continue\nelse:\n    pass\nreturn b in KNOWN",
    "while False:\n    return False\nreturn b in KNOWN",
    "import a.b\nfrom c import d as e\nif e: return False\nreturn b in KNOWN",
    "x = await self.ask()\nif x: return False\nreturn b in KNOWN",
    "global seen\ndel self.x\nreturn b in KNOWN",
    "(x := self.x)\nif x: return False\nreturn b in KNOWN",
    "match self.kind:\n    case 1: pass\nreturn b in KNOWN" if sys.version_info >= (3, 10) else "return b in KNOWN",
]
SHUT_OUT = [
    "return b != X and b in KNOWN",
    "x = b != X\nreturn x and b in KNOWN",
    "return b in KNOWN and b not in (X, 'x')",
    "return b in KNOWN if b != X else False",
    "if b not in KNOWN: return False\nreturn b != X",
    "with self.x:\n    if b == X: return False\nreturn b in KNOWN",
    "bad = X\nif b == bad: return False\nreturn b in KNOWN",
    "if (b, 1) == (X, 1): return False\nreturn b in KNOWN",
    "for x in (X, 'q'):\n    if b == x: return False\nreturn b in KNOWN",
    "for x in (X, 'q'):\n    if b != x: continue\n    break\nelse:\n    return b in KNOWN\nreturn False",
    "if b != 'flashinfer_trtllm' and b != 'aa': return False\nreturn b in KNOWN",
    "if b.startswith('flashinfer_cut'): return False\nreturn b in KNOWN",
    "if 'cutlass' in b: return False\nreturn b in KNOWN",
    "if b.upper() == 'FLASHINFER_CUTLASS': return False\nreturn b in KNOWN",
    "if b == X: b = 'other'\nreturn b in KNOWN",
    "b = 't' if b == X else b\nreturn b in KNOWN",
    "return {X: 'zz'}.get(b, b) in KNOWN",
    "return ({X: 'zz'}[b] if b == X else b) in KNOWN",
    "b = 'triton'\nreturn b in KNOWN",
    "r = b in KNOWN\nr = False\nreturn r",
    "r = b in KNOWN\nif b == X: r = False\nreturn r",
    "r = b in KNOWN\nr &= b != X\nreturn r",
    "if True: return False\nreturn b in KNOWN",
    "while True: return False\nreturn b in KNOWN",
    "raise RuntimeError\nreturn b in KNOWN",
    "try: return b in KNOWN\nfinally: return False",
    "return b in KNOWN and False",
    "b in KNOWN\nreturn",
    "b in KNOWN",
    "return self.server_args.speculative_moe_runner_backend in KNOWN",
    "q = 'fp4' if b == 'x' else 'fp8'\nreturn q in KNOWN",
]
OTHERWISE = [
    "if b not in KNOWN and b != X: return False\nreturn True",
    "return b in KNOWN or b == X",
    "return b in KNOWN or b.startswith('flashinfer_')",
    "ok = b in KNOWN\nok = ok or b == X\nreturn ok",
    "ok = b in KNOWN\nok |= b == X\nreturn ok",
    "ok = b in KNOWN\nif b == X: ok = True\nreturn ok",
    "if b == X: b = 'flashinfer_trtllm'\nreturn b in KNOWN",
]
NO_DIFFERENCE = [
    "if b not in KNOWN and False: return False\nreturn True",
    "if False:\n    if b not in KNOWN: return False\nreturn True",
    "return b in KNOWN or True",
    "return b not in KNOWN",
]
NOT_FOLLOWED = [
    "if check(b): return False\nreturn b in KNOWN",
    "if b == self.forced: return False\nreturn b in KNOWN",
    "def inner(): return b\nif inner(): return False\nreturn b in KNOWN",
    "if any(b == one for one in self.names): return False\nreturn b in KNOWN",
    "if self.table[b]: return False\nreturn b in KNOWN",
    "if -b: return False\nreturn b in KNOWN",
    "while True:\n    pass\nreturn b in KNOWN",
    "self.server_args.moe_runner_backend = 'x'\nreturn b in KNOWN",
    "if b < 3: return False\nreturn b in KNOWN",
    "if b in [self.x]: return False\nreturn b in KNOWN",
    "if {'a': 1}[b]: return False\nreturn b in KNOWN",
    "if {b: self.x}[b]: return False\nreturn b in KNOWN",
    "if b.startswith(1): return False\nreturn b in KNOWN",
    "if b + 1: return False\nreturn b in KNOWN",
    "if frozenset(b, 1): return False\nreturn b in KNOWN",
    "first, *rest = b.split()\nif first: return False\nreturn b in KNOWN",
    "x = [one for one in b]\nif x: return False\nreturn b in KNOWN",
    "x = [self.args.moe_runner_backend for one in self.x]\nif x: return False\nreturn b in KNOWN",
    "x = self.one[b]\nif x: return False\nreturn b in KNOWN",
    "for one in b.split():\n    if one: return False\nreturn b in KNOWN",
]


@pytest.mark.parametrize("body", DECIDES)
def test_naming_the_backend_decides(body: str) -> None:
    assert judged(body) == ""


@pytest.mark.parametrize("body", SHUT_OUT)
def test_backend_that_is_shut_out_elsewhere_is_found(body: str) -> None:
    assert judged(body) == f"naming {X} in its collection would not lead to autotune"


@pytest.mark.parametrize("body", OTHERWISE)
def test_backend_that_is_let_in_by_another_way_is_found(body: str) -> None:
    assert judged(body) == f"it tunes {X} by another condition than its collection"


@pytest.mark.parametrize("body", NO_DIFFERENCE)
def test_collection_that_decides_nothing_is_found(body: str) -> None:
    assert judged(body) != ""


@pytest.mark.parametrize("body", NOT_FOLLOWED)
def test_what_is_not_followed_is_said_with_its_line(body: str) -> None:
    line = 3 + next(number for number, one in enumerate(body.splitlines(), 1) if "b" in one or "while" in one)
    said = judged(body)
    assert said.startswith("line ")
    assert said.endswith("does something with the backend that is not followed")
    assert int(said.split()[1]) >= line - 1


@pytest.mark.skipif(sys.version_info < (3, 10), reason="match statements came with Python 3.10")
def test_match_statements_are_followed() -> None:
    closing = "match b:\n    case 'triton' | 'aiter': return False\n    case _: return b in KNOWN"
    assert judged(closing) == ""
    assert judged("match b:\n    case X: return False\n    case other: return other in KNOWN").startswith("naming")
    assert judged("match b:\n    case X if self.old: return False\n    case _: return b in KNOWN") == ""
    assert judged("match self.kind:\n    case None: return False\nreturn b in KNOWN") == ""
    assert judged("match b:\n    case [*_]: return False\nreturn b in KNOWN").startswith("line ")
    assert judged("match b:\n    case 'x' as y: return False\nreturn b in KNOWN") == ""
    assert judged("match None:\n    case None: return b in KNOWN\nreturn False") == ""
    assert judged("match b:\n    case self.forced: return False\nreturn b in KNOWN").startswith("line ")


def test_function_that_is_replaced_later_is_found_and_another_name_for_it_is_not() -> None:
    body = "return b in KNOWN"
    assert judged(body, after=f"Runner.{NAME} = lambda self: False\n") == f"{NAME} is assigned anew on line 5"
    assert judged(body, after=f"{NAME} = Runner.{NAME}\n") == ""


@pytest.mark.parametrize(
    ("before", "body", "verdict"),
    [
        ('ALSO = ("triton",)\n', "if b in ALSO: return False\nreturn b in KNOWN", ""),
        ("ALSO = (X,)\n", "if b in ALSO: return False\nreturn b in KNOWN", "naming"),
        ("Runner = ALSO.x = None\nALSO: tuple\n", "return b in KNOWN", ""),
        ('ALSO: tuple = ("triton",)\n', "if b in ALSO: return False\nreturn b in KNOWN", ""),
        # Of two values nobody knows which one holds.
        ('ALSO = ("a",)\nALSO = (X,)\n', "if b in ALSO: return False\nreturn b in KNOWN", "line"),
        ("def list(names): return []\n", "return b in list(KNOWN)", "line"),
        ("class Names:\n    ALSO = (X,)\n", "if b in Names.ALSO: return False\nreturn b in KNOWN", "naming"),
    ],
)
def test_constants_of_the_file_are_known(before: str, body: str, verdict: str) -> None:
    said = judged(body, before=before)
    assert said.startswith(verdict) if verdict else said == ""


def test_backend_that_the_release_names_itself_is_judged_the_same_way() -> None:
    assert judged("return b in KNOWN", backend="flashinfer_trtllm") == ""
    assert judged("return b in KNOWN or b == 'flashinfer_trtllm'", backend="flashinfer_trtllm").startswith("it tunes")


def test_deep_nesting_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def deep(*_arguments: Any) -> str:
        raise RecursionError

    monkeypatch.setattr(gate_meaning, "_compared", deep)
    assert judged("return b in KNOWN") == "it is nested too deeply to be followed"


# Before a gate that names x: whether something else then decides for x whatever the collection holds.
APART = [
    ('if b == "x":\n    return False', True),
    ('if "x" == b:\n    return False', True),
    ('if b == "x":\n    return True', True),
    ('if b == "x":\n    return cuda()', True),
    ('if b is "x":\n    return False', True),
    ('if "x" == b == other():\n    return False', True),
    ('if -(b == "x"):\n    return False', True),
    ('if not b != "x":\n    return False', True),
    ('if b == "x" or slow():\n    return False', True),
    ('if b == "x" or b == "y":\n    return 0', True),
    ('if slow():\n    return False\nelif b == "x":\n    return False', True),
    ('bad = b == "x"\nif bad:\n    return False', True),
    ('if bad := b == "x":\n    return False', True),
    ('if b in ("x", "y"):\n    return False', True),
    ('if b != "x":\n    note()\nelse:\n    return False', True),
    ('if b != "x" and slow():\n    note()\nelse:\n    return False', True),
    ('if b == "x" and args.moe_a2a_backend == "deepep":\n    return False', False),
    ('if not (b == "x" and slow()):\n    note()', False),
    ('if b != "x" and slow():\n    return False', False),
    ('if b == "x":\n    if slow():\n        return False', False),
    ('if slow():\n    if b == "x":\n        return False', False),
    ('if b == "x":\n    note()', False),
    ('if args.attention_backend == "x":\n    return False', False),
    ('bad = b == "x"\nbad = bad and slow()\nif bad:\n    return False', False),
    ('a.b = b == "x"', False),
    ('if b == "x":\n    return False', True),
    ('if b == "x" and slow():\n    return cuda()', True),
]


@pytest.mark.parametrize(("before", "apart"), APART)
def test_backend_that_is_answered_apart_is_told_and_one_with_another_condition_is_not(before: str, apart: bool) -> None:
    said = judged(f"{before}\nif b not in KNOWN: return False\nreturn True", backend="x")
    assert bool(said) is apart, said
