# Evenhand: the core, the shim and the command line in one image.
#   docker build -t evenhand:dev .
#   docker run --rm evenhand:dev demo
# BASE_IMAGE: any image with Python 3.11 or later and pip (by default that of the Docker Hub). The chart's job also needs its
# openssl. A release is built with the digest of this image: .github/workflows/release.yml asks the registry for it.
ARG BASE_IMAGE=python:3.12-slim

FROM ${BASE_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
# What changes seldom comes first, so that a changed source file does not fetch anything again.
COPY requirements.txt requirements-build.txt ./
RUN python -m venv tools \
 && tools/bin/pip install --quiet --require-hashes --only-binary :all: --requirement requirements-build.txt
# nkeys (of the extra `ha`) is pure Python and has no wheel.
RUN python -m venv --without-pip /opt/evenhand \
 && tools/bin/pip --python /opt/evenhand/bin/python install --quiet --require-hashes --only-binary :all: \
      --no-binary nkeys --requirement requirements.txt
COPY pyproject.toml hatch_build.py README.md CHANGELOG.md LICENSE NOTICE ./
COPY proto proto
COPY examples/clusters/small examples/clusters/small
COPY server server
COPY shim_client shim_client
COPY evenhand_cli evenhand_cli
COPY evenhand_console evenhand_console
RUN PATH="/build/tools/bin:$PATH" tools/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir wheels . \
 && tools/bin/pip --python /opt/evenhand/bin/python install --quiet --no-deps --no-index wheels/*.whl

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="Evenhand" \
      org.opencontainers.image.description="A scheduler core that shares a Kubernetes cluster fairly and can always say why" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/evenhand /opt/evenhand
# Nothing is written anywhere: the root file system may be read-only.
ENV PATH="/opt/evenhand/bin:$PATH" HOME=/nonexistent PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 50051
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 CMD ["evenhand", "health", "--core-only", "--timeout", "3"]
ENTRYPOINT ["evenhand"]
# Without more words it says how to go on: an address that others reach needs TLS, or --insecure.
CMD ["serve", "--listen", "0.0.0.0:50051"]
