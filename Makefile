# make help   lists what there is
PYTHON ?= python3
INVENTORY ?= inventories/local
ARGS ?=

# Progress lines must not wait in a buffer when the output is a pipe, as it is in CI.
export PYTHONUNBUFFERED = 1

PLAY = .venv/bin/ansible-playbook -i '$(INVENTORY)'
CHECK = .venv-dev/bin/python tools/check.py

.DEFAULT_GOAL := help
.PHONY: help provision preflight deploy benchmark sweep explain report verify rollback destroy venv venv-dev test test-full lint docs docs-check sanity unit \
	integration real gpu cores molecule format changelog times gate-times startup-times harness-times target-times locks clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

provision: venv  ## driver, tuning, GPUs in containers and CUDA on every host (ARGS="-e provision_reboot=allowed")
	$(PLAY) provision.yml $(ARGS)

preflight: venv  ## check every host for this rollout and say what is in its way; changes nothing
	$(PLAY) preflight.yml $(ARGS)

deploy: venv  ## install, start, check and measure SGLang (INVENTORY=inventories/local, ARGS="-e sglang_version=...")
	$(PLAY) deploy.yml $(ARGS)

benchmark: venv  ## measure the running server again, or try one difference (ARGS="-e ab=autotune_gate")
	$(PLAY) benchmark.yml $(ARGS)

sweep: venv  ## try a grid of configurations and let the best one serve (ARGS='-e {"sglang_sweep_grid":...}')
	$(PLAY) sweep.yml $(ARGS)

explain: venv  ## say which of several differences makes how much (ARGS='-e {"sglang_explain_b":...}')
	$(PLAY) explain.yml $(ARGS)

report: venv  ## write what was measured on all hosts as a page (ARGS="-e sglang_report_dir=...")
	$(PLAY) report.yml $(ARGS)

verify: venv  ## prove from outside that the server that was asked for serves
	$(PLAY) verify.yml $(ARGS)

rollback: venv  ## go back to the release that served before (ARGS="-e release=N" for another one)
	$(PLAY) rollback.yml $(ARGS)

destroy: venv  ## stop the server and remove what rollouts made (models and caches only when asked)
	$(PLAY) destroy.yml $(ARGS)

# Both do nothing in a moment when the environment is complete and up to date.
venv:
	@$(PYTHON) tools/make_venv.py .venv requirements/deploy.txt

venv-dev:
	@$(PYTHON) tools/make_venv.py .venv-dev requirements/dev.txt

test: venv venv-dev  ## everything the tests need, then all tests, one summary
	$(CHECK)

test-full: export TOKFORGE_TEST_FULL = 1
test-full: venv venv-dev  ## the same and the parts that would take CI too long
	$(CHECK)

lint: venv-dev  ## ruff, mypy, yamllint, ansible-lint, changelog fragments
	$(CHECK) lint

docs-check: venv-dev  ## role READMEs are current, ansible-doc answers from the installed artifact
	$(CHECK) docs

sanity: venv-dev  ## ansible-test sanity on the installed artifact
	$(CHECK) sanity

unit: venv-dev  ## unit tests
	$(CHECK) unit

integration: venv-dev  ## integration tests without a real SGLang
	$(CHECK) integration

real: venv venv-dev  ## integration tests with a real SGLang
	$(CHECK) real

cores: export TOKFORGE_TEST_FULL = 1
cores: venv-dev  ## tests that run plays or modules, with every other ansible-core that is supported
	$(CHECK) cores

molecule: export TOKFORGE_TEST_FULL = 1
gpu: venv-dev  ## the whole rollout on a GPU of this machine (INVENTORY=inventories/h200), see docs/gpu-tests.md
	TOKFORGE_GPU_INVENTORY='$(if $(filter command%,$(origin INVENTORY)),$(INVENTORY),inventories/h200)' .venv-dev/bin/pytest tests/gpu $(ARGS)

molecule: venv-dev  ## molecule scenarios
	$(CHECK) molecule

docs: venv-dev  ## write the role READMEs and the compatibility table anew from what they tell of
	.venv-dev/bin/python tools/role_readme.py
	.venv-dev/bin/python tools/compat_table.py

format: venv-dev  ## let ruff format and fix
	.venv-dev/bin/ruff format .
	.venv-dev/bin/ruff check --fix .

changelog: venv-dev  ## turn the fragments into the changelog of the version in galaxy.yml
	.venv-dev/bin/antsibull-changelog release

times: venv-dev  ## measure deploys, the autotune gate and looks at a starting server, written to docs/benchmarks.md
	.venv-dev/bin/python benchmarks/deploy_times.py $(ARGS)
	.venv-dev/bin/python benchmarks/gate_times.py
	.venv-dev/bin/python benchmarks/startup_times.py

gate-times: venv-dev  ## measure the autotune gate only, its section of docs/benchmarks.md
	.venv-dev/bin/python benchmarks/gate_times.py $(ARGS)

startup-times: venv-dev  ## measure looks at a starting server only, their section of docs/benchmarks.md
	.venv-dev/bin/python benchmarks/startup_times.py $(ARGS)

harness-times: venv-dev  ## measure what benchmark.yml adds to its figures, on the deployed server; its section of docs/benchmarks.md
	.venv-dev/bin/python benchmarks/harness_times.py $(ARGS)

target-times: venv-dev  ## measure a deploy that changes nothing on 1, 8 and 64 targets, its section of docs/benchmarks.md
	.venv-dev/bin/python benchmarks/target_times.py $(ARGS)

locks: venv-dev  ## resolve every lock anew: SGLang releases (locks.toml) and the controller's requirements
	.venv-dev/bin/python tools/lock.py $(ARGS)
	.venv-dev/bin/python tools/lock_requirements.py

clean:  ## remove what these targets made here, but no deployment (make destroy does that)
	rm -rf .venv .venv-dev .build .ansible .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
