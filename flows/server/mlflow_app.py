"""Our own MLflow server: its login is asked for every path, and its files lie in one folder.

MLflow's own login app needs packages that its distribution leaves out, and serves any folder that its user names.

    python -m flows.server.mlflow_app HOME PORT [--no-auth]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from flows.server.request_check import RequestCheck
from tasks.system.daemon import HOST
from tasks.system.login import stored_login


def is_page(path: str) -> bool:
    """All of MLflow's pages have one path; which is shown follows in the fragment."""
    return path == "/"


def main(home: Path, port: int, auth: bool) -> None:
    """Serve the home's database and artifacts until a signal ends it."""
    login = stored_login(home) if auth else None
    if login == "":
        raise SystemExit(f"{home} has no login: start this server by `nightshift up`")
    import uvicorn
    from mlflow.server import constants
    from mlflow.server.handlers import initialize_backend_stores

    from flows.server.own_artifacts import serve_only

    root = home / "artifacts"
    root.mkdir(mode=0o700, exist_ok=True)
    serve_only(root)
    database, artifacts = f"sqlite:///{home / 'mlflow.db'}", root.as_uri()
    os.environ |= {
        constants.BACKEND_STORE_URI_ENV_VAR: database,
        constants.REGISTRY_STORE_URI_ENV_VAR: database,
        constants.ARTIFACT_ROOT_ENV_VAR: artifacts,
        constants.ARTIFACTS_DESTINATION_ENV_VAR: artifacts,
        constants.SERVE_ARTIFACTS_ENV_VAR: "true",
    }
    initialize_backend_stores(database, database, artifacts)
    from mlflow.server.fastapi_app import app  # reads the environment

    # Its lifespan looks for containers of its assistant.
    uvicorn.run(
        RequestCheck(app, port, login=login, is_page=is_page), host=HOST, port=port, lifespan="off", log_level="warning"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), "--no-auth" not in sys.argv[3:])
