"""Basilica: one deployment for each trial, by its SDK (`pip install 'nightshift-rl[basilica]'`).

The login is the SDK's own: BASILICA_API_TOKEN, or that of its command line. `BASILICA_API_URL` names another server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import basilica

from tasks.remote.places import CloudFault, DeployedPlace, name_of
from tasks.system.redact import one_line

T = TypeVar("T")


class Basilica(DeployedPlace):
    """Deployments that are named by the trial's key; a list finds them again whatever name the server gives them."""

    def look_up(self, name: str) -> str | None:
        deployments = _all(name)
        if not deployments:
            return None
        state = deployments[0].state
        if state == "Failed":
            raise CloudFault(f"the deployment {name} has failed")
        return deployments[0].url if state in ("Active", "Running") else ""

    def deploy(self, name: str, variables: dict[str, str], seconds: float) -> None:
        _answer(
            lambda cloud: cloud.create_deployment(
                name, self.image, port=self.port, env=variables, cpu=f"{self.cpu:g}", memory=f"{self.memory_gb:g}Gi",
                gpu_count=self.gpu_count or None, gpu_models=[self.gpu] if self.gpu else None,
                ttl_seconds=round(seconds),
            )
        )  # fmt: skip

    def tear_down(self, key: str, patience: float) -> None:
        for deployment in _all(name_of(key)):
            _answer(lambda cloud, instance=deployment.instance_name: cloud.delete_deployment(instance))  # type: ignore[misc]


def _all(name: str) -> list[basilica.DeploymentSummary]:
    """Those of that name: several where the answer to a request was lost, and it was made again."""
    every = _answer(lambda cloud: cloud.list_deployments().deployments) or ()
    return [one for one in every if name in (one.friendly_name, one.instance_name)]


def _answer(question: Callable[[basilica.BasilicaClient], T]) -> T | None:
    """The answer of the cloud; None where it knows nothing of that name."""
    try:
        return question(basilica.BasilicaClient())
    except KeyError:  # its native part raises it for HTTP 404
        return None
    except (OSError, RuntimeError, ValueError, basilica.BasilicaError) as fault:
        raise CloudFault(f"Basilica: {type(fault).__name__}: {one_line(str(fault), 300)}") from fault
