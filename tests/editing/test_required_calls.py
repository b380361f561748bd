"""Required calls: an honest program makes them, dead code does not; and a seed that is fixed is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks import trainers
from tasks.editing import fixed_seeds
from tasks.editing.literals import NotPython, parse
from tasks.editing.required_calls import missing_calls, sources

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
def test_the_bundled_trainers_make_the_calls_that_they_really_make(
    trainer: str, required: tuple[str, ...]
) -> None:
    source = (Path(trainers.__path__[0]) / f"{trainer}.py").read_text()
    assert missing(source, *required) == []
    assert missing(source, *required, "optimizer.skip") == ["optimizer.skip"]


@pytest.mark.parametrize("trainer", ["ppo", "sac"])
@pytest.mark.parametrize("way", ["if False:", "while 0:", "for _ in ():", "def unused():"])
def test_a_bundled_trainer_whose_step_is_dead_is_found_out(trainer: str, way: str) -> None:
    source = (Path(trainers.__path__[0]) / f"{trainer}.py").read_text()
    line = next(line for line in source.splitlines() if line.strip().endswith("optimizer.step()"))
    indent = line[: len(line) - len(line.lstrip())]
    dead = source.replace(f"\n{line}\n", f"\n{indent}{way}\n    {line}\n")
    assert dead != source
    assert missing(dead) == ["optimizer.step"]


@pytest.mark.parametrize(
    "source",
    [
        "optimizer.step()",
        "self.optimizer.step()",
        "optimizers[0].step()\nself.optimizer['actor'].step(closure)",
        "def train():\n    optimizer.step()\ntrain()",
        "def train():\n    optimizer.step()\nif __name__ == '__main__':\n    train()",
        "def inner():\n    optimizer.step()\ndef train():\n    inner()\nrun(train)",
        "def train():\n    def inner():\n        optimizer.step()\n    return inner()\ntrain()",
        "class Learner:\n    def update(self):\n        self.optimizer.step()\nLearner().update()",
        "class Learner:\n    def __call__(self):\n        self.optimizer.step()\nLearner()()",
        "class Net(nn.Module):\n    def forward(self, x):\n        optimizer.step()\nNet()(x)",
        "class Wrapped(gym.Wrapper):\n    def step(self, a):\n        optimizer.step()\nWrapped(env)",
        "class A(nn.Module): pass\nclass B(A):\n    def forward(self, x):\n        optimizer.step()\nB()(x)",
        "class Lit(pl.LightningModule):\n    def training_step(self, b):\n        optimizer.step()\nfit(Lit())",
        "class C:\n    @property\n    def loss(self):\n        optimizer.step()\nprint(C().loss)",
        "class C:\n    def go(self):\n        optimizer.step()\ngetattr(C(), 'go')()",
        "@app.command()\ndef train():\n    optimizer.step()\napp()",
        "def noted(f):\n    def inner():\n        optimizer.step()\n    return inner\n@noted\ndef train(): pass\ntrain()",
        "step = lambda: optimizer.step()\nstep()",
        "hooks = {'after': lambda: optimizer.step()}\nrun(hooks)",
        "list(optimizer.step() for _ in batches)",
        "losses = [optimizer.step() for b in batches if b.ok]",
        "for _ in range(epochs):\n    if late():\n        break\n    optimizer.step()",
        "while True:\n    optimizer.step()\n    if late():\n        break\nsave()",
        "while True:\n    if late():\n        break\noptimizer.step()",
        "while not late():\n    continue\nelse:\n    optimizer.step()",
        "try:\n    raise Refused\nexcept Refused:\n    optimizer.step()",
        "try:\n    work()\nfinally:\n    optimizer.step()",
        "with suppress(ValueError):\n    raise ValueError\noptimizer.step()",
        "import sys\nif bad():\n    sys.exit(1)\noptimizer.step()",
        "if not TYPE_CHECKING:\n    optimizer.step()",
        "if DEBUG:\n    pass\nelse:\n    optimizer.step()",
        "skip = False\nskip = ask()\nif skip:\n    optimizer.step()",
        "def f(flag=False):\n    if flag:\n        optimizer.step()\nf(True)",
        "n = 0\nfor _ in range(n):\n    pass\nn += 1\nfor _ in range(n):\n    optimizer.step()",
        "loss = optimizer.step() if ready else None",
        "ready and optimizer.step()",
        "assert ready, 'not yet'\noptimizer.step()",
        "match kind:\n    case 'a':\n        raise ValueError\noptimizer.step()",
        "async def train():\n    async for b in data:\n        optimizer.step()\nasyncio.run(train())",
        "if 1 / 0:\n    pass\noptimizer.step()",
    ],
)  # fmt: skip
def test_a_call_that_can_run_counts(source: str) -> None:
    assert missing(source) == []


@pytest.mark.parametrize(
    "source",
    [
        "# optimizer.step()\n'optimizer.step()'",
        "step = optimizer.step",
        "def step(): pass\nclass optimizer:\n    def step(self): pass",
        "my_optimizer.step()\noptimizer.step_all()\noptimizer.step.now()",
        "if False:\n    optimizer.step()",
        "if 0:\n    optimizer.step()",
        "if not True:\n    optimizer.step()",
        "if None or '':\n    optimizer.step()",
        "if True:\n    pass\nelse:\n    optimizer.step()",
        "if 1 > 2:\n    optimizer.step()",
        "if 1 < 2 < 2:\n    optimizer.step()",
        "if 'a' == 'b':\n    optimizer.step()",
        "if 3 - 3 * 1:\n    optimizer.step()",
        "if bool(0):\n    optimizer.step()",
        "if []:\n    optimizer.step()",
        "if ready and False:\n    optimizer.step()",
        "if TYPE_CHECKING:\n    optimizer.step()",
        "import typing\nif typing.TYPE_CHECKING:\n    optimizer.step()",
        "if not __debug__:\n    optimizer.step()",
        "if __name__ == 'other':\n    optimizer.step()",
        "DEBUG = False\nif DEBUG:\n    optimizer.step()",
        "A = 3\nB = A - 3\nif B:\n    optimizer.step()",
        "while False:\n    optimizer.step()",
        "while True:\n    pass\noptimizer.step()",
        "while 1:\n    if late():\n        continue\n    work()\noptimizer.step()",
        "while True:\n    for x in data:\n        break\noptimizer.step()",
        "while True:\n    continue\n    optimizer.step()",
        "while True:\n    if False:\n        break\noptimizer.step()",
        "for _ in []:\n    optimizer.step()",
        "for _ in range(0):\n    optimizer.step()",
        "for _ in range(5, 5):\n    optimizer.step()",
        "for _ in enumerate(list()):\n    optimizer.step()",
        "for _ in zip(data, ()):\n    optimizer.step()",
        "for x in data:\n    break\n    optimizer.step()",
        "for x in data:\n    pass\n    continue\n    optimizer.step()",
        "def train():\n    return\n    optimizer.step()\ntrain()",
        "def train():\n    if a():\n        return 1\n    else:\n        raise ValueError\n    optimizer.step()\ntrain()",
        "raise SystemExit\noptimizer.step()",
        "import sys\nsys.exit(0)\noptimizer.step()",
        "import os\nos._exit(0)\noptimizer.step()",
        "try:\n    raise ValueError\n    optimizer.step()\nexcept ValueError:\n    pass",
        "try:\n    raise ValueError\nexcept ValueError:\n    pass\nelse:\n    optimizer.step()",
        "try:\n    pass\nexcept ValueError:\n    optimizer.step()",
        "try:\n    pass\nfinally:\n    raise ValueError\noptimizer.step()",
        "with lock:\n    raise ValueError\noptimizer.step()",
        "assert False\noptimizer.step()",
        "assert 0, optimizer.step()",
        "False and optimizer.step()",
        "True or optimizer.step()",
        "x = optimizer.step() if False else None",
        "x = None if True else optimizer.step()",
        "[optimizer.step() for _ in []]",
        "[optimizer.step() for x in data if False]",
        "(optimizer.step() for x in data)",
        "x = (optimizer.step() for x in data)",
        "lambda: optimizer.step()",
        "f = lambda: optimizer.step()",
        "def never():\n    optimizer.step()",
        "async def never():\n    optimizer.step()",
        "def never():\n    optimizer.step()\n    never()",
        "def a():\n    optimizer.step()\n    b()\ndef b():\n    a()",
        "def train():\n    def inner():\n        optimizer.step()\ntrain()",
        "class Learner:\n    def update(self):\n        self.optimizer.step()\nLearner()",
        "class Never:\n    def update(self):\n        self.optimizer.step()\n{}.update()",
        "class Never:\n    def __init__(self):\n        self.optimizer.step()",
        "class Net(nn.Module):\n    def never(self):\n        optimizer.step()\nNet()",
        "def noted(f):\n    optimizer.step()\n    return f",
        "@noted\n@torch.no_grad()\ndef f(): pass\nx: 'optimizer.step()' = 1",
        "@torch.no_grad()\ndef never():\n    optimizer.step()",
        "match 1:\n    case _ if False:\n        optimizer.step()",
        "match kind:\n    case 'a':\n        raise ValueError\n    case _:\n        raise TypeError\noptimizer.step()",
        "from lib import train as never_used\ndef train():\n    optimizer.step()",
        "optimizer.step(",
    ],
)  # fmt: skip
def test_a_call_in_dead_code_does_not_count(source: str) -> None:
    assert missing(source) == ["optimizer.step"]


def test_a_call_in_another_file_counts_when_it_is_used_from_there() -> None:
    net = "def learn():\n    optimizer.step()"
    assert missing("import net\nnet.learn()", net=net) == []
    assert missing("from net import learn as go\ngo()", net=net) == []
    assert missing("import net", net=net) == ["optimizer.step"]
    assert missing("import net", net="if __name__ == 'net':\n    optimizer.step()") == []


def test_a_switch_that_another_file_turns_is_not_taken_for_a_constant() -> None:
    net = "TRAIN = False\ndef learn():\n    if TRAIN:\n        optimizer.step()"
    assert missing("import net\nnet.TRAIN = True\nnet.learn()", net=net) == []
    assert missing("import net\nnet.learn()", net=net) == ["optimizer.step"]


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
        ("x = " + "-" * 100_000 + "1", "train.py: it is nested too deeply to be read"),
        ("x = '\0'", "null bytes"),
    ],
)
def test_what_python_would_not_take_is_told_with_its_place(source: str, why: str) -> None:
    with pytest.raises(NotPython) as wrong:
        parse("train.py", source)
    assert why in str(wrong.value)


def test_a_program_that_is_too_deep_to_follow_is_refused_and_not_passed_over() -> None:
    with pytest.raises(NotPython, match="nested"):
        missing("x = " + " + ".join(["a"] * 2_000))


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
    assert fixed(before, "import torch\ntorch.manual_seed(0); np.random.seed(0)\n") == [
        "2: np.random.seed(0)"
    ]


def test_no_bundled_trainer_fixes_a_seed() -> None:
    for trainer in ("ppo", "sac"):
        assert fixed("", (Path(trainers.__path__[0]) / f"{trainer}.py").read_text()) == []
