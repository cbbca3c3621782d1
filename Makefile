# The commands of this repository. `make test` is all a change has to pass.

GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  := -s -w -X main.version=$(VERSION)
FUZZTIME ?= 30s

# Pinned: another version has other findings.
LINT_VERSION := v2.15.0
LINT         := $(shell $(GO) env GOPATH)/bin/golangci-lint

export CGO_ENABLED = 0

.PHONY: build test race lint bench fuzz cross check clean

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

check: lint test race cross ## everything that CI runs

clean:
	rm -rf bin artifacts
