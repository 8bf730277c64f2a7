# Two commands set everything up and need only Python 3.11 or newer, make and a package index: make book, make test.
# PYTHON=... chooses the Python that makes .venv; NB=... one notebook; PORT=... where the book is served;
# STUDENT=... the folder of the student's edition.

PYTHON ?=
NB ?=
CHANGED ?=
PORT ?= 8000
STUDENT ?= _build/student
WORKERS ?= 2
UPGRADE ?=

VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
PIP := $(PY) -m pip --disable-pip-version-check install --quiet

# make pins drops cuda, nvidia and triton: on a machine with a GPU, torch itself asks for them.
PINNED := \# The exact environment of the book, written by make pins: its committed outputs were made with these versions.

.DEFAULT_GOAL := help
.PHONY: help book epub pdf test check lint export notebooks student grade address pins serve colab clean

help: ## list these commands
	@awk -F ':[^#]*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

book: $(READY) ## build the book into _build/html; a warning is an error
	@$(VENV)/bin/jupyter-book build . -W -n --keep-going || { rm -rf _build/.doctrees; exit 1; }
	@echo "The book is in _build/html/index.html (make serve)"

epub: $(READY) ## write the book as an ePub into _build/epub
	@$(VENV)/bin/jupyter-book build . --builder custom --custom-builder epub

pdf: $(READY) ## write the book, its exercises and a poster as PDFs into _build/pdf
	@$(PIP) pypandoc-binary==1.17 typst==0.15.2
	@$(PY) tools/pdf.py

test: $(READY) ## run the tests, then notebooks that changed, and compare their outputs (CI=true: all)
	@status=0; \
	OMP_NUM_THREADS=1 $(PY) -m pytest -n $(WORKERS) --dist loadgroup --durations=15 tests || status=1; \
	$(PY) tools/compare.py $(NB) || status=1; \
	exit $$status

check: lint ## the fast checks: those of make lint, then the tests that are not slow
	@OMP_NUM_THREADS=1 $(PY) -m pytest -n $(WORKERS) --dist loadgroup -m "not slow" --hypothesis-profile quick -p no:nbval tests

lint: $(READY) ## export gate, notebook guard, style, types, size
	@status=0; \
	$(PY) tools/gate.py || status=1; \
	$(PY) tools/guard.py || status=1; \
	$(PY) -m ruff check . || status=1; \
	$(PY) -m ruff format --check . || status=1; \
	$(PY) -m mypy || status=1; \
	$(PY) tools/size.py || status=1; \
	exit $$status

export: $(READY) ## write transformer_lib/ and the README's table from the notebooks
	@$(PY) tools/export.py

notebooks: export ## run notebooks in place, all or NB=path (CHANGED=1: only cells that changed, and what they need)
	@$(PY) tools/notebooks.py $(if $(CHANGED),--changed) $(NB)

student: $(READY) ## write the student's edition, whose functions you write yourself, into _build/student
	@$(PY) tools/student.py $(STUDENT)

grade: $(READY) ## test what you wrote there: make grade CHAPTER=masks (MINE=1: build on your earlier chapters; TAKE=name)
	@$(PY) -m transformer_lib.student $(STUDENT) $(if $(CHAPTER),--chapter $(CHAPTER)) $(if $(MINE),--mine) \
	  $(if $(TAKE),--take $(TAKE)) || true

address: $(READY) ## write the repository's address and the edition into every file: make address REPO=me/name
	@$(PY) tools/address.py "$(REPO)"

pins: $(READY) ## write requirements.txt, which pins what pyproject.toml asks for (UPGRADE=--upgrade: the newest versions)
	@$(PIP) uv
	@$(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --extra book --extra test --extra student --no-annotate --no-header \
	  $(UPGRADE) --output-file requirements.txt pyproject.toml
	@sed -i -E '/^(cuda|nvidia|triton)/d; 1i $(PINNED)' requirements.txt

serve: book ## build the book and serve it at http://localhost:8000 (PORT=...)
	@echo "http://localhost:$(PORT)"
	@$(PY) -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

colab: $(READY) ## rehearse Colab: every chapter (or NB=...) alone, with nothing but the package and Jupyter
	@$(PY) tools/colab.py $(NB)

clean: ## remove what was built; .venv stays
	@rm -rf _build build dist .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name .venv -prune -o -type d \( -name __pycache__ -o -name .ipynb_checkpoints \) -exec rm -rf {} +

$(READY): requirements.txt pyproject.toml
	@if ! $(PY) -c "" 2>/dev/null; then \
	  for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python); do \
	    if $$python -c "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))" 2>/dev/null; \
	    then chosen=$$python; break; fi; \
	  done; \
	  if [ -z "$$chosen" ]; then \
	    echo "The book needs Python 3.11 or newer with its venv module; $(or $(PYTHON),python3) is not (set PYTHON=...)" >&2; \
	    exit 1; \
	  fi; \
	  echo "Setting up $(VENV) with $$($$chosen --version), once; this takes a minute or two"; \
	  $$chosen -m venv --clear $(VENV) || exit 1; \
	fi
	@$(PIP) "$$(grep '^torch==' requirements.txt)"
	@$(PIP) -r requirements.txt
	@$(PIP) --no-deps -e .
	@touch $@
