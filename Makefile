# One word a task; `make help` lists them. Everything lives in .venv and build/, both of which `make clean` removes.
#
# The working tree runs compiled: the extension modules are built in place, beside the sources that they come from, and the
# package is installed as editable. Python prefers them to the .py files, so what pytest imports in this folder is what
# users run. A stamp rebuilds them when a source has changed: run tests by make, or `make build` first.
# The interpreted run and the wheel's run copy the sources away (build/), so that no stray extension module gets in.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3,$(shell command -v $(name))))
VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements.lock
PIP_INSTALL := -m pip install -qq --disable-pip-version-check --constraint $(LOCK)
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
SOURCES := $(shell find vmq hooks cluster plugins -name '*.py')
NODE_TESTS := tests/clients/node
VENDOR := vmq/http/dashboard/page/vendor
UPLOT := 1.6.32
PYTEST_ARGS ?=
# What make demo passes on, as in make demo DEMO_ARGS='--self-test'.
DEMO_ARGS ?=
# Processes that the tests are spread over (tests/support/forking.py): three a core, since many tests wait.
JOBS ?= $(shell echo $$(( 3 * $$(nproc) )))
FUZZ_SECONDS ?= 600
SOAK_MINUTES ?= 10
CHAOS_MINUTES ?= 10
CHAOS_SEED ?= $(shell date +%s)
# So many times the seeds that the suite tries.
CHAOS_SEEDS ?= 30
# What a wheel is built from.
PACKAGE := vmq hooks cluster plugins pyproject.toml setup.py LICENSE README.md
# Debian keeps mosquitto in /usr/sbin, which is not on everybody's PATH.
export PATH := $(PATH):/usr/sbin
# Tests start a thousand programs: none is to compile anew what the one before it compiled, whatever an image is set to.
unexport PYTHONDONTWRITEBYTECODE
# `make run VMQ_PURE=1` builds and runs the core as plain Python: for debugging, or where there is no compiler.
export VMQ_PURE := $(filter 1,$(VMQ_PURE))
# The wheel that is tested holds the same C as the working tree: it is compiled once (setup.py).
export VMQ_OBJECTS ?= $(CURDIR)/build/objects
BUILT := $(VENV)/.built-$(if $(VMQ_PURE),pure,compiled)

.PHONY: help run demo spark build test test-pure test-wheel deb test-deb docs check format bench fuzz corpus soak chaos attack reference vendor lock clean

help: ## list the tasks
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

run: build ## start a broker with config/vmq.toml
	@echo "==> run: vmq start --config config/vmq.toml"
	@exec $(BIN)/vmq start --config config/vmq.toml

# Without Java it says so and goes on; a fresh machine that is offline has a demo, too.
demo: build $(VENV)/.spark ## 200 simulated devices on a map, and buttons that kill broker and Spark
	@$(MAKE) java || echo "==> demo: there is no Java: the demo goes without Spark"
	@echo "==> demo: vmq demo"
	@exec $(BIN)/vmq demo $(DEMO_ARGS)

spark: build $(VENV)/.spark ## install PySpark into .venv, and the Java that it needs
	@$(MAKE) java
	@echo "==> spark: $(BIN)/pyspark, once $(VENV) is activated: Spark's workers are the python3 of the PATH"

build: $(BUILT) ## compile the core and install vmq into .venv
	@echo "==> build: vmq is in $(VENV), $(if $(VMQ_PURE),interpreted,compiled)"

test: ## run the whole suite
	@$(MAKE) --jobs 4 build $(VENV)/.dev $(NODE_TESTS)/node_modules/.package-lock.json tools
	$(compile_tests)
	@echo "==> test: the whole suite, $(if $(VMQ_PURE),interpreted,compiled)"
	@CI=1 $(BIN)/python -m pytest --benchmark-disable --numprocesses $(JOBS) $(PYTEST_ARGS)

check: $(VENV)/.dev ## format, lint, types, layers
	@echo "==> check: ruff format, ruff check, mypy --strict, import-linter"
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy --strict
	@$(BIN)/lint-imports --no-cache --no-logo

format: $(VENV)/.dev ## let ruff format the sources and mend what it can
	@echo "==> format: ruff"
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

bench: build $(VENV)/.dev ## run the micro-benchmarks
	@echo "==> bench: tests/bench"
	@$(BIN)/python -m pytest tests/bench --benchmark-only $(PYTEST_ARGS)

fuzz: build $(VENV)/.dev ## search for bytes that break the broker (FUZZ_SECONDS=600 for each of three fuzzers)
	@mkdir -p build/fuzz/found
	@echo "==> fuzz: decoder and session; what breaks them is left in build/fuzz"
	@$(BIN)/python -m tests.fuzz.session build/fuzz/found tests/fuzz/corpus -artifact_prefix=build/fuzz/ \
		-max_len=2048 -timeout=20 -rss_limit_mb=1024 -max_total_time=$(FUZZ_SECONDS)
	@echo "==> fuzz: a live broker, over TCP and WebSocket"
	@$(BIN)/python -m tests.fuzz.sockets --first "$$(date +%s)" --seconds $(FUZZ_SECONDS)
	@echo "==> fuzz: the jobs of a live broker"
	@$(BIN)/python -m tests.fuzz.resp --first "$$(date +%s)" --seconds $(FUZZ_SECONDS)

corpus: $(VENV)/.dev ## write tests/fuzz/corpus anew, with what `make fuzz` found
	@echo "==> corpus: tests/fuzz/corpus"
	@mkdir -p build/fuzz/found && $(BIN)/python -m tests.fuzz.corpus build/fuzz/found

soak: build $(VENV)/.dev ## use a broker for long and see whether it grows (SOAK_MINUTES=10)
	@echo "==> soak: $(SOAK_MINUTES) minutes"
	@$(BIN)/python -m tests.soak --minutes $(SOAK_MINUTES)

chaos: build $(VENV)/.dev ## break clusters at random and see whether they keep their promises (CHAOS_MINUTES=10)
	@$(MAKE) mosquitto
	@echo "==> chaos: $(CHAOS_MINUTES) minutes from seed $(CHAOS_SEED); what came of failures is left in build/chaos"
	@$(BIN)/python -m tests.cluster_processes.chaos --seed $(CHAOS_SEED) --minutes $(CHAOS_MINUTES)
	@echo "==> chaos: the simulator, over $(CHAOS_SEEDS) times the suite's seeds"
	@VMQ_SIM_FACTOR=$(CHAOS_SEEDS) $(BIN)/python -m pytest --timeout 3600 --numprocesses $(JOBS) tests/simulator tests/cluster

attack: build $(VENV)/.dev ## run tests/attacks in full, as they were found
	@echo "==> attack: tests/attacks in full"
	@ATTACK=full $(BIN)/python -m pytest --timeout 900 tests/attacks $(PYTEST_ARGS)

reference: $(VENV)/.runtime ## write config/reference.toml and the tables of docs/migrating.md from the code
	@echo "==> reference: config/reference.toml, docs/migrating.md"
	@$(BIN)/python -m vmq.config.reference config/reference.toml
	@$(BIN)/python -m vmq.cli.importing.page docs/migrating.md

# The whole suite runs compiled and from the sources. What else can differ is asked again, and no more: what is compiled may act
# otherwise interpreted, and a wheel may lack a module, an entry point or a dependency.
IN_WHEEL := tests/conformance tests/vmq/test_package.py tests/vmq/cli/start/test_start.py tests/vmq/cli/admin/test_plugin.py

# What is asked interpreted, as pytest's arguments: a file of tests a line, unless it is said otherwise.
INTERPRETED = @$(CURDIR)/build/interpreted

# How wheels are built and what they depend on is the wheel's test: here the libraries are those of .venv.
test-pure: $(VENV)/.dev ## run the tests of what is compiled interpreted
	@echo "==> test-pure: installing the sources, with the libraries of $(VENV)"
	$(call copy_of_sources,pure)
	@$(PYTHON) -m tests.support.interpreted > build/interpreted
	@$(PYTHON) -m venv --without-pip build/pure/venv
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> "$$(build/pure/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/libraries.pth"
	@VMQ_PURE=1 $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir build/pure build/pure/source
	@$(BIN)/python -m pip --python build/pure/venv/bin/python install -qq --disable-pip-version-check --no-deps --force-reinstall --no-index build/pure/vmq-*.whl
	$(call tests_outside,pure,1,$(INTERPRETED))

test-wheel: ## build the wheel and test it installed, outside the repository
	$(call suite_of_wheel,wheel,0)
	$(call tests_outside,wheel,0,$(IN_WHEEL))

docs: $(VENV)/.runtime ## write the documentation as a site into build/docs
	@echo "==> docs: build/docs"
	@VMQ_PURE=1 $(BIN)/python $(PIP_INSTALL) --no-build-isolation --editable '.[docs]'
	@$(BIN)/mkdocs build --quiet --config-file config/mkdocs.yml

deb: ## build a Debian package in build/deb, for the Python that builds it
	@[ -n "$(PYTHON)" ] || { echo "no Python found: vmq needs 3.11, 3.12 or 3.13"; exit 1; }
	@echo "==> deb: the wheel"
	@rm -rf build/deb/source build/deb/wheel && mkdir -p build/deb/source
	@tar --create --exclude='*.so' --exclude=__pycache__ $(PACKAGE) | tar --extract --directory build/deb/source
	@$(PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/deb/wheel build/deb/source
	@echo "==> deb: the package"
	@config/debian/build.sh $(PYTHON) build/deb/wheel/vmq-*.whl build/deb

test-deb: deb ## install, start, upgrade and remove the package in a fresh Debian; needs root
	@$(MAKE) debootstrap
	@$(SUDO) config/debian/try.sh build/deb/vmq_*.deb build/deb

# It lies in the repository, so that every wheel has it and no build asks npm.
vendor: ## fetch what the live page is made of by others from npm, and note its versions
	@echo "==> vendor: $(VENDOR)"
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT \
		&& npm pack --silent --pack-destination "$$folder" uplot@$(UPLOT) > /dev/null \
		&& tar --extract --gzip --directory "$$folder" --file "$$folder"/uplot-$(UPLOT).tgz \
		&& cp "$$folder"/package/dist/{uPlot.iife.min.js,uPlot.min.css} $(VENDOR) \
		&& cp "$$folder"/package/LICENSE $(VENDOR)/uPlot-LICENSE.txt \
		&& cd $(VENDOR) && { sed '/^[^#]/,$$d' versions.txt; for file in uPlot.iife.min.js uPlot.min.css; do \
			echo "$$file $(UPLOT) MIT $$(sha256sum $$file | cut -d' ' -f1)"; done; } > versions.new && mv versions.new versions.txt

lock: ## write requirements.lock anew, with today's versions
	@echo "==> lock: $(LOCK)"
	@rm -rf build/lock && $(PYTHON) -m venv build/lock
	@VMQ_PURE=1 build/lock/bin/pip install -qq --upgrade --disable-pip-version-check '.[dev]' mypy_extensions
	@{ sed '/^[^#]/,$$d' $(LOCK); build/lock/bin/pip freeze --all --exclude pip --exclude vmq; } > build/lock.txt
	@! grep -n -e '://' -e ' @ ' build/lock.txt || { echo "the lock must hold names and versions only"; exit 1; }
	@mv build/lock.txt $(LOCK) && rm -rf build/lock

clean: ## remove what was built and installed
	@echo "==> clean: .venv, build, extension modules, caches, node_modules"
	@rm -rf $(VENV) build dist vmq.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .benchmarks
	@rm -rf $(NODE_TESTS)/node_modules
	@find vmq cluster tests \( -name '*.so' -o -name '__pycache__' \) -prune -exec rm -rf {} +

# --- how it is done

$(VENV)/bin/python:
	@echo "==> setup: a virtual environment in $(VENV)"
	@[ -n "$(PYTHON)" ] || { echo "no Python found: vmq needs 3.11, 3.12 or 3.13"; exit 1; }
	@$(PYTHON) -c 'import sys; (3, 11) <= sys.version_info < (3, 14) or sys.exit("vmq needs Python 3.11, 3.12 or 3.13; PYTHON=... names one")'
	@$(PYTHON) -m venv $(VENV)

# The package itself comes in uncompiled here: compiling is the next stamp's affair, and is done again more often.
$(VENV)/.runtime: pyproject.toml $(LOCK) | $(VENV)/.paths
	@echo "==> setup: the libraries that vmq runs and is built with"
	@$(BIN)/python $(PIP_INSTALL) setuptools mypy mypy_extensions
	@VMQ_PURE=1 $(BIN)/python $(PIP_INSTALL) --no-build-isolation --editable '.[streams]'
	@touch $@

# Some look for packages in the folders of sys.path, and do not see what is editable elsewhere: Spark for pyspark_..., type
# checkers for the vmq_hooks of whoever writes a plugin.
$(VENV)/.paths: Makefile | $(VENV)/bin/python
	@printf '%s\n' "$(CURDIR)/plugins" "$(CURDIR)/hooks" \
		> "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/vmq-plugins.pth"
	@touch $@

# Spark's Python workers import PySpark from archives without bytecode, half a second each; where there are none, they import
# what pip has installed and compiled.
WITHOUT_ARCHIVES = $(BIN)/python -c 'import pathlib, pyspark; \
	[each.unlink() for each in pathlib.Path(pyspark.__file__).parent.glob("python/lib/*.zip")]'

$(VENV)/.spark: $(VENV)/.runtime
	@echo "==> setup: Spark"
	@VMQ_PURE=1 $(BIN)/python $(PIP_INSTALL) --no-build-isolation --editable '.[spark,streams]'
	@$(WITHOUT_ARCHIVES)
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@echo "==> setup: the libraries that tests and checks need"
	@VMQ_PURE=1 $(BIN)/python $(PIP_INSTALL) --no-build-isolation --editable '.[dev]'
	@$(WITHOUT_ARCHIVES)
	@touch $@

# The .so of a module that is compiled no more would hide its source: away with all of them first.
$(BUILT): $(VENV)/.runtime setup.py $(SOURCES)
	@echo "==> build: $(if $(VMQ_PURE),the core stays interpreted,compiling the core with mypyc)"
	@rm -f $(VENV)/.built-* && find vmq cluster -name '*.so' -delete
	@mkdir -p build && $(BIN)/python setup.py --quiet build_ext --inplace > build/compile.log 2>&1 \
		|| { cat build/compile.log; exit 1; }
	@touch $@

$(NODE_TESTS)/node_modules/.package-lock.json: $(wildcard $(NODE_TESTS)/package-lock.json)
	@echo "==> setup: MQTT.js for the client tests"
	@npm ci --prefix $(NODE_TESTS) --no-audit --no-fund --loglevel=error
	@touch $@

# pytest rewrites each file of tests before it is compiled, which in a fresh tree two processes do in half the time.
define compile_tests
	@[ -d tests/__pycache__ ] || { collect="$(BIN)/python -m pytest --collect-only -q"; echo "==> setup: the files of tests"; \
		$$collect tests/vmq > /dev/null 2>&1 & $$collect --ignore tests/vmq > /dev/null 2>&1; wait; } || true
endef

# What the whole suite needs of Debian, one after the other beside the compiler: apt-get does one thing at a time.
.PHONY: tools
tools:
	@for each in mosquitto haproxy chromium curl databases java; do $(MAKE) "$$each" || exit; done

# The clients, and the broker that figures are compared with. Debian starts the broker on installing it, on our port.
.PHONY: mosquitto
mosquitto:
	@if ! { command -v mosquitto && command -v mosquitto_pub && command -v mosquitto_sub; } > /dev/null; then \
		echo "==> setup: mosquitto and mosquitto-clients (apt-get)"; \
		$(SUDO) apt-get update -qq; \
		$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mosquitto mosquitto-clients > /dev/null; \
		if [ -d /run/systemd/system ]; then $(SUDO) systemctl disable --quiet --now mosquitto; fi; \
	fi

# What a broker stands behind in production, for the tests of the PROXY protocol.
.PHONY: haproxy
haproxy:
	@if ! { command -v haproxy && command -v openssl; } > /dev/null; then \
		echo "==> setup: haproxy and openssl (apt-get)"; \
		$(SUDO) apt-get update -qq; \
		$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends haproxy openssl > /dev/null; \
		if [ -d /run/systemd/system ]; then $(SUDO) systemctl disable --quiet --now haproxy; fi; \
	fi

# The browser that MQTT.js runs in. Its headless part alone is enough, where Debian has it apart.
.PHONY: chromium
chromium:
	@if ! { command -v chromium-headless-shell || command -v chromium || command -v google-chrome; } > /dev/null; then \
		echo "==> setup: chromium (apt-get)"; \
		$(SUDO) apt-get update -qq; \
		$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium-headless-shell > /dev/null \
			|| $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium > /dev/null; \
	fi

.PHONY: debootstrap
debootstrap:
	@if ! command -v debootstrap > /dev/null; then \
		echo "==> setup: debootstrap (apt-get)"; \
		$(SUDO) apt-get update -qq; \
		$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap > /dev/null; \
	fi

.PHONY: curl
curl:
	@if ! command -v curl > /dev/null; then \
		echo "==> setup: curl (apt-get)"; \
		$(SUDO) apt-get update -qq; \
		$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends curl > /dev/null; \
	fi

# What Spark runs on.
.PHONY: java
java:
	@if ! command -v java > /dev/null; then \
		echo "==> setup: java (apt-get)"; \
		$(SUDO) apt-get update -qq; \
		$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless > /dev/null; \
	fi

# What the example plugins of docs/examples ask. Debian starts them on installing; the tests start their own.
.PHONY: databases
databases:
	@if ! { command -v redis-server && ls /usr/lib/postgresql/*/bin/initdb; } > /dev/null 2>&1; then \
		echo "==> setup: redis-server and postgresql (apt-get)"; \
		$(SUDO) apt-get update -qq; \
		$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server postgresql > /dev/null; \
		if [ -d /run/systemd/system ]; then $(SUDO) systemctl disable --quiet --now redis-server postgresql; fi; \
	fi

# $(1) name: an empty folder with a copy of the sources.
define copy_of_sources
	@[ -n "$(PYTHON)" ] || { echo "no Python found: vmq needs 3.11, 3.12 or 3.13"; exit 1; }
	@rm -rf build/$(1) && mkdir -p build/$(1)/source
	@tar --create --exclude='*.so' --exclude=__pycache__ $(PACKAGE) | tar --extract --directory build/$(1)/source
endef

# $(1) name, $(2) VMQ_PURE: build an sdist from a copy of the sources and a wheel from the sdist, as `pip install`
# does: in an environment of nothing but what pyproject.toml asks for. Then install it into an environment of its own.
define suite_of_wheel
	@echo "==> test-$(1): building the wheel (VMQ_PURE=$(2))"
	$(call copy_of_sources,$(1))
	@$(PYTHON) -m venv build/$(1)/venv && build/$(1)/venv/bin/python $(PIP_INSTALL) build
	@VMQ_PURE=$(2) build/$(1)/venv/bin/python -m build --outdir build/$(1) build/$(1)/source > build/$(1)/build.log 2>&1 \
		|| { cat build/$(1)/build.log; exit 1; }
	@echo "==> test-$(1): installing it with what its tests need"
	@build/$(1)/venv/bin/python $(PIP_INSTALL) "$$(echo build/$(1)/vmq-*.whl)[test]"
endef

# $(1) name, $(2) VMQ_PURE, $(3) tests: run tests that are copied to a temporary folder, from where the repository cannot be
# imported. With them goes what pytest has compiled of them, if it has.
define tests_outside
	@echo "==> test-$(1): $(3)"
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT \
		&& tar --create --exclude=node_modules tests config pyproject.toml $(wildcard docs) | tar --extract --directory "$$folder" \
		&& python=$$PWD/build/$(1)/venv/bin/python && cd "$$folder" \
		&& "$$python" -c 'import sys, vmq; sys.exit(vmq.is_compiled() != (sys.argv[1] == "0"))' $(2) \
		&& "$$python" -m pytest --benchmark-disable --numprocesses $(JOBS) $(3) $(PYTEST_ARGS)
endef
