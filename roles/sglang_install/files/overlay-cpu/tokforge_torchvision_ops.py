# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lets the torchvision of the package index be imported beside a CPU build of torch.

That torchvision is linked against CUDA, so its library of operators does not load beside a CPU torch. torchvision
passes over this and then registers shape functions for two of those operators, nms and qnms, which fails because they
do not exist, and with it the import. SGLang imports torchvision for image processors and calls neither operator when it
serves text. So the two are declared, without an implementation, when torchvision did not bring them.

tokforge_torchvision_ops.pth imports this file when the interpreter starts. It does nothing until torchvision is
imported.
"""

import sys

_OPERATORS = ("nms", "qnms")
_ARGUMENTS = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


class _DeclareBeforeUse:
    """Looks at imports, and acts after torchvision tried to load its library and before it uses the operators."""

    def __init__(self):
        self.library = None

    def find_spec(self, fullname, path=None, target=None):
        """Finds nothing itself: the import goes on as it would have."""
        if fullname == "torchvision._meta_registrations" and self.library is None:
            # torch is imported already: torchvision did it before it came here.
            import torch

            # Kept, or the declarations would go with it.
            self.library = torch.library.Library("torchvision", "FRAGMENT")
            for name in _OPERATORS:
                if not hasattr(torch.ops.torchvision, name):
                    self.library.define(name + _ARGUMENTS)


sys.meta_path.insert(0, _DeclareBeforeUse())
