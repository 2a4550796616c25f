# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A preferences file of apt that is tried before it is written.

What a transaction would be depends on the pins, and a pin must not be left behind by a transaction that is refused. So
apt is shown a copy of its directory of preferences in which our file is already as it is to be.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from ansible_collections.tokforge.sglang.plugins.module_utils.apt_simulation import SimulationError
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic


@dataclass(frozen=True)
class Pin:
    """Our file and what it is to say; an empty text is for no pins. An empty path is for nothing at all."""

    path: str = ""
    text: str = ""

    @contextlib.contextmanager
    def tried(self) -> Iterator[tuple[str, ...]]:
        """Settings for apt that make it see the pins. Raises SimulationError."""
        if not self.path:
            yield ()
            return
        name = os.path.basename(self.path)
        try:
            with tempfile.TemporaryDirectory(prefix="tokforge-preferences-") as directory:
                self._fill(directory, name)
                yield (f"Dir::Etc::preferencesparts={directory}",)
        except OSError as error:
            raise SimulationError(f"trying apt's preferences {self.path}: {error}; make room or readable") from error

    def _fill(self, directory: str, ours: str) -> None:
        # apt reads them without root's rights in some of its parts.
        os.chmod(directory, 0o755)  # noqa: S103 (holds copies of files that all can read)
        folder = os.path.dirname(self.path)
        for entry in os.listdir(folder) if os.path.isdir(folder) else ():
            source = os.path.join(folder, entry)
            if entry != ours and os.path.isfile(source):
                shutil.copyfile(source, os.path.join(directory, entry))
        if self.text:
            with open(os.path.join(directory, ours), "w", encoding="utf-8") as stream:
                stream.write(self.text)

    def current(self) -> str | None:
        """What the file says now, None without one."""
        try:
            with open(self.path, encoding="utf-8", errors="surrogateescape") as stream:
                return stream.read()
        except (FileNotFoundError, IsADirectoryError):
            return None

    def differs(self, kept: bool) -> bool:
        """Whether the file is other than it is to be: there with our text when it is kept, else not there."""
        return bool(self.path) and self.current() != (self.text if kept and self.text else None)

    def settle(self, kept: bool) -> None:
        """Write the file, or remove it. Raises SimulationError."""
        if not self.differs(kept):
            return
        try:
            if kept and self.text:
                os.makedirs(os.path.dirname(self.path), mode=0o755, exist_ok=True)
                write_atomic(self.path, self.text.encode(), 0o644)
            else:
                os.unlink(self.path)
        except OSError as error:
            raise SimulationError(
                f"writing apt's preferences {self.path}: {error.strerror}; make it writable", path=self.path
            ) from error
