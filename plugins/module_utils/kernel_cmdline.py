# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A kernel command line as tokens: reading it, setting some, putting back what they were.

Two syntaxes. "kernel" is what the kernel itself reads (next_arg() in lib/cmdline.c), in /etc/kernel/cmdline and
/proc/cmdline: only double quotes group, nothing escapes. "grub" is what stands in grub.cfg and is read by GRUB's script
language first (GRUB manual, "Shell-like scripting"), which removes quotes. GRUB hands on an argument with a space as
`"name=a b"` (grub-core/lib/cmdline.c), so tokens are compared by name and value, never by their text. It puts a
backslash before quotes and backslashes, which the kernel does not remove: such values cannot pass GRUB.

The kernel takes - and _ in names for the same sign (parameq() in kernel/params.c).

What is set together is a unit: one token, or `hugepagesz=` and the `hugepages=` that follows it
(Documentation/admin-guide/kernel-parameters.txt). A command line holds one unit of a family, but for those of SEVERAL,
of which it holds one for each slot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError

KERNEL = "kernel"
GRUB = "grub"

#: COMMAND_LINE_SIZE of x86 and arm64 is 2048 with the final zero; the kernel cuts what is longer without a word.
MAX_LENGTH = 2047

_SPACE = " \t\n\r\v\f"
_END_OF_OPTIONS = "--"
_PRINTABLE = re.compile(r"[ -~]+")
#: Signs that GRUB's script language gives a meaning outside quotes, or that it may expand to names of files.
_GRUB_SPECIAL = frozenset(_SPACE + "$;&|<>{}*?#")
_HUGEPAGES = "hugepages"


def _whole(value: str) -> str:
    return value


def _device(value: str) -> str:
    return value.split(",", 1)[0]


def _crash_area(value: str) -> str:
    return next((area for area in ("high", "low") if value.endswith(f",{area}")), "")


#: Names that may stand there several times, since each time counts: which part of the value tells them apart. The same
#: device as console with another speed is the same slot, so its token is replaced. Sources: kernel-parameters.txt of
#: the kernel, kernel-command-line(7) of systemd, dracut.cmdline(7), modprobe(8).
SEVERAL: Mapping[str, Callable[[str], str]] = {
    "acpi_osi": _whole,
    "cgroup_disable": _whole,
    "console": _device,
    "crashkernel": _crash_area,
    "dyndbg": _whole,
    _HUGEPAGES: _whole,
    "initcall_blacklist": _whole,
    "ip": _whole,
    "memmap": _whole,
    "modprobe.blacklist": _whole,
    "nameserver": _whole,
    "pci": _whole,
    "rd.driver.blacklist": _whole,
    "rd.driver.pre": _whole,
    "rd.luks.name": _whole,
    "rd.luks.uuid": _whole,
    "rd.lvm.lv": _whole,
    "rd.lvm.vg": _whole,
    "rd.md.uuid": _whole,
    "reserve_mem": _whole,
    "systemd.mask": _whole,
    "systemd.setenv": _whole,
    "systemd.wants": _whole,
    "video": _whole,
    "virtio_mmio.device": _whole,
}


class CmdlineError(HostError):
    """A command line or a token cannot be understood or written; the text says what to do."""


@dataclass(frozen=True)
class Token:
    """What the kernel sees of one token; `value` without quotes, None for a bare name."""

    name: str
    value: str | None = None

    @property
    def key(self) -> str:
        """The name as the kernel compares it."""
        return self.name.replace("-", "_")

    @property
    def text(self) -> str:
        """As the kernel reads it."""
        if self.value is None:
            return self.name
        quote = '"' if any(sign in _SPACE for sign in self.value) else ""
        return f"{self.name}={quote}{self.value}{quote}"


@dataclass(frozen=True)
class Word:
    """One token where it stands: `raw` is its text, from `start` on. A `known` one holds no variable of GRUB."""

    raw: str
    start: int
    token: Token
    known: bool = True


@dataclass(frozen=True)
class Unit:
    """Tokens that are set together, in their order; other tokens may stand between them."""

    family: str
    slot: str
    words: tuple[Word, ...]

    @property
    def place(self) -> tuple[str, str]:
        """Of units with the same place a command line holds one."""
        return self.family, self.slot

    @property
    def meaning(self) -> tuple[tuple[str, str | None], ...] | None:
        """What the kernel is told; None when a variable of GRUB is in it."""
        if not all(word.known for word in self.words):
            return None
        return tuple((word.token.key, word.token.value) for word in self.words)

    @property
    def raws(self) -> tuple[str, ...]:
        return tuple(word.raw for word in self.words)

    @property
    def texts(self) -> list[str]:
        return [word.token.text for word in self.words]


def split(text: str, syntax: str) -> list[Word]:
    """The words of a command line up to `--`, behind which they are for init. Raises CmdlineError."""
    found: list[Word] = []
    position = 0
    while True:
        while position < len(text) and text[position] in _SPACE:
            position += 1
        if position == len(text):
            return found
        word = (_grub_word if syntax == GRUB else _kernel_word)(text, position)
        if word.raw == _END_OF_OPTIONS:
            return found
        found.append(word)
        position += len(word.raw)


def units(words: Iterable[Word]) -> list[Unit]:
    """The units that words are, in the order of their first words."""
    groups: list[list[Word]] = []
    size: list[Word] | None = None
    for word in words:
        if word.token.key == _HUGEPAGES and size is not None:
            size.append(word)
            size = None
            continue
        groups.append([word])
        if word.token.key == "hugepagesz":
            size = groups[-1]
    return [_unit(group) for group in groups]


def wanted(texts: Sequence[str]) -> list[Unit]:
    """The units that a person asks for, each once.

    Raises CmdlineError for a text that is not exactly one token, and for two values where there can be one.
    """
    found: dict[tuple[str, str], Unit] = {}
    for unit in units(_asked(text) for text in texts):
        known = found.setdefault(unit.place, unit)
        if known.meaning != unit.meaning:
            first, second = " ".join(known.texts), " ".join(unit.texts)
            raise CmdlineError(
                f"setting the kernel command line: {first} and {second} are asked for, and one replaces the other; "
                "leave one of them out, or write both values into one token where the kernel takes a list",
                tokens=[first, second],
            )
    return list(found.values())


def merge(text: str, asked: Sequence[Unit], syntax: str) -> str:
    """The command line with what is asked.

    A unit takes the place of the first one with another value, further ones go. New ones come at the end, in the order
    in which they are asked for. All else stays as it is, to the space. Raises CmdlineError.
    """
    for unit in asked:
        if [word.token.key for word in unit.words] == ["hugepagesz"]:
            raise CmdlineError(
                f"setting the kernel command line, token {unit.texts[0]}: it says nothing without the number of pages; "
                "give hugepages= behind it",
                token=unit.texts[0],
            )
        written = [_written(word.token, syntax) for word in unit.words]
        there = of_place(text, unit.family, unit.slot, syntax)
        kept = bool(there) and there[0].meaning == unit.meaning
        text = _replaced(text, there, [list(there[0].raws) if kept else written], syntax)
    return text


def restore(text: str, asked: Iterable[Unit], before: Mapping[str, Sequence[str]], syntax: str) -> str:
    """The command line with the units of what is asked as they were before, by family.

    `before` holds each family's words as noted() gave them. Families that are not in it are left alone. A bare name
    means all units of its family. Raises CmdlineError for a note that is none.
    """
    for unit in asked:
        if unit.family not in before:
            continue
        slot = slot_of(unit)
        old = [each for each in _noted_units(unit.family, before[unit.family], syntax) if slot in (None, each.slot)]
        text = _replaced(text, of_place(text, unit.family, slot, syntax), [list(each.raws) for each in old], syntax)
    return text


def repeated(text: str, syntax: str) -> set[tuple[str, str]]:
    """The places of units that stand in a text several times. Raises CmdlineError."""
    places = [unit.place for unit in units(split(text, syntax))]
    return {place for place in places if places.count(place) > 1}


def as_before(text: str, before: str, syntax: str) -> str:
    """`before` when a text that was restored has its words, else the text.

    Of units that stood there several times merge() leaves one, and restore() cannot know the places of the others. So
    those may be anywhere; all else must be as it was, in its order. Raises CmdlineError.
    """
    several = repeated(before, syntax)

    def parts(line: str) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]], str]:
        words = split(line, syntax)
        found = units(words)
        end = words[-1].start + len(words[-1].raw) if words else 0
        single = [unit.raws for unit in found if unit.place not in several]
        return sorted(unit.raws for unit in found), single, line[end:].strip(_SPACE)

    return before if several and parts(text) == parts(before) else text


def noted(text: str, family: str, syntax: str) -> list[str]:
    """The words of a family as they stand there, to be noted for restore()."""
    found = [word for unit in of_place(text, family, None, syntax) for word in unit.words]
    return [word.raw for word in sorted(found, key=lambda word: word.start)]


def is_as_noted(text: str, family: str, before: Sequence[str], syntax: str) -> bool:
    """Whether a family has the words that were noted of it, so that the note has done its work."""
    return sorted(noted(text, family, syntax)) == sorted(before)


def of_place(text: str, family: str, slot: str | None, syntax: str) -> list[Unit]:
    """The units of a family, those of one slot or with None all of them. Raises CmdlineError."""
    return [unit for unit in units(split(text, syntax)) if unit.family == family and slot in (None, unit.slot)]


def slot_of(asked: Unit) -> str | None:
    """The slot that is asked for, None for all of the family: a bare name has no value that tells one."""
    return None if all(word.token.value is None for word in asked.words) else asked.slot


def check_length(texts: Iterable[str]) -> None:
    """Raises CmdlineError when the kernel would cut a command line made of these texts."""
    length = len(" ".join(texts))
    if length > MAX_LENGTH:
        raise CmdlineError(
            f"setting the kernel command line: it would have {length} signs, and the kernel cuts what is behind "
            f"{MAX_LENGTH}; remove tokens that are not needed",
            length=length,
        )


def missing(asked: Iterable[Unit], running: str) -> list[str]:
    """The tokens that are asked for and not followed by the running kernel, whose command line is given.

    Of names that count once the last one counts. Raises CmdlineError.
    """
    lacking: list[str] = []
    for unit in asked:
        there = [each.meaning for each in of_place(_closed(running), unit.family, unit.slot, KERNEL)]
        if unit.family not in SEVERAL:
            there = there[-1:]
        if unit.meaning not in there:
            lacking += unit.texts
    return lacking


def left_over(asked: Iterable[Unit], configured: Sequence[tuple[str, str]], running: str) -> list[str]:
    """The tokens of what is asked that the running kernel has and its next start will not have.

    `configured` holds the texts the next command line is made of, each with its syntax. Raises CmdlineError.
    """
    still: list[str] = []
    for unit in asked:
        slot = slot_of(unit)
        next_start = [each.meaning for text, syntax in configured for each in of_place(text, unit.family, slot, syntax)]
        for each in of_place(_closed(running), unit.family, slot, KERNEL):
            still += [text for text in each.texts if each.meaning not in next_start and text not in still]
    return still


def _closed(running: str) -> str:
    """The kernel takes a quote that does not end as one that ends with the line."""
    return running + '"' * (running.count('"') % 2)


def _unit(group: Sequence[Word]) -> Unit:
    first = group[0].token
    if first.key == "hugepagesz":
        return Unit(_HUGEPAGES, first.value or "", tuple(group))
    if first.key == _HUGEPAGES:
        # Without a size before it, the number is of pages of the default size.
        return Unit(_HUGEPAGES, "", tuple(group))
    slot = SEVERAL[first.key](first.value or "") if first.key in SEVERAL else ""
    return Unit(first.key, slot, tuple(group))


def _noted_units(family: str, words: Sequence[str], syntax: str) -> list[Unit]:
    found = units(split(" ".join(words), syntax))
    if any(unit.family != family for unit in found) or sorted(raw for unit in found for raw in unit.raws) != sorted(
        words
    ):
        raise CmdlineError(
            f"restoring {family} on the kernel command line: what is noted of it, {list(words)!r}, is none of its "
            "values; put a backup of the notes back, or set the value by hand",
            token=family,
            noted=list(words),
        )
    return found


def _asked(text: str) -> Word:
    def refused(why: str) -> CmdlineError:
        return CmdlineError(
            f"setting the kernel command line, token {text!r}: {why}; give one name or name=value, with double quotes "
            "around a value that has spaces",
            token=text,
        )

    if not _PRINTABLE.fullmatch(text):
        raise refused("it is empty or has signs that are no printable ASCII")
    try:
        words = split(text, KERNEL)
    except CmdlineError as error:
        raise refused("its double quotes do not match") from error
    if len(words) != 1:
        raise refused("it is not one token")
    token = words[0].token
    if not token.name or any(sign in '"= \t' for sign in token.name):
        raise refused("its name is none")
    if '"' in (token.value or ""):
        raise refused("there are double quotes inside its value, which the kernel cannot read")
    return Word(token.text, 0, token)


def _written(token: Token, syntax: str) -> str:
    """The text of a token in a syntax. Raises CmdlineError for what GRUB would change."""
    if syntax != GRUB:
        return token.text
    value = token.value or ""
    if any(sign in "\\'" for sign in token.name + value):
        raise CmdlineError(
            f"setting the kernel command line, token {token.text!r}: GRUB puts a backslash before ' and \\ and the "
            "kernel does not remove it; leave the token out",
            token=token.text,
        )
    if token.value is None or not any(sign in _GRUB_SPECIAL for sign in value):
        return token.text
    escaped = value.replace("$", "\\$")
    return f'{token.name}="{escaped}"'


def _replaced(text: str, there: Sequence[Unit], new: Sequence[Sequence[str]], syntax: str) -> str:
    """The text with the units `there` replaced by new ones, one by one; what is over goes, what is more follows."""
    instead: dict[int, str] = {}
    for number, unit in enumerate(there):
        raws = list(new[number]) if number < len(new) else []
        if raws == list(unit.raws):
            continue
        instead.update({word.start: "" for word in unit.words})
        instead[unit.words[0].start] = " ".join(raws)
    more = " ".join(raw for raws in new[len(there) :] for raw in raws)
    behind = there[-1].words[-1].start if there else -1
    words = split(text, syntax)
    sizes = [word for word in words if word.token.key == "hugepagesz"]
    if not there and sizes and new and new[0][0].startswith(f"{_HUGEPAGES}="):
        # The kernel counts pages of the default size only in front of the first size.
        instead[sizes[0].start], more = f"{more} {sizes[0].raw}", ""
    pieces: list[str] = []
    lead = ""
    end = 0
    for word in words:
        gap = text[end : word.start]
        lead = lead if end else gap
        end = word.start + len(word.raw)
        raw = instead.get(word.start, word.raw)
        if more and word.start == behind:
            raw, more = f"{raw} {more}".strip(), ""
        if raw:
            # What comes first now begins where the line began.
            pieces.append((gap if pieces else lead) + raw)
    result, rest = "".join(pieces) or lead, text[end:]
    for_init = rest.lstrip(_SPACE)
    if not more:
        # The space in front of what is for init came with the words that are gone.
        return result + (for_init if end and for_init and not pieces else rest)
    if pieces:
        return f"{result} {more}{rest}"
    return result + rest[: len(rest) - len(for_init)] + more + (f" {for_init}" if for_init else "")


def _kernel_word(text: str, start: int) -> Word:
    end = start
    quoted = False
    while end < len(text) and (quoted or text[end] not in _SPACE):
        quoted = quoted != (text[end] == '"')
        end += 1
    if quoted:
        raise _unmatched(text, start)
    raw = text[start:end]
    whole = raw.startswith('"')
    name, value = _parted(raw[1:] if whole else raw)
    if value is None:
        return Word(raw, start, Token(name[:-1] if whole and name.endswith('"') else name))
    inside = value.startswith('"')
    value = value[1:] if inside else value
    return Word(raw, start, Token(name, value[:-1] if (whole or inside) and value.endswith('"') else value))


def _parted(argument: str) -> tuple[str, str | None]:
    # A sign of equality in front is part of the name for the kernel.
    equals = argument.find("=", 1)
    return (argument, None) if equals < 0 else (argument[:equals], argument[equals + 1 :])


def _grub_word(text: str, start: int) -> Word:
    argument = ""
    known = True
    quote = ""
    position = start
    while position < len(text) and (quote or text[position] not in _SPACE):
        sign = text[position]
        position += 1
        if sign == quote:
            quote = ""
        elif not quote and sign in "\"'":
            quote = sign
        elif sign == "\\" and quote != "'" and position < len(text):
            following = text[position]
            position += 1
            # In double quotes it stays in front of anything else.
            argument += following if not quote or following in '$"\\' else sign + following
        elif not quote and (sign in ";&|<>" or (sign == "#" and position - 1 == start)):
            raise CmdlineError(
                f"reading the kernel command line {text!r}: GRUB ends it at {sign!r} in {text[start:]!r}; put "
                "the value in double quotes by hand",
                found=text[start:],
            )
        else:
            known = known and (sign != "$" or quote == "'")
            argument += sign
    if quote:
        raise _unmatched(text, start)
    return Word(text[start:position], start, Token(*_parted(argument)), known)


def _unmatched(text: str, start: int) -> CmdlineError:
    return CmdlineError(
        f"reading the kernel command line {text!r}: the quotes of {text[start:]!r} do not match; correct them by hand",
        found=text[start:],
    )
