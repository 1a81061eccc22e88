# make train trains a model on this machine, make test checks the project; both get and install what they need.
# Options of run.py go into ARGS: make train ARGS="--num-rollout 1"

UV := scripts/uv

# Importing torch and transformers takes 15 s in every process without compiled files.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: sync train test test-all lint bench

sync:
	$(UV) sync --locked

train: sync
	$(UV) run --no-sync python run.py --engine local $(ARGS)

lint: sync
	$(UV) run --no-sync ruff check .
	$(UV) run --no-sync ruff format --check .
	$(UV) run --no-sync pyright

test: lint
	$(UV) run --no-sync pytest -m "not long" $(ARGS)

test-all: lint
	$(UV) run --no-sync pytest $(ARGS)

bench: sync
	$(UV) run --with trl python benchmarks/local_engine.py $(ARGS)
