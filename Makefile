# All targets work on a fresh machine with Python 3.11 or newer and a package registry.
# The first one creates .venv and installs into it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-avx2 lint types check bench gpu table3

help:
	@echo "make TARGET (PYTHON=python3.12 chooses another Python for .venv)"
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-9s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED)  ## create .venv and install aiayn into it, with what the tests need

demo: setup  ## prepare, train, average, translate and score the demo corpus: minutes on two cores
	$(BIN)/aiayn prepare demo
	$(BIN)/aiayn train --recipe tiny
	$(BIN)/aiayn average
	$(BIN)/aiayn translate < prepared/demo/test.en > runs/demo.hyp
	@echo; echo "Five lines of the test set:"; echo
	@paste prepared/demo/test.en prepared/demo/test.de runs/demo.hyp | head -n 5 | \
	    awk -F '\t' '{ print "source       " $$1; print "reference    " $$2; print "translation  " $$3; print "" }'
	$(BIN)/aiayn score prepared/demo/test.de < runs/demo.hyp

# worksteal keeps the tests of a file together, which share fixtures, and leaves no core idle at the end.
test: setup  ## run all tests, on all cores
	$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal

# Only the tests that depend on the processor's instructions, without bf16, VNNI, AMX and AVX-512.
test-avx2: export ONEDNN_MAX_CPU_ISA = AVX2
test-avx2: export ATEN_CPU_CAPABILITY = avx2
test-avx2: export FBGEMM_ENABLE_INSTRUCTIONS = AVX2
test-avx2: setup  ## run the tests that depend on the processor, limited to AVX2
	$(BIN)/python -m pytest -m processor -n auto --maxprocesses 8 --dist worksteal

lint: setup  ## check code and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup  ## check the types
	$(BIN)/mypy

check: lint types test test-avx2  ## lint, types, and tests on this processor and limited to AVX2

# The benchmarks that take minutes and need no data and no model; tests/benchmarks/README.md lists all.
BENCHMARKS := startup score attention prepare search_steps
bench: setup  ## run the short benchmarks on this machine; tests/benchmarks/README.md lists all
	@for name in $(BENCHMARKS); do echo "== $$name"; $(BIN)/python tests/benchmarks/$$name.py || exit 1; done

gpu: setup  ## check training and decoding on one GPU, in under six minutes
	@sh tests/gpu/check.sh

SCALE ?= multi30k
# TABLE3 has further options, such as TABLE3='--updates 2000'
table3: setup  ## the paper's Table 3 at the size of a recipe: make table3 SCALE=multi30k
	$(BIN)/python tests/benchmarks/table3.py $(SCALE) $(TABLE3)

$(INSTALLED): pyproject.toml constraints.txt
	@if ! $(BIN)/python -c '' 2>/dev/null; then \
	    if ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        echo "error: $(PYTHON) is missing, or older than Python 3.11" >&2; \
	        echo "hint: make $(MAKECMDGOALS) PYTHON=python3.12, or another Python of this machine" >&2; exit 1; \
	    fi; \
	    if ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
	        echo "error: $(PYTHON) cannot create a virtual environment" >&2; \
	        echo "hint: install its venv module (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; \
	    fi; \
	    echo "creating $(VENV)"; $(PYTHON) -m venv --clear $(VENV) || exit 1; \
	fi
	@echo "installing into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
