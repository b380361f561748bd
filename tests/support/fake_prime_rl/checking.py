"""The configuration, checked a little: what the real classes refuse most often."""

from __future__ import annotations

from tests.support.fake_prime_rl.common import Config, at

KEYS = {
    "": "output_dir run clean model max_steps seq_len trainer orchestrator inference deployment weight_broadcast "
    "rollout_transport monitors slurm dry_run",
    "trainer.optim": "type lr weight_decay max_norm betas1 betas2 mu momentum nesterov",
}
"""The known keys of some tables; of others every key is taken."""
Wrong = list[tuple[str, str]]


def check(config: Config) -> Wrong:
    """Keys with what is wrong about them."""
    wrong: Wrong = []
    for table, known in KEYS.items():
        stated = at(config, table, {}) if table else config
        for key in sorted(set(stated) - set(known.split())):
            wrong.append((f"{table}.{key}".lstrip("."), "Extra inputs are not permitted [type=extra_forbidden]"))
    batch, group = at(config, "orchestrator.batch_size", 128), at(config, "orchestrator.group_size", 1)
    if batch % group:
        wrong.append(("orchestrator", f"Value error, batch_size {batch} must be divisible by group_size {group}"))
    return wrong
