"""What is imported ahead for the programs of each trainer (tasks/sandbox/warm).

The list is the trainer's, not the program's: an edited program is untrusted, and what it imports besides it imports
itself. Programs of trainers that are not listed, such as `command`, start cold.
"""

from __future__ import annotations

from environments import Environment
from environments.judges.text import Text
from tasks.sandbox.warm.kind import ImportsAhead

CONTROL = ("numpy", "gymnasium", "torch")
LANGUAGE = ("numpy", "torch", "torch._dynamo", "pandas", "pyarrow.dataset", "scipy.stats", "sklearn.metrics", "httpx")
HUB = (
    "transformers:AutoModelForCausalLM",
    "transformers:AutoTokenizer",
    "datasets",
    "trl:GRPOConfig",
    "trl:GRPOTrainer",
)
GENERATOR = ("numpy", "torch", *HUB[:2], "transformers:GenerationMixin", "transformers.modeling_layers")
"""Of environments/judges/_generate.py: all that it imports to load a model but the module of its kind of model."""
ONE_THREAD = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Keeps pyarrow from beginning a thread of its allocator, which no fork would have."""
OFFLINE = {
    "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "WANDB_MODE": "disabled",
    "DISABLE_MLFLOW_INTEGRATION": "true", "TOKENIZERS_PARALLELISM": "false",
}  # fmt: skip
"""As tasks/trainers/grpo.py sets them before it imports the packages of HUB, where the model is on the disk, and as the
generator does."""


def for_training(environment: Environment) -> ImportsAhead:
    """What its trainer imports until it is ready."""
    if environment.trainer in ("ppo", "sac"):  # the first optimizer imports torch._dynamo
        return ImportsAhead((*CONTROL, "torch._dynamo", *_of_problem(environment)))
    if environment.trainer == "grpo":
        if environment.network:
            return ImportsAhead(LANGUAGE, ONE_THREAD)
        return ImportsAhead((*LANGUAGE, *HUB), ONE_THREAD | OFFLINE)
    return ImportsAhead()


def for_judging(environment: Environment) -> ImportsAhead:
    """What the program under judgement imports until it plays, or until it has loaded the model."""
    judge = environment.judge
    if isinstance(judge, Text) and judge.backend == "transformers":
        return ImportsAhead(GENERATOR, ONE_THREAD | OFFLINE | {"HF_HUB_DISABLE_PROGRESS_BARS": "1"})
    acts = environment.trainer in ("ppo", "sac") and judge.runs_in == "workspace"
    return ImportsAhead(CONTROL) if acts else ImportsAhead()


def _of_problem(environment: Environment) -> tuple[str, ...]:
    """The modules of Gymnasium's own environment that is learned."""
    named = environment.judge.problem().get("id")
    if not isinstance(named, str) or ":" in named:
        return ()
    import gymnasium

    made = gymnasium.registry.get(named)
    entry = made.entry_point if made else None
    module = entry.partition(":")[0] if isinstance(entry, str) else ""
    return (module,) if module.startswith("gymnasium.") else ()
