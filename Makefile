# Everything the project does, one target each. Needs python3 >= 3.11 and make; the rest it makes itself.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.made
PINS   := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
PROTOS := $(shell find proto -name '*.proto' 2>/dev/null)

WORKLOAD ?= in process: 1,000 / 10,000, 10 leaves, 20 shapes

.DEFAULT_GOAL := help
.PHONY: help venv gen demo test test-real fix check coverage bench profile bench-kubernetes soak picture real pins baseline clean

help: ## Says what there is to make.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

venv: $(STAMP) ## Makes .venv with everything that is needed.

$(STAMP): pyproject.toml requirements-dev.txt hatch_build.py $(PROTOS)
	@$(PYTHON) scripts/make_venv.py $(VENV)
	@touch $@

gen: $(STAMP) ## Makes the Python of the wire again from proto/.
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python hatch_build.py

demo: $(STAMP) ## Shows a scheduler placing a cluster's pods, in this terminal and, until Ctrl-C, in the web console.
	@if [ -t 1 ]; then $(BIN)/evenhand demo --watch --console 127.0.0.1:0; else $(BIN)/evenhand demo; fi

test: $(STAMP) ## Runs the tests that need no other program, about ten minutes; ARGS="tests/core -k told" some of all tests.
	@$(BIN)/python -m scripts.run_tests $(ARGS)

test-real: $(STAMP) ## Runs the tests with what `make real` provides: API server, containers, Chromium and others.
	@$(BIN)/python -m scripts.run_tests --real $(ARGS)

fix: $(STAMP) ## Formats the code and repairs what the linter can repair.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

check: $(STAMP) ## Runs linters, types, import contracts and the wire's checks.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/lint-imports --no-logo --config .ci/cycles.toml
	$(BIN)/buf lint
	$(BIN)/buf breaking --against proto/baseline.binpb

coverage: $(STAMP) ## Runs the tests and says which lines none of them runs; ARGS as for `make test`.
	@rm -f .coverage .coverage.*
	@$(BIN)/python -m scripts.run_tests --cov --cov-report= $(ARGS)
	@$(BIN)/coverage combine --quiet .coverage.side-by-side .coverage.API-server \
		.coverage.other-real-programs .coverage.alone
	@$(BIN)/coverage report
	@$(BIN)/coverage html --quiet --directory .coverage-html
	@echo 'each line: .coverage-html/index.html'

bench: $(STAMP) ## Measures the speed; ARGS="--only gRPC --runs 3" some of it, ARGS=--help says more.
	@PYTHONPATH=.:gen $(BIN)/python -m tests.bench $(ARGS)

profile: $(STAMP) ## Draws a flame graph of one workload: make profile WORKLOAD="1,000 / 10,000, 10 leaves".
	@PYTHONPATH=.:gen $(BIN)/python -m tests.bench.profile "$(WORKLOAD)" $(ARGS)

bench-kubernetes: $(STAMP) ## Measures core and shim on a real API server.
	@PYTHONPATH=.:gen $(BIN)/python -m tests.bench.kubernetes

soak: $(STAMP) ## Runs the long tests.
	@EVENHAND_EFFORT=$${EVENHAND_EFFORT:-100} $(BIN)/python -m pytest -q -m soak

picture: $(STAMP) ## Draws docs/demo.svg, the running demo, and docs/pictures, the pages of the console.
	@$(BIN)/evenhand demo --listen 127.0.0.1:50051 --picture docs/demo.svg
	@PYTHONPATH=.:gen $(BIN)/python -m tests.pictures

real: $(STAMP) ## Provides real components for the tests: API server, kubectl, helm, promtool, Chromium, Docker and others.
	@$(BIN)/python -m scripts.real.provision
	@$(BIN)/python -m scripts.real.browser
	@$(BIN)/python -m scripts.docker.provision

pins: $(STAMP) ## Resolves every requirements*.txt again to the newest versions that pyproject.toml allows.
	@$(BIN)/python -m pip install --quiet uv
	@echo '# Every version that development and CI use, with hashes; made by `make pins` from pyproject.toml.' > $(VENV)/pins
	@$(PINS) pyproject.toml --group dev --all-extras >> $(VENV)/pins
	@mv $(VENV)/pins requirements-dev.txt
	@echo '# What the image runs, of the same versions, with hashes; made by `make pins` from pyproject.toml.' > $(VENV)/pins
	@$(PINS) pyproject.toml --all-extras --constraint requirements-dev.txt >> $(VENV)/pins
	@mv $(VENV)/pins requirements.txt
	@echo '# What builds the wheel, of the same versions, with hashes; made by `make pins` from pyproject.toml.' > $(VENV)/pins
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	  | $(PINS) - --constraint requirements-dev.txt >> $(VENV)/pins
	@mv $(VENV)/pins requirements-build.txt
	@sed -nE 's/^((grpcio|grpcio-tools|protobuf)==[0-9.]+).*/\1/p' requirements-dev.txt > examples/clients/python/requirements.txt

baseline: $(STAMP) ## Accepts the wire as it is now: what `make check` compares later changes with.
	@$(BIN)/buf build --exclude-source-info -o proto/baseline.binpb

clean: ## Removes everything that make made here.
	rm -rf $(VENV) gen dist build .coverage .coverage.* .coverage-html .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find server shim_client evenhand_cli evenhand_console tests examples -name __pycache__ -prune -exec rm -rf {} +
