"""Asking again: the one loop that repeats what a server may answer later."""

from collections.abc import Callable

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential

from tasks.system import interrupt

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds between two tries: twice as long each time."""
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP statuses of a server, or a proxy before it, that may answer later."""


def retrying(seconds: float, pause: Callable[[float], None] = interrupt.wait) -> Retrying:
    """Call something again while its fault may pass; the last one is raised after so many seconds. `pause` waits
    between two tries; the default raises KeyboardInterrupt when this process is to end.
    """
    return Retrying(
        retry=retry_if_exception(may_pass), stop=stop_after_delay(seconds), sleep=pause, reraise=True,
        wait=wait_exponential(FIRST_PAUSE, LONGEST_PAUSE),
    )  # fmt: skip


def may_pass(fault: BaseException) -> bool:
    """Whether a server may answer later: there was no answer, or one that says so."""
    import httpx

    if isinstance(fault, httpx.HTTPStatusError):
        return fault.response.status_code in PASSING
    return isinstance(fault, httpx.RequestError)
