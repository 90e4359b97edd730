# Two commands on a fresh machine: `make demo` and `make test`. Both install what they need first.

PYTHON ?= python3
VENV ?= .venv
# For instance PIP_FLAGS="--extra-index-url https://download.pytorch.org/whl/cpu": see the README.
PIP_FLAGS ?=

BIN := $(VENV)/bin
DEMO := runs/demo
TRAIN_FLAGS := --dataset digits --epochs 10

.PHONY: demo test proof lint clean

demo: $(VENV)/.demo
	rm -rf $(DEMO)
	$(BIN)/python -m jax_impl.train $(TRAIN_FLAGS) --out $(DEMO)/jax
	$(BIN)/python -m torch_impl.train $(TRAIN_FLAGS) --out $(DEMO)/torch
	$(BIN)/python -m parity.compare $(DEMO) --out $(DEMO)/comparison
	$(BIN)/python -m parity.report $(DEMO) --out $(DEMO)/report
	@if [ -t 1 ] && [ -n "$$DISPLAY$$WAYLAND_DISPLAY" ]; then \
	  $(BIN)/python -m webbrowser $(DEMO)/report/report.html; fi

test: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not slow"

proof: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

clean:
	rm -rf $(VENV) runs build *.egg-info

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install $(PIP_FLAGS) -c constraints.txt -e '.[jax,torch]'
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install $(PIP_FLAGS) -c constraints.txt -e '.[jax,torch,dev]'
	touch $@
