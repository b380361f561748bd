"""A module that is imported when a test first uses it: every worker of a test run collects every file."""

from __future__ import annotations

import importlib
from typing import Any


class LazyModule:
    """Stands for the module of that name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_") and attribute != "__file__":
            raise AttributeError(attribute)  # pytest asks whatever it finds in a test file for its own marks
        return getattr(importlib.import_module(self._name), attribute)
