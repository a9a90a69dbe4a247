# make run is all that a person needs: Go and a C compiler, no network but for Go's modules.
export CGO_ENABLED = 1
# With -trimpath the compiler's cache knows a package again in another folder, and the program, its tests and vet share
# what is compiled.
export GOFLAGS := -trimpath $(GOFLAGS)

# Where ccache is installed, C is compiled once: Go compiles it anew whenever a package changes that it can see, and again
# for the race detector. The options left out of the key differ each time and change no code. ccache is found in the path
# instead of the compiler: with CC="ccache gcc" Go's linker would ask ccache which options the compiler has, and make
# programs in which the race detector cannot start.
export PATH := /usr/lib/ccache:/usr/lib64/ccache:$(PATH)
export CCACHE_NOHASHDIR = 1
export CCACHE_IGNOREOPTIONS = -frandom-seed=* -ffile-prefix-map=* -fdebug-prefix-map=*

FUZZTIME ?= 30s
TORTURE ?= 1

.PHONY: run build dev generate pictures states emu emu-sanitize kernels sass gpu release test check check-added test-race test-arm64 test-x86 flakes lint fidelity fidelity-logits clients world fuzz torture bench microbench

run: build
	./m40-llm

build:
	go build -o m40-llm .

# Serve, and start anew whenever a page changes. /dev/states has each state of each component.
dev:
	go tool templ generate -path web -watch -cmd "go run -C .. -tags states ."

# Write the Go code of the pages; it is committed.
generate:
	go tool templ generate -path web

# The pictures of docs/sharing.md, and from the storybook those of the README, by Chromium.
pictures:
	M40_LLM_PICTURES=$(CURDIR)/docs/sharing go test -count 1 -run '^TestPictures$$' ./handlers/browser
	M40_LLM_PICTURES=$(CURDIR)/docs go test -count 1 -run '^TestPicturesOfStates$$' ./handlers/browser

# What the storybook's states look like and say, by Chromium: what TestEachState… compares with.
states:
	mkdir -p handlers/browser/testdata/states
	M40_LLM_UPDATE=1 go test -count 1 -run '^TestEachState' ./handlers/browser

# The emulated GPU, bin/libcuda-emu.so: M40_LLM_LIBCUDA=bin/libcuda-emu.so uses it.
emu:
	$(MAKE) -C cudakern emu

# Tests of kernels in an emulation that finds what they do out of bounds.
emu-sanitize:
	$(MAKE) -C cudakern sanitize

# The kernels for GPUs, which are committed; needs nvcc 11 or 12.
kernels:
	$(MAKE) -C cudakern kernels

# What the products among them cost on a Tesla M40, by their machine code.
sass:
	$(MAKE) -C cudakern sass

# The program and the tests that a real GPU must pass, in bin/gpu: they run on a machine
# with a driver and without Go or a compiler. bin/gpu/check.sh runs all; see docs/gpu.md.
gpu: kernels
	mkdir -p bin/gpu
	go build -ldflags '-s -w' -o bin/gpu/m40-llm .
	go test -c -ldflags '-s -w' -o bin/gpu/cudakern.test ./cudakern
	go test -c -ldflags '-s -w' -o bin/gpu/device.test ./infer/cuda
	go test -c -ldflags '-s -w' -o bin/gpu/model.test ./infer/model
	cp cudakern/check.sh bin/gpu/

# The program for Linux on x86-64 and ARM, with checksums and a bill of materials for each (CycloneDX), in bin/release.
# The same sources, version of Go and C compiler give files of the same bytes, in whatever folder they lie. A bill lists
# Go's library and the modules with their licences; the tool warns that it finds none for the first and for the program
# itself. Needs gcc-aarch64-linux-gnu and libc6-dev-arm64-cross, and the network for that tool.
VERSION = $(shell sed -n 's/^const version = "\(.*\)"/\1/p' handlers/commands/commands.go)
SBOM = github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
CC_amd64 = x86_64-linux-gnu-gcc
CC_arm64 = aarch64-linux-gnu-gcc

release:
	rm -rf bin/release && mkdir -p bin/release
	@set -e; for arch in $(RELEASE_ARCHS); do \
		out=bin/release/m40-llm-$(VERSION)-linux-$$arch; \
		case $$arch in amd64) cc=$(CC_amd64);; arm64) cc=$(CC_arm64);; esac; \
		echo "$$out with $$cc"; \
		GOOS=linux GOARCH=$$arch CC=$$cc go build -buildvcs=false \
			-ldflags '-s -w -buildid= -extldflags=-Wl,--build-id=none' -o $$out .; \
		go run $(SBOM) bin -json -noserial -notimestamp -std -licenses -version v$(VERSION) -output $$out.cdx.json $$out; \
	done
	cd bin/release && sha256sum m40-llm-* >SHA256SUMS && cat SHA256SUMS

RELEASE_ARCHS = amd64 arm64

# Tests have three levels.
#
#	make test     minutes: what a change needs. One of each kind of weights, models and pages.
#	make check    what continuous integration runs: each layout of weights and unit of GPUs, all families, accessibility,
#	              the race detector where goroutines are, and an emulated ARM processor.
#	make torture  everything at its full counts, by hand.
#
# A package whose sources, files and environment are those of its last run is not run again; -count 1 in TESTFLAGS does.
TESTFLAGS ?=

# Those that take longest start first. Tests with a browser or processes wait much of their time, so one more package
# than there are cores runs at the same time.
SLOW = ./cudakern ./infer/cuda ./handlers/browser ./handlers/commands ./infer/engine ./infer/model ./infer/cpu
PARALLEL = $$(($$(getconf _NPROCESSORS_ONLN) + 1))

test: lint
	go test -vet off -timeout 60m -p $(PARALLEL) $(TESTFLAGS) $(SLOW) $$(go list ./... | grep -vxF "$$(go list $(SLOW))")

check: export M40_LLM_CHECK = 1
check: test check-added

# An emulated processor computes on one core for most of its time; the race detector's tests wait for half of theirs.
check-added:
	$(MAKE) -j 2 --output-sync=target test-race test-arm64 test-x86

# Where goroutines share what they use. Elsewhere the race detector finds nothing and makes tests several times slower.
RACE = ./infer/engine ./infer/worker ./infer/fleet ./infer/lease ./infer/upstream ./infer/hub ./store ./handlers \
	./handlers/live ./handlers/compare ./handlers/inspect ./handlers/guest ./handlers/stream ./handlers/share ./handlers/people ./handlers/gate ./handlers/models \
	./handlers/activity ./handlers/quota ./handlers/visitors

# Those compute for most of their time, on one goroutine or on those of C, which the race detector does not see. The engine's goroutines
# are the same with the small models of the other tests.
RACE_SKIP = ^TestRealModel|^TestGuide|AnswersAreTheSameBits|EqualTheReference|DecodedWhole|SlowTwin|HasTheSameVector|ScoredBehindThem|AnswersAreTheReferences|ChatsGoOnAndForkBehindAPicture

# Their loops have the counts of make test here.
test-race:
	M40_LLM_CHECK= go test -race -vet off -timeout 30m -p $(PARALLEL) -skip '$(RACE_SKIP)' $(TESTFLAGS) $(RACE)

# Tests that wait for others, N times, two at once beside two busy loops: prints those that failed.
N ?= 50
FLAKY = ./handlers/browser ./handlers/stream ./handlers/live ./handlers/share ./handlers ./handlers/commands ./infer/worker ./infer/upstream

flakes:
	@N=$(N) .ci/flakes $(FLAKY)

# infer/cpu on an emulated ARM processor: the path with NEON, and the portable one bit for bit like it.
# Needs gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user. ARM64_RUN=. runs all its tests,
# which takes about ten minutes; QEMU_CPU=cortex-a53 emulates a processor without dotprod.
ARM64_RUN ?= LateThreads|Quantised|SuperBlocks|Rounded|OpenSays|TestDeviceContract/.*/operations|TestDeviceContract/.*/same bits/[^ ]*[Q6][^ ]* weights, F16
QEMU_CPU ?= max

test-arm64:
	GOOS=linux GOARCH=arm64 CGO_ENABLED=1 CC=aarch64-linux-gnu-gcc go test -c -o bin/cpu-arm64.test ./infer/cpu
	cd infer/cpu && qemu-aarch64 -L /usr/aarch64-linux-gnu -cpu $(QEMU_CPU) ../../bin/cpu-arm64.test -test.timeout 40m -test.run '$(ARM64_RUN)'

# infer/cpu on emulated x86-64 processors without AVX2, and one with it: that each has its path, which is near the reference
# and has the bits of the portable one, and that the program writes an answer on the oldest. An instruction that a processor
# does not have would end it. Needs qemu-user 7.2.
X86_RUN ?= TheFastestPath|EveryHalf|SuperBlocks|Rounded|OddSizes|F16Cache|GLUAt|TestDeviceContract/.*/operations/(RMSNorm|GatherRows)
X86_WITHOUT = x2apic=off,tsc-deadline=off,pcid=off,invpcid=off,hle=off,rtm=off

test-x86:
	go test -c -o bin/cpu-x86.test ./infer/cpu
	go build -o bin/m40-llm-x86 .
	@set -e; cd infer/cpu; for cpu in Nehalem=sse41 SandyBridge=avx IvyBridge=f16c Haswell=avx2; do \
		echo $$cpu; M40_LLM_FASTEST_PATH=$${cpu#*=} qemu-x86_64 -cpu $${cpu%=*},$(X86_WITHOUT) ../../bin/cpu-x86.test -test.timeout 20m -test.run '$(X86_RUN)'; \
	done
	qemu-x86_64 -cpu Nehalem,$(X86_WITHOUT) bin/m40-llm-x86 run --device cpu --threads 1 --max-tokens 2 guide hello

# vet has all compiled that a package imports, C too; the tests find it compiled.
lint:
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "gofmt would change:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	@cd web && for page in *.templ; do \
		go tool templ generate -f "$$page" -stdout 2>/dev/null | cmp -s - "$${page%.templ}_templ.go" || \
		{ echo "web/$$page has changed since its Go code was generated: run make generate"; exit 1; }; \
	done

# The tables of tokenizers, chat templates, pictures, architectures and weight types against the reference
# vectors in M40_LLM_FIXTURES: all cases of each row hold, or it fails. Rows that nothing is compared
# with say NOT COVERED. The emulated GPU takes most of the time.
fidelity:
	@out=$$(M40_LLM_STRICT=1 go test -count 1 -v -run 'MatchesTheReferenceIDs|SplitAsTheReferences|GivesTheReferenceOutput|RendersAsJinja2Does|NeverBecomesSpecialTokens|SpecialTokensAnywhere|AreTheReferences' ./infer/tokenizer ./infer/jinja ./infer/chat ./infer/chatformat ./infer/picture 2>&1); status=$$?; \
	if [ $$status -ne 0 ]; then echo "$$out" | grep -v '^ *--- PASS\|^=== '; exit $$status; fi; \
	echo "$$out" | awk '/fidelity: / { sub(/.*fidelity: /, ""); print; kind = substr($$0, 1, 24); passed[kind] += $$(NF-2); total[kind] += $$NF } \
		END { for (k in total) { kinds++; printf "%s %-50s %6d of %6d  %.1f %%\n", k, "all", passed[k], total[k], 100 * passed[k] / total[k] } \
		if (kinds != 9) { print "the table has", kinds + 0, "kinds of rows, want 9: a test has another name"; exit 1 } }'
	@$(MAKE) --no-print-directory fidelity-logits

# Of each model and device: the largest difference of a log-probability and what is allowed, and how
# many greedy tokens are equal; of quantised models the Kullback-Leibler divergence from float64 too.
fidelity-logits:
	@out=$$(M40_LLM_STRICT=1 M40_LLM_TORTURE=1 go test -count 1 -v -timeout 4h -run 'EqualTheReference|RoundedActivations' ./infer/model 2>&1); status=$$?; \
	echo "$$out" | awk '/fidelity: / { sub(/.*fidelity: /, ""); print; if (/NOT COVERED/) missing++; else rows++ } \
		END { printf "%d rows hold or are named below, %d are not covered\n", rows, missing }'; \
	if [ $$status -ne 0 ]; then echo "$$out" | grep -v '^ *--- PASS\|^=== \|fidelity: '; exit $$status; fi

# Published clients of npm and Go, and programs for coding, against the server: installs them in .ci/clients,
# and prints which of their features work.
clients:
	.ci/clients/install
	.ci/clients/install programs
	cd .ci/clients/go && go build -o ../../../bin/clients .
	M40_LLM_CLIENTS=$(CURDIR)/.ci/clients/node_modules M40_LLM_CLIENTS_GO=$(CURDIR)/bin/clients \
		M40_LLM_CLIENT_PROGRAMS=$(CURDIR)/.ci/clients/programs/node_modules \
		go test -count 1 -v -run '^TestClients$$|^TestClientPrograms$$' ./handlers

# Real weights, published clients in Python and llama-server where the user's cache folder has it: installs them in that
# folder, runs all, and writes docs/compatibility.md. What cannot be installed is named and skipped. M40_LLM_TORTURE=1 adds
# what is large: vLLM, two replicas of Ray Serve and Open WebUI. M40_LLM_MINILM names an all-MiniLM-L6-v2 in F16; the
# reference values are in M40_LLM_FIXTURES.
world:
	@export M40_LLM_WORLD=$$(world/install) M40_LLM_RESULTS=$$(mktemp); status=0; \
	llama="$${XDG_CACHE_HOME:-$$HOME/.cache}/m40-llm/llama.cpp/llama-server"; \
	if [ -z "$$M40_LLM_LLAMA_SERVER" ] && [ -x "$$llama" ]; then export M40_LLM_LLAMA_SERVER="$$llama"; fi; \
	go test -vet off -count 1 -v -p 2 -timeout 4h -run 'LlamaServer|VLLM|SmolLM2|OpenWebUI' ./infer/upstream ./handlers/browser || status=1; \
	M40_LLM_COMPATIBILITY=$(CURDIR)/docs/compatibility.md go test -vet off -count 1 -v -timeout 4h ./world || status=1; \
	rm -f $$M40_LLM_RESULTS; exit $$status

# Each fuzz target for FUZZTIME. Go spends up to a minute on making one interesting input smaller,
# in which it tries nothing else: here it gets 1,000 tries.
fuzz:
	@set -e; for package in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
			echo "$$package $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1000x $$package; \
		done; \
	done

# Every test at its full counts, in random order, then a minute of each fuzz target: about
# 50 minutes on two quiet cores. TORTURE=10 does all of it ten times, and fuzzes for ten
# minutes each. Among what is counted:
#
#	handlers/commands  20 times each kill -9, SIGSTOP and SIGSEGV of the worker while 4 chats
#	                 stream; a kernel that hangs; four failures of the driver
#	handlers/browser 3,000 hostile payloads (handlers/markdown without a browser); 500 reloads of
#	                 one answer; all rules of axe-core in both themes; pictures of all states
#	handlers/live    250 times kill -9 of the server while 4 chats stream
#	store            500 times the same while a backup runs, and at every step of each
#	                 migration; 64 fillings of a disk
#	infer            500 answers of the Guide held to schemas, 200 to calls of tools; special
#	                 tokens of every vocabulary in every template
#	infer/grammar    500 texts of each schema, 3,000 random grammars
#	infer/hub        200 times kill -9 of a download
#	infer/model      all families in all formats on all devices; all texts of the Guide on the
#	                 emulated GPU, on both number paths
#	cudakern/nvcc    every module compiled anew
#	infer/cuda, cpu  what every device must keep, all formats of weights on all number paths
#	world            vLLM, Ray Serve and Open WebUI where they install, once and beyond that time
#	infer/tokenizer  a mebibyte of each category of Unicode for each pre-tokenizer, which the
#	                 race detector would make hours of
#
# The contract of infer/cuda under sanitizers is for make emu-sanitize.
torture:
	M40_LLM_TORTURE=1 go test -count $(TORTURE) -shuffle on -timeout $(TORTURE)h ./infer/tokenizer
	M40_LLM_TORTURE=1 go test -race -count $(TORTURE) -shuffle on -timeout $(TORTURE)h $$(go list ./... | grep -v infer/tokenizer)
	M40_LLM_TORTURE=1 $(MAKE) world
	$(MAKE) fuzz FUZZTIME=$(TORTURE)m

# The CPU's speed as docs/performance.md has it: about half an hour on two quiet cores, and 4 GB in
# TMPDIR. PEER_BENCH="env LD_PRELOAD=… llama-bench" measures that program in turn. BENCH_FLAGS=-h
# lists what can be chosen, as BENCH_FLAGS="-r 1 -types q4_k".
BENCH_FLAGS ?=

bench: build
	go run ./infer/bench/table -peer '$(PEER_BENCH)' $(BENCH_FLAGS)

# The benchmarks of all packages.
microbench:
	go test -run '^$$' -bench . -benchmem ./...
