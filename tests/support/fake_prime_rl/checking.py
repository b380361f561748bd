"""The configuration, checked a little: what the real classes refuse most often."""

from __future__ import annotations

import importlib.util
from urllib.parse import urlsplit

from tests.support.fake_prime_rl.common import Config, at

KEYS = {
    "": "output_dir run clean resume model tokenizer max_steps seq_len trainer orchestrator inference deployment "
    "weight_broadcast rollout_transport ckpt monitors log slurm env_vars dry_run",
    "trainer": "model optim scheduler loss matmul_precision log env_vars",
    "trainer.model.lora": "rank alpha dropout target_modules modules_to_save",
    "trainer.optim": "type lr weight_decay max_norm betas1 betas2 mu momentum nesterov",
    "trainer.scheduler": "type warmup_steps decay_steps min_lr",
    "trainer.loss": "type dppo_mask_low dppo_mask_high adv_tau kl_tau ipo_threshold",
    "orchestrator": "train eval algo model renderer batch_size token_batch_size group_size max_off_policy_steps "
    "concurrency env_server_base_port seq_len log env_vars",
    "orchestrator.train": "source sampling filter_zero_advantages",
    "orchestrator.eval": "source sampling interval num_examples group_size skip_first_step",
    "inference": "server vllm backend_port log env_vars",
}
"""The known keys of some tables; of others every key is taken."""
Wrong = list[tuple[str, str]]


def check(config: Config) -> Wrong:
    """Keys with what is wrong about them."""
    wrong: Wrong = []
    for table, known in KEYS.items():
        found = at(config, table, {}) if table else config
        found = {} if found == "None" else found  # switched off
        for key in sorted(set(found) - set(known.split())):
            wrong.append((f"{table}.{key}".lstrip("."), "Extra inputs are not permitted [type=extra_forbidden]"))
    return wrong + _numbers(config) + _sources(config) + _ports(config)


def _numbers(config: Config) -> Wrong:
    wrong: Wrong = []
    rate, batch, group = (
        at(config, key, default)
        for key, default in [
            ("trainer.optim.lr", 1e-6),
            ("orchestrator.batch_size", 128),
            ("orchestrator.group_size", 1),
        ]
    )
    if not isinstance(rate, int | float) or rate < 0:
        wrong.append(("trainer.optim.lr", "Input should be greater than or equal to 0 [type=greater_than_equal]"))
    if batch % group:
        wrong.append(("orchestrator", f"Value error, batch_size {batch} must be divisible by group_size {group}"))
    steps, scheduler = config.get("max_steps"), at(config, "trainer.scheduler", {})
    if steps and scheduler.get("type") == "cosine" and scheduler.get("warmup_steps", 10) >= steps:
        wrong.append(("trainer.scheduler", "Value error, warmup_steps must be less than max_steps"))
    return wrong


def _sources(config: Config) -> Wrong:
    sources = at(config, "orchestrator.train.source", [])
    if not sources:
        return [("orchestrator.train.source", "Field required [type=missing]")]
    wrong: Wrong = []
    for source in [*sources, *at(config, "orchestrator.eval.source", [])]:
        module = str(at(source, "env.taskset.id", "")).replace("-", "_")
        if not module or importlib.util.find_spec(module) is None:
            wrong.append(("orchestrator.train.source.env.taskset.id", f"Value error, no module named {module!r}"))
    if at(config, "orchestrator.renderer.name", "auto") == "auto":
        wrong.append(("orchestrator.renderer", "Value error, no renderer is known for this model: set name"))
    return wrong


def _ports(config: Config) -> Wrong:
    expected = at(config, "inference.server.port", 8000)
    port = urlsplit(at(config, "orchestrator.model.client.base_url", "http://localhost:8000/v1")).port
    if port != expected:
        return [
            ("orchestrator.model.client.base_url", f"port ({port}) does not match inference.server.port ({expected})")
        ]
    return []
