# `make demo` and `make test` set up everything they need in .venv, once; after that they work offline.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JOBS ?= 2

.PHONY: demo test test-slow lint types check bench docs clean

demo: $(STAMP)
	$(BIN)/m3b demo

test: $(STAMP)
	$(BIN)/pytest -n $(JOBS) --dist loadfile

test-slow: $(STAMP)
	$(BIN)/pytest -n $(JOBS) --dist loadfile -m slow

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

check: lint types test

docs: $(STAMP)
	$(BIN)/python docs/refresh.py

bench: $(STAMP)
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/previews.py

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("m3b needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt torch
	$(BIN)/pip install --quiet -c constraints.txt -e '.[train,nnunet,export,cluster,dev]'
	@# nnU-Net's timm asks for torchvision, whose usual build needs CUDA and then breaks transformers beside a CPU torch
	@$(BIN)/python -c 'import torch, sys; sys.exit(torch.version.cuda is None)' || $(BIN)/pip uninstall --quiet --yes torchvision
	@touch $(STAMP)

clean:
	rm -rf $(VENV) demo demo-* .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
