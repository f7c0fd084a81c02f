# Two commands to begin with: `make demo` and `make test`. `make help` lists the others.
#
# Everything is installed into $(VENV). What has been installed is remembered by stamp files in it,
# so a repeated `make` installs nothing, and a changed pyproject.toml or constraints.txt does.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.NOTPARALLEL:
.SUFFIXES:
.DEFAULT_GOAL := help

# The interpreter that makes the environment; empty: the first of $(PYTHONS) that is new enough.
PYTHON ?=
PYTHONS := python3 python3.14 python3.13 python3.12 python3.11
VENV ?= .venv
RUNS ?= runs
SCENARIO ?= scenarios/quickstart.yaml
RUN ?=
# Of a study: how long its runs are, as a factor, and how many run in parallel (one per CPU).
SCALE ?= 1
JOBS ?=
# How much of its gradients is kept on disk meanwhile, as 40GB, for runs that train alike; with JOBS=1.
REUSE ?=
# Not empty: the numbers of its runs that have ended are kept beside it.
KEEP ?=
ifneq ($(KEEP),)
ifneq ($(SCALE),1)
$(error KEEP is for runs as long as their study has them, not for SCALE=$(SCALE))
endif
endif
# PyTorch's builds without CUDA; empty: always the index that pip uses for everything else.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

# Python may keep the bytecode of what it has compiled: each of the tests' processes would compile
# all of the package, and pytest all of the tests.
export PYTHONDONTWRITEBYTECODE :=

SCHEMA := scenarios/schema.json
python := $(VENV)/bin/python
# Modules are compiled when they are first imported, which most of these packages never are.
install := $(python) -m pip --disable-pip-version-check install --no-compile --constraint constraints.txt

.PHONY: help setup demo run report named-run images test slow test-netem privileged check format lint \
	types docs pictures contracts protos protos-check schema schema-check papers papers-check notebook bench bench-flower gpu-check clean soak \
	privileged-shared privileged-alone nightly \
	test-netem-shared test-netem-alone test-netem-nightly

help: ## list these commands
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) |
		while IFS=$$'\t' read -r name text; do printf '  make %-13s %s\n' "$$name" "$$text"; done
	printf '  make %-13s %s\n' $(foreach study,$(STUDIES),$(study) "run and report the study in scenarios/$(call folder-of,$(study))/")
	echo "  make STUDY-NAME    of a study: only its file, figure, table or level of that name"

setup: $(VENV)/.installed-dev ## make the environment with everything development needs

demo: $(VENV)/.installed ## install, then train the quickstart scenario with 12 emulated devices
	@$(python) -c 'import torch; print("torch", torch.__version__)'
	$(python) -m testbed up scenarios/quickstart.yaml --runs $(RUNS)

run: $(VENV)/.installed ## run a scenario: make run SCENARIO=scenarios/quickstart.yaml
	@$(python) -m testbed up $(SCENARIO) --runs $(RUNS)

report: named-run $(VENV)/.installed ## print and draw what came out of a run: make report RUN=name
	@$(python) -m testbed report $(RUN) --runs $(RUNS)

named-run:
	@if [ -z "$(RUN)" ]; then
		echo "Which run? \`$(VENV)/bin/testbed ps --all\` lists them: make report RUN=name" >&2
		exit 1
	fi

images: $(VENV)/.installed ## build the Docker image of agent and nodes, online or offline
	@$(python) -m testbed image build

# For an engine under another kernel, which has none to get it from.
image-file: setup ## save the Docker image, if there is one, in .venv/image.tar
	@rm -f $(VENV)/image.tar
	if image=$$($(python) -m testbed image check 2> /dev/null); then docker save --output $(VENV)/image.tar $$image; fi

# What a test may need that not every machine has.
OF_THE_MACHINE := root or namespaces or netem or docker or kafka or browser

# How many processes share the tests that measure nothing: one a CPU, up to 8.
TEST_PROCESSES ?= auto
shared := --numprocesses $(TEST_PROCESSES) --maxprocesses 8 --dist worksteal
# Tests of a file may share a run or an engine.
shared_runs := --numprocesses $(TEST_PROCESSES) --maxprocesses 8 --dist loadfile

# The files with tests of one kind: a process that collects all files takes 15 seconds first.
marked = $(shell grep -rl --include='test_*.py' 'mark\.$(1)\b' tests)

test: setup ## the tests that need neither root nor much time
	@$(python) -m pytest --quick $(shared) --durations=20

slow: setup ## the tests that need nothing but more time
	@$(python) -m pytest -m "slow and not nightly and not ($(OF_THE_MACHINE))" $(shared) --durations=20 \
		$(call marked,slow)

# Its two halves: tests that may share the processors, and tests that may not.
privileged: privileged-shared privileged-alone ## the tests that need root, or a tool of the machine

privileged-shared: setup
	@$(python) -m pytest -m "($(OF_THE_MACHINE)) and not (alone or netem or nightly)" $(shared_runs) --durations=20

privileged-alone: setup
	@$(python) -m pytest -m "($(OF_THE_MACHINE)) and alone and not (netem or nightly)" --durations=20 \
		$(call marked,alone)

nightly: soak test-netem-nightly ## full sizes and many rounds, which .ci/run leaves out: an hour or two, as root
	@$(python) -m pytest -m "nightly and not netem" -k "not random_moments" --durations=20 \
		-o faulthandler_timeout=2400

# Each as root, as a user with subordinate uids and as one without; as a user: as that user.
SOAK_ROUNDS ?= 200

soak: setup ## kill the controller at many random moments: make soak SOAK_ROUNDS=200
	@SOAK_ROUNDS=$(SOAK_ROUNDS) $(python) -m pytest -s -k random_moments tests/runtimes

# Where the kernel has no netem, $(NETEM_RUN) is a command to run the tests under one that has.
NETEM_RUN ?=
has_netem := import sys; from testbed.network.netem import kernel_has_netem; sys.exit(not kernel_has_netem())

# In two halves, as the privileged ones.
test-netem: test-netem-shared test-netem-alone ## the tests of delays, jitter and losses: need root, and netem or NETEM_RUN

test-netem-shared: NETEM_TESTS := netem and not (alone or nightly)
test-netem-alone: NETEM_TESTS := netem and alone and not nightly
test-netem-nightly: NETEM_TESTS := netem and nightly
test-netem-nightly: NETEM_OPTIONS := -o faulthandler_timeout=2400
test-netem-nightly: image-file

test-netem-shared test-netem-alone test-netem-nightly: setup
	@if $(python) -c '$(has_netem)' 2> /dev/null; then
		$(python) -m pytest -m "$(NETEM_TESTS)" $(NETEM_OPTIONS) --durations=20 $(call marked,netem)
	elif [ -n "$(NETEM_RUN)" ]; then
		$(NETEM_RUN) $(abspath $(python)) -m pytest -m "$(NETEM_TESTS)" $(NETEM_OPTIONS) --durations=20 $(call marked,netem)
	else
		echo "skipped: this kernel has no netem, or this is not root, and NETEM_RUN names no command"
		echo "that runs another under a kernel with netem (CONFIG_NET_SCH_NETEM)."
	fi

check: lint types contracts protos-check schema-check papers-check dashboard-check test ## what a change has to pass

format: setup ## format the code
	@$(python) -m ruff format
	$(python) -m ruff check --fix

# Texts that are checked for words that .ci/words.txt replaces.
worded := testbed tests docs protos scenarios compose docker Makefile README.md CONTRIBUTING.md

lint: setup ## style, likely mistakes and words
	@$(python) -m ruff check
	$(python) -m ruff format --check
	git ls-files $(worded) | grep -vE '^tests/scenario/bad/|\.(png|svg|csv|parquet|ipynb|jsonl?|bin)$$' | xargs $(VENV)/bin/codespell

types: setup ## strict static types
	@$(python) -m mypy
	$(python) -m mypy tests/bench/*.py
	MYPYPATH=compose/grafana $(python) -m mypy compose/grafana/generate.py
	MYPYPATH=docs/site $(python) -m mypy docs/site/pages.py docs/site/pictures.py docs/site/conf.py

pictures: $(VENV)/.installed-dev ## make docs/pictures, for light and dark pages: needs chromium, npm and prometheus
	@$(python) docs/site/pictures.py

docs: setup ## write the documentation as a site to site/
	@rm -rf build/pages site
	$(python) docs/site/pages.py build/pages
	$(python) -m sphinx --fail-on-warning --keep-going --quiet -c docs/site build/pages site
	echo "site/index.html"

contracts: setup ## which part may import which
	@$(VENV)/bin/lint-imports --no-cache

protos: setup ## generate the gRPC messages from protos/
	@$(python) protos/generate.py

protos-check: setup
	@$(python) protos/generate.py --check

schema: $(VENV)/.installed ## write the JSON schema of scenarios and studies
	@$(python) -m testbed schema > $(SCHEMA).new
	mv $(SCHEMA).new $(SCHEMA)

schema-check: $(VENV)/.installed
	@if ! diff $(SCHEMA) <($(python) -m testbed schema); then
		echo "$(SCHEMA) is not that of the code. Try: make schema" >&2
		exit 1
	fi

papers: $(VENV)/.installed ## write docs/papers.md from the results that are kept
	@$(python) scenarios/papers.py

papers-check: $(VENV)/.installed
	@$(python) scenarios/papers.py --check

# BENCH_RUNTIMES="native docker" measures both side by side; each program runs alone as well.
BENCH_RUNTIMES ?= native

bench: setup ## how fast runs, gradients and parts are on this machine: half an hour at most
	@$(python) tests/bench/workers.py --algorithm adacomp asgd --links unshaped shaped \
		--workers 10 50 200 --runtime $(BENCH_RUNTIMES) --compute own shared
	for bench in "cost --reference" selection encoded_pushes bench_gradient coding simulation reuse memory \
		thousand_nodes launches metrics "streams --runtime $(BENCH_RUNTIMES)"; do
		echo "---- $$bench"
		$(python) tests/bench/$${bench/ /.py }$$([[ $$bench == *" "* ]] || echo .py)
	done

gpu-check: setup ## compare a GPU with a CPU, natively, as root; where there is no GPU: Error 3
	@$(python) tests/bench/gpu_check.py

bench-flower: setup ## the same training in Flower's simulation engine, installed into the cache
	@$(python) tests/bench/flower.py

# ---- studies -----------------------------------------------------------------------------------

# `make NAME` runs and reports all studies in scenarios/NAME/; `make NAME-FIG` only FIG.yaml there or,
# where there is no such file, the figure, table or level FIG of study.yaml. What has ended is not run
# again: docs/studies.md.
STUDY_FILES := $(shell grep -ls '^scenario:' scenarios/*/*.yaml)
study-folders := $(patsubst scenarios/%/,%,$(dir $(STUDY_FILES)))
STUDIES := $(sort $(subst _,-,$(study-folders)))
# scenarios/slim_dp is `make slim-dp`.
folder-of = $(firstword $(filter $(1) $(subst -,_,$(1)),$(study-folders)))

.PHONY: $(STUDIES)
$(STUDIES): $(VENV)/.installed
	@for study in $(filter scenarios/$(call folder-of,$@)/%,$(STUDY_FILES)); do
		$(call run-study,$$study,)
	done
	$(python) -m testbed report $(filter scenarios/$(call folder-of,$@)/%,$(STUDY_FILES)) --verdicts --runs $(RUNS) --scale $(SCALE)
	exit $${failed:-0}

define part-of-study
$(1)-%: $(VENV)/.installed
	@if [ -e scenarios/$(2)/$$*.yaml ]; then
		$$(call run-study,scenarios/$(2)/$$*.yaml,)
	else
		$$(call run-study,scenarios/$(2)/study.yaml,--only $$*)
	fi
	exit $$$${failed:-0}
endef
$(foreach study,$(STUDIES),$(eval $(call part-of-study,$(study),$(call folder-of,$(study)))))

# What is arithmetic alone has no runs.
scadles: scadles-fig3 scadles-fig4b scadles-table3
scadles-fig3 scadles-fig4b scadles-table3: $(VENV)/.installed
	@$(python) scenarios/scadles/arithmetic.py $(@:scadles-%=%)

# Live, with a broker. Runs that do not hold their rates are what it is about, and a study leaves such out.
scadles-fig5: $(VENV)/.installed
	@$(python) scenarios/scadles/fig5.py --runs $(RUNS)

# An invalid run (6) is kept, and no reason to report nothing. A study that cannot be run here, as one
# that is live where there is no Docker, does not keep the next from being run.
define run-study
status=0
$(python) -m testbed sweep $(1) $(2) --runs $(RUNS) --scale $(SCALE) $(if $(JOBS),--jobs $(JOBS)) $(if $(REUSE),--reuse $(REUSE)) || status=$$?
[ $$status != 130 ] || exit 130
[ $$status = 0 ] || [ $$status = 6 ] || failed=$$status
$(python) -m testbed report $(1) $(2) --runs $(RUNS) --scale $(SCALE)
$(if $(KEEP),$(python) -m testbed report $(1) --keep --runs $(RUNS) --scale $(SCALE))
endef

notebook: setup ## execute the notebook in docs again, and keep what comes of it
	@folder=$$(mktemp -d)
	cp docs/first-steps.ipynb $$folder
	XDG_STATE_HOME=$$folder $(VENV)/bin/jupyter-execute --inplace $$folder/first-steps.ipynb
	cp $$folder/first-steps.ipynb docs
	rm -r $$folder

clean: ## remove the environment and all caches, never a run
	@if [ -e $(VENV)/pyvenv.cfg ]; then rm -rf $(VENV); fi
	rm -rf build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find testbed tests protos -name __pycache__ -prune -exec rm -rf {} +

# ---- metrics -----------------------------------------------------------------------------------

.PHONY: dashboards dashboards-down blocks dashboard-files dashboard-check

dashboards: ## Prometheus and Grafana, which show the active runs
	@compose/dashboards up

dashboards-down: ## end them; what they have recorded stays
	@compose/dashboards down

# When they are shown: when they were, or another moment for their end, such as 2026-10-01T12:00.
AT ?= run

blocks: named-run $(VENV)/.installed ## add runs that are over to that Prometheus: make blocks RUN="a b"
	@$(python) -m testbed dashboards add $(RUN) --runs $(RUNS) --at $(AT)

dashboard-files: setup ## write compose/grafana/dashboards
	@$(python) compose/grafana/generate.py

dashboard-check: setup
	@$(python) compose/grafana/generate.py --check

# ---- the environment -------------------------------------------------------------------------

# An environment that lost its interpreter or was only half made is made again.
$(VENV)/.made:
	@if ! $(python) -m pip --version > /dev/null 2>&1; then
		chosen=
		for candidate in $(or $(PYTHON),$(PYTHONS)); do
			if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' > /dev/null 2>&1; then
				chosen=$$candidate
				break
			fi
		done
		if [ -z "$$chosen" ]; then
			echo "Python 3.11 or newer is needed; tried: $(or $(PYTHON),$(PYTHONS))." >&2
			echo "Debian 12, Ubuntu 24.04 and newer: sudo apt install python3 python3-venv" >&2
			echo "Ubuntu 22.04: sudo apt install python3.11 python3.11-venv" >&2
			exit 1
		fi
		if ! $$chosen -c 'import ensurepip, venv' > /dev/null 2>&1; then
			package=python3-venv
			if [ "$$chosen" != python3 ]; then
				package=$$($$chosen -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
			fi
			echo "$$chosen cannot make virtual environments. Try: sudo apt install $$package" >&2
			exit 1
		fi
		echo "making $(VENV) with $$($$chosen --version)"
		clear=
		if [ -e $(VENV)/pyvenv.cfg ]; then clear=--clear; fi
		$$chosen -m venv $$clear $(VENV)
	fi
	touch $@

# The builds with CUDA are gigabytes that a machine without an NVIDIA driver has no use for. Where an
# index has both, pip takes the one without: 2.13.0+cpu is the higher version.
would_install = $(install) --quiet --dry-run --ignore-installed --report $(VENV)/torch.json
has_cuda := import json, sys; plan = json.load(open(sys.argv[1]))["install"]; \
	sys.exit(not any(one["metadata"]["name"].startswith("nvidia") for one in plan))

$(VENV)/.torch: constraints.txt $(VENV)/.made
	@index=
	if [ -e /proc/driver/nvidia/version ] || timeout 5 nvidia-smi -L > /dev/null 2>&1; then
		echo "torch: from the ordinary index (there is an NVIDIA driver)"
	elif [ -n "$(TORCH_INDEX)" ] && timeout 3 $(python) -c \
		'import sys, urllib.request as request; request.urlopen(sys.argv[1], timeout=3)' \
		$(TORCH_INDEX)/torch/ > /dev/null 2>&1; then
		echo "torch: from $(TORCH_INDEX) (there is no NVIDIA driver)"
		index="--extra-index-url $(TORCH_INDEX)"
	else
		echo "torch: from the ordinary index ($(TORCH_INDEX) did not answer)"
		$(would_install) torch
		if $(python) -c '$(has_cuda)' $(VENV)/torch.json; then
			echo "This downloads gigabytes of CUDA, for which this machine has no driver. To" >&2
			echo "avoid it, interrupt, and name a mirror of PyTorch's index of builds without" >&2
			echo "CUDA: make TORCH_INDEX=https://..." >&2
		fi
	fi
	$(install) $$index torch
	touch $@

$(VENV)/.installed: pyproject.toml constraints.txt $(VENV)/.torch
	@$(install) --editable .
	touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt $(VENV)/.torch
	@$(install) --editable '.[dev]'
	touch $(VENV)/.installed $@
