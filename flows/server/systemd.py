"""`nightshift up --systemd`: units of the user's own systemd, so that everything comes back after a reboot.

A service that runs `nightshift up` once, and a timer that does so again every minute: `up` leaves alone what runs, and
starts what has died. What it starts outlives it (KillMode=process).
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from environments.plugins import Refused
from flows.server import postgres
from tasks.system.home import home

SERVICE, TIMER = "nightshift.service", "nightshift.timer"
SECRETS = "nightshift.env"
"""The database's address stands here, since whoever is on the machine may read a unit."""

SERVICE_TEXT = """\
[Unit]
Description=Nightshift: the Prefect server, a worker and MLflow's pages
After=network.target

[Service]
Type=oneshot
ExecStart={command}
Environment={environment}
EnvironmentFile=-{secrets}
WorkingDirectory={home}
KillMode=process
TimeoutStartSec=10min
"""
TIMER_TEXT = """\
[Unit]
Description=Nightshift: start it with the machine, and again what has died

[Timer]
OnStartupSec=5s
OnUnitInactiveSec=1min
AccuracySec=5s

[Install]
WantedBy=timers.target
"""


def write(auth: bool, on_postgres: bool, database: str | None) -> int:
    """Write the units for this home and this installation, and say how they are switched on; the exit code.

    Raises:
        Refused: a path in them holds what a unit cannot.
    """
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd/user"
    folder.mkdir(parents=True, exist_ok=True)
    secrets = home() / ".prefect" / SECRETS
    secrets.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    database = database or os.environ.get(postgres.VARIABLE)
    secrets.touch(mode=0o600)
    secrets.write_text(f"{postgres.VARIABLE}={database}\n" if database else "")
    (folder / SERVICE).write_text(service(auth, on_postgres or bool(database), home(), secrets))
    (folder / TIMER).write_text(TIMER_TEXT)
    print(f"written: {folder / SERVICE} and {TIMER}\n\nwhat next")
    print(f"  start     systemctl --user daemon-reload && systemctl --user enable --now {TIMER}")
    print(
        "  at boot   loginctl enable-linger   (else it starts when you log in, and may end when you log out)"
    )
    print(f"  end       systemctl --user disable --now {TIMER} && nightshift down")
    return 0


def service(auth: bool, on_postgres: bool, home: Path, secrets: Path) -> str:
    """The text of the service.

    Raises:
        Refused: a path holds a quote, a percent sign or a line's end, which mean something in a unit.
    """
    for path in (sys.executable, str(home)):
        if re.search(r'["\\%$\n]', path):
            raise Refused(f"{path} cannot stand in a systemd unit: move it to a path of plain letters")
    options = ["--production"] * on_postgres + ["--no-auth"] * (not auth)
    # -P: a folder called `flows` in the working directory is not ours.
    command = " ".join([f'"{sys.executable}"', "-P", "-m", "flows.cli", "up", *options])
    return SERVICE_TEXT.format(
        command=command, environment=f'"NIGHTSHIFT_HOME={home}"', secrets=secrets, home=home
    )
