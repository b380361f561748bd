"""The large libraries of a campaign, loaded while its server starts: later they would keep the first trial waiting.

They are loaded in a thread, and the campaign begins when all are there, so that no import runs beside a training.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

FOR_SEARCH = ("scipy.stats", "optuna", "matplotlib.figure", "matplotlib.backends.backend_agg")
"""For proposals, certificates and pictures."""
FOR_TRACKING = ("mlflow", "mlflow.store.tracking.sqlalchemy_store")


@contextmanager
def loaded_meanwhile(tracking: bool) -> Iterator[None]:
    """Load them while the block runs, and wait for them at its end.

    Raises:
        ImportError: one of them cannot be loaded.
    """
    names = (*FOR_SEARCH, *(FOR_TRACKING if tracking else ()))
    with ThreadPoolExecutor(1, "libraries") as pool:
        loading = pool.submit(lambda: [importlib.import_module(name) for name in names])
        yield
        loading.result()
