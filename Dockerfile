# syntax=docker/dockerfile:1
#
# docker build -t transduce .                             CPU
# docker build -t transduce:cuda --build-arg DEVICE=cuda . NVIDIA GPUs (run with --gpus all)
#
# The current folder is the working directory of the command:
# docker run --rm -u "$(id -u):$(id -g)" -v "$PWD:/work" transduce train en-de.toml
# docker run --rm -v "$PWD:/work" -p 127.0.0.1:8000:8000 transduce serve --host 0.0.0.0

ARG PYTHON=3.12
ARG DEVICE=cpu

# Stage 1: install everything into a virtual environment.
FROM python:${PYTHON}-slim AS build
ARG DEVICE
# Another index, for CPU builds of torch: its versions with +cpu are preferred. All else may come
# from the default index, because it hardly has the other versions in constraints.txt.
ARG TORCH_INDEX=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/transduce
WORKDIR /src
COPY constraints.txt ./
RUN /opt/transduce/bin/pip install -c constraints.txt \
    ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} torch
COPY pyproject.toml README.md LICENSE ./
COPY transduce ./transduce
# CTranslate2 is the fast engine on CPUs; on GPUs, torch and Triton are.
RUN extras="data,text,documents,export,serve"; \
    if [ "$DEVICE" = cpu ]; then extras="$extras,ctranslate2"; fi; \
    /opt/transduce/bin/pip install -c constraints.txt ".[$extras]"

# Stage 2: the environment and a user without privileges. On a GPU, Triton compiles its launchers
# with a C compiler.
FROM python:${PYTHON}-slim
ARG DEVICE
RUN if [ "$DEVICE" = cuda ]; then \
      apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev \
      && rm -rf /var/lib/apt/lists/*; \
    fi \
    && useradd --create-home --uid 1000 transduce \
    && mkdir /work && chown transduce /work
COPY --from=build /opt/transduce /opt/transduce
ENV PATH="/opt/transduce/bin:$PATH" PYTHONUNBUFFERED=1
USER transduce
WORKDIR /work
EXPOSE 8000
ENTRYPOINT ["transduce"]
CMD ["--help"]
