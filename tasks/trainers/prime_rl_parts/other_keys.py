"""Keys of prime-rl that may not be tuned: those of older versions, and those that are the engine's or the judge's."""

from __future__ import annotations

_OLD = """
orchestrator.rollouts_per_example: orchestrator.group_size
orchestrator.sampling.max_tokens: orchestrator.train.sampling.max_completion_tokens
orchestrator.sampling.temperature: orchestrator.train.sampling.temperature
orchestrator.sampling: orchestrator.train.sampling, which has temperature and max_completion_tokens
orchestrator.sampling.temp_scheduler: none, for a temperature is one for all steps
orchestrator.advantage: orchestrator.algo
orchestrator.buffer.online_difficulty_filtering: orchestrator.train.source.curriculum.gates.advantage.type
orchestrator.buffer: orchestrator.train.source.curriculum.sampler, whose pools have other numbers
orchestrator.oversampling_factor: none
orchestrator.max_concurrent: orchestrator.concurrency.max_inflight
orchestrator.max_async_level: orchestrator.max_off_policy_steps
trainer.max_async_level: orchestrator.max_off_policy_steps
max_async_level: orchestrator.max_off_policy_steps
orchestrator.env: orchestrator.train.source, which is the engine's
orchestrator.client: orchestrator.model.client, which is the engine's
orchestrator.val: none
orchestrator.seed: none, for the engine draws the seed
seed: none, for the engine draws the seed
trainer.loss.token_mask_low: trainer.loss.dppo_mask_low, whose numbers mean something else
trainer.loss.token_mask_high: trainer.loss.dppo_mask_high, whose numbers mean something else
trainer.loss.geo_mask_low: trainer.loss.dppo_mask_low, whose numbers mean something else
trainer.loss.geo_mask_high: trainer.loss.dppo_mask_high, whose numbers mean something else
trainer.loss.sequence_mask_low: trainer.loss.dppo_mask_low, whose numbers mean something else
trainer.loss.sequence_mask_high: trainer.loss.dppo_mask_high, whose numbers mean something else
trainer.loss.ratio_type: trainer.loss.type, which is "default" or "ipo"
inference.gpu_memory_utilization: inference.vllm.gpu_memory_utilization
inference.model: inference.vllm
inference.enable_lora: trainer.model.lora.rank, which switches it on
inference.parallel: inference.vllm, which is the engine's in that
inference_gpu_ids: deployment, which is the engine's
trainer_gpu_ids: deployment, which is the engine's
teacher_gpu_ids: none
wandb: monitors.wandb, which is the engine's
"""
OLD = dict(line.split(": ") for line in _OLD.strip().splitlines())
"""Keys of older versions of prime-rl, and today's key."""
_OWNED = """
max_steps: budget_steps says it
trainer.max_steps: budget_steps says it
orchestrator.max_steps: budget_steps says it
model: the fixed `model` names it
trainer.model.name: the fixed `model` names it
orchestrator.model: the fixed `model` names it
orchestrator.model.lora: prime-rl takes it from trainer.model.lora
inference.vllm.enable_lora: prime-rl sets it where trainer.model.lora is set
inference.vllm.max_lora_rank: prime-rl sets it where trainer.model.lora is set
orchestrator.renderer: the fixed `renderer` names it
trainer.model.lora.modules_to_save: they would be trained, and the adapter alone is handed on
orchestrator.eval: evaluation is the judge's
orchestrator.train.source: questions and rewards are the environment's
orchestrator.train.sampling.extra_body: it reaches vLLM unchecked
inference.vllm: what else vLLM takes reaches it unchecked
"""
OWNED = dict(line.split(": ") for line in _OWNED.strip().splitlines())
"""Why some keys may not be tuned."""
