# Everything sets itself up: Python 3.11 or newer and make are all that is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := .venv-bench
PEERS_READY := $(PEERS)/.ready
DOCS_READY := $(VENV)/.docs-ready
# The tests start many processes: without compiled modules, each compiles the package again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-all coverage check docs wheels bench bench-quick setup lock clean

# Train on the built-in corpus, score on dates never seen, translate in several scripts, look inside.
demo: setup
	$(BIN)/seq2see train dates --out runs/dates --force
	$(BIN)/seq2see evaluate runs/dates dates
	@printf '%s\n' '12 mars 1987' 'Donnerstag, 5. Mai 2044' '2097년 1월 26일' '2016年12月29日' '١٧ يوليو ٢٠٢٤' \
		'६ जून १९८४' '4 июля 1976 г.' '23 Ιανουαρίου 1921' '7 เมษายน 2058' > runs/dates/samples.txt
	@$(BIN)/seq2see translate runs/dates < runs/dates/samples.txt | paste -d '|' runs/dates/samples.txt - \
		| sed 's/|/  ->  /'
	$(BIN)/seq2see look runs/dates 'Donnerstag, 5. Mai 2044' -o runs/dates/look.html

# The default suite, in one process more than there are cores: at most 5 minutes on two cores. `make test TESTS=tests/unit/model`
# runs a part of it. `test-all` runs the slow tests too.
TESTS ?=
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal

test: setup
	$(PYTEST) $(TESTS)

test-all: setup
	$(PYTEST) -m '' $(TESTS)

# The default suite with the share of lines that it runs, which may not fall below the floor in pyproject.toml; it takes
# a third more time.
coverage: setup
	$(PYTEST) --cov --cov-report=term:skip-covered $(TESTS)

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The docs site, in build/docs: open build/docs/index.html. A warning (such as a broken link) is an error.
docs: $(DOCS_READY)
	$(BIN)/python -m sphinx -W --keep-going -n -E -a -q -d build/doctrees docs build/docs
	@echo "open build/docs/index.html"

$(DOCS_READY): $(READY) docs/requirements.lock
	$(BIN)/python -m pip install --quiet --constraint requirements.lock -r docs/requirements.lock
	touch $(DOCS_READY)

# Both distributions, seq2see and seq2see-slim, as source archives and wheels in dist/.
BUILD_PYTHON ?= $(BIN)/python

wheels: $(if $(filter $(BIN)/python,$(BUILD_PYTHON)),setup)
	rm -rf dist build/slim
	$(BUILD_PYTHON) deploy/slim.py build/slim
	$(BUILD_PYTHON) -m build --no-isolation --outdir dist .
	$(BUILD_PYTHON) -m build --no-isolation --outdir dist build/slim

# Side by side with peers, which live in an environment of their own. `bench` writes docs/benchmarks.md (about 45
# minutes), and docs/benchmarks-gpu.md where there is a CUDA GPU; `bench-quick` prints only (under ten).
bench: setup $(PEERS_READY)
	$(BIN)/python -m bench
	if $(PEERS)/bin/python -c "import torch; raise SystemExit(not torch.cuda.is_available())"; then \
		$(PEERS)/bin/python -m pip install --quiet . && $(PEERS)/bin/python -m bench.gpu && \
		$(PEERS)/bin/python -m bench.gpu_page .bench/gpu.json; fi

bench-quick: setup $(PEERS_READY)
	$(BIN)/python -m bench --quick

$(PEERS_READY): bench/peers.txt
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet $$(grep '^torch==' requirements.lock)
	$(PEERS)/bin/python -m pip install --quiet -r bench/peers.txt
	$(PEERS)/bin/python -m pip install --quiet --no-deps joeynmt==2.3.0
	touch $(PEERS_READY)

setup: $(READY)

# torch first and alone: a resolver that sees it beside others may fetch another build.
$(READY): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("seq2see needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $$(grep '^torch==' requirements.lock)
	$(BIN)/python -m pip install --quiet -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $(READY)

# Pin what is installed now, after trying newer versions by hand. What only the docs site needs has a lock of its own.
lock: setup
	$(BIN)/python -m pip freeze --all --exclude-editable | grep -v '^pip==' | grep -vxFf docs/requirements.lock \
		| sed 's/+cpu$$//' > requirements.lock

clean:
	rm -rf $(VENV) $(PEERS) .bench build dist runs docs/project
	cd docs/reference && rm -f commands.md settings.md python.md http.md
