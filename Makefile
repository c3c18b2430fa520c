# make demo   the main job on built-in data, with pictures in demo/
# make test   lint, types, layers, unit and property tests, doctests, README and docs examples
# make annotate  people answer in a browser: built-in stories, simulated readers
# make quick  the tests that take no time, in half a minute
# make fuzz   odd inputs by the thousand: COUNT=100000 SEED=0; what was found
# make kills  the program killed and interrupted at any moment: KILLS=100 SEED=0
# make test-long  claims that take many draws, programs that are killed
# make test-annotate  people answering in a real browser, on SQLite and PostgreSQL, while servers are killed
# make test-integrations  transformers, TRL, sentence-transformers, Label Studio and Argilla go on with what is exported
# make docs   the documentation site, in build/docs; warnings are errors
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
RUNS := .venv/.runs
READY := .venv/.ready
BROWSER := .venv/.browser
INTEGRATIONS := .venv/.integrations
SITE := .venv/.site

# tests start the program many times: it loads faster where bytecode may be written
TESTS := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

COUNT ?= 10000
KILLS ?= 20
SEED ?= 0

.PHONY: demo annotate test tests quick test-annotate test-long test-integrations docs fuzz kills lint types style kernels clean

demo: $(RUNS)
	$(BIN)/prefkin demo --out demo
	@echo "For the prefkin command itself: source .venv/bin/activate"

annotate: $(READY)
	$(BIN)/prefkin annotate --demo

# types beside all else: one of them uses one core
test: $(READY)
	@$(MAKE) --no-print-directory -j2 types tests

tests: style kernels
	$(TESTS)

quick: $(READY)
	$(TESTS) -m 'not slow and not annotate and not long and not integrations'

test-long: $(READY)
	$(TESTS) -m long tests

test-annotate: $(BROWSER)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -m annotate -rs tests/apps/annotate

test-integrations: $(INTEGRATIONS)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/pytest -m integrations -rs tests

docs: $(SITE)
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -b html docs build/docs

fuzz: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --count $(COUNT) --seed $(SEED)

kills: $(READY)
	for job in fit reproduce interrupts commands; do $(BIN)/python -m tests.kills $$job --count $(KILLS) --seed $(SEED) || exit 1; done

lint: $(READY)
	@$(MAKE) --no-print-directory -j2 types style

types: $(READY)
	$(BIN)/mypy

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

# once, not by every process that tests
kernels: $(READY)
	@OMP_NUM_THREADS=1 $(BIN)/python -m tests.compiled

$(RUNS): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "prefkin needs Python 3.11 or newer; try: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(INSTALL) -e '.[plots]'
	@touch $@

$(READY): $(RUNS)
	$(INSTALL) -e '.[dev]'
	@touch $@

$(BROWSER): $(READY)
	$(INSTALL) -e '.[browser]'
	@command -v npm > /dev/null && npm install --silent --no-save --prefix .venv axe-core@4 || true
	@touch $@

$(INTEGRATIONS): $(READY)
	$(INSTALL) torch==2.13.0
	$(INSTALL) -e '.[integrations]'
	@touch $@

$(SITE): $(READY)
	$(INSTALL) -e '.[docs]'
	@touch $@

clean:
	rm -rf .venv build demo docs/_made .pytest_cache .mypy_cache .ruff_cache .hypothesis
