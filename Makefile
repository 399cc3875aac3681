# Every target works on a machine with Go, make, and PostgreSQL or npm. With npm, PostgreSQL is downloaded into a cache.
GO     ?= go
# -trimpath keeps build paths out of compiled packages, so that clones and programs outside share the build cache. go test does not
# vet: that would analyze every dependency too, and make lint vets.
export GOFLAGS := $(GOFLAGS) -trimpath -vet=off
# The programs that are released are built without cgo, and so is all else, to compile each package once. Only the race detector
# needs cgo: gotest turns it on for that.
export CGO_ENABLED := 0
WITHPG := $(GO) run ./internal/test/cmd/withpg --
# go test that prints a line for each finished package. After ten silent seconds it names the running tests.
GOTEST := $(GO) run ./internal/test/cmd/gotest
TOOL   := $(GO) tool -modfile=tools/go.mod
# The race detector needs a C compiler. It does not look into SQLite, whose Go is translated from C: tests with a SQLite store would
# need four times as long. Programs that tests build get the flags of their test.
RACE   := $(shell command -v "$$($(GO) env CC)" >/dev/null 2>&1 && echo -race -gcflags=modernc.org/...=-race=false)
VERSIONS := 14 15 16 17 18
# Directories of nested modules, separate because of their dependencies, the slowest first. tools/cmd/release/modules.go lists the
# published modules.
NESTED := lease/etcd cmd/pglatch-etcd adapters/riverlock \
	integration/thirdparty/interop adapters/gooselock adapters/migratelock adapters/gocronlock adapters/cronlock observe/prometheus observe/otel \
	tools middleware/echov5 middleware/ginv1 middleware/fiberv3 middleware/grpcv1 middleware/connectv1 integration/thirdparty/libraries
# Directories that are tested without the race detector: their dependencies are large, and these directories share them. The
# first one starts first. make soak tests those with goroutines of their own with the race detector.
NESTED_PLAIN := leader/kubernetes adapters/clientgolock cmd/pglatch-kubernetes examples/thirdparty/kubernetes integration/thirdparty/bench examples/thirdparty/cluster integration/thirdparty/prometheus
# Packages whose explorations have one goroutine. Their tests are not in a run with the race detector.
PURE := internal/locktable leader/shards/internal/plan
# All others; all, if there is no race detector.
TESTED := $(if $(RACE),$$($(GO) list ./... | grep -v $(foreach p,$(PURE),-e '/$(p)$$')),./...)
# Each nested module once. One run of the linter for all, in a workspace, looks at what they share once.
LINTED := $(filter-out integration/% examples/%,$(NESTED) $(NESTED_PLAIN)) integration/thirdparty examples/thirdparty
# The packages with the slowest tests start first. go test ignores that they are listed twice.
SLOW := ./docs ./advisory ./turns/turnstest ./leader/shards/postgres ./once/postgres ./lease/postgres ./lease/sqlite ./leader/postgres ./internal/pgsession ./clients ./middleware ./monitor ./lease/leaseserver \
	./internal/test/pgtest/pgserver
# Between TRY and TRY_END, a recipe continues after a failed command and fails at the end.
TRY     := @failed=; try() { printf '%s\n' "$$*"; "$$@" || failed="$$failed $$*;"; };
TRY_END := ; [ -z "$$failed" ] || { echo "FAILED:$$failed"; exit 1; }
# Tests wait for servers and processes most of the time, so more of them run at once than there are processors.
AT_ONCE := -p 4 -parallel 3
# When a test counts as hanging. A slow and busy machine needs several times as long as a fast one.
LIMIT := -timeout 60m

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Builds the demo and replaces the shell with it: when "go run" ends after Ctrl-C, make
# reports an error.
run_demo = $(GO) build $(2) -o $(CURDIR)/bin/$(notdir $@) $(1) && exec bin/$(notdir $@) $(if $(ONCE),-once)

.PHONY: demo
demo: ## run the per-entity mutex on a real PostgreSQL, with faults; ONCE=1 ends after the scenario
	@$(call run_demo,./examples/agents/cmd/demo)

.PHONY: demo-scheduler
demo-scheduler: ## run schedulers on one of two nodes, and kill it; ONCE=1 ends after the scenario
	@$(call run_demo,./examples/scheduler/cmd/demo)

.PHONY: demo-fencing
demo-fencing: ## pause a writer past its lease, without and with fencing
	@$(call run_demo,./examples/fencing)

.PHONY: demo-cluster
demo-cluster: ## run 40 clients of two lock servers on three etcd members, and kill -9 one of each; ONCE=1 ends after the scenario
	@$(call run_demo,.,-C examples/thirdparty/cluster)

.PHONY: demo-turns
demo-turns: ## run three replicas of a chat service behind one port, and kill one in the middle of a turn; ONCE=1 ends after the scenario
	@$(call run_demo,./examples/chat/cmd/demo)

.PHONY: demo-shards
demo-shards: ## spread 300 tenants over three nodes, kill, add, drain and stop nodes, and print who has how many; ONCE=1 ends after the scenario
	@$(call run_demo,./examples/tenants)

.PHONY: test
test: ## run all tests on a real PostgreSQL, with the race detector; after a failure the others still run
	@$(if $(RACE),,echo "NOTE: no C compiler, so the race detector is off")
	@echo "== compile, each package by name; the first time it takes minutes"
	$(if $(RACE),CGO_ENABLED=1) $(GO) build -v $(RACE) ./...
	$(TRY) \
	try $(WITHPG) $(GOTEST) $(RACE) -shuffle=on $(AT_ONCE) $(LIMIT) $(SLOW) $(TESTED); \
	try $(WITHPG) sh -c 'printf "%s\n" $(firstword $(NESTED_PLAIN)) $(if $(RACE),$(PURE)) $(foreach m,$(NESTED),"$(strip $(m) $(RACE))") $(wordlist 2,99,$(NESTED_PLAIN)) | \
		xargs -P 3 -L 1 sh -c '\''dir=$$1; shift; exec $(GOTEST) -C $$dir "$$@" -shuffle=on $(LIMIT) ./...'\'' -' \
	$(TRY_END)

.PHONY: test-short
test-short: ## run the short tests without the race detector, for use while you work
	$(WITHPG) $(GOTEST) -short -timeout 5m $$($(GO) list ./... | grep -v -e /internal/test/pgtest -e /internal/test/cmd -e /examples/)

# The packages that send SQL. The others do not depend on the server's version.
SERVED := ./namespace ./internal/pgsession ./introspect ./advisory ./leader/postgres/... ./lease/postgres ./monitor ./once/postgres ./leader/shards/postgres/... ./turns ./cmd/internal/prove

.PHONY: test-servers
test-servers: ## run the tests of the packages that send SQL on the oldest and newest PostgreSQL, without the race detector; ON="14 18"
	$(TRY) for v in $(or $(ON),14 18); do \
		try env PGLATCH_PG_VERSION=$$v $(WITHPG) $(GOTEST) -shuffle=on $(AT_ONCE) $(LIMIT) $(SERVED); done $(TRY_END)

.PHONY: test-browser
test-browser: browser-deps ## check the monitor's page and the documentation site with a real Chromium, and axe-core from npm; pictures in PGLATCH_ARTIFACTS
	$(WITHPG) $(GOTEST) -C integration/thirdparty/browser $(LIMIT) -count=1 ./...

.PHONY: browser-deps
browser-deps:
	@if ! command -v chromium >/dev/null && ! command -v google-chrome >/dev/null && [ -z "$(CHROMIUM)" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; fi

# npm installs what package-lock.json lists, and only if that changed.
site/node_modules/.package-lock.json: site/package-lock.json
	cd site && npm ci
	@touch $@

.PHONY: docs
docs: site/node_modules/.package-lock.json ## build the documentation site in site/dist, with npm; a broken link or anchor is an error
	cd site && npm test --silent && npm run build --silent

.PHONY: docs-serve
docs-serve: site/node_modules/.package-lock.json ## show the documentation site on 127.0.0.1; it follows changes of pages
	cd site && exec npm run serve --silent

.PHONY: test-kubernetes
test-kubernetes: ## run elections on a real Kubernetes API: PGLATCH_TEST_KUBECONFIG, KUBE_APISERVER_BIN and ETCD_BIN, or the API's own library
	$(GO) test -C integration/thirdparty/kubernetes $(LIMIT) -count=1 -v .

.PHONY: test-cluster
test-cluster: ## run leases and elections on real etcd clusters of three processes that are killed, stopped and cut off; as root for network namespaces
	$(GOTEST) -C integration/thirdparty/etcd -timeout 90m -count=1 .

.PHONY: test-versions
test-versions: ## run all tests on each supported version of PostgreSQL
	for v in $(VERSIONS); do echo "== PostgreSQL $$v"; PGLATCH_PG_VERSION=$$v $(MAKE) --no-print-directory test || exit 1; done

.PHONY: integration
integration: integration-deps ## run the fault tests: processes, networks, PgBouncer, standbys, disks; BESIDE=2 runs two packages at a time, not three
	$(TRY) \
	try $(WITHPG) $(GOTEST) $(RACE) -tags integration -p $(or $(BESIDE),3) $(LIMIT) ./integration/seams ./integration ./integration/...; \
	try $(GOTEST) -C integration/thirdparty/libraries $(RACE) -tags integration $(LIMIT) -count=1 -run 'Pooler' .; \
	try $(WITHPG) $(GOTEST) -C integration/thirdparty/interop $(RACE) -tags integration $(LIMIT) -count=1 -run 'Rails|NodePgMigrate' .; \
	try $(GOTEST) -C adapters/gooselock $(RACE) -tags integration $(LIMIT) -count=1 -run 'Pooler' .; \
	try $(GOTEST) $(RACE) $(LIMIT) -count=1 -run 'Disk|FileSystem' ./lease/sqlite ./leader/file \
	$(TRY_END)

.PHONY: compat
compat: ## run programs of this tree beside those of the commits in compat/base and base.turns: locks, elections, tables, turns, lock servers
	$(WITHPG) $(GOTEST) -tags integration $(LIMIT) -count=1 ./compat

# Packages with golden files of what is frozen: docs/stability.md.
FROZEN := ./leader/file ./leader/postgres ./leader/shards/postgres ./turns ./once/postgres ./lease/postgres ./lease/sqlite ./lease/leaseserver ./lease/internal/wire \
	./introspect ./middleware ./cmd/internal/program

.PHONY: freeze
freeze: ## add new tables, messages, metrics, exit codes and problem types to the golden files of docs/stability.md
	PGLATCH_FREEZE=1 $(WITHPG) $(GO) test -count=1 -run Frozen $(FROZEN)
	PGLATCH_FREEZE=1 $(GO) test -C observe/prometheus -count=1 -run Frozen .

.PHONY: reference
reference: ## make the generated tables of docs/reference anew, from doc comments, commands, the HTTP API and metrics
	PGLATCH_REFERENCE=1 $(GO) test -count=1 ./cmd/internal/test/reference

.PHONY: pictures
pictures: ## draw the pictures of docs/img whose sources have changed, with D2, which the first run compiles for minutes
	PGLATCH_PICTURES=1 $(GO) test -count=1 -timeout 30m -run EveryPicture ./docs

.PHONY: integration-deps
integration-deps:
	@if ! env PATH="$$PATH:/usr/sbin" sh -c 'command -v pgbouncer && command -v pgpool && command -v haproxy' >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends pgbouncer pgpool2 haproxy iproute2 >/dev/null; fi
	@if ! ruby -e 'require "active_record"; require "pg"' 2>/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ruby-activerecord ruby-pg >/dev/null; fi

# Packages whose tests have a long form.
SOAKED := ./internal/pgsession ./advisory ./leader ./leader/shards ./lease/sqlite ./lease/postgres ./lease/leaseserver

.PHONY: soak
soak: integration-deps spec-deps ## run the long forms of the race and history tests (more than an hour)
	PGLATCH_SOAK=1 $(WITHPG) $(GOTEST) $(RACE) -timeout 90m -count=1 $(SOAKED)
	PGLATCH_SOAK=1 $(GOTEST) -timeout 60m -count=1 ./internal/locktable
	PGLATCH_SOAK=1 $(GOTEST) -C leader/kubernetes $(RACE) -timeout 20m -count=1 ./...
	PGLATCH_SOAK=1 $(GOTEST) -C adapters/clientgolock $(RACE) -timeout 20m -count=1 ./...
	PGLATCH_SOAK=1 $(if $(RACE),CGO_ENABLED=1) $(WITHPG) $(GO) test $(RACE) -tags integration -timeout 90m -count=1 -v ./integration/...
	PGLATCH_SOAK=1 $(GO) test -C integration/thirdparty/kubernetes -timeout 90m -count=1 -v .
	PGLATCH_SOAK=1 $(MAKE) --no-print-directory test-cluster
	$(GO) run -C tools ./cmd/spec -large ../spec

.PHONY: report
report: integration-deps ## run the long histories, and write dist/report.md: operations, faults, windows, controls; SHORT=1 takes minutes, MINUTES=35 repeats that, REPORT=file
	$(WITHPG) $(GO) run ./internal/test/cmd/report $(if $(SHORT),-short) $(if $(MINUTES),-minutes $(MINUTES)) -o $(or $(REPORT),dist/report.md)

.PHONY: spec
spec: spec-deps ## check the models of the protocols exhaustively with SPIN, and that each mutant of them has a counter-example
	$(GO) run -C tools ./cmd/spec ../spec

.PHONY: spec-deps
spec-deps:
	@if ! { command -v spin && command -v gcc; } >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends spin gcc libc6-dev >/dev/null; fi

.PHONY: bench
bench: ## compare with the hand-written loop and with peers; time, memory, loss detection, hand-over, guards, shards, turns (about 90 minutes)
	$(WITHPG) $(GO) test -run '^$$' -bench Ratio -benchtime 9x -timeout 30m ./advisory
	$(WITHPG) $(GO) test -run '^$$' -bench Cycle -benchtime 2s -benchmem -timeout 30m ./advisory
	$(GO) test -run '^$$' -bench Told -benchtime 5x -timeout 30m ./advisory
	$(WITHPG) $(GO) test -run '^$$' -bench Loss -benchtime 200x -timeout 30m ./advisory
	$(GO) test -tags pglatch_mutex -run '^$$' -bench Mutex -benchtime 300000x -cpu 1,2,4,8,16 ./advisory
	cd integration/thirdparty/bench && $(GO) run ./cmd/locks
	cd integration/thirdparty/bench && $(GO) run ./cmd/turns
	$(GO) test -run '^$$' -bench Step -timeout 5m ./leader
	$(WITHPG) $(GO) test -run '^$$' -bench Guard -benchtime 2s -timeout 30m ./leader/postgres
	$(WITHPG) $(GO) test -C integration/thirdparty/bench -run '^$$' -bench Handover -benchtime 20x -timeout 30m .
	$(GO) test -C integration/thirdparty/kubernetes -run '^$$' -bench . -benchtime 20x -timeout 30m .
	$(WITHPG) $(GO) test -C integration/thirdparty/bench -run '^$$' -bench Idle -benchtime 1x -timeout 30m .
	$(WITHPG) $(GO) test -C integration/thirdparty/bench -run '^$$' -bench Shards -benchtime 1x -timeout 30m .
	$(GO) test -run '^$$' -bench 'Store|Alone' -timeout 30m ./lease/sqlite
	$(WITHPG) $(GO) test -C integration/thirdparty/bench -run '^$$' -bench 'Lease(OnEtcd|Gap)?$$' -benchtime 5x -timeout 30m .
	$(WITHPG) $(GO) test -C integration/thirdparty/bench -run '^$$' -bench LeaseHandOver -benchtime 1000x -timeout 30m .
	$(GO) test -C integration/thirdparty/bench -run '^$$' -bench LeaseMemory -benchtime 1x -timeout 30m .

.PHONY: fuzz
fuzz: ## fuzz the decoders of keys, bodies and records, and the ledger of leases
	$(GO) test -run '^$$' -fuzz FuzzTagRoundTrip -fuzztime 20s ./namespace
	$(GO) test -run '^$$' -fuzz FuzzParseKey -fuzztime 20s ./namespace
	$(GO) test -run '^$$' -fuzz FuzzText -fuzztime 20s ./namespace
	$(GO) test -run '^$$' -fuzz FuzzParse -fuzztime 20s ./internal/pgdsn
	$(GO) test -run '^$$' -fuzz FuzzRules -fuzztime 20s ./lease/internal/rules
	$(GO) test -run '^$$' -fuzz FuzzStrict -fuzztime 20s ./lease/leaseserver
	$(GO) test -run '^$$' -fuzz FuzzAnswers -fuzztime 20s ./lease/leasehttp
	$(GO) test -run '^$$' -fuzz FuzzRecord -fuzztime 20s ./leader/file
	$(GO) test -run '^$$' -fuzz FuzzReadIntervals -fuzztime 20s ./cmd/internal/leadercmd

.PHONY: house
house: ## draw which packages import which, by the floors of CONTRIBUTING.md; make test checks that imports point down
	$(GO) test -count=1 -run PointDown -v ./internal/test/imports

.PHONY: lint
lint: ## lint and vet with the pinned linter, and look for sentences that are hard to read
	@mkdir -p dist && rm -f dist/lint.work*
	@GOWORK=$(CURDIR)/dist/lint.work $(GO) work init $(addprefix $(CURDIR)/,. $(LINTED))
	$(TRY) try $(GO) run -C tools ./cmd/prose ..; \
		linter=$$($(TOOL) -n golangci-lint); GOWORK=$(CURDIR)/dist/lint.work try $$linter run ./... $(addprefix ./,$(addsuffix /...,$(LINTED))) $(TRY_END)

# Packages that programs are built from. The others are for tests and demos, which need Unix.
PRODUCTION = $$($(GO) list -f '{{if .GoFiles}}{{.ImportPath}}{{end}}' ./... | grep -v -e /internal/test/ -e /examples/)

.PHONY: platforms
platforms: ## compile everything for macOS, and all but tests and demos for Windows; uses the flags of make binaries, and shares its compiled packages
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 GOFLAGS=-trimpath $(GO) vet ./...
	CGO_ENABLED=0 GOOS=windows GOARCH=amd64 GOFLAGS=-trimpath $(GO) build $(PRODUCTION)

RELEASE := $(GO) run -C tools ./cmd/release -C ..

.PHONY: release
release: ## make a release's commits and tags if programs outside can use it and no stable package breaks without notice; pushes nothing; VERSION=v0.x.y
	$(RELEASE) cut "$(VERSION)"

.PHONY: release-trial
release-trial: ## make a release of HEAD in a clone, compile and install it from outside, and keep nothing
	$(RELEASE) trial

.PHONY: apidiff
apidiff: ## show how the exported API changed since the latest version, and what of it breaks stable packages; BASE=commit
	$(RELEASE) apidiff "$(BASE)"

.PHONY: binaries
binaries: ## build static binaries of pglatch at HEAD in dist/, for six platforms or ON="linux/amd64 darwin/arm64", each with its bill of materials (CycloneDX), and SHA256SUMS of all
	$(RELEASE) binaries "$(CURDIR)/dist" $(ON)
