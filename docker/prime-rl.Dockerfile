# The image of a trial with prime-rl and vLLM: two Pythons side by side, ours and prime-rl's own, and everything that a
# trial needs, so that it fetches nothing when it runs. For the deployment gpu-pair-docker of docker/gpu.prefect.yaml.
#
#   docker build -t nightshift-prime-rl -f docker/prime-rl.Dockerfile .
#
# It needs 60 GB of disk for CUDA wheels. docs/gpus.md has the same steps for a machine without Docker. We have never
# built it.
FROM nvidia/cuda:12.8.1-devel-ubuntu24.04

# A compiler, Python's headers and nvcc (in the base image): Triton, TileLang and FlashInfer compile kernels when they
# are first used. git is for the lineage, bubblewrap for the sandbox, swig for box2d-py.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends \
        bubblewrap build-essential ca-certificates git libibverbs1 libnuma1 librdmacm1 \
        python3.12-dev python3.12-venv swig \
    && rm -rf /var/lib/apt/lists/*

# prime-rl asks for uv >= 0.11.1. It stays on PATH: harnesses of verifiers call it.
RUN python3.12 -m venv /opt/uv \
    && /opt/uv/bin/pip install --no-cache-dir uv==0.13.9 \
    && ln -s /opt/uv/bin/uv /usr/local/bin/uv

# prime-rl where environments expect it, with the system's Python: in the sandbox no home can be read and nothing can be
# written, so every process of every trial would compile what is not compiled now. Its submodules are named by ssh and
# fetched by https. The .git folder stays: it tells the commit.
ARG PRIME_RL=559b44772e471d1538537b8805cc77f3824a5e64
ENV UV_PYTHON_PREFERENCE=only-system UV_LINK_MODE=copy
RUN git config --global url."https://github.com/".insteadOf git@github.com: \
    && git clone --filter=blob:none https://github.com/PrimeIntellect-ai/prime-rl.git /opt/prime-rl \
    && cd /opt/prime-rl \
    && git checkout --detach "$PRIME_RL" \
    && git submodule update --init -- deps/verifiers deps/renderers deps/prime-envs deps/pydantic-config \
    && uv sync --frozen --all-extras --no-dev --compile-bytecode --no-cache \
    && { .venv/bin/python -m compileall -q -j 0 src packages deps/verifiers deps/renderers deps/pydantic-config || true; } \
    && chmod -R o+rX /opt/prime-rl

# Nightshift, its packages first: a change of its own files then builds in seconds. An editable install: environments and
# trainers are files that are read in place.
WORKDIR /nightshift
COPY pyproject.toml README.md LICENSE ./
ARG TORCH_INDEX=https://download.pytorch.org/whl/cu128
RUN python3.12 -m venv /opt/nightshift \
    && /opt/nightshift/bin/pip install --no-cache-dir --extra-index-url "$TORCH_INDEX" --editable ".[grpo]"

# Compiled here, or each container would do it anew.
COPY flows flows
COPY tasks tasks
COPY environments environments
COPY blocks blocks
RUN /opt/nightshift/bin/python -m compileall -q flows tasks environments blocks

# The machine's own data, such as slots. Campaigns are mounted at /campaigns, as the deployment's `runs` says.
ENV PATH=/opt/nightshift/bin:$PATH \
    NIGHTSHIFT_HOME=/machine \
    HF_HUB_OFFLINE=1 \
    DO_NOT_TRACK=1 \
    PREFECT_SERVER_ANALYTICS_ENABLED=false \
    PYTHONUNBUFFERED=1
RUN mkdir -m 0700 /machine && mkdir /campaigns
VOLUME /machine
