"""A training at an endpoint of your own, to which the engine sends the trial (docs/remote-trainers.md).

The section [http] of environment.toml says where it is. This file is never copied: the endpoint is sent the
environment's own program, or trains one that it has.
"""

raise SystemExit("the trainer 'http' has no program of its own: the endpoint in [http] trains")
