# Training and translation on the CPU: docker run --rm -v "$PWD/runs:/home/user/runs" IMAGE train hydra.run.dir=runs/first
FROM python:3.11-slim
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# The CPU index of pytorch.org/get-started; without it, torch on Linux includes several gigabytes of CUDA libraries.
ARG TORCH_INDEX=
RUN pip install torch==2.13.0 ${TORCH_INDEX:+--index-url "$TORCH_INDEX"}
WORKDIR /source
# Such as --build-arg EXTRAS=serve
ARG EXTRAS=
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY conf conf
COPY data/demo data/demo
COPY hydra_plugins hydra_plugins
COPY seq2seq_attn seq2seq_attn
RUN pip install -c constraints.txt ".${EXTRAS:+[$EXTRAS]}" && rm -rf /source && useradd --uid 1000 --create-home user
USER user
WORKDIR /home/user
ENTRYPOINT ["seq2seq-attn"]
CMD ["--help"]
