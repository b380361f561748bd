# `make help` lists the targets. Everything is installed into .venv, nothing into the system's Python.
#
#   make setup PYTHON=python3.12          choose the interpreter (of a new .venv: `make clean` before)
#   make setup TORCH_INDEX=https://...    choose where torch comes from

BIN := .venv/bin
INSTALLED := .venv/.installed
DEMO_INSTALLED := .venv/.demo_installed

# The demo trains on two cores where there are two, a trial on each. It uses no Prefect or MLflow server and no profile of the user.
ALONE := env -u PREFECT_API_URL -u PREFECT_API_KEY -u PREFECT_API_AUTH_STRING -u PREFECT_PROFILE -u PREFECT_HOME \
	-u PREFECT_API_DATABASE_CONNECTION_URL -u PREFECT_SERVER_DATABASE_CONNECTION_URL \
	-u MLFLOW_TRACKING_URI -u MLFLOW_REGISTRY_URI -u MLFLOW_TRACKING_TOKEN -u MLFLOW_EXPERIMENT_NAME \
	-u MLFLOW_EXPERIMENT_ID -u MLFLOW_RUN_ID

TRIALS_AT_ONCE := $(shell [ "$$(nproc)" -ge 2 ] && echo 2 || echo 1)

# Tests mostly wait for processes, so six files run at a time, whatever the number of cores. Their order is kept: sorted
# by number of tests, the files of whole campaigns, which have few, would come last and alone.
SIDE_BY_SIDE := -n 6 --dist loadfile --no-loadscope-reorder

export PYTHON TORCH_INDEX

.DEFAULT_GOAL := help
.PHONY: help setup demo showcase test test-all test-docker test-slurm test-postgres test-real check bench wheel clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

setup: $(INSTALLED) ## make .venv and install into it; quick when nothing has changed

$(INSTALLED): pyproject.toml uv.lock .ci/setup
	@.ci/setup ppo,grpo,llm,hub,dev
	@touch $(DEMO_INSTALLED) $@

$(DEMO_INSTALLED): pyproject.toml uv.lock .ci/setup
	@.ci/setup ppo
	@touch $@

demo: $(DEMO_INSTALLED) ## a real campaign of 8 trials on LunarLander, always a new one
	@$(ALONE) $(BIN)/nightshift run lunar_lander --trials 8 --parallel $(TRIALS_AT_ONCE)

showcase: setup ## every feature once, in a minute: a small campaign, killed and resumed on the way
	@$(ALONE) $(BIN)/python -m benchmarks.showcase

test: setup ## the tests, without the slow ones
	$(BIN)/python -m pytest $(SIDE_BY_SIDE)

test-all: setup ## all tests but those of containers
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m 'not docker'

test-docker: setup ## trials in containers of this machine's Docker, as root
	$(BIN)/python -m pytest -rs -m docker tests/containers

test-slurm: setup ## trials that srun starts in a real Slurm: apt-get install --no-install-recommends slurm-wlm munge
	$(BIN)/python -m pytest -m '' -rs tests/campaign/test_slurm.py

test-postgres: setup ## a campaign and its kills on a real PostgreSQL: apt-get install postgresql
	$(BIN)/python -m pytest -m '' -rs tests/campaign/test_recovery.py -k postgresql

test-real: setup ## real models and agents, each where it is; the skipped say what to install
	$(BIN)/python -m pytest -m '' -rs tests/trainers/test_real_model.py tests/environments/test_language_problems.py \
		tests/agents/test_codex.py tests/remote/test_clouds.py tests/tracking/test_wandb.py tests/judges/test_text_judge.py::test_a_real_vllm_judges_a_model

check: setup ## style, types and import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup ## one benchmark, as in NAME=decisions; without NAME, all of them and how long they take
	@$(BIN)/python -m benchmarks $(NAME)

wheel: setup ## dist/nightshift_rl-VERSION-py3-none-any.whl, which runs without the checkout
	rm -rf build dist # setuptools would take along what an earlier build has left
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean: ## remove .venv, caches and build leftovers; never runs/
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis *.egg-info
	find . -path ./runs -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
