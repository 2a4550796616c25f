# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens of a kernel command line are set and put back without touching the others."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.tokforge.sglang.plugins.module_utils import kernel_cmdline
from ansible_collections.tokforge.sglang.plugins.module_utils.kernel_cmdline import GRUB, KERNEL, CmdlineError


def merged(text: str, *tokens: str, syntax: str = GRUB) -> str:
    return kernel_cmdline.merge(text, kernel_cmdline.wanted(tokens), syntax)


def seen(text: str, syntax: str) -> list[tuple[str, str | None]]:
    """Names and values as the kernel gets them."""
    return [(word.token.name, word.token.value) for word in kernel_cmdline.split(text, syntax)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('a b=1 c="x y" d', [("a", None), ("b", "1"), ("c", "x y"), ("d", None)]),
        ('"c=x y" "flag"', [("c", "x y"), ("flag", None)]),
        ('"c"=x', [('c"', "x")]),
        ('c="x"y=z', [("c", 'x"y=z')]),
        ("root=UUID=1-2 =odd", [("root", "UUID=1-2"), ("=odd", None)]),
        ("a\tb\n\r c", [("a", None), ("b", None), ("c", None)]),
        ("a -- b", [("a", None)]),
        ("x='a b'", [("x", "'a"), ("b'", None)]),
        ("x=a\\ b", [("x", "a\\"), ("b", None)]),
        (" ", []),
    ],
)
def test_kernel_reads_only_double_quotes(text: str, expected: list[tuple[str, str | None]]) -> None:
    assert seen(text, KERNEL) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('c="x y" d', [("c", "x y"), ("d", None)]),
        ("'c=x y' d", [("c", "x y"), ("d", None)]),
        ("c=x\\ y", [("c", "x y")]),
        ("m=4G\\$4G", [("m", "4G$4G")]),
        ('m="4G\\$4G"', [("m", "4G$4G")]),
        ("m='4G$4G'", [("m", "4G$4G")]),
        ('c="a\\b"', [("c", "a\\b")]),
        ("c=a#b", [("c", "a#b")]),
    ],
)
def test_grub_removes_quotes_before_the_kernel_reads(text: str, expected: list[tuple[str, str | None]]) -> None:
    assert seen(text, GRUB) == expected
    assert all(word.known for word in kernel_cmdline.split(text, GRUB))


def test_variable_of_grub_is_kept_and_never_taken_for_a_value() -> None:
    assert merged("quiet $tuned_params iommu=$mode", "nosmt") == "quiet $tuned_params iommu=$mode nosmt"
    assert merged("iommu=$mode x", "iommu=pt") == "iommu=pt x"
    assert merged("iommu=$mode x", "iommu=$mode") == 'iommu="\\$mode" x'


@pytest.mark.parametrize("syntax", [KERNEL, GRUB])
@pytest.mark.parametrize("text", ['a="b c', '"', 'x "y'])
def test_quote_without_an_end_is_an_error(text: str, syntax: str) -> None:
    with pytest.raises(CmdlineError, match="do not match; correct them by hand"):
        kernel_cmdline.split(text, syntax)


@pytest.mark.parametrize("text", ["a;b", "a & b", "a|b", "x=<y", "a #b"])
def test_what_grub_would_end_the_line_at_is_an_error(text: str) -> None:
    with pytest.raises(CmdlineError, match="GRUB ends it at"):
        kernel_cmdline.split(text, GRUB)


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [
        ("", ["a"], "a"),
        ("", ["a", "b=1"], "a b=1"),
        ("quiet", ["iommu=pt", "nosmt"], "quiet iommu=pt nosmt"),
        ("quiet  splash ", ["a"], "quiet  splash a "),
        ("iommu=off  quiet", ["iommu=pt"], "iommu=pt  quiet"),
        ("a iommu=off b iommu=soft c", ["iommu=pt"], "a iommu=pt b c"),
        ("a iommu=pt b iommu=pt", ["iommu=pt"], "a iommu=pt b"),
        ("iommu x", ["iommu=pt"], "iommu=pt x"),
        ("intel_iommu=on_x a", ["intel_iommu=on"], "intel_iommu=on a"),
        ("xiommu=off iommu.x=1", ["iommu=pt"], "xiommu=off iommu.x=1 iommu=pt"),
        ("transparent-hugepage=always", ["transparent_hugepage=never"], "transparent_hugepage=never"),
        ("transparent-hugepage=never", ["transparent_hugepage=never"], "transparent-hugepage=never"),
        ("a -- single", ["b"], "a b -- single"),
        (" -- single", ["b"], " b -- single"),
        ("a -- iommu=off", ["iommu=pt"], "a iommu=pt -- iommu=off"),
        ("'iommu=pt' a", ["iommu=pt"], "'iommu=pt' a"),
    ],
)
def test_token_takes_the_place_of_another_value(text: str, tokens: list[str], expected: str) -> None:
    assert merged(text, *tokens) == expected
    assert merged(expected, *tokens) == expected


@pytest.mark.parametrize(
    ("text", "token", "expected"),
    [
        ("console=tty0", "console=ttyS0", "console=tty0 console=ttyS0"),
        ("console=tty0 console=ttyS0,9600 a", "console=ttyS0,115200n8", "console=tty0 console=ttyS0,115200n8 a"),
        ("pci=noaer", "pci=realloc", "pci=noaer pci=realloc"),
        ("pci=noaer", "pci=noaer", "pci=noaer"),
        ("crashkernel=1G,high crashkernel=64M,low", "crashkernel=2G,high", "crashkernel=2G,high crashkernel=64M,low"),
        ("crashkernel=256M", "crashkernel=512M", "crashkernel=512M"),
        ("vfio-pci.ids=10de:1", "vfio-pci.ids=10de:2", "vfio-pci.ids=10de:2"),
    ],
)
def test_names_that_may_be_there_several_times_are_added_to(text: str, token: str, expected: str) -> None:
    assert merged(text, token) == expected


def test_pages_go_with_the_size_before_them() -> None:
    pair = ("hugepagesz=1G", "hugepages=8")
    both = merged("q", *pair, "hugepagesz=2M", "hugepages=64")
    assert both == "q hugepagesz=1G hugepages=8 hugepagesz=2M hugepages=64"
    two = "hugepagesz=2M hugepages=64 q hugepagesz=1G x hugepages=4"
    assert merged(two, *pair) == "hugepagesz=2M hugepages=64 q hugepagesz=1G hugepages=8 x"
    assert merged("hugepages=5 a", *pair) == "hugepages=5 a hugepagesz=1G hugepages=8"
    assert merged("hugepages=5 a", "hugepages=6") == "hugepages=6 a"
    assert merged("hugepagesz=1G hugepages=4", "hugepages=6") == "hugepages=6 hugepagesz=1G hugepages=4"
    assert merged("x hugepagesz=1G", "hugepages=6") == "x hugepages=6 hugepagesz=1G"
    assert merged("default_hugepagesz=2M", "default_hugepagesz=1G") == "default_hugepagesz=1G"
    crossed = "hugepagesz=2M hugepages=8 hugepagesz=1G hugepages=7"
    assert kernel_cmdline.missing(kernel_cmdline.wanted(pair), crossed) == [*pair]
    with pytest.raises(CmdlineError, match="hugepagesz=1G: it says nothing without the number"):
        merged("", "hugepagesz=1G")


@pytest.mark.parametrize(
    ("token", "kernel", "grub"),
    [
        ('dyndbg="file a.c +p"', 'dyndbg="file a.c +p"', 'dyndbg="file a.c +p"'),
        ('"dyndbg=file a.c +p"', 'dyndbg="file a.c +p"', 'dyndbg="file a.c +p"'),
        ("memmap=4G$4G", "memmap=4G$4G", 'memmap="4G\\$4G"'),
        ("x=a;b", "x=a;b", 'x="a;b"'),
        ('x=""', "x=", "x="),
        ("acpi_osi=!", "acpi_osi=!", "acpi_osi=!"),
    ],
)
def test_value_reaches_the_kernel_in_either_syntax(token: str, kernel: str, grub: str) -> None:
    assert merged("", token, syntax=KERNEL) == kernel
    assert merged("", token, syntax=GRUB) == grub
    assert seen(kernel, KERNEL) == seen(grub, GRUB)


@pytest.mark.parametrize("token", ["x=a'b", "x=a\\b"])
def test_value_that_grub_would_change_is_refused_for_grub_only(token: str) -> None:
    with pytest.raises(CmdlineError, match="GRUB puts a backslash"):
        merged("", token)
    assert merged("", token, syntax=KERNEL) == token


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("", "empty"),
        ("a\nb", "printable"),
        ("a\0", "printable"),
        ("ü=1", "printable"),
        ("a b", "not one token"),
        ("iommu=pt quiet", "not one token"),
        (" ", "not one token"),
        ("--", "not one token"),
        ('x="a', "do not match"),
        ("=x", "its name is none"),
        ('"a b"', "its name is none"),
        ('x="a"b"c"', "inside its value"),
    ],
)
def test_what_is_no_token_is_refused(token: str, why: str) -> None:
    with pytest.raises(CmdlineError, match=why) as caught:
        kernel_cmdline.wanted([token])
    assert caught.value.facts == {"token": token}


def test_two_values_where_one_can_be_are_refused() -> None:
    with pytest.raises(CmdlineError, match="iommu=pt and iommu=off are asked for"):
        kernel_cmdline.wanted(["iommu=pt", "iommu=off"])
    with pytest.raises(CmdlineError, match="console=ttyS0,9600 and console=ttyS0 are"):
        kernel_cmdline.wanted(["console=ttyS0,9600", "console=ttyS0"])
    assert len(kernel_cmdline.wanted(["iommu=pt", "quiet", "iommu=pt", "console=a", "console=b"])) == 4


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", ["a"]),
        ("quiet", ["iommu=pt", "nosmt"]),
        ("iommu=off quiet", ["iommu=pt"]),
        ('iommu="o f"  quiet ', ["iommu=pt"]),
        ("q iommu=$mode x", ["iommu=pt"]),
        ("console=tty0 console=ttyS0,9600 a", ["console=ttyS0", "console=ttyS1"]),
        ("hugepagesz=2M hugepages=9 hugepagesz=1G hugepages=4 x", ["hugepagesz=1G", "hugepages=8", "hugepages=3"]),
        (" -- single", ["b"]),
        ("a -- iommu=off", ["iommu=pt"]),
        ("mem-x=1", ["mem_x=2"]),
    ],
)
def test_restore_gives_back_the_same_text(text: str, tokens: list[str]) -> None:
    asked = kernel_cmdline.wanted(tokens)
    before = {unit.family: kernel_cmdline.noted(text, unit.family, GRUB) for unit in asked}
    changed = merged(text, *tokens)
    assert changed != text
    assert kernel_cmdline.restore(changed, asked, before, GRUB) == text
    assert kernel_cmdline.restore(text, asked, before, GRUB) == text
    assert all(kernel_cmdline.is_as_noted(text, family, words, GRUB) for family, words in before.items())


def test_restore_leaves_what_another_hand_added() -> None:
    asked = kernel_cmdline.wanted(["console=ttyS0"])
    text = "console=tty0 console=ttyS0 console=ttyS1 quiet"
    after = kernel_cmdline.restore(text, asked, {"console": ["console=tty0"]}, GRUB)
    assert after == "console=tty0 console=ttyS1 quiet"
    assert not kernel_cmdline.is_as_noted(after, "console", ["console=tty0"], GRUB)
    every = kernel_cmdline.wanted(["console"])
    assert kernel_cmdline.restore(text, every, {"console": ["console=tty0"]}, GRUB) == "console=tty0 quiet"
    assert kernel_cmdline.restore(text, every, {}, GRUB) == text


def test_restore_brings_back_a_token_that_somebody_removed() -> None:
    asked = kernel_cmdline.wanted(["iommu=pt"])
    assert kernel_cmdline.restore("quiet", asked, {"iommu": ["iommu=off", "iommu=soft"]}, GRUB) == (
        "quiet iommu=off iommu=soft"
    )
    assert kernel_cmdline.restore("iommu=pt q", asked, {"iommu": ["iommu=off", "iommu=soft"]}, GRUB) == (
        "iommu=off iommu=soft q"
    )


@pytest.mark.parametrize("words", [["quiet"], ["iommu=off quiet"], ["iommu=a iommu=b"], ["iommu=off", ""], ["iommu='"]])
def test_damaged_note_is_refused(words: list[str]) -> None:
    with pytest.raises(CmdlineError):
        kernel_cmdline.restore("iommu=pt", kernel_cmdline.wanted(["iommu"]), {"iommu": words}, GRUB)


@pytest.mark.parametrize(
    ("tokens", "running", "expected"),
    [
        (["iommu=pt"], "BOOT_IMAGE=/vmlinuz iommu=pt quiet\n", []),
        (["iommu=pt", "nosmt"], "quiet", ["iommu=pt", "nosmt"]),
        (["iommu=pt"], "iommu=pt iommu=off", ["iommu=pt"]),
        (["iommu=pt"], "iommu=off iommu=pt", []),
        (["console=ttyS0"], "console=ttyS0 console=tty0", []),
        (['dyndbg="file a.c +p"'], '"dyndbg=file a.c +p"', []),
        (["nosmt"], "nosmt=force", ["nosmt"]),
        (["nosmt"], "a -- nosmt", ["nosmt"]),
        (["quiet"], 'quiet x="without an end', []),
    ],
)
def test_running_kernel_is_compared_by_meaning(tokens: list[str], running: str, expected: list[str]) -> None:
    assert kernel_cmdline.missing(kernel_cmdline.wanted(tokens), running) == expected


def test_left_over_is_what_the_next_start_will_not_have() -> None:
    asked = kernel_cmdline.wanted(["iommu=pt", "nosmt", "console"])
    running = "iommu=pt nosmt console=tty0 console=ttyS0"
    configured = [("iommu=soft console=tty0", GRUB), ("nosmt", GRUB)]
    assert kernel_cmdline.left_over(asked, configured, running) == ["iommu=pt", "console=ttyS0"]
    assert kernel_cmdline.left_over(kernel_cmdline.wanted(["iommu=x"]), [("iommu=pt", GRUB)], running) == []


def test_line_that_the_kernel_would_cut_is_refused() -> None:
    kernel_cmdline.check_length(["a" * 1000, "b" * 1046])
    with pytest.raises(CmdlineError, match="it would have 2048 signs"):
        kernel_cmdline.check_length(["a" * 1000, "b" * 1047])


TOKENS = st.sampled_from(
    ["iommu=pt", "iommu=off", "quiet", "console=tty0", "console=ttyS0", "hugepagesz=1G", "hugepages=4", 'd="a b"', "--"]
)


@settings(max_examples=80, deadline=None)
@given(st.lists(TOKENS, max_size=7), st.lists(TOKENS.filter(lambda token: token != "--"), max_size=3))
def test_merge_is_idempotent_and_leaves_other_tokens_in_order(there: list[str], tokens: list[str]) -> None:
    text = "  ".join(there)
    try:
        asked = kernel_cmdline.wanted(tokens)
        after = kernel_cmdline.merge(text, asked, KERNEL)
    except CmdlineError:
        return
    assert kernel_cmdline.merge(after, asked, KERNEL) == after
    assert kernel_cmdline.missing(asked, after) == []
    families = {unit.family for unit in asked}

    def others(line: str) -> list[str]:
        words = kernel_cmdline.units(kernel_cmdline.split(line, KERNEL))
        return [raw for unit in words if unit.family not in families for raw in unit.raws]

    assert others(after) == others(text)
    before = {family: kernel_cmdline.noted(text, family, KERNEL) for family in families}
    back = kernel_cmdline.restore(after, asked, before, KERNEL)
    assert all(kernel_cmdline.is_as_noted(back, family, words, KERNEL) for family, words in before.items())
    assert others(back) == others(text)


@pytest.mark.parametrize(
    ("text", "before", "wanted"),
    [
        ("a=1 a=2  q", "a=1  q a=2", "a=1  q a=2"),
        ("q a=1 a=2 -- x", "q  a=1 a=2 --  x", "q a=1 a=2 -- x"),
        ("q r a=1 a=2", "a=1 r q a=2", "q r a=1 a=2"),
        ("a=1 a=2 q new", "a=1 q a=2", "a=1 a=2 q new"),
        ("a=1 a=1 q", "a=1 q a=2", "a=1 a=1 q"),
        ("a=1 q", "a=1  q", "a=1 q"),
    ],
)
def test_what_stood_there_several_times_is_put_where_it_was(text: str, before: str, wanted: str) -> None:
    for syntax in ("kernel", "grub"):
        assert kernel_cmdline.as_before(text, before, syntax) == wanted
