"""What campaigns need at a Prefect server: automations, block types and work pools, made or brought up to date."""

from __future__ import annotations

from typing import Any, Literal

from environments.plugins import Refused
from flows.server import automations
from flows.server.api import Api

POOL = "trainers"
"""The work pool of every deployment in prefect.yaml."""
Kind = Literal["process", "docker"]
GPUS = "container_create_kwargs"
"""The variable by which a container is given GPUs; only the template of prefect-docker has it."""


def set_up(url: str, auth: tuple[str, str] | None) -> dict[str, str]:
    """Put all of it on the server that Prefect is connected to, and say what was written. It changes nothing twice."""
    return {
        "automations": ", ".join(automations.put(url, auth)) or "up to date",
        "blocks": ", ".join(register_blocks()),
        "pool": f"{POOL} {'made' if make_pool(POOL, 'process', url, auth) else 'is there'}",
    }


def register_blocks() -> list[str]:
    """Register every block type, so that the page Blocks offers its form; their names."""
    from blocks.endpoint import TrainingEndpoint
    from blocks.llm import LLM
    from blocks.tracking import Tracking

    blocks = (LLM, TrainingEndpoint, Tracking)
    for block in blocks:
        block.register_type_and_schema()
    return [str(block.get_block_type_slug()) for block in blocks]


def make_pool(name: str, kind: Kind, url: str, auth: tuple[str, str] | None) -> bool:
    """Make a pool; False where it is there already, with all that its workers need.

    Raises:
        Refused: a pool of that name is of another type, or prefect-docker is not installed.
    """
    template = _template(kind)
    with Api(url, auth) as api:
        (stored,) = api.ask("POST", "/work_pools/filter", {"work_pools": {"name": {"any_": [name]}}}) or [None]
        if stored is None:
            api.ask("POST", "/work_pools/", {"name": name, "type": kind, "base_job_template": template})
            return True
        if stored["type"] != kind:
            raise Refused(f"the pool {name!r} is there, of the type {stored['type']}: give another name, or delete it")
        if kind == "docker" and GPUS not in stored["base_job_template"].get("variables", {}).get("properties", {}):
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
