package main

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tokmark/tokmark/bench/mockserver"
	"github.com/tokmark/tokmark/bench/target"
	"github.com/tokmark/tokmark/report"
)

var updateDocs = flag.Bool("update-docs", false, "write generated parts of the documentation anew")

const repository = "../.."

// TestDocumentedCommands runs every tokmark command that stands in a shell
// block of the documentation: blocks of one page in order, in one directory
// with a copy of the examples, against a simulator in place of localhost:8000.
// A line "# exit N" or "# exit N or M" before a command says which exit code is
// meant.
func TestDocumentedCommands(t *testing.T) {
	pages := []string{"README.md", "CONTRIBUTING.md"}
	err := fs.WalkDir(os.DirFS(repository), "examples", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		t.Run(page, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(repository, page))
			if err != nil {
				t.Fatal(err)
			}
			commands := documentedCommands(string(text))
			if len(commands) == 0 && page == "README.md" {
				t.Fatal("the README shows no command")
			}
			dir := t.TempDir()
			if err := os.CopyFS(filepath.Join(dir, "examples"), os.DirFS(filepath.Join(repository, "examples"))); err != nil {
				t.Fatal(err)
			}
			t.Chdir(dir)
			address := simulate(t)
			for _, pattern := range []string{"examples/*.yaml", "examples/*/*.yaml"} {
				files, _ := filepath.Glob(pattern)
				for _, file := range files {
					text, err := os.ReadFile(file)
					if err == nil {
						err = os.WriteFile(file, bytes.ReplaceAll(text, []byte("localhost:8000"), []byte(address)), 0o644)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, c := range commands {
				args := shellWords(t, strings.ReplaceAll(c.line, "localhost:8000", address))[1:]
				var stdout, stderr bytes.Buffer
				code := undisturbed(args, dir, c.exits, func() int {
					stdout.Reset()
					stderr.Reset()
					return Main(world{Args: args, Stdout: &stdout, Stderr: &stderr, Getenv: func(string) string { return "" }})
				})
				if !slices.Contains(c.exits, code) {
					t.Errorf("%s\nends with exit code %d, want %v\n%s%s", c.line, code, c.exits, stdout.String(), stderr.String())
				}
			}
		})
	}
}

// simulate serves the simulator, a little faster than by default, and returns
// its address.
func simulate(t *testing.T) string {
	t.Helper()
	cfg := mockserver.Default()
	cfg.DecodeBase /= 4
	cfg.PrefillBase /= 4
	srv, err := mockserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hs := &http.Server{Handler: srv, ReadHeaderTimeout: time.Minute}
	go func() { _ = hs.Serve(ln) }()
	t.Cleanup(func() {
		_ = hs.Close()
		_ = srv.Close()
	})
	return ln.Addr().String()
}

type documented struct {
	line  string
	exits []int // one of them is meant
}

// documentedCommands finds the tokmark commands in the shell blocks of a page.
// tokmark mock and commands of other programs are not run.
func documentedCommands(page string) []documented {
	var out []documented
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(page, -1) {
		exits := []int{0}
		joined := strings.ReplaceAll(block[1], "\\\n", " ")
		for _, line := range strings.Split(joined, "\n") {
			line = strings.TrimSpace(strings.TrimPrefix(line, "$ "))
			line = strings.Replace(line, "go run ./cmd/tokmark", "tokmark", 1)
			if list, ok := strings.CutPrefix(line, "# exit "); ok {
				exits = nil
				for _, word := range strings.Split(list, " or ") {
					code, err := strconv.Atoi(word)
					if err != nil {
						break // another comment
					}
					exits = append(exits, code)
				}
				continue
			}
			if strings.HasPrefix(line, "tokmark ") && !strings.HasPrefix(line, "tokmark mock") {
				out = append(out, documented{line, exits})
				exits = []int{0}
			}
		}
	}
	return out
}

// shellWords splits a command line as a shell does: blanks, single and double
// quotes, and comments at the end.
func shellWords(t *testing.T, line string) []string {
	t.Helper()
	var words []string
	var word strings.Builder
	in, quote := false, rune(0)
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, in = r, true
		case r == ' ' || r == '\t':
			if in {
				words = append(words, word.String())
			}
			word.Reset()
			in = false
		case r == '#' && !in:
			return words
		default:
			word.WriteRune(r)
			in = true
		}
	}
	if quote != 0 {
		t.Fatalf("open quote in %s", line)
	}
	if in {
		words = append(words, word.String())
	}
	return words
}

// TestMetricTable: the README's table of metrics is the program's own.
func TestMetricTable(t *testing.T) {
	var table strings.Builder
	table.WriteString("| tag | unit | formula |\n| --- | --- | --- |\n")
	for _, m := range report.Metrics() {
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", m.Tag, m.Unit, strings.ReplaceAll(m.Formula, "|", "\\|"))
	}
	generated(t, "README.md", "metrics", table.String())
}

// TestDialectTable: the table of servers is the program's own.
func TestDialectTable(t *testing.T) {
	var table strings.Builder
	table.WriteString("| dialect | server | exact | reset | salt | timings | metrics |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	mark := func(b bool) string {
		if b {
			return "yes"
		}
		return "–"
	}
	for _, name := range target.Names() {
		d, err := target.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s | %s | %s | %s |\n", d.Name, d.Title, mark(d.CanExact()), mark(d.Reset.Path != ""),
			mark(d.CacheSalt != ""), mark(d.TellsTimings()), mark(d.Metrics.Path != ""))
	}
	generated(t, "examples/servers/README.md", "dialects", table.String())
}

// generated checks the part of a page between two marks, or writes it.
func generated(t *testing.T, page, name, want string) {
	t.Helper()
	path := filepath.Join(repository, page)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->"
	before, rest, ok1 := strings.Cut(string(text), begin)
	got, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no part named %s", page, name)
	}
	if got == want {
		return
	}
	if !*updateDocs {
		t.Fatalf("%s: the part named %s is out of date: go test ./cmd/tokmark -run Table -update-docs", page, name)
	}
	if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
