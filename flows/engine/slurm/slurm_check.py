"""Checks before a campaign starts on Slurm: its commands, its nodes' way to the Prefect server, and the jobs."""

from __future__ import annotations

import ipaddress
import platform
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from environments.plugins import Refused
from flows.engine.slurm import commands
from flows.engine.slurm.commands import SlurmAway
from flows.engine.slurm.request import JobRequest, environment_of_a_job, script


def check(request: JobRequest, server: str) -> None:
    """Refuse what every job would fail at.

    Args:
        server: The Prefect server's address.
    """
    commands.check_installed()
    try:
        others = [node for node in commands.nodes() if _short(node) != _short(platform.node())]
    except SlurmAway as silent:
        raise Refused(f"launch = 'slurm', and Slurm does not answer: {silent}") from silent
    if others and _is_loopback(server):
        raise Refused(
            f"launch = 'slurm': the Prefect server is at {server}, which only this machine reaches, and jobs run on "
            f"{', '.join(others[:3])}{' ...' * (len(others) > 3)}: set PREFECT_API_URL to a server that the nodes "
            "reach (docs/slurm.md)"
        )
    with tempfile.TemporaryDirectory(prefix="nightshift-") as folder:
        file = Path(folder, "job.sh")
        file.write_text(script("check"))
        commands.check(request.arguments(), str(file), environment_of_a_job())


def _short(host: str) -> str:
    return host.partition(".")[0].lower()


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
