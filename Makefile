# unifiedd: "make help" lists the targets.

SHELL    := /bin/bash
PREFIX   ?= /usr/local
FUZZTIME ?= 60s
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null | sed 's/^v//')
ARCH     ?= amd64,arm64
FORM     ?= usual
SETUP    := @scripts/setup.sh
# With cgo, programs include RDMA if its headers are installed.
TAGGED   := GOFLAGS="$$GOFLAGS -trimpath -tags=$$(scripts/tags.sh)"
SUDO     := $(if $(filter 0,$(shell id -u)),,sudo)
# A command for a guest keeps its dollar signs, so the scripts read such settings from the environment.
override CMD  := $(value CMD)
override CMD2 := $(value CMD2)
export CMD CMD2 NODES RUN SHORT SEED SPAN KERNEL N SPEED FORM CASES

.DEFAULT_GOAL := build
.PHONY: build demo check test test-long lab bench fuzz generate release packages image library install clean help

build: ## build the programs into bin/
	$(SETUP)
	@mkdir -p bin
	$(TAGGED) go build -ldflags "-X main.version=$(VERSION)" -o bin/ ./cmd/... ./selftests/unified-...

demo: ## capture real traffic to disk, run all flows at once, kill a group's leader, and check every byte (root)
	$(SETUP) demo
	@$(MAKE) -s build
	@$(SUDO) bin/unifiedd demo

check: ## run the checks of the tree and the tests that need neither root nor devices
	$(SETUP) demo test
	@scripts/test.sh check

test: ## run the tests and checks that every change must pass, with a summary (root)
	$(SETUP) demo test
	@scripts/test.sh test

test-long: ## run a long suite: SUITE=NAME, with SEED, SPAN, KERNEL or N (root); without SUITE list them
	$(SETUP) demo test
	@scripts/long.sh $(SUITE)

lab: ## run the tests for the lab guest (KERNEL=6.1|6.12|7, RUN=EXPRESSION, SHORT=1), or CMD='...' there, with CMD2='...' in a second
	$(SETUP) demo test
	@go build -o build/ ./internal/testsum
	@set -o pipefail; scripts/lab.sh "$(KERNEL)" | $(if $(CMD),cat,build/testsum)

bench: ## compare with other programs, on a quiet machine; tables and JSON in build/bench (root; some: RUN=Captures CASES='1024.*steno'; long: FORM=long; in the guest: KERNEL=7)
	$(SETUP) demo test
	@scripts/bench.sh

fuzz: ## run each fuzz target for FUZZTIME (60s)
	$(SETUP)
	@scripts/fuzz.sh $(FUZZTIME)

generate: ## make the generated files again (eBPF objects, rules of alerts, pages of docs/reference, manifest for Kubernetes)
	$(SETUP) demo test
	go generate ./...
	go test ./cmd/unifiedd/internal/reference ./cmd/unifiedd -run '^(TestPages|TestCommandLinePage)$$' -update
	go -C packaging test -count=1 ./kubernetes -args -write

release: ## say when each long suite last passed, refuse if one must run again, and make packages, images, a bill of materials and checksums in build/release
	@scripts/long.sh --release
	$(SETUP) packages
	@rm -rf build/release
	@go -C packaging run ./packages -release -root .. -out $(CURDIR)/build/release -arch $(ARCH) -version "$(VERSION)"

packages: ## deb and rpm packages for ARCH (amd64,arm64) in build/packages, the same bytes each time
	$(SETUP) packages
	@go -C packaging run ./packages -root .. -out $(CURDIR)/build/packages -arch $(ARCH) -version "$(VERSION)"

image: ## container images for ARCH (amd64,arm64) in an OCI layout, build/image: one static program, and one with RDMA and its libraries
	$(SETUP) packages
	@go -C packaging run ./packages -root .. -out $(CURDIR)/build/image -format image,image-verbs -arch $(ARCH) -version "$(VERSION)"

library: ## build the C library of programs that attach, under build/libunifiedd
	@$(MAKE) -s -C libunifiedd all

install: ## install what is built under DESTDIR and PREFIX (/usr/local): the programs, and the C library if it is built
	@DESTDIR=$(DESTDIR) PREFIX=$(PREFIX) packaging/install.sh
	@[[ ! -d build/libunifiedd ]] || $(MAKE) -s -C libunifiedd install

clean: ## remove bin/ and build/
	rm -rf bin build

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' Makefile
