# `make demo` and `make test` set up what they need in .venv, once; after that they work offline.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/.demo
STAMP := $(VENV)/.installed
SUPPLY := $(VENV)/.supply
VISION := $(VENV)/vision
PINS := $(VENV)/pins.txt
SBOM ?= dist/sbom.cdx.json
GPU := $(wildcard /dev/nvidia[0-9]*)
CPU_WHEELS := https://download.pytorch.org/whl/cpu
# one more than two cores: tests wait for the processes that they start
JOBS ?= 3

.PHONY: demo test test-slow test-real lint types check bench bench-gpu bench-layouts docs docs-linkcheck docs-refresh lock audit dist sbom clean

demo: $(DEMO)
	$(BIN)/m3b demo

# Else every process that the tests start compiles m3b anew.
unexport PYTHONDONTWRITEBYTECODE

# The tests' folders lie in one of their own: pytest clears what earlier sessions left, and fails where that is a tree
# deeper than Python's recursion, as an interrupted test of such trees leaves it. After a failure they stay, to be looked at.
PYTEST = room=$$(mktemp -d) && PYTEST_DEBUG_TEMPROOT=$$room $(BIN)/pytest -n $(JOBS) --dist loadfile --durations=25

test: $(STAMP)
	$(PYTEST) && rm -rf "$$room"

test-slow: $(STAMP) $(VISION)/.installed
	$(PYTEST) -m "slow or hypothesis" --hypothesis-profile=thorough && rm -rf "$$room"
	$(VISION)/bin/pytest -m "not real" tests/pipeline/test_pipeline_vision.py tests/templates/test_library_networks.py tests/loggers/test_trackers.py tests/audit/test_burnt_in_text.py

# Real data sets in DATA, read, changed in their layout, and trained on; EXPECTED.json there says what a right index of each
# holds (tests/real/real_kit.py).
test-real: $(STAMP)
	@test -f "$(DATA)/EXPECTED.json" || { echo "make test-real DATA=FOLDER: no EXPECTED.json in '$(DATA)'; tests/real/real_kit.py says what it holds" >&2; exit 1; }
	export M3B_FIELD_DATA="$(abspath $(DATA))" && $(PYTEST) -m real tests/real && rm -rf "$$room"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/bandit --quiet --recursive src --configfile pyproject.toml

types: $(STAMP)
	$(BIN)/mypy

check: lint types test

# The pages of docs/ as a site with search, in build/docs. A warning, as of a link that leads nowhere, is an error.
docs: $(STAMP)
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -c docs . build/docs
	@echo "The site: build/docs/index.html"

docs-linkcheck: $(STAMP)
	$(BIN)/sphinx-build --quiet -b linkcheck -c docs . build/linkcheck

docs-refresh: $(STAMP)
	$(BIN)/python docs/refresh.py

bench: $(STAMP)
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/metrics.py

# How generated folders of many layouts are read, with the truth known: right, asked, refused, wrong and accepted. Odd seeds are for
# reports, even ones for fitting. RESULTS=FILE keeps the outcome of every seed, and an interrupted measurement goes on from there.
SEEDS ?= 1-199:2
bench-layouts: $(STAMP)
	$(BIN)/python benchmarks/layouts.py --seeds $(SEEDS) --jobs 2 $(if $(RESULTS),--results $(RESULTS))

# Trains templates on the GPU of this machine, beside bare loops and nnU-Net; minutes. It installs nothing: a GPU's machine has a
# torch of its own. PYTHON=... names the Python that has it; what is in .venv is taken where it is there.
bench-gpu:
	$(or $(wildcard $(BIN)/python),$(PYTHON)) benchmarks/gpu.py

# Everything that m3b, its extras and its tests bring along, with hashes. Versions stay where constraints.txt and
# pyproject.toml allow it; `make lock UPGRADE=--upgrade` takes the newest that fit.
lock: $(SUPPLY)
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --all-extras $(UPGRADE) \
		--no-emit-index-url --custom-compile-command 'make lock' -c constraints.txt -o requirements.lock pyproject.toml

# Asks PyPI for known holes. --strict: a package that nobody could ask about is a failure, not a pass.
audit: $(SUPPLY)
	@$(BIN)/pip-audit --strict --disable-pip --require-hashes -r requirements.lock --progress-spinner off || { echo \
		"make audit: there are known holes, or (see above) they could not be asked for: it takes PyPI itself, over a network; a mirror does not know them." >&2; exit 1; }
	$(BIN)/bandit --quiet --recursive src --configfile pyproject.toml

# The archives of a release, in dist; docs/releasing.md says what comes before and after.
dist: $(STAMP)
	$(BIN)/python -m hatchling build -d dist

sbom: $(SUPPLY)
	@mkdir -p $(dir $(SBOM))
	$(BIN)/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --mc-type library --output-reproducible \
		--of JSON -o $(SBOM)

# What the demo needs. Where there is no GPU, PyTorch for CPUs is taken: pip is asked first what it would install, and where
# that brings CUDA (several GB), PyTorch's own index has the build without ("+cpu", which pip prefers to the plain version).
$(DEMO): pyproject.toml constraints.txt requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit("m3b needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@echo "Installing what the demo needs into $(VENV): about 1.8 GB on the disk$(if $(GPU), and several GB of CUDA,), a few minutes. Then the demo: two minutes."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# the lock without its hashes, which know neither PyTorch for CPUs nor this folder
	@sed -n 's/^\([A-Za-z0-9][^ ]*==[^\\]*[^ \\]\) *\\*$$/\1/p' requirements.lock > $(PINS)
	@wheels=; if [ -z "$(GPU)" ]; then \
		$(BIN)/pip install --quiet --dry-run --report $(VENV)/torch.json -c $(PINS) torch || exit 1; \
		if grep -Eq '"name": "(nvidia|cuda)' $(VENV)/torch.json; then wheels="--extra-index-url $(CPU_WHEELS)"; fi; \
	fi; set -x; $(BIN)/pip install --quiet -c $(PINS) $$wheels torch
	$(BIN)/pip install --quiet -c $(PINS) -e '.[train]'
	@touch $(DEMO)

$(STAMP): $(DEMO)
	@echo "Installing what the tests need besides into $(VENV): about 1.1 GB more on the disk, a few minutes. Then the tests: some ten minutes on two cores."
	$(BIN)/pip install --quiet -c $(PINS) -e '.[train,nnunet,export,train-agents,cluster,search,s3,gcs,ssh,croissant,dicom,parquet,zarr,serve,log,otel,docs,dev]'
	@# nnU-Net's timm asks for torchvision, whose usual build needs CUDA and then breaks transformers beside a CPU torch
	@# there: for the tests of its detectors, which mend that (m3b.training.torchvision_ops), it lies in a folder of its own
	@$(BIN)/python -c 'import torch, sys; sys.exit(torch.version.cuda is None)' || { $(BIN)/pip uninstall --quiet --yes torchvision; \
		$(BIN)/pip install --quiet --no-deps --upgrade -c $(PINS) --target $(VENV)/torchvision torchvision; }
	@touch $(STAMP)

# Networks of timm and torchvision, and Trackio and Weights & Biases. torchvision needs the torch that it was built for, which the
# environment of the other tests need not have: where PyTorch's own index served that, it serves both here, and else both are the usual
# builds, with CUDA (5.5 GB).
$(VISION)/.installed: $(DEMO)
	@echo "Installing networks of libraries and loggers for the slow tests into $(VISION): about 7 GB more on the disk, a few minutes."
	test -x $(VISION)/bin/python || $(PYTHON) -m venv $(VISION)
	@grep -Ev '^(pillow|torch|torchvision|triton|nvidia-.*|cuda-.*)==' $(PINS) > $(VISION)/pins.txt
	@wheels=; if [ -z "$(GPU)" ] && grep -Eq '"name": "(nvidia|cuda)' $(VENV)/torch.json; then \
		wheels="--extra-index-url $(CPU_WHEELS)"; \
	fi; set -x; $(VISION)/bin/pip install --quiet -c $(VISION)/pins.txt $$wheels -e '.[train,vision,wandb,ocr]' 'trackio>=0.43,<0.44' hypothesis pytest pytest-xdist
	@touch $@

$(SUPPLY): $(STAMP)
	$(BIN)/pip install --quiet -c $(PINS) -e '.[supply]'
	@touch $(SUPPLY)

clean:
	rm -rf $(VENV) demo demo-* .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
