# Each target works alone on a fresh clone: it makes its own virtual environment.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
DEMO := demo.dtrace
# what is compiled stays in this clone
export DISPATCH_INSPECT_CACHE ?= $(abspath $(VENV))/compiled

# the C++ parts, and the tests that run them, under AddressSanitizer and UndefinedBehaviorSanitizer
SANITIZERS := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined \
  -fno-sanitize=vptr -fno-sanitize-recover=undefined
CXX_OF_PATH := $(or $(shell command -v g++),c++)

.PHONY: demo test lint sanitize benchmark clean

demo: $(READY)
	@$(BIN)/dispatch-inspect run --force -o $(DEMO) examples/train_transformer.py
	@echo
	@echo "The calls, three levels deep:"
	@$(BIN)/dispatch-inspect tree $(DEMO) --depth 3 --where "in:Model|kind:region|module:*"
	@echo
	@echo "Where the time went:"
	@$(BIN)/dispatch-inspect stats $(DEMO) --where kind:op | head -n 16
	@echo
	@echo "Next: $(BIN)/dispatch-inspect tree $(DEMO) --where 'in:backward aten::mm'"

test: $(READY)
	$(BIN)/python -m pytest -n auto

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

sanitize: $(READY)
	LD_PRELOAD="$$($(CXX_OF_PATH) -print-file-name=libasan.so) $$($(CXX_OF_PATH) -print-file-name=libubsan.so) $$($(CXX_OF_PATH) -print-file-name=libstdc++.so)" \
	ASAN_OPTIONS=detect_leaks=0 DISPATCH_INSPECT_CXXFLAGS="$(SANITIZERS)" \
	  $(BIN)/python -m pytest -n auto tests/hops tests/record -k "not in_python"

benchmark: $(READY)
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/reading.py

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 10) or sys.exit("Python 3.10 or newer is needed, and $(PYTHON) is %d.%d; choose another: make PYTHON=python3.11" % v[:2])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[test,lint]"
	@touch $(READY)

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis $(DEMO)
