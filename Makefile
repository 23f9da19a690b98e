# Two commands on a fresh machine: `make run` and `make test`. Each sets up all it needs.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
DOCS_READY := $(VENV)/.ready-docs
CLASSES := $(VENV)/.spark-classes.jsa

.PHONY: run simulate test test-fast test-long test-yarn test-kubernetes test-pysparks test-jars kafka-jars test-tools install-tools exactly-once event-time \
  nexmark-check attach-faults lint bench chaos soak masters-die agents-beside-spark experiments openapi docs docs-serve docs-diagrams screenshots dist lock audit clean

run: $(READY)  ## word count on Spark, about four minutes: starts too small, is sized, follows its load
	$(BIN)/elastream run examples/wordcount.py --fresh --duration '4 min' --interval '10 s' --set scale_down_delay='40 s'

simulate: $(READY)  ## the word count of the DS2 paper, simulated in seconds
	$(BIN)/elastream simulate examples/wordcount.yaml --policy ds2

test: $(READY) lint test-jars test-tools $(CLASSES)  ## everything that must hold before a change lands
	$(BIN)/pytest --numprocesses $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder

# one for each core: more of them finish sooner on an idle machine, as tests wait for other processes half of the time,
# and on a busy one Spark's processes time out. Each may need 4 GiB
TEST_WORKERS ?= $(shell $(PYTHON) -c 'import os; print(max(2, min(os.cpu_count() or 1, 8)))')

test-fast: $(READY)  ## for every day, in under three minutes: neither Spark, Kafka, a browser nor other processes, experiments, benchmarks
	$(BIN)/pytest --numprocesses logical --dist worksteal --ignore tests/spark -m 'not long and not slow'

# half a minute that the Javas of the tests save several times over; without it they are slower, and nothing else
$(CLASSES): $(READY)
	-$(BIN)/python tests/class_archive.py $@

test-long: $(READY)  ## what takes many minutes, or much memory
	$(BIN)/pytest -m long

test-yarn: $(READY) test-jars  ## a pipeline on YARN with HDFS as the default file system, and an attached job
	$(BIN)/python tests/spark/hdfs_story.py --yarn
	$(BIN)/python tests/spark/attach_yarn.py

test-kubernetes: $(READY)  ## a pipeline by Spark's backend for Kubernetes, on an API server that is not the real one
	$(BIN)/python tests/spark/kubernetes_story.py

PYSPARKS ?= 3.5 4.0 4.1

test-pysparks: $(READY)  ## attached jobs on older versions of PySpark, each in an environment of its own
	$(BIN)/python tests/spark/pyspark_versions.py $(VENV)/pysparks $(PYSPARKS)

# into ~/.cache; without them the tests on Kafka and on HDFS are skipped, or fail with CI=true
test-jars: $(READY) kafka-jars
	-$(BIN)/python tests/spark/hadoop.py fetch

kafka-jars: $(READY)
	-$(BIN)/elastream kafka fetch

# promtool checks /metrics and the rules, chromium the page. Debian names them so; elsewhere: put them on the PATH.
TOOLS := promtool chromium chromedriver
TOOL_PACKAGES := prometheus chromium chromium-driver
# nothing is installed on a machine unless someone asks for it: INSTALL_TOOLS=yes does, as does CI=true
INSTALL_TOOLS ?= $(if $(filter true,$(CI)),yes,no)
MISSING_TOOLS = $$(for tool in $(TOOLS); do command -v $$tool >/dev/null || echo $$tool; done)

test-tools:  ## what some tests need beside Python and Java; without it they are skipped, or fail with CI=true
	@if [ "$(INSTALL_TOOLS)" = yes ] && [ -n "$(MISSING_TOOLS)" ]; then $(MAKE) --no-print-directory install-tools; fi
	@missing="$$(echo $(MISSING_TOOLS))"; [ -z "$$missing" ] || \
	  echo "not there: $$missing; the tests that need them are skipped. To have them: make install-tools (Debian," \
	    "as root, installs $(TOOL_PACKAGES)), or put them on the PATH"

install-tools:  ## by Debian's packages, as root; make test INSTALL_TOOLS=yes does it where something is missing
	@if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	  echo "nothing is installed: apt-get and root were expected; needed are $(TOOLS)"; \
	else \
	  echo "installing the Debian packages $(TOOL_PACKAGES), for the tests of the page and of /metrics" \
	    "(INSTALL_TOOLS=no prevents it)"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	    apt-get install -y -qq --no-install-recommends $(TOOL_PACKAGES) >/dev/null || true; \
	fi

exactly-once: $(READY) kafka-jars  ## on Spark, with both kinds of channels: 20 rescales, 5 kills, crashes in all narrow windows
	$(BIN)/python tests/spark/exactly_once.py --channels files
	$(BIN)/python tests/spark/exactly_once.py --channels kafka

event-time: $(READY) kafka-jars  ## beside plain Spark: 300 random cases, lost bids in all forms; resumes
	$(BIN)/python tests/spark/event_time_bids.py
	$(BIN)/python tests/spark/event_time_cases.py --seeds 0-299

# no round begins after so many minutes; out/chaos has a line of each round, and the next start goes on from there
CHAOS_MINUTES ?= 60

chaos: $(READY) kafka-jars  ## on Spark, with files, Kafka, a cluster: random kills, hangs, full disks, rescales; resumes
	$(BIN)/python tests/spark/chaos.py --minutes $(CHAOS_MINUTES)

nexmark-check: $(READY)  ## twenty queries, a million events, 20 rescales, two kills each, beside pandas; resumes
	PYTHONPATH=. $(BIN)/python tests/spark/nexmark_check.py

attach-faults: $(READY)  ## 50 random faults of elastream in a job that it is attached to; about 15 minutes
	folder=$$(mktemp -d) && $(BIN)/python tests/spark/attach_faults.py $$folder $$(seq 0 49); status=$$?; rm -rf $$folder; exit $$status

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

openapi: $(READY)  ## writes docs/openapi.json, which a test compares with the API
	$(BIN)/python -c 'import json; from elastream.web.app import openapi_document; \
	  print(json.dumps(openapi_document(), indent=1))' > docs/openapi.json

# mkdocs is started as a module, so that it finds docs/hooks from here
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs

docs: $(DOCS_READY)  ## the documentation as a site in out/site; a broken link is an error
	$(MKDOCS) build --strict

docs-serve: $(DOCS_READY)  ## shows it on http://127.0.0.1:8000/ while you write
	$(MKDOCS) serve

docs-diagrams: $(READY)  ## writes the state diagrams of the code into the pages, which a test compares
	$(BIN)/python -m docs.hooks.diagrams

# from the recording that `make run` leaves; RECORDING names another
RECORDING ?= out/wordcount/recording.jsonl
SHOT_AFTER ?= 18

screenshots: $(READY) test-tools  ## pictures in docs/images: the terminal as SVG, the plot, the page and the report by Chromium
	@[ -f $(RECORDING) ] || $(MAKE) --no-print-directory run
	$(BIN)/python -m docs.hooks.screenshots $(RECORDING) docs/images --windows $(SHOT_AFTER)

experiments: $(READY)  ## every experiment, each beside the numbers of its paper
	$(BIN)/python -m experiments run --all

bench: $(READY)  ## speed, printed as ratios; the long ones by name: python -m benchmarks --help
	$(BIN)/python -m benchmarks

agents-beside-spark: $(READY)  ## rules with agents on a cluster and without them do the same; needs prometheus on the PATH
	$(BIN)/python tests/spark/agents_story.py

soak: $(READY)  ## two hours on Spark at a steady rate: memory, descriptors, threads, disk, time of a batch
	$(BIN)/python -m benchmarks soak-two-hours

masters-die: $(READY)  ## 200 agents of 16 operators, ten minutes without any master, five kills of the one that leads
	$(BIN)/python -m benchmarks monitoring-election

dist: $(READY)  ## the wheel, in dist/
	$(BIN)/python -m hatchling build --target wheel --directory dist

$(READY): pyproject.toml requirements/dev.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else \
	  f"elastream needs Python 3.11 or newer, and {sys.executable} is {v.major}.{v.minor}: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(LOCKED) --requirement requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# exactly what the tests passed with: every file is checked by its hash
LOCKED = $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes

# apart from what `make test` needs, so that it does not wait for it
$(DOCS_READY): $(READY) requirements/docs.txt
	$(LOCKED) --requirement requirements/docs.txt
	@touch $@

# UPGRADE=--upgrade takes the newest of everything; without it only what pyproject.toml asks for changes
TOOLBOX := $(VENV)/toolbox
COMPILE = $(TOOLBOX)/bin/uv pip compile pyproject.toml --universal --python-version 3.11 --quiet --no-header --no-annotate $(UPGRADE)

lock: $(TOOLBOX)  ## renews requirements/, which `make run` and `make test` install from, and the list of parts in the wheel
	$(COMPILE) --generate-hashes --extra dev --output-file requirements/dev.txt
	$(COMPILE) --generate-hashes --extra dev --extra docs --constraint requirements/dev.txt --output-file requirements/docs.txt
	$(COMPILE) --extra all --constraint requirements/dev.txt --output-file $(TOOLBOX)/all.txt
	$(TOOLBOX)/bin/python requirements/sbom.py $(TOOLBOX)/all.txt requirements/sbom.cdx.json

audit: $(TOOLBOX)  ## asks the index of packages for known vulnerabilities of what is locked
	$(TOOLBOX)/bin/pip-audit --strict --disable-pip --require-hashes --requirement requirements/dev.txt

$(TOOLBOX):
	$(PYTHON) -m venv $@
	$@/bin/python -m pip install --quiet --disable-pip-version-check uv cyclonedx-bom pip-audit

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist out
