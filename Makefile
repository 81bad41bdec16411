# unifiedd: "make help" lists the targets.

SHELL    := /bin/bash
PREFIX   ?= /usr/local
FUZZTIME ?= 60s
KILLS    ?= 50
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null | sed 's/^v//')
STAMP    := main.version
# With cgo, programs include RDMA if its headers are installed.
TAGGED   := GOFLAGS="$$GOFLAGS -tags=$$(packaging/tags.sh)"
SUDO     := $(if $(filter 0,$(shell id -u)),,sudo)

.DEFAULT_GOAL := build
.PHONY: build demo test test-quick test-kill test-nvme test-nvme-guests test-nvme-kills test-huge-pages test-faults test-soak test-fidelity test-overload test-powercut test-damage test-group test-group-guests test-fail-overs test-group-histories test-catch-up test-attach test-alarms test-cluster bench-cluster bench-page test-tune test-state library install-library test-library trading tick-peer test-reload test-transfer test-orders test-swap test-wrong-use test-packages packages image setup-packages test-page setup-page test-index test-rdma test-roce test-roce-faults test-roce-guest lab lab-all lab-bench lab-update bench microbench fuzz lint generate install clean help go setup-demo setup-test

build: go ## build the programs into bin/
	@mkdir -p bin
	$(TAGGED) go build -trimpath -ldflags "-X $(STAMP)=$(VERSION)" -o bin/ ./cmd/... ./selftests/unified-...

demo: setup-demo build ## capture real traffic to disk, run all flows at once, kill a group's leader, and check every byte (root)
	@$(SUDO) bin/unifiedd demo

test: setup-test ## run every test and check, with a summary (root)
	@packaging/test.sh

test-quick: setup-test ## run what fits three minutes: no lab guest, race detector, arm64 nor long forms (root)
	@packaging/test.sh quick

test-wrong-use: setup-test ## use every command wrongly, and write what each says to build/wrong-use.md (root)
	@mkdir -p build && printf '| command | wrong | first line | status |\n| --- | --- | --- | --- |\n' > build/wrong-use.md
	$(TAGGED) WRONG_USE_TABLE=$(CURDIR)/build/wrong-use.md go test -count=1 -run '^TestWrongUse$$' ./cmd/unifiedd ./selftests/wronguse

# Long forms of the tests: one target each, named test-WHAT.

test-kill: setup-test ## kill the daemon under traffic, of a capture and of a log, KILLS (50) times each, and check what it leaves (root)
	$(TAGGED) UNIFIEDD_REQUIRE=1 UNIFIEDD_KILLS=$(KILLS) go test -count=1 -v -timeout 60m -run '^TestKill(Passive|Log)?$$' ./selftests/crash

test-nvme: setup-test ## kill the NVMe over Fabrics target under writes, and take its host away, KILLS (50) times each (root)
	$(TAGGED) UNIFIEDD_REQUIRE=1 UNIFIEDD_KILLS=$(KILLS) go test -count=1 -v -timeout 60m -run '^Test(Kill|Vanish)$$' ./flows/nvmet

test-nvme-guests: setup-test ## the kernel's initiator in one lab guest, and the target in another (KERNEL=6.1|6.12|7)
	@packaging/test-nvme-guests.sh "$(KERNEL)"

test-nvme-kills: setup-test ## kill the daemon under the kernel's initiator in a lab guest, and cut the wire between them, KILLS (50) times each (KERNEL=6.1|6.12|7)
	@packaging/test-nvme-kills.sh "$(KERNEL)" "$(KILLS)"

test-huge-pages: setup-test ## run the tests that use huge pages beside a program that takes them and gives them back (root)
	@UNIFIEDD_REQUIRE=1 packaging/test-huge-pages.sh

test-faults: setup-test ## have one flow after the other meet a fault, beside the rate of the others (root)
	$(TAGGED) UNIFIEDD_REQUIRE=1 UNIFIEDD_FAULTS=1 go test -count=1 -v -timeout 30m -run '^TestFaultsBesideOthers$$' ./selftests/soak

test-soak: setup-test ## all five flows with faults for SPAN (1800) seconds, in an order that follows from SEED (root)
	$(TAGGED) UNIFIEDD_REQUIRE=1 UNIFIEDD_SECONDS=$(or $(SPAN),1800) UNIFIEDD_SEED=$(SEED) go test -count=1 -v -timeout 24h -run '^TestSoak$$' ./selftests/soak

test-fidelity: setup-test ## compare captures with tcpdump's over ROUNDS (100) of traffic (root)
	$(TAGGED) UNIFIEDD_REQUIRE=1 UNIFIEDD_ROUNDS=$(or $(ROUNDS),100) UNIFIEDD_FILTERS=1000 go test -count=1 -v -timeout 30m -run '^(TestSameAsTcpdump|TestPassive(SameAsTcpdump|Filters|Offloads))$$' ./flows

test-overload: setup-test ## send more than a flow takes for SPAN (60) seconds (root)
	$(TAGGED) UNIFIEDD_REQUIRE=1 UNIFIEDD_SECONDS=$(or $(SPAN),60) go test -count=1 -v -timeout 30m -run '^TestLongOverload$$' ./flows

test-ring: setup-test ## go round a ring of segments with a floor of free space for SPAN (3600) seconds at RATE packets a second (0: as many as the disk takes) (root)
	$(TAGGED) UNIFIEDD_REQUIRE=1 UNIFIEDD_RING=$(or $(SPAN),3600) UNIFIEDD_RATE=$(or $(RATE),0) go test -count=1 -v -timeout 24h -run '^TestRingSpan$$' ./flows

test-powercut: setup-test ## cut the power of a recorded disk under captures, logs and NVMe targets, CUTS (100) times each, and check what is left (root; KERNEL=6.1|6.12|7)
	$(TAGGED) UNIFIEDD_REQUIRE=1 UNIFIEDD_CUTS=$(or $(CUTS),100) UNIFIEDD_KERNEL=$(KERNEL) go test -count=1 -v -timeout 60m -run '^TestPowerCuts$$' ./selftests/powercut

test-damage: setup-test ## damage each byte of a log's heads, manifest, marks and ends, and some of all others, in places that follow from SEED
	$(TAGGED) UNIFIEDD_DAMAGE=1 $(if $(SEED),UNIFIEDD_SEED=$(SEED)) go test -count=1 -v -timeout 120m -run '^TestDamage$$' ./flows/journal

test-group: setup-test ## simulate RUNS (100000) schedules of faults of a group, and check that the simulation finds each of a list of mistakes
	$(TAGGED) UNIFIEDD_RUNS=$(or $(RUNS),100000) go test -count=1 -v -timeout 120m -run '^(TestSimulation|TestMutants)$$' ./flows/group

test-group-guests: setup-test ## a group of daemons in two lab guests, with kernel verbs and with RoCE in software (KERNEL=6.1|6.12|7)
	@packaging/test-group-guests.sh "$(KERNEL)"

test-catch-up: setup-test ## let a member of a group miss RECORDS (10000000) records, and get them beside full load (root)
	$(TAGGED) UNIFIEDD_REQUIRE=1 UNIFIEDD_RECORDS=$(or $(RECORDS),10000000) go test -count=1 -v -timeout 180m -run '^TestCatchUp$$' ./selftests/group

test-state: setup-test ## read shared state beside a writer at full rate, READS (10000000) times in memory and REMOTE (10000000) over RDMA (root)
	$(TAGGED) UNIFIEDD_READS=$(or $(READS),10000000) go test -count=1 -v -timeout 60m -run '^TestTorn' ./flows/attach/wire
	$(TAGGED) UNIFIEDD_REQUIRE=1 UNIFIEDD_REMOTE_READS=$(or $(REMOTE),10000000) go test -count=1 -v -timeout 600m -run '^TestTorn' ./flows/state

library: ## build the C library of programs that attach, under build/libunifiedd
	@$(MAKE) -s -C libunifiedd all

install-library: library ## install the C library, its header and manual page under DESTDIR and PREFIX (/usr/local)
	@$(MAKE) -s -C libunifiedd install

test-library: setup-test ## check the C library, and run one table of cases over it and over the library for Go (root)
	$(TAGGED) UNIFIEDD_REQUIRE=1 $(MAKE) -C libunifiedd test

trading: setup-demo ## run the trading example: UPDATES (100000) at RATE (10000) a second through four programs on two hosts (root)
	$(TAGGED) UNIFIEDD_REQUIRE=1 UNIFIEDD_UPDATES=$(or $(UPDATES),100000) UNIFIEDD_RATE=$(or $(RATE),10000) go test -count=1 -v -run '^TestTrading$$' ./selftests/trading

tick-peer: ## build the trader and the echo in C with which unified-tick-test compares, into build/
	@mkdir -p build
	$(or $(CC),cc) -O2 -Wall -Wextra -Werror -o build/tick-peer selftests/peers/tick-peer/tick-peer.c
	$(or $(CC),cc) -O2 -Wall -Wextra -Werror -o build/tick-echo selftests/peers/tick-peer/tick-echo.c -lxdp -lbpf

test-attach: setup-test ## kill attached programs, and the daemon beside them, KILLS (1000) times each (root)
	$(TAGGED) UNIFIEDD_REQUIRE=1 UNIFIEDD_KILLS=$(or $(KILLS),1000) $(if $(SEED),UNIFIEDD_SEED=$(SEED)) go test -count=1 -v -timeout 120m -run '^TestKilled' ./selftests/attach

test-alarms: setup-test ## have Prometheus and its rules watch daemons for ten minutes while all is well, and then through one fault after the other, in an order that follows from SEED (root; SPEED=60: spans of the rules divided by that)
	$(TAGGED) UNIFIEDD_REQUIRE=1 UNIFIEDD_ALARMS_SPEED=$(or $(SPEED),1) $(if $(SEED),UNIFIEDD_SEED=$(SEED)) go test -count=1 -v -timeout 180m -run '^TestAlarms$$' ./selftests/alarms

test-cluster: setup-test ## compare a flow's rate with etcd and while etcd is gone, PAIRS (9) times SPAN (10) seconds each at full speed (root)
	$(TAGGED) UNIFIEDD_REQUIRE=1 UNIFIEDD_PAIRS=$(or $(PAIRS),9) UNIFIEDD_SECONDS=$(or $(SPAN),10) UNIFIEDD_RATE=0 go test -count=1 -v -timeout 60m -run '^(TestMove|TestRegistryGone)$$' ./selftests/cluster

bench-cluster: setup-test ## register DAEMONS (200) in one etcd, with leases of LEASE (10) seconds, and measure for SPAN (60) seconds what etcd and each of them take
	UNIFIEDD_DAEMONS=$(or $(DAEMONS),200) UNIFIEDD_LEASE=$(or $(LEASE),10) UNIFIEDD_SECONDS=$(or $(SPAN),60) go test -count=1 -v -timeout 60m -run '^TestDaemons$$' ./flows/cluster/etcd

bench-page: setup-test ## compare the rate of flows while nobody looks with that while a page, and top, shows FLOWS (10000) flows, PAIRS (9) times SPAN (60) seconds each (root)
	$(TAGGED) UNIFIEDD_REQUIRE=1 UNIFIEDD_FLOWS=$(or $(FLOWS),10000) UNIFIEDD_PAIRS=$(or $(PAIRS),9) UNIFIEDD_SECONDS=$(or $(SPAN),60) go test -count=1 -v -timeout 120m -run '^TestPageCost$$' ./cmd/unifiedd

test-tune: setup-test ## tune files, a device and an interface for SPAN (60s) each, and compare each proposal with the defaults, 9 pairs (root)
	$(TAGGED) UNIFIEDD_REQUIRE=1 UNIFIEDD_TUNE=$(or $(SPAN),60s) go test -count=1 -v -timeout 60m -run '^TestTune' ./cmd/unifiedd

test-fail-overs: setup-test ## break leaders of a group FAILOVERS (50) times under load, and cut the power of one, two and all members CUTS (50) times (root)
	$(TAGGED) UNIFIEDD_REQUIRE=1 UNIFIEDD_FAILOVERS=$(or $(FAILOVERS),50) UNIFIEDD_CUTS=$(or $(CUTS),50) $(if $(SEED),UNIFIEDD_SEED=$(SEED)) go test -count=1 -v -timeout 90m -run '^(TestFailOver|TestPowerCuts|TestLyingDisks)$$' ./selftests/group

test-group-histories: setup-test ## have clients append to a group and readers read it while members fail FAULTS (20) times at each level of durability, and check the histories (root)
	$(TAGGED) UNIFIEDD_REQUIRE=1 UNIFIEDD_HISTORIES=$(or $(FAULTS),20) $(if $(SEED),UNIFIEDD_SEED=$(SEED)) go test -count=1 -v -timeout 60m -run '^TestHistories$$' ./selftests/group

test-transfer: setup-test ## copy files and devices by unifiedd send and receive while both are killed and the link is cut, KILLS (50) times (root)
	$(TAGGED) UNIFIEDD_REQUIRE=1 UNIFIEDD_KILLS=$(KILLS) $(if $(SEED),UNIFIEDD_SEED=$(SEED)) go test -count=1 -v -timeout 60m -run '^TestKill$$' ./selftests/transfer

test-reload: setup-test ## change the configuration of a daemon under load RELOADS (100) times (root)
	$(TAGGED) UNIFIEDD_REQUIRE=1 UNIFIEDD_RELOADS=$(or $(RELOADS),100) go test -count=1 -v -timeout 60m -run '^TestReloads$$' ./selftests/reload

test-orders: setup-test ## send ORDERS (1000000) orders over networks that lose and reorder packets, and to exchanges that stop reading, and compare the streams (root)
	$(TAGGED) UNIFIEDD_REQUIRE=1 UNIFIEDD_ORDERS=$(or $(ORDERS),1000000) go test -count=1 -v -timeout 120m -run '^TestStream$$' ./flows/sink/order

test-swap: setup-test ## exchange a capture's filter under load SWAPS (1000) times, and check the verdict on each packet (root)
	$(TAGGED) UNIFIEDD_REQUIRE=1 UNIFIEDD_SWAPS=$(or $(SWAPS),1000) go test -count=1 -v -timeout 60m -run '^TestRefilter$$' ./flows

test-index: setup-test ## find packets again by index in a capture of BYTES (10737418240), against tcpdump reading it through
	$(TAGGED) UNIFIEDD_BYTES=$(or $(BYTES),10737418240) go test -count=1 -v -timeout 60m -run '^TestFindAgain$$' ./cmd/unifiedd

test-rdma: setup-test ## unified-rdma-test between two lab guests, all it does (KERNEL=6.1|6.12|7)
	@packaging/test-rdma.sh "$(KERNEL)"

test-roce: setup-test ## unified-rdma-test between two namespaces with RoCE in software, all it does (root)
	$(TAGGED) UNIFIEDD_REQUIRE=1 UNIFIEDD_ROCE_WHOLE=1 go test -count=1 -v -timeout 30m -run '^TestRoCE' ./selftests/unified-rdma-test

test-roce-faults: setup-test ## RoCE in software over networks that lose, reorder and damage packets, SPAN (300) seconds each (root)
	$(TAGGED) UNIFIEDD_REQUIRE=1 UNIFIEDD_SECONDS=$(or $(SPAN),300) go test -count=1 -v -timeout 60m -run '^(TestModel|TestPeerRestarts|TestBadNetwork)$$' ./rdma/roce/transport ./rdma/roce

test-roce-guest: setup-test ## the kernel's Soft-RoCE in a lab guest against RoCE in software here (root; KERNEL=6.1|6.12|7)
	$(TAGGED) UNIFIEDD_REQUIRE=1 UNIFIEDD_LONG=1 UNIFIEDD_KERNEL=$(KERNEL) go test -count=1 -v -timeout 60m -run '^TestSoftRoCE$$' ./selftests/interop

# The lab guest: docs/lab.md. The script reads its other settings from the environment, so
# that commands keep their dollar signs.
override CMD  := $(value CMD)
override CMD2 := $(value CMD2)
export CMD CMD2 NODES RUN SHORT

lab: setup-test ## run the tests for the lab guest (KERNEL=6.1|6.12|7, SHORT=1), or CMD='...' there, with CMD2='...' in a second
	@go build -o build/ ./internal/testsum
	@set -o pipefail; packaging/lab.sh "$(KERNEL)" | $(if $(CMD),cat,build/testsum)

lab-all: setup-test ## run the tests for the lab guest on each line of kernels, and those of the guest itself
	@go build -o build/ ./internal/testsum
	@set -o pipefail; { packaging/lab.sh 7 6.12 6.1 && status=0 || status=1; \
		NODES=2 RUN='^TestNUMA' packaging/lab.sh 7 || status=1; \
		go test -json -count=1 -tags guest ./selftests/lab || status=1; exit $$status; } | build/testsum

lab-bench: setup-test ## compare with other programs in the lab guest; tables, JSON and plots in build/bench (long: FORM=long)
	@UNIFIEDD_BENCH=$(or $(FORM),usual) packaging/lab-bench.sh "$(KERNEL)"

lab-update: setup-test ## fetch the newest emulator and kernels for the lab guest
	@go run ./selftests/lab -update

bench: setup-test build ## compare with other programs; tables, JSON and plots in build/bench (root; long: FORM=long; some: RUN=Captures CASES='1024.*steno')
	$(TAGGED) UNIFIEDD_BENCH=$(or $(FORM),usual) $(if $(CASES),UNIFIEDD_BENCH_CASES='$(CASES)') go test -count=1 -v -p 1 -timeout 240m -run '^TestAgainst.*$(RUN)' ./internal/bench/...

microbench: setup-test ## run the benchmarks of single functions
	$(TAGGED) go test -run '^$$' -bench . -p 1 ./...

fuzz: go ## run each fuzz target for FUZZTIME (60s)
	@packaging/fuzz.sh $(FUZZTIME)

lint: setup-test ## check format, vet, staticcheck, layers, generated files, cross build
	$(TAGGED) go test -count=1 ./internal/lint

generate: setup-test ## make the generated files again (eBPF objects, rules of alerts)
	go generate ./...

packages: setup-packages ## deb and rpm packages for ARCH (amd64,arm64) in build/packages, the same bytes each time
	@go -C packaging run ./packages -root .. -out $(CURDIR)/build/packages -arch $(or $(ARCH),amd64,arm64) -version "$(VERSION)"

image: setup-packages ## container images for ARCH (amd64,arm64) in an OCI layout, build/image: one static program, and one with RDMA and its libraries
	@go -C packaging run ./packages -root .. -out $(CURDIR)/build/image -format image,image-verbs -arch $(or $(ARCH),amd64,arm64) -version "$(VERSION)"

test-packages: setup-test setup-packages ## make the packages twice, and install and purge them in clean systems (root)
	UNIFIEDD_PACKAGES=1 go -C packaging test -count=1 -v -timeout 120m ./...

test-page: setup-test setup-page ## open the status page in a browser, light, dark and on a phone; pictures in build/page (root)
	$(TAGGED) UNIFIEDD_BROWSER=1 go -C selftests/browser test -count=1 -v -timeout 20m ./...

install: ## install what is built under DESTDIR and PREFIX (/usr/local)
	@DESTDIR=$(DESTDIR) PREFIX=$(PREFIX) packaging/install.sh

clean: ## remove bin/ and build/
	rm -rf bin build

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' Makefile

go:
	@packaging/need-go.sh

setup-demo: go
	@packaging/setup.sh demo

setup-page: go
	@packaging/setup.sh page
	@packaging/axe.sh

setup-packages: go
	@packaging/setup.sh packages

setup-test: go
	@packaging/setup.sh demo test
