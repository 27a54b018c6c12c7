# make demo trains PPO on CartPole; make test runs the test suite; make help lists all targets.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
DEMO   := demo
CASES  ?=
RUNS   ?=

.PHONY: help demo test test-all lint format types bench bench-learning bench-replay bench-hindsight bench-spaces bench-memory bench-tuning bench-populations bench-spread bench-reliability bench-explorers bench-doctor bench-evaluations bench-functional-envs bench-c-export bench-offline check-compare pretrained docs site images notebook gallery clean
help:
	@echo 'make demo                  trains PPO on CartPole-v1, plots the run and records a video (in $(DEMO)/)'
	@echo 'make test                  runs the test suite'
	@echo 'make test-all              runs the slow tests as well'
	@echo 'make lint                  checks style and types (ruff, mypy), the layers of packages (import-linter), names and words'
	@echo 'make format                formats the code with ruff and applies its automatic fixes'
	@echo 'make bench                 measures the speed of xagents and other libraries; writes docs/benchmarks.md and the table of the README'
	@echo 'make bench-learning        trains all agents with tuned settings and several seeds; writes the same page (hours)'
	@echo 'make bench-replay          measures the replay buffer with a million transitions'
	@echo 'make bench-hindsight       measures effect and cost of hindsight replay; writes docs/hindsight.md (15 minutes)'
	@echo 'make bench-spaces         trains on masks, mixed actions, images with vectors and games; writes docs/spaces.md (3 hours)'
	@echo 'make bench-memory          trains agents with memory, also in comparison with sb3-contrib; writes docs/memory.md (1 hour)'
	@echo 'make bench-tuning          measures xagents tune: speed, kills, results of a search; writes docs/benchmarks.md (1 hour)'
	@echo 'make bench-populations     compares populations with independent runs, and kills them; writes docs/populations.md (30 minutes)'
	@echo 'make bench-spread          compares several agents on simple_spread with Stable-Baselines3 and SuperSuit; writes docs/teams.md (hours)'
	@echo 'make bench-reliability     measures resume, kills, checkpoints, memory, overlap; writes docs/benchmarks.md (hours)'
	@echo 'make bench-explorers       measures speed, cost and safety of explorers; writes docs/benchmarks.md (1 hour)'
	@echo 'make bench-doctor          trains with ten mistakes and without, and counts what xagents doctor finds; writes docs/doctor.md (1 hour)'
	@echo 'make bench-evaluations     measures the cost of evaluations that take as long as training (minutes)'
	@echo 'make bench-functional-envs compares environments as functions with Gymnasium and gymnax; writes docs/benchmarks.md (minutes)'
	@echo 'make bench-c-export        measures size and time of policies in C; writes docs/microcontroller.md (minutes)'
	@echo 'make bench-offline         compares learning from data sets with d3rlpy, which it installs; writes docs/benchmarks.md (hours)'
	@echo 'make check-compare         checks the statistics of xagents compare against rliable, which it installs (15 minutes)'
	@echo 'make pretrained RUNS=DIR   selects, from finished runs, the policies that ship with the package'
	@echo 'make docs                  updates the generated parts of docs/agents/ (options, commands, scores, links) and of the README (speed)'
	@echo 'make site                  builds the documentation as a site with search (site/index.html); a warning is an error'
	@echo 'make images                draws the pictures of the README, of docs/datasets.md and of docs/compare.md'
	@echo 'make notebook              runs docs/walkthrough.ipynb and stores its outputs, with nbclient, which it installs'
	@echo 'make gallery               draws new pictures and writes the page of the gallery; RUNS=DIR adds finished runs of policies that do not ship'
	@echo 'make clean                 removes the virtual environment, the site, builds and the results of the demo'
	@echo 'Variables:'
	@echo 'CASES                      arguments of pytest or of a benchmark: make test CASES=tests/envs'
	@echo 'PYTHON                     interpreter that creates the virtual environment (default: python3)'
	@echo 'VENV                       directory of the virtual environment (default: .venv)'

# One virtual environment, updated if the pins change: first what the demo needs, then the rest. The lists
# contain every dependency, so that pip resolves none.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps

$(VENV)/.demo: requirements-demo.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "xagents needs Python 3.11 or newer")'
	@echo 'Installing the requirements of the demo into $(VENV): a minute, the first time.'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --no-compile -r requirements-demo.txt
	$(PIP) -e .
	touch $@

$(VENV)/.installed: $(VENV)/.demo requirements.txt
	@echo 'Installing the other requirements into $(VENV): some minutes, the first time.'
	$(PIP) -r requirements.txt
	touch $@

demo: $(VENV)/.demo
	mkdir -p $(DEMO)
	$(BIN)/xagents train ppo --env CartPole-v1 --target-reward 250 --n-envs 16 --n-steps 1024 --seed 123 \
		--checkpoints $(DEMO)/ppo-cartpole.tf --history-checkpoint $(DEMO)/ppo-cartpole.parquet
	$(BIN)/xagents plot $(DEMO)/ppo-cartpole.parquet --labels PPO --title CartPole-v1 --out $(DEMO)/ppo-cartpole.png
	$(BIN)/xagents play ppo --env CartPole-v1 --weights $(DEMO)/ppo-cartpole.tf --video-dir $(DEMO)
	@echo; echo 'The trained agent is in:'; ls $(DEMO)/ppo-cartpole.tf.* | sed 's/^/  /'
	@echo 'its history:'; echo '  $(DEMO)/ppo-cartpole.parquet'
	@echo 'the learning curve:'; echo '  $(DEMO)/ppo-cartpole.png'
	@echo 'the video:'; ls -t $(DEMO)/*.mp4 | head -n 1 | sed 's/^/  /'

test: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 --dist loadfile $(CASES)

test-all: $(VENV)/.installed
	$(BIN)/python -m pytest -n 2 --dist loadfile -m 'slow or not slow' $(CASES)

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests/typed_calls.py
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/python tests/lint_names.py

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks.speed.run $(CASES)

bench-replay: $(VENV)/.installed
	$(BIN)/python -m benchmarks.speed.replay

bench-hindsight: $(VENV)/.installed
	$(BIN)/python -m benchmarks.learning.hindsight $(CASES)

bench-spaces: $(VENV)/.installed
	$(BIN)/python -m benchmarks.learning.spaces $(CASES)

# kept runs are not trained again, and stopped runs are resumed
bench-learning: $(VENV)/.installed
	$(BIN)/python -m benchmarks.learning.run $(CASES)

bench-memory: $(VENV)/.installed
	$(BIN)/python -m benchmarks.learning.memory $(CASES)

bench-populations: $(VENV)/.installed
	$(BIN)/python -m benchmarks.tuning.populations $(CASES)

# kept runs are not trained again
bench-spread: $(VENV)/.installed
	$(BIN)/python -m benchmarks.teams.run $(CASES)

bench-tuning: $(VENV)/.installed
	$(BIN)/python -m benchmarks.tuning.run $(CASES)

bench-reliability: $(VENV)/.installed
	$(BIN)/python -m benchmarks.reliability.run $(CASES)

bench-explorers: $(VENV)/.installed
	$(BIN)/python -m benchmarks.explorers.run $(CASES)

# kept runs are not trained again
bench-doctor: $(VENV)/.installed
	$(BIN)/python -m benchmarks.learning.doctor $(CASES)

bench-evaluations: $(VENV)/.installed
	$(BIN)/python -m benchmarks.speed.evaluations $(CASES)

# kept runs are not measured again
bench-functional-envs: $(VENV)/.installed
	$(BIN)/python -m benchmarks.speed.functional_envs $(CASES)

bench-c-export: $(VENV)/.installed
	$(BIN)/python -m benchmarks.speed.c_export $(CASES)

# kept runs are not trained again
bench-offline: $(VENV)/.installed
	$(BIN)/python -m benchmarks.offline.run $(CASES)

check-compare: $(VENV)/.installed
	$(BIN)/python -m benchmarks.learning.rliable_check $(CASES)

# better policies of the package stay
pretrained: $(VENV)/.installed
	$(BIN)/python -m benchmarks.learning.pretrained $(if $(RUNS),--runs $(RUNS)) $(CASES)

docs: $(VENV)/.installed
	$(BIN)/python docs/write_agents.py
	$(BIN)/python docs/write_keywords.py

site: $(VENV)/.installed
	$(BIN)/python docs/site/build.py

images: $(VENV)/.installed
	$(BIN)/python docs/make_images.py

notebook: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check nbclient ipykernel
	$(BIN)/python docs/run_notebook.py

gallery: $(VENV)/.installed
	$(BIN)/python docs/make_gallery.py $(if $(RUNS),--runs $(RUNS)) $(CASES)

clean:
	rm -rf $(VENV) $(DEMO) build dist site *.egg-info
