"""`env-server`: serves the questions of one source."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from tests.support.fake_prime_rl.common import at, failed, for_ever, listen, log, mode_of, read


def main(arguments: list[str]) -> int:
    config = read(arguments[1])
    if mode_of(config["run_dir"]) == "env server dies":
        failed("RuntimeError: cannot build the environment of taskset")
        return 1
    for plugin in ("env.taskset.id", "env.agent.harness.id"):
        if importlib.util.find_spec(str(at(config, plugin))) is None:
            failed(f"ModuleNotFoundError: No module named {at(config, plugin)!r}")
            return 1
    questions = len(Path(at(config, "env.taskset.path")).read_text().splitlines())
    address = str(at(config, "serve.address"))
    with listen(int(address.rpartition(":")[2])):
        log(f"Serving {questions} tasks at {address}")
        for_ever()
    return 0
