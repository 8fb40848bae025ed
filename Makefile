# make demo    a straggler, from the training step to the alert, on this machine
# make test    everything that decides whether a change may land
# make check   the quick loop, under two minutes: no GPU, no servers
# make test-torch  the tests of the PyTorch hook on the oldest and the newest torch (several GB)
# make test-adapters  the adapters with the real Lightning, transformers and Accelerate, in build/adapters (1.2 GB)
# make bench   the budgets of the hook and the sidecar, side by side with the alternatives
# make dashboards          writes dashboards/*.json from dashboards/src
# make dashboards-test     the dashboards' own tests: source, schema, lint, every query against a real Prometheus
# make dashboards-preview  draws them with Grafana's libraries in Chromium; needs node; pictures in build/pictures
# make verdicts  how often the verdicts are right: docs/verdicts.md, about ten minutes
# make causes  how often the cause of a slow rank is named rightly: docs/causes.md, about ten minutes
# make bench-rules  what the rules cost in Prometheus and VictoriaMetrics with up to 16,384 ranks: docs/scale.md, twelve minutes
# make deploy-test  the deploy files before Helm, Kubernetes' schemas, systemd, hadolint, shellcheck (downloads 470 MB)
# make faults  what training and the page do under each fault, as a table; five minutes
# make soak    an hour of training in five minutes: memory, descriptors and series of the sidecar
# make fuzz    hostile inputs guided by coverage (installs Atheris in build/fuzz)
# make golden  rewrites expected pages and generated documents; read the diff
.PHONY: demo test test-torch check bench deploy-test golden env servers lint types imports quick clean
.DEFAULT_GOAL := help
VENV := .venv/bin

help:
	@sed -n 's/^# //p' Makefile

env:
	@.ci/bootstrap
servers:
	@.ci/bootstrap --servers

demo:
	@.ci/bootstrap --servers --without-torch
	@$(VENV)/straggler demo $(DEMO_FLAGS)

lint: env
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
types: env
	$(VENV)/mypy
imports: env
	$(VENV)/lint-imports
quick: env
	$(VENV)/pytest -q -m "not servers and not slow"
check: lint types imports quick

test: servers lint types imports
	$(VENV)/pytest -q

test-torch:
	@.ci/test-torch

.PHONY: test-adapters
test-adapters: build/adapters/.installed
	build/adapters/bin/python -m pytest -q tests/adapters
build/adapters/.installed: pyproject.toml constraints.txt
	$${PYTHON:-python3} -m venv build/adapters
	build/adapters/bin/python -m pip install -q -c constraints.txt -e '.[adapter-tests]'
	@touch $@

bench: env
	$(VENV)/python tests/bench/hook.py
	$(VENV)/python tests/bench/sidecar.py
	$(VENV)/python -c 'import torch' 2>/dev/null && $(VENV)/python tests/bench/torch.py || echo 'no torch here: its bench is skipped'

.PHONY: verdicts causes bench-rules
verdicts: servers
	PYTHONPATH=tests $(VENV)/python -m scenarios.suite
causes: servers
	PYTHONPATH=tests $(VENV)/python -m scenarios.attribution.table
bench-rules: servers
	$(VENV)/python tests/bench/rules.py --write

.PHONY: dashboards dashboards-test dashboards-preview
dashboards: env
	$(VENV)/python -m dashboards.src.build
dashboards-test:
	@.ci/bootstrap --servers --without-torch
	$(VENV)/pytest -q tests/dashboards tests/guards/test_dashboards_contract.py tests/guards/test_dashboards_preview.py
dashboards-preview:
	@.ci/bootstrap --servers --without-torch
	PYTHONPATH=tests $(VENV)/python dashboards/preview/preview.py $(PREVIEW_FLAGS)

deploy-test: servers
	@tests/deploy/tools/install
	$(VENV)/pytest -q tests/deploy

golden: env
	$(VENV)/pytest -q -m "not servers" --golden

clean:
	rm -rf .venv build dist

.PHONY: faults soak fuzz
faults: env
	$(VENV)/python tests/faults/table.py
soak: env
	$(VENV)/python tests/faults/soak.py $(SOAK_FLAGS)
FUZZ_SECONDS ?= 60
fuzz: build/fuzz/bin/python
	for target in rings pushes pages logs; do build/fuzz/bin/python tests/faults/guided.py $$target $(FUZZ_SECONDS) || exit 1; done
build/fuzz/bin/python:
	python3 -m venv build/fuzz
	build/fuzz/bin/pip install -q -c constraints.txt atheris -e '.[sidecar]'
