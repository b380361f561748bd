# The image of a trial with prime-rl and vLLM: two Pythons side by side, ours and prime-rl's own, and everything in it
# that a trial needs, so that nothing is fetched when one runs. For the deployment gpu-pair-docker of gpu.prefect.yaml.
#
#   docker build -t nightshift-prime-rl -f docker/prime-rl.Dockerfile .
#
# Its parts come as CUDA wheels: have 60 GB free. docs/two-gpus.md has the same steps for a machine without Docker. It
# was never built by us.
FROM nvidia/cuda:12.8.1-devel-ubuntu24.04

# A compiler, Python's headers and nvcc (in the base image): Triton, TileLang and FlashInfer compile kernels when they
# are first used. git is the lineage's, bubblewrap the walls; swig is for our own wheels.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends \
        bubblewrap build-essential ca-certificates git libibverbs1 libnuma1 librdmacm1 \
        python3.12-dev python3.12-venv swig \
    && rm -rf /var/lib/apt/lists/*

# prime-rl asks for uv >= 0.11.1. It stays on PATH: harnesses of verifiers call it.
RUN python3.12 -m venv /opt/uv \
    && /opt/uv/bin/pip install --no-cache-dir uv==0.13.9 \
    && ln -s /opt/uv/bin/uv /usr/local/bin/uv

# prime-rl where environments expect it, with the Python of the system: behind walls nobody's home can be seen, nothing
# can be written, and what is not compiled now would be by every process of every trial. Its submodules are named by
# ssh, and fetched by https. The .git folder stays: it says which commit this is.
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

# Ours. An editable install: environments and trainers are files that are read where they lie.
WORKDIR /nightshift
COPY pyproject.toml README.md LICENSE ./
COPY flows flows
COPY tasks tasks
COPY environments environments
COPY blocks blocks
ARG TORCH_INDEX=https://download.pytorch.org/whl/cu128
RUN python3.12 -m venv /opt/nightshift \
    && /opt/nightshift/bin/pip install --no-cache-dir --extra-index-url "$TORCH_INDEX" --editable ".[grpo,gpu]"

# Its own data: slots. Campaigns are mounted at /campaigns, which `runs` of the deployment says.
ENV PATH=/opt/nightshift/bin:$PATH \
    NIGHTSHIFT_HOME=/machine \
    HF_HUB_OFFLINE=1 \
    DO_NOT_TRACK=1 \
    PREFECT_SERVER_ANALYTICS_ENABLED=false \
    PYTHONUNBUFFERED=1
RUN mkdir -p /machine /campaigns
VOLUME /machine
