"""Started with every Python of an imported program: torch's TensorBoard writer is the stand-in, too."""

from __future__ import annotations

import sys

import tensorboardX  # type: ignore[import-not-found]

sys.modules["torch.utils.tensorboard"] = tensorboardX
