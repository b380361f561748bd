"""Our own Prefect server. It asks for the login itself, so that its pages can ask the user.

It also keeps the logs in Prefect's home short: its own, the worker's and MLflow's.

    python -m flows.server.prefect_app PORT
"""

from __future__ import annotations

import sys
import threading

from flows.server.corrected_prefect import wait_for_the_database
from flows.server.request_check import RequestCheck
from tasks.system import log_rotation
from tasks.system.daemon import HOST


def is_page(path: str) -> bool:
    return not path.startswith("/api")


def main(port: int) -> None:
    """Serve until a signal ends it, with Prefect's settings from the environment."""
    import uvicorn
    from prefect.server.api.server import create_app
    from prefect.settings import get_current_settings

    wait_for_the_database()
    settings = get_current_settings()
    server, forever = settings.server, threading.Event()
    threading.Thread(target=log_rotation.keep_short, args=(settings.home, forever), daemon=True).start()
    uvicorn.run(
        RequestCheck(create_app(final=True), port, login=None, is_page=is_page),
        host=HOST,
        port=port,
        timeout_keep_alive=server.api.keepalive_timeout,
        ws_ping_interval=server.api.websocket_ping_interval,
        ws_ping_timeout=server.api.websocket_ping_timeout,
        log_level=server.logging_level.lower(),
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
