# Every target makes its own virtual environment in .venv; nothing else is needed but Python 3.10+.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo docs test test-full test-exports lint bench soak soak-cover clean

demo: $(VENV)/ready
	$(BIN)/holdfast run --data glyphs-c --limit 1000 --threads 1 --out runs/demo --resume
	$(BIN)/holdfast report runs/demo -o runs/demo/report.html

# Offline, and what Sphinx warns of is an error.
docs: $(VENV)/docs-ready
	$(BIN)/sphinx-build --fail-on-warning --keep-going --nitpicky --quiet --fresh-env -b html docs build/docs
	@echo "The site: build/docs/index.html"

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-full: lint $(VENV)/docs-ready
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Every method in every format, with the runtimes of others, which are large.
test-exports: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,onnx,openvino,executorch]'
	$(BIN)/python -m pytest -n 2 --dist worksteal tests/exporting tests/cli/test_export.py

lint: $(VENV)/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tools/check_imports.py

bench: $(VENV)/ready
	$(BIN)/python benchmarks/step.py

# Hours of use in one: 20 visits, a million images, 2,000 kills, 10,000 hostile inputs, a rehearsal, 220 servers. Each ends in one line.
soak: $(VENV)/ready
	$(BIN)/python -m soak fuzz
	$(BIN)/python -m soak recurring
	$(BIN)/python -m soak endless
	$(BIN)/python -m soak kills
	$(BIN)/python -m soak rehearse
	$(BIN)/python -m soak serve

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

$(VENV)/docs-ready: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

# Inputs that are led by what code they reach, at every door.
soak-cover: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check atheris
	for door in adapter loader "state file" "source file" "data set" "method spec" "stream spec" "run folder"; do \
		$(BIN)/python -m soak.cover --door "$$door" --inputs 1250 || exit 1; \
	done

clean:
	rm -rf build/docs docs/methods docs/streams docs/parts.md $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
