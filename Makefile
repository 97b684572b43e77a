# Thin targets; the work is in tools/.
.PHONY: help setup demo test test-full test-all examples gpu-check fuzz bench bench-allreduce bench-hosts bench-costs bench-examples bench-speedups wheel compatibility lint format clean

# TRAIN, ALLREDUCE, HOSTS, COST and EXAMPLES are options for the scripts in bench/ (they say which with --help).
ROUNDS ?= 5
# The seconds of `make fuzz` for each parser.
FUZZ ?= 600

help:
	@echo "make setup    install what is missing: system packages, .venv, the built package"
	@echo "make demo     train LeNet-5 on two ranks and on one process, and print a table of both"
	@echo "make test     set up, then run the gate: the checks and tests for every change (15 minutes)"
	@echo "make test-full  the gate and the rest of what CI runs (45 minutes)"
	@echo "make test-all run all tests, also those that CI has no time for (hours)"
	@echo "make examples run the tests of the examples: each on one process and on two ranks, losses compared"
	@echo "make gpu-check  run examples on the GPUs of this machine, one rank each, and compare with plain Keras on one"
	@echo "make fuzz     feed each parser of foreign input with mutations for ten minutes (FUZZ=60: one minute)"
	@echo "make wheel    build a wheel for clusters in dist/ (PYTHONS=\"3.10 3.11 3.12\" makes more; 3.12's serves later ones too)"
	@echo "make compatibility   test that wheel under TensorFlow and Keras from the oldest to the nightly"
	@echo "make bench    measure training on one node against its goals in at most 30 minutes; write JSON and a page (ROUNDS=1: in 6 or 7;"
	@echo "              COMPARE=old.json: say what got slower)"
	@echo "make bench-allreduce   measure the allreduce beside the MPIs from PyPI (ALLREDUCE=\"--ranks 4\": of four ranks)"
	@echo "make bench-hosts       measure two hosts (network namespaces; needs root) beside MPI_Allreduce and silent processes"
	@echo "make bench-costs       measure metrics, losses on the global batch, comparisons of weights, long evaluations (ROUNDS=5)"
	@echo "make bench-examples    compare the steps of the examples with those of silent processes (ROUNDS=5)"
	@echo "make bench-speedups    measure the table and the picture of README.md (TORCH=python: also torch DDP, with a Python that has it)"
	@echo "make lint     run formatters, linters, the type checker and the check of include directions"
	@echo "make format   rewrite the sources as the formatters want them"
	@echo "make clean    remove everything that was built, .venv included"

setup:
	@tools/setup.sh

demo: setup
	@.venv/bin/python tools/demo.py

test:
	@tools/setup.sh --dev
	@tools/test.sh

test-full:
	@tools/setup.sh --dev
	@tools/test.sh --full

test-all:
	@tools/setup.sh --dev
	@tools/test.sh --all

examples:
	@tools/setup.sh
	@.venv/bin/python -m pytest tests/python/examples -m "not extended"

gpu-check:
	@tools/setup.sh
	@.venv/bin/python tools/gpu_check.py

fuzz:
	@tools/setup.sh
	@tools/fuzz.sh $(FUZZ)

wheel:
	@tools/wheel.sh $(PYTHONS)

compatibility:
	@tools/compatibility.sh

bench:
	@tools/setup.sh --bench
	@.venv/bin/python bench/training.py --rounds $(ROUNDS) $(if $(COMPARE),--compare $(COMPARE)) $(TRAIN)
	@.venv/bin/python bench/report.py

bench-allreduce:
	@tools/setup.sh --bench
	@.venv/bin/python bench/allreduce.py --rounds $(ROUNDS) $(ALLREDUCE)
	@.venv/bin/python bench/report.py

bench-hosts:
	@tools/setup.sh --bench
	@.venv/bin/python bench/hosts.py --rounds $(ROUNDS) $(HOSTS)
	@.venv/bin/python bench/report.py

bench-costs:
	@tools/setup.sh --bench
	@.venv/bin/python bench/cost.py --rounds $(ROUNDS) $(COST)
	@.venv/bin/python bench/gathered.py --rounds $(ROUNDS)
	@.venv/bin/python bench/report.py

bench-examples:
	@tools/setup.sh --bench
	@.venv/bin/python bench/examples.py --rounds $(ROUNDS) $(EXAMPLES)

bench-speedups:
	@tools/setup.sh --bench
	@.venv/bin/python bench/speedups.py $(if $(TORCH),--torch $(TORCH))

lint:
	@tools/setup.sh --dev
	@tools/lint.sh

format:
	@tools/setup.sh --dev
	@tools/lint.sh --fix

clean:
	rm -rf build dist .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
