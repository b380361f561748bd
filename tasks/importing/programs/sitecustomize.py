"""Started with every Python of an imported program, in place of TensorBoard's writers: scalars become reports.

All else that is written is dropped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from autoresearch_rl.target.progress import emit_progress, numbers  # type: ignore[import-not-found]


class SummaryWriter(AbstractContextManager["SummaryWriter"]):
    """Takes scalars."""

    def __init__(self, log_dir: str | None = None, *_: Any, **__: Any) -> None:
        self.log_dir = log_dir or "runs"

    def add_scalar(self, tag: str, scalar_value: Any, global_step: int | None = None, *_: Any, **__: Any) -> None:
        emit_progress(step=int(global_step or 0), step_target=0, metrics=numbers({tag: scalar_value}))

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None

    def __exit__(self, *_: object) -> None:
        pass


sys.modules |= dict.fromkeys(("tensorboardX", "torch.utils.tensorboard"), sys.modules[__name__])
