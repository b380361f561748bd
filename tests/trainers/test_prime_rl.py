"""The prime-rl trainer: the files that it writes, what it makes of logs and metrics, and trainings of the stand-in."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from _program import CANCELLED, Budget, Failed, ProgressFile
from tasks.importing._original import flat
from tasks.trainers import prime_rl
from tasks.trainers.prime_rl import Run, Steps, as_tables
from tests.support import trainer_process as trainer_programs
from tests.support.fake_prime_rl import base_model, lay, quality_of, weights
from tests.support.lazy import LazyModule
from tests.support.prime_rl_problem import TRAIN, laid
from tests.support.processes import naming, wait_for
from tests.support.toy import nightshift
from tests.support.trainer_process import progress

torch, tensors_of = LazyModule("torch"), LazyModule("safetensors.torch")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A training that has not begun, with data and a base model."""
    base_model(tmp_path / "data/base")
    (tmp_path / "train.toml").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    return Run(trainer_programs.config(tmp_path / "out", "", seed=3, steps=4, data=str(tmp_path / "data")))


def test_the_engine_s_file_has_the_parameters_and_above_them_what_is_the_engine_s(run: Run, tmp_path: Path) -> None:
    stated = {"temperature": 0.8, "trainer.optim.type": "sgd", "output_dir": "/elsewhere", "inference.server.port": 80}
    run.parameters = as_tables(stated)
    table = run.overlay()
    keys = dict(flat(table))
    assert keys["orchestrator.train.sampling.temperature"] == 0.8 and keys["trainer.optim.type"] == "sgd"
    assert (table["output_dir"], table["clean"], table["run"]["name"], table["max_steps"]) == (
        str(run.home), False, "run", 4,
    )  # fmt: skip
    assert table["model"]["name"] == str(tmp_path / "data/base")
    assert keys["trainer.model.conversion_dir"].startswith(str(run.home)), "the base model is read-only"
    ports = keys["inference.server.port"], keys["inference.backend_port"], keys["rollout_transport.port"]
    assert ports == (8000, 8001, 8002)
    assert keys["orchestrator.model.client.base_url"] == "http://localhost:8000/v1"
    assert "eval" not in table["orchestrator"], "without questions for a curve there is none"
    place = "orchestrator.train.source"
    run.train = f"[[{place}]]\nname = 'theirs'\nenv.taskset.id = 'theirs'\ncurriculum.gates.a.type = 'x'\n"
    [source] = run.overlay()["orchestrator"]["train"]["source"]
    assert source["env"]["taskset"] == {"id": "ask_once", "path": str(run.questions)} and source["name"] == "train"
    assert source["curriculum"] == {"gates": {"a": {"type": "x"}}}, "what is said beside the questions is kept"
    (run.data / "curve.jsonl").write_text("{}\n")
    curve = run.overlay()["orchestrator"]["eval"]
    assert curve["sampling"] == {"temperature": 1.0, "max_completion_tokens": 1024}, "as the judge samples"
    assert curve["source"][0]["env"]["taskset"]["path"] == str(run.data / "curve.jsonl")


@pytest.mark.parametrize(
    ("text", "wrong"), [("a = 1\na = 2", "overwrite"), ("orchestrator.train.source = [{}, {}]", "are one source")]
)
def test_a_file_that_cannot_be_laid_over_is_refused(run: Run, text: str, wrong: str) -> None:
    run.train = text
    with pytest.raises(Failed, match=rf"^refused: train\.toml: .*{wrong}"):
        run.overlay()


TRAINER: list[dict[str, Any]] = [
    {"perf/throughput": 9000.0, "perf/peak_memory": 11.5},
    {"optim/lr": 1e-6, "optim/grad_norm": 0.5},
    {"loss/mean": 0.25, "entropy/all/mean": 0.3, "mismatch_kl/all/mean": 0.01},
    {"time/step": 2.0, "time/forward_backward": 1.0},
]
"""The rows of one step, as the trainer writes them."""
ORCHESTRATOR = {
    "train/agg/effective/agent/reward/mean": 0.5,
    "train/agg/all/agent/reward/mean": 0.1,
    "progress/tokens": 9,
}


def write(run: Run, step: int, *rows: dict[str, Any]) -> None:
    path = run.folder / "metrics.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for row in rows:
            file.write(json.dumps({"step": step, "time": 1.0, **row}) + "\n")


def test_the_rows_of_two_writers_become_one_report_for_each_step(run: Run) -> None:
    steps = Steps(run, ProgressFile(told := io.StringIO(), Budget(60, 4)))
    for step in (1, 2):
        write(run, step, ORCHESTRATOR, *TRAINER)
        steps.read()
    write(run, 3, ORCHESTRATOR)
    steps.read(final=True)
    ready, *lines = [json.loads(line) for line in told.getvalue().splitlines()]
    assert ready == {"ready": True}
    assert [(line["step"], line["step_target"]) for line in lines] == [(1, 4), (2, 4)]
    assert lines[0]["metrics"] == {
        "pass@1": 0.5, "tokens/per_second": 9000.0, "memory/reserved_gib": 11.5, "learning_rate": 1e-6,
        "gradient/norm": 0.5, "loss": 0.25, "entropy/mean": 0.3, "kl/mean": 0.01,
    }  # fmt: skip


MEMORY = "ValueError: Free memory on device ({}/79.1 GiB) on startup is less than desired GPU memory utilization (0.9, 71.2 GiB)."


@pytest.mark.parametrize(
    ("log", "line", "reason", "retry"),
    [
        ("trainer/torchrun/a1/attempt_0/0/stderr.log", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
         "out of GPU memory: trainer/torchrun/a1/attempt_0/0/stderr.log: torch.OutOfMemoryError", False),
        ("inference.log", MEMORY.format("3.1"), "GPU memory is taken: inference.log: ", True),
        ("inference.log", MEMORY.format("78.5"), "out of GPU memory: inference.log: ", False),
        ("trainer.log", "[trainer0]:[rank0]: KeyError: 'x'\nTraceback\ntorch.distributed.ChildFailedError:\n  exitcode : 1",
         "unknown; trainer.log: KeyError: 'x'", False),
        ("inference.log", "(EngineCore pid=7) ERROR 08-21 22:40:01 [v1/engine/core.py:718] TypeError: bad\n"
         "(APIServer pid=5) RuntimeError: Engine core initialization failed. See root cause above.",
         "unknown; trainer.log: fine; inference.log: TypeError: bad", False),
    ],
)  # fmt: skip
def test_the_reason_is_what_the_logs_say(run: Run, log: str, line: str, reason: str, retry: bool) -> None:
    path = run.folder / "logs/latest" / log
    path.parent.mkdir(parents=True)
    (run.folder / "logs/latest/trainer.log").write_text("fine\n")
    path.write_text(f"Traceback (most recent call last):\n\x1b[31m{line}\x1b[0m\nended\n")
    failure = prime_rl.why(run, "unknown")
    assert (str(failure).startswith(reason), failure.retry) == (True, retry), failure


def broadcast(run: Run, step: int, stable: bool = True) -> None:
    folder = run.folder / f"broadcasts/step_{step}"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(weights(step / 10))
    if stable:
        (folder / "STABLE").touch()


def test_the_model_is_the_last_complete_broadcast_with_the_base_s_tokenizer(run: Run, tmp_path: Path) -> None:
    (run.base / "model.safetensors.index.json").write_text("{}")
    (run.base / "pytorch_model.bin").write_text("old")
    broadcast(run, 8)
    broadcast(run, 9)
    broadcast(run, 11, stable=False)
    prime_rl.assemble(run, reached=11)
    made = tmp_path / "out/model"
    assert sorted(path.name for path in made.iterdir()) == [
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    ]  # fmt: skip
    assert quality_of(made / "model.safetensors") == pytest.approx(0.9)
    assert all(path.stat().st_nlink == 1 for path in made.iterdir()), "what has two names is refused by the engine"


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the program in a workspace, with the stand-in as its prime-rl; whatever a failed test leaves is killed."""
    started = []

    def begin(*arguments: str, steps: int = 3, fault: str = "") -> subprocess.Popen[bytes]:
        data, workspace = tmp_path / "data", tmp_path / "workspace"
        checkout = lay(tmp_path / "prime-rl", fault)
        base_model(data / "base")
        (data / "train.jsonl").write_text("".join(json.dumps({"id": n, "answer": "1"}) + "\n" for n in range(40)))
        workspace.mkdir()
        (workspace / "train.toml").write_text(TRAIN)
        (workspace / "taskset.py").touch()
        params = {"prime_rl": str(checkout), "learning_rate": 3e-6, "quit_deadline": 20}
        params |= {
            "start_deadline": 4 if fault == "hangs at start" else 60,
            "stall_deadline": 4 if fault == "stalls" else 60,
        }
        settings = trainer_programs.config(tmp_path / "out", "", steps=steps, params=params, data=str(data))
        started.append(trainer_programs.program(prime_rl, workspace, settings, *arguments))
        return started[-1]

    yield begin
    for process in started:
        with process:
            if process.poll() is None:
                for one in (*psutil.Process(process.pid).children(recursive=True), process):
                    one.kill()


def ended(process: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    """Its status, and what it said on stderr."""
    noise = process.communicate(timeout=120)[1]
    return process.returncode, noise


def reported(tmp_path: Path) -> list[dict[str, Any]]:
    return progress(tmp_path / "out") if (tmp_path / "out/progress.jsonl").exists() else []


def wait_for_step(tmp_path: Path, step: int) -> None:
    wait_for(lambda: any(line.get("step", 0) >= step for line in reported(tmp_path)))


def test_a_training_ends_with_its_steps_and_leaves_a_model_and_no_process(start: Start, tmp_path: Path) -> None:
    assert ended(start()) == (0, b"")
    out, lines = tmp_path / "out", reported(tmp_path)
    assert lines[0] == {"ready": True}
    assert (lines[-1]["step"], lines[-1]["step_target"]) == (3, 3) and 0 < lines[-1]["metrics"]["pass@1"] < 1
    assert (out / "model/model.safetensors").is_file() and (out / "model/tokenizer.json").is_file()
    assert (out / "prime_rl/train.toml").read_text() == TRAIN
    assert not [path for path in out.rglob("*") if path.is_symlink() or "broadcasts" in path.parts]
    assert naming(tmp_path) == []


def test_at_the_end_of_its_budget_it_leaves_the_last_weights(start: Start, tmp_path: Path) -> None:
    process = start(steps=10_000)
    wait_for_step(tmp_path, 2)
    for one in (*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)):
        with suppress(psutil.NoSuchProcess):  # another has ended it already
            one.terminate()  # the engine asks all processes at once, in no order
    assert ended(process) == (0, b"")
    assert (tmp_path / "out/model/model.safetensors").is_file() and naming(tmp_path) == []


@pytest.mark.parametrize(
    ("fault", "reason", "retry"),
    [
        ("out of memory", "out of GPU memory: trainer.log: torch.OutOfMemoryError: CUDA out of memory", False),
        ("nan", "diverged: the loss of step 3 is no finite number", False),
        ("stalls", "stalled: no metrics for 4 s after step 3", False),
        ("GPU taken", "GPU memory is taken: ", True),
        ("hangs at start", "did not start: no answer", False),
        ("refused", "refused: ", False),
    ],
)
def test_whatever_goes_wrong_has_its_own_reason_and_nothing_of_it_is_left_running(
    start: Start, tmp_path: Path, fault: str, reason: str, retry: bool
) -> None:
    assert ended(start(fault=fault, steps=6))[0] == 1
    failed = reported(tmp_path)[-1]
    assert failed["failed"].startswith(reason) and failed["retry"] is retry
    assert naming(tmp_path) == []


@pytest.mark.slow
def test_a_cancelled_training_ends_without_a_model(start: Start, tmp_path: Path) -> None:
    process = start(steps=10_000)
    wait_for_step(tmp_path, 1)
    (tmp_path / "workspace/cancel").touch()
    assert ended(process) == (CANCELLED, b"")
    assert not (tmp_path / "out/model").exists() and naming(tmp_path) == []


def test_a_check_takes_what_training_would_take_and_leaves_nothing(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aside = tmp_path / "aside"
    aside.mkdir()
    monkeypatch.setenv("TMPDIR", str(aside))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert ended(start("check")) == (0, b"")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["progress.jsonl"]
    assert not list(aside.iterdir()) and reported(tmp_path) == naming(tmp_path) == []
    assert (tmp_path / "workspace/train.toml").read_text() == TRAIN


# LoRA by the prime-rl trainer: what it asks of prime-rl, and the model that it makes of an adapter.


LAYER = "model.layers.0.self_attn.q_proj"


def test_an_adapter_is_added_to_the_base_model_in_its_own_type(run: Run) -> None:
    one, other = (f"model-0000{n}-of-00002.safetensors" for n in (1, 2))
    torch.manual_seed(0)
    before, pair = torch.randn(6, 4).bfloat16(), {"A": torch.randn(2, 4), "B": torch.randn(6, 2)}
    (run.base / "model.safetensors").unlink()
    tensors_of.save_file({f"{LAYER}.weight": before}, run.base / one, metadata={"format": "pt"})
    tensors_of.save_file({"lm_head.weight": torch.ones(2, 4)}, run.base / other, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": {f"{LAYER}.weight": one, "lm_head.weight": other}}
    (run.base / "model.safetensors.index.json").write_text(json.dumps(index))
    handed = run.folder / "broadcasts/step_3"  # as prime-rl hands on an adapter
    handed.mkdir(parents=True)
    tensors_of.save_file(
        {f"{LAYER}.lora_{name}.weight": part for name, part in pair.items()}, handed / prime_rl.WEIGHTS
    )
    (handed / prime_rl.CONFIG).write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 8.0}))
    (handed / "STABLE").touch()

    prime_rl.assemble(run, reached=3)

    made = run.folder.parents[1] / "model"
    after = tensors_of.load_file(made / one)[f"{LAYER}.weight"]
    assert after.dtype == torch.bfloat16
    assert torch.equal(after, (before.float() + 4.0 * pair["B"] @ pair["A"]).bfloat16()), "alpha / rank"
    assert (made / other).read_bytes() == (run.base / other).read_bytes()
    assert json.loads((made / "model.safetensors.index.json").read_text()) == index
    assert not list(made.glob("adapter*")), "a judge refuses adapters that are not merged"


@pytest.mark.slow
def test_a_trial_of_it_is_prepared_trained_and_judged_in_the_sandbox(tmp_path: Path) -> None:
    done = nightshift("try", str(laid(tmp_path)[0]), "--trust", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["score"] == pytest.approx(0.46), "the quality of the base model, and six steps"
    assert naming(tmp_path) == []
