"""Our own Prefect server. It asks for the login itself, so that its pages can ask the user.

python -m flows.server.prefect_app PORT
"""

from __future__ import annotations

import sys

from flows.server.request_check import RequestCheck
from tasks.system.daemon import HOST


def is_page(path: str) -> bool:
    return not path.startswith("/api")


def main(port: int) -> None:
    """Serve until a signal ends it, with Prefect's settings from the environment."""
    import uvicorn
    from prefect.server.api.server import create_app
    from prefect.settings import get_current_settings

    server = get_current_settings().server
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
