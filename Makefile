# `make` lists what there is. Everything that is made or fetched goes into ALLUVIUM_CACHE; remove it to start afresh.
ALLUVIUM_CACHE ?= $(HOME)/.cache/alluvium
CARGO_TARGET_DIR ?= $(ALLUVIUM_CACHE)/target
export ALLUVIUM_CACHE CARGO_TARGET_DIR
SHELL := /bin/bash
NAME ?= *
SECONDS_FUZZ ?= 60

.PHONY: help tools servers build demo test lint bench fuzz record-demo

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/make \1\t\2/' | column -t -s $$'\t'

tools: ## what the build needs: a C compiler (installed where it is missing); Rust must be there
	@tests/servers/install.sh build

servers: tools ## the servers that the tests need, into ALLUVIUM_CACHE (done once)
	@tests/servers/install.sh

build: tools ## the program
	cargo build --locked

demo: build ## replays recorded binlogs of a shop into ./demo-lake and asks it questions; no server needed
	@tests/data/demo.sh "$(CARGO_TARGET_DIR)/debug/alluvium"

test: servers ## installs the servers once, then runs every test
	cargo test --locked

lint: tools ## formatting and clippy, warnings are errors
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings

bench: tools ## all benchmarks, or one: make bench NAME=decode
	@set -e; for bench in benches/$(NAME).rs; do \
	  [ -e "$$bench" ] || { echo "no benchmark '$(NAME)'; there are: $$(cd benches && ls *.rs | sed 's/\.rs//' | tr '\n' ' ')"; exit 2; }; \
	  cargo bench --locked --bench "$$(basename "$$bench" .rs)"; done

fuzz: tools ## the decoder on made-up bytes for SECONDS_FUZZ seconds (60)
	cargo test --locked --bench fuzz -- $(SECONDS_FUZZ)

record-demo: ## records the demo's binlog files again, from real servers
	@tests/servers/install.sh mysql mariadb
	tests/data/record-demo.sh
