"""What campaigns need at a Prefect server: automations, block types and the work pool, made or brought up to date."""

from __future__ import annotations

from flows.server import automations
from flows.server.api import Api

POOL = "trainers"
"""The work pool of every deployment in prefect.yaml."""


def set_up(url: str, auth: tuple[str, str] | None) -> dict[str, str]:
    """Put all of it on the server that Prefect is connected to, and say what was written. It changes nothing twice."""
    return {
        "automations": ", ".join(automations.put(url, auth)) or "up to date",
        "blocks": ", ".join(register_blocks()),
        "pool": f"{POOL} {'made' if make_pool(url, auth) else 'is there'}",
    }


def register_blocks() -> list[str]:
    """Register every block type, so that the page Blocks offers its form; their names."""
    from blocks.endpoint import TrainingEndpoint
    from blocks.llm import LLM

    blocks = (LLM, TrainingEndpoint)
    for block in blocks:
        block.register_type_and_schema()
    return [str(block.get_block_type_slug()) for block in blocks]


def make_pool(url: str, auth: tuple[str, str] | None) -> bool:
    """Make the pool, for process workers; False where there is one of that name."""
    from prefect.workers.process import ProcessWorker

    with Api(url, auth) as api:
        if api.ask("POST", "/work_pools/filter", {"work_pools": {"name": {"any_": [POOL]}}}):
            return False
        template = ProcessWorker.get_default_base_job_template()
        api.ask("POST", "/work_pools/", {"name": POOL, "type": "process", "base_job_template": template})
        return True
