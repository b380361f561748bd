"""Work pools at a Prefect server, made or brought up to date."""

from __future__ import annotations

from typing import Any, Literal

from environments.plugins import Refused
from flows.server.api import Api

Kind = Literal["process", "docker"]
GPUS = "container_create_kwargs"
"""The variable by which a container is given GPUs; only the template of prefect-docker has it."""


def make(name: str, kind: Kind, url: str, auth: tuple[str, str] | None) -> bool:
    """Make a pool; False where it is there already, with all that its workers need.

    Raises:
        Refused: a pool of that name is of another type, or prefect-docker is not installed.
    """
    template = _template(kind)
    with Api(url, auth) as api:
        (known,) = api.ask("POST", "/work_pools/filter", {"work_pools": {"name": {"any_": [name]}}}) or [None]
        if known is None:
            api.ask("POST", "/work_pools/", {"name": name, "type": kind, "base_job_template": template})
            return True
        if known["type"] != kind:
            raise Refused(f"the pool {name!r} is there, of the type {known['type']}: give another name, or delete it")
        if kind == "docker" and GPUS not in _variables(known["base_job_template"]):
            api.ask("PATCH", f"/work_pools/{name}", {"base_job_template": template})
            return True
    return False


def _template(kind: Kind) -> dict[str, Any]:
    """The base job template of a type of worker."""
    if kind == "docker":
        try:
            from prefect_docker.worker import DockerWorker
        except ModuleNotFoundError as missing:
            raise Refused(
                f"a docker pool needs prefect-docker ({missing}): pip install 'prefect-docker>=0.7.4,<0.8', the extra "
                "`docker`; without it containers would silently see no GPU"
            ) from missing
        return dict(DockerWorker.get_default_base_job_template())
    from prefect.workers.process import ProcessWorker

    return ProcessWorker.get_default_base_job_template()


def _variables(template: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = template.get("variables", {}).get("properties", {})
    return found
