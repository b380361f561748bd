"""Checks of an edited program's source: the calls that it must make, and the seeds that it must not fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks import trainers
from tasks.editing import fixed_seeds
from tasks.editing.edits import sources
from tasks.editing.python_source import NotPython, parse
from tasks.editing.required_calls import missing_calls

REQUIRED = ("optimizer.step",)


def missing(source: str, *required: str, **more: str) -> list[str]:
    files = {"train.py": source, **{f"{name}.py": text for name, text in more.items()}}
    return missing_calls(files, required or REQUIRED)


@pytest.mark.parametrize(
    ("trainer", "required"),
    [
        ("ppo", ("optimizer.step", "optimizer.zero_grad", "backward", "loss.backward", "update", "rollout", "gae", "env.step", "agent.log_prob", "torch.save")),
        ("sac", ("optimizer.step", "learner.optimizer.step", "critic_loss.backward", "backward", "improve", "memory.draw", "policy.sample", "target.lerp_")),
    ],
)  # fmt: skip
def test_the_bundled_trainers_make_the_calls_that_they_really_make(trainer: str, required: tuple[str, ...]) -> None:
    source = (Path(trainers.__path__[0]) / f"{trainer}.py").read_text()
    assert missing(source, *required) == []
    assert missing(source, *required, "optimizer.skip") == ["optimizer.skip"]


@pytest.mark.parametrize(
    "source",
    [
        "optimizer.step()",
        "self.optimizer.step()",
        "optimizers[0].step()\nself.optimizer['actor'].step(closure)",
        "def train():\n    def inner():\n        optimizer.step()\n    return inner()\ntrain()",
        "class Learner:\n    async def update(self):\n        self.optimizer.step()",
        "losses = [optimizer.step() for b in batches if b.ok]",
        "if False:\n    optimizer.step()",
    ],
)
def test_a_call_counts_wherever_it_stands_in_dead_code_too(source: str) -> None:
    assert missing(source) == []


@pytest.mark.parametrize(
    "source",
    [
        "# optimizer.step()\n'optimizer.step()'",
        "step = optimizer.step",
        "def step(): pass\nclass optimizer:\n    def step(self): pass",
        "my_optimizer.step()\noptimizer.step_all()\noptimizer.step.now()",
        "x: 'optimizer.step()' = 1",
        "optimizer.step(",
    ],
)
def test_a_name_without_its_call_does_not_count(source: str) -> None:
    assert missing(source) == ["optimizer.step"]


def test_a_call_in_any_file_counts() -> None:
    assert missing("import net\nnet.learn()", net="def learn():\n    optimizer.step()") == []


def test_names_match_from_a_dot_on_and_are_told_in_the_order_in_which_they_are_required() -> None:
    source = "(a + b).backward()\nself.net.optimizer.step()\ntrain_one_epoch(net)"
    assert missing(source, "backward", "step", "net.optimizer.step", "train_one_epoch") == []
    assert missing(source, "zip", "epoch", "loss.backward", "step") == ["zip", "epoch", "loss.backward"]


def test_a_program_of_which_nothing_is_required_lacks_nothing() -> None:
    assert missing_calls({"train.py": "not python ("}, ()) == []


def test_the_sources_of_a_program_are_its_python_files(tmp_path: Path) -> None:
    for name in ("train.py", "lib/net.py", "data.txt", "__pycache__/train.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"# {name}")
    assert sources(tmp_path) == {"lib/net.py": "# lib/net.py", "train.py": "# train.py"}


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("x = 1\nif x\n", "train.py:2: expected ':': 'if x'"),
        ("return 1\n", "train.py:1: 'return' outside function"),
        ("x = 1\n  y = 2\n", "train.py:2: unexpected indent"),
        ("x = " + "-" * 100_000 + "1", "train.py: nested too deeply"),
        ("x = '\0'", "null bytes"),
    ],
)
def test_what_python_would_not_take_is_told_with_its_place(source: str, why: str) -> None:
    with pytest.raises(NotPython) as wrong:
        parse("train.py", source)
    assert why in str(wrong.value)


def test_a_long_chain_of_operators_is_followed() -> None:
    assert missing("x = " + " + ".join(["a"] * 800) + "\noptimizer.step()") == []


def fixed(before: str, after: str) -> list[str]:
    return [
        f"{site.line}: {site.text}"
        for site in fixed_seeds.added({"train.py": before}, {"train.py": after})
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "torch.manual_seed(0)",
        "torch.cuda.manual_seed_all(1)",
        "random.seed('night')",
        "np.random.seed(seed=3)",
        "set_seed(42)",
        "seed_everything(1, workers=True)",
        "rng = np.random.default_rng(7)",
        "rng = np.random.default_rng([1, 2])",
        "rng = np.random.RandomState(-5)",
        "rng = random.Random(5)",
        "words = np.random.SeedSequence(entropy=9)",
        "rng = Generator(PCG64(1))",
        "key = jax.random.PRNGKey(0)",
        "key = jax.random.key(0)",
        "env.reset(seed=3)",
        "split(data, random_state=3)",
        "seed = 3",
        "seed: int = 3",
        "SEED = 2 * 3",
        "random_seed = 3",
        "self.seed = 3",
        "config['seed'] = 3",
        "config = {**config, 'seed': 3}",
        "config.update(seed=3)",
        "setattr(config, 'seed', 3)",
        "seed, size = 3, n",
        "if (seed := 3): pass",
        "FIVE = 5; torch.manual_seed(FIVE)",
        "A = 1; B = A + 1; torch.manual_seed(B * 2)",
        "k = 1; k = 2; torch.manual_seed(k)",
        "torch.manual_seed(int('7'))",
        "torch.manual_seed(1 if quick else 2)",
        "torch.manual_seed(config['seed'] * 0)",
        "torch.manual_seed(0 * seed + 3)",
        "torch.manual_seed(seed % 1)",
        "torch.manual_seed(seed - seed)",
        "seed *= 0",
    ],
)
def test_a_seed_that_is_fixed_is_found_with_its_line(line: str) -> None:
    found = fixed("import torch\n", f"import torch\n{line}\n")
    assert len(found) == 1
    assert found[0].startswith("2: ")


@pytest.mark.parametrize(
    "line",
    [
        "torch.manual_seed(config['seed'])",
        "rng = np.random.default_rng(config['seed'] + 1)",
        "torch.manual_seed(seed * 31)",
        "torch.manual_seed(seed + 31 * lane)",
        "seed = config['seed']",
        "seed += 1",
        "seed = None",
        "rng = np.random.default_rng()",
        "rng = np.random.default_rng((config['seed'], 2))",
        "words = np.random.SeedSequence(config['seed']).spawn(3)",
        "env.reset(seed=int(words[0]) >> 1)",
        "env.reset(seed=None)",
        "seeds = []",
        "num_seeds = 5",
        "generator = torch.Generator('cpu')",
        "n = 1; n = ask(); torch.manual_seed(n)",
        "def f(n):\n    torch.manual_seed(n)",
        "print('seed', 3)",
        "# torch.manual_seed(0)",
    ],
)
def test_a_seed_that_comes_from_the_configuration_is_fine(line: str) -> None:
    assert fixed("import torch\n", f"import torch\n{line}\n") == []


def test_a_fixed_seed_that_was_there_already_may_stay_and_move_but_not_multiply() -> None:
    before = "import torch\ntorch.manual_seed(0)\n"
    assert fixed(before, "torch.manual_seed(0)\nimport torch\n") == []
    assert fixed(before, "import torch\n") == []
    assert fixed(before, before + "torch.manual_seed(0)\n") == ["3: torch.manual_seed(0)"]
    assert fixed(before, before + "torch.manual_seed(1); x = 1\n") == ["3: torch.manual_seed(1)"]
    assert fixed(before, "import torch\ntorch.manual_seed(0); np.random.seed(0)\n") == ["2: np.random.seed(0)"]


def test_no_bundled_trainer_fixes_a_seed() -> None:
    for trainer in ("ppo", "sac"):
        assert fixed("", (Path(trainers.__path__[0]) / f"{trainer}.py").read_text()) == []
