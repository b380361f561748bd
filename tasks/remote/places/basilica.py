"""Basilica: one deployment for each trial, by its SDK (`pip install 'nightshift-rl[basilica]'`).

The login is the SDK's own: BASILICA_API_TOKEN, or that of its command line. `BASILICA_API_URL` names another server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import basilica

from environments.remote import BasilicaDeployment
from tasks.remote.places._deployed import CloudFault, DeployedPlace
from tasks.system.redact import capped, clean

T = TypeVar("T")


class Basilica(BasilicaDeployment, DeployedPlace):
    """Deployments that are named by the trial's key; a list finds them again whatever name the server gives them."""

    def look_up(self, name: str) -> str | None:
        found = self._find(name)
        if found is not None and found.state == "Failed":
            raise CloudFault(f"the deployment {name} has failed")
        return None if found is None else found.url if found.state in ("Active", "Running") else ""

    def deploy(self, name: str, variables: dict[str, str], seconds: float) -> None:
        _asked(
            lambda: _client().create_deployment(
                name, self.image, port=self.port, env=variables, cpu=f"{self.cpu:g}", memory=f"{self.memory_gb:g}Gi",
                gpu_count=self.gpu_count or None, gpu_models=[self.gpu] if self.gpu else None,
                ttl_seconds=round(seconds),
            )
        )  # fmt: skip

    def remove(self, name: str, patience: float) -> None:
        for instance in [one.instance_name for one in self._all(name)]:
            _asked(partial(_client().delete_deployment, instance))

    def _find(self, name: str) -> basilica.DeploymentSummary | None:
        return next(self._all(name), None)

    def _all(self, name: str) -> Iterator[basilica.DeploymentSummary]:
        """Those of that name: several where the answer to a request was lost, and it was made again."""
        every = _asked(lambda: _client().list_deployments().deployments)
        return (one for one in every or () if name in (one.friendly_name, one.instance_name))


def _client() -> basilica.BasilicaClient:
    return basilica.BasilicaClient()


def _asked(question: Callable[[], T]) -> T | None:
    """The answer of the cloud; None where it knows nothing of that name."""
    try:
        return question()
    except KeyError:  # its native part raises it for HTTP 404
        return None
    except (OSError, RuntimeError, ValueError, basilica.BasilicaError) as fault:
        words = capped(" ".join(clean(str(fault))), 300)
        raise CloudFault(f"Basilica: {type(fault).__name__}: {words}") from fault
