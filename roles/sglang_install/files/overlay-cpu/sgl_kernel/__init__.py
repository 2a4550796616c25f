# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sgl_kernel that can be imported and not called, for machines without a GPU.

SGLang imports names from sgl_kernel at module level, also when it serves on the CPU. The real package is a CUDA library
that does not load there. Serving a model on the CPU reaches none of these names, so it is enough that they can be
imported: every submodule exists, every name in it exists, and a call says plainly what is missing.
"""

import importlib.abc
import importlib.machinery
import sys

__version__ = "0.0.0+standin"


class _Kernel:
    """Stands for one function, class or namespace of the real package."""

    def __init__(self, name):
        self.__name__ = self.__qualname__ = name

    def __call__(self, *args, **kwargs):
        raise NotImplementedError(
            f"{self.__name__} was called: this environment has no GPU kernels (lane cpu); use lane cuda13 on a GPU"
        )

    def __getattr__(self, name):
        return _lookup(self.__name__, name)

    def __repr__(self):
        return f"<{self.__name__}, not available without a GPU>"


def _lookup(owner, name):
    # Python and libraries ask objects for protocol methods (__array__, __torch_function__ ...): those must be missing.
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(f"{owner} has no attribute {name}")
    return _Kernel(f"{owner}.{name}")


class _Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module below sgl_kernel and gives it the same open-ended content."""

    def find_spec(self, fullname, path=None, target=None):
        if not fullname.startswith(__name__ + "."):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        owner = module.__name__
        module.__getattr__ = lambda name: _lookup(owner, name)


def __getattr__(name):
    return _lookup(__name__, name)


# Last in the list: a submodule that is really there wins.
sys.meta_path.append(_Submodules())
