# Shortcuts for .ci/run and go. Variables can be set on the command line:
# make fuzz FUZZTIME=1m.

FUZZTIME ?= 50000x
PROBLEMS ?= 1000000
SEED ?= 0
SCHEDULES ?= 100000

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## run the tests of all modules: a minute and a half, once compiled
	go test -p 9 work

race: ## the same under the race detector: minutes
	go test -race work

lint: ## check the format, the linters' rules, the tests' sleeps, and the messages of new commits
	.ci/run commits format lint

fuzz: ## run every fuzz target FUZZTIME each (50,000 times): minutes
	FUZZTIME=$(FUZZTIME) .ci/run fuzz

prove: ## plan PROBLEMS random problems (1000000) against the reference, from number SEED on (SEED=0: random): minutes
	PROBLEMS=$(PROBLEMS) SEED=$(SEED) PROVETIME=0 .ci/run prove

bench: ## measure this library beside others, and write BENCHMARKS.md: two hours
	go run -tags peers ./examples/bench -write

simulate: ## run SCHEDULES seeds of the simulator (100000) from number SEED on (SEED=0: random): minutes
	go test ./simulator -run 'TestSimulate$$' -count=1 -timeout=0 -v -simulator.schedules=$(SCHEDULES) -simulator.seed=$(SEED)

defects: ## build the library with each deliberate defect, and check that it is found: minutes
	DEFECTS=. .ci/run defects

model: ## search the model of replicas, the large configurations too: minutes
	go test ./simulator/model -count=1 -timeout=0 -model.all -model.large

release: ## print what a release of VERSION would do; DO=-do does it, without a push
	GOWORK=off go run -C tools ./release -root "$(CURDIR)" -version "$(VERSION)" $(DO)

cover: ## print what the tests cover, function by function
	go test -coverpkg=work -coverprofile=cover.out work
	go tool cover -func=cover.out

verify: ## everything that CI runs: many minutes
	.ci/run

.PHONY: help test race lint fuzz prove bench simulate defects model release cover verify
