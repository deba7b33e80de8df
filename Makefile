# Locus in two commands: `make demo` and `make test`. Each installs what it needs on Debian and Ubuntu first (a Rust toolchain
# is assumed); elsewhere it says what is missing.

# Where rustup puts cargo, if the shell does not know it yet.
export PATH := $(PATH):$(HOME)/.cargo/bin
TARGET := $(or $(CARGO_TARGET_DIR),target)

.DEFAULT_GOAL := help
.PHONY: help build demo test soak

help:
	@echo "make demo    build Locus, start a server, load a million records, and print one table:"
	@echo "             Pilaf and Pilaf-VO beside memcached, Redis and LMDB on YCSB A, B and C (a few minutes)"
	@echo "make test    run every test, and the models of the lock-free parts"
	@echo "make soak    explore simulated worlds for MINUTES (60) per design, of all DESIGNS or those that you name"
	@echo "make build   build the release binary, $(TARGET)/release/locus"
	@echo
	@echo "Each installs what it needs with apt-get, where there is one. Other things to do: CONTRIBUTING.md."

build:
	@scripts/setup build
	cargo build --release -p locus-cli

demo:
	@scripts/setup demo
	cargo build --release -p locus-cli
	$(TARGET)/release/locus bench --design pilaf,pilaf-vo --fabric shm --workload a,b,c \
		--records 1000000 --value-bytes 64 --peers memcached,redis,lmdb --seconds 2

test:
	@scripts/setup test
	@scripts/test

# Another first seed every day, so that what was seen yesterday is not seen again.
MINUTES ?= 60
DESIGNS ?= pilaf pilaf-vo farm-kv farm-kv-var herd herd-ud perk-sd-sd perk-wr-sd perk-wrimm-sd perk-wr-wr perk-wr-rd
soak:
	@scripts/setup build
	cargo build --release -p locus-cli
	for design in $(DESIGNS); do \
		$(TARGET)/release/locus sim check --design $$design --seeds $$(date +%Y%m%d)000000.. --minutes $(MINUTES) || exit; \
	done
