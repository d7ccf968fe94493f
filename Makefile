# Each target builds .venv from nothing with a plain python3; a second call starts at once.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-slow test-browser battery check format docs bench build mutate mutate-arithmetic clean

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/demo.stamp: pyproject.toml constraints.txt | .venv/bin/python
	@echo 'Downloading PyTorch and the packages of the demo into .venv (several gigabytes; README.md says how to use a smaller PyTorch) ...'
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[phrases,text,serve,ctranslate2]'
	@touch $@

.venv/dev.stamp: pyproject.toml constraints.txt | .venv/bin/python
	@echo 'Downloading PyTorch and the packages of the tests into .venv (several gigabytes; README.md says how to use a smaller PyTorch) ...'
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

# It translates with the model of the package, looks inside it, and trains a small one. It needs no network.
demo: .venv/demo.stamp
	@echo '1. The model that comes with the package (transduce card describes it) translates:'
	@for text in "Good morning! Did you sleep well?" \
	    "The price of bread has risen by 3.5 percent since January." \
	    "The animal didn't cross the street because it was too tired."; do \
	  translation=$$($(BIN)/transduce translate "$$text") || exit 1; \
	  echo "$$text  ->  $$translation"; done
	@echo
	@echo '2. Where its attention went, word by word:'
	$(BIN)/transduce inspect "The animal didn't cross the street because it was too tired."
	@echo
	@echo '3. A small model learns dates, numbers and amounts of money, in a minute or two:'
	$(BIN)/transduce data get phrases --out runs/demo-data
	$(BIN)/transduce train runs/demo-data/recipe.toml --run runs/demo
	@for text in "Sunday, September 16, 1984" "The price rose by 88.8% to £99,521.71." "42 hours and 25 minutes"; do \
	  translation=$$($(BIN)/transduce translate --model runs/demo "$$text") || exit 1; \
	  echo "$$text  ->  $$translation"; done
	@echo
	@echo 'Next: open runs/demo/report.html, which shows the training;'
	@echo 'start $(BIN)/transduce serve and open http://127.0.0.1:8000, where you see every attention head;'
	@echo 'or train on your own text: docs/tutorial.md.'

test: .venv/dev.stamp
	$(BIN)/python -m pytest -n 2

test-slow: .venv/dev.stamp
	$(BIN)/python -m pytest -m slow

test-browser: .venv/dev.stamp  # needs Chromium, such as Debian's package
	$(BIN)/python -m pytest -m browser

battery: .venv/dev.stamp
	$(BIN)/python -m pytest -m battery -s  # how far it is, is printed

check: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/dev.stamp
	$(BIN)/python -m mkdocs build --strict
	@echo 'The site is ready: open site/index.html'

bench: .venv/dev.stamp
	$(BIN)/python -m bench.train
	$(BIN)/python -m bench.batches

# A wheel and an sdist in dist/: docs/releasing.md says how to check them.
build: | .venv/bin/python
	$(BIN)/python -m pip install --quiet build twine
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*

mutate: .venv/dev.stamp
	$(BIN)/python tests/mutate.py

# mutmut changes operators, numbers and arguments in transduce/search and transduce/model; its settings are in
# pyproject.toml. It has an environment of its own, because mutmut 3.8 fails with pytest 9.2.
# A part of it: make mutate-arithmetic ONLY='transduce.search.candidates.*'
.cache/mutmut/stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv .cache/mutmut/env
	.cache/mutmut/env/bin/python -m pip install --quiet -c constraints.txt '.[dev]'
	.cache/mutmut/env/bin/python -m pip install --quiet 'mutmut==3.8.0' 'pytest<9.1'
	@touch $@

mutate-arithmetic: .cache/mutmut/stamp
	rm -rf .cache/mutmut/work
	mkdir -p .cache/mutmut/work
	cp -r transduce tests pyproject.toml .cache/mutmut/work
	cd .cache/mutmut/work && OMP_NUM_THREADS=1 ../env/bin/mutmut run --max-children 2 $(if $(ONLY),'$(ONLY)')
	cd .cache/mutmut/work && ../env/bin/mutmut results

clean:
	rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
