package html

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

var pages = flag.String("pages", "", "write the pages of the tests and pictures of them to this directory")

// browser opens a page from disk without a network, and returns the document
// after its scripts ran, and what the console said. With -pages it makes
// pictures as well.
func browser(t *testing.T, name, page string) (dom, console string) {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser takes seconds to start")
	}
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium to look at the page with")
	}
	file := filepath.Join(t.TempDir(), name+".html")
	if *pages != "" {
		file = filepath.Join(*pages, name+".html")
	}
	if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, string) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		all := append([]string{
			"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir=" + t.TempDir(),
			"--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--v=0", "--virtual-time-budget=5000",
		}, args...)
		var stdout, stderr bytes.Buffer
		c := exec.CommandContext(ctx, chromium, append(all, "file://"+file)...)
		c.Stdout, c.Stderr = &stdout, &stderr
		if err := c.Run(); err != nil {
			t.Fatalf("chromium: %v\n%s", err, stderr.String())
		}
		return stdout.String(), stderr.String()
	}
	dom, log := run("--dump-dom")
	if *pages != "" {
		base := filepath.Join(*pages, name)
		run("--screenshot="+base+"-light.png", "--window-size=1200,9400", "--hide-scrollbars")
		run("--screenshot="+base+"-dark.png", "--window-size=1200,9400", "--hide-scrollbars", "--force-dark-mode", "--blink-settings=preferredColorScheme=0")
		run("--screenshot="+base+"-phone.png", "--window-size=400,9400", "--hide-scrollbars")
		run("--print-to-pdf="+base+".pdf", "--no-pdf-header-footer")
	}
	var lines []string
	for line := range strings.Lines(log) {
		if strings.Contains(line, "CONSOLE") {
			lines = append(lines, line)
		}
	}
	return dom, strings.Join(lines, "")
}

var drawn = regexp.MustCompile(`<div class="plot" id="chart-([^"]*)"[^>]*data-points="(\d+)"[^>]*><div [^>]*class="uplot`)

func TestBrowserDrawsEveryChart(t *testing.T) {
	for name, page := range map[string]string{
		"demo":           render(t, demo(t, 400, 16)),
		"one":            render(t, demo(t, 1, 1)),
		"failed":         render(t, allFailed(t)),
		"hostile":        render(t, hostile(t)),
		"several":        render(t, named("a", demo(t, 200, 4)), named("b <i>", demo(t, 200, 16)), named("c", demo(t, 200, 64))),
		"slo":            render(t, held(t, demo(t, 200, 4))),
		"sweeps":         render(t, twoSweeps(t)...),
		"paired":         renderPaired(t, paired(), demo(t, 20, 2).Summary, demo(t, 20, 4).Summary),
		"paired-hostile": hostilePaired(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dom, console := browser(t, name, page)
			if console != "" {
				t.Errorf("the console says:\n%s", console)
			}
			charts := chartsOf(t, page)
			found := map[string]int{}
			for _, m := range drawn.FindAllStringSubmatch(dom, -1) {
				found[m[1]], _ = strconv.Atoi(m[2])
			}
			for _, c := range charts {
				if n := c.points(); n == 0 || found[c.ID] != n {
					t.Errorf("chart %s: %d points are drawn, its data has %d", c.ID, found[c.ID], n)
				}
			}
			if len(found) != len(charts) {
				t.Errorf("%d charts are drawn, %d are in the data", len(found), len(charts))
			}
			if name == "demo" && len(charts) < 17 {
				t.Errorf("only %d charts", len(charts))
			}
			if strings.Contains(dom, "<title>INERT-FAILED") {
				t.Error("a hostile string ran as a script")
			}
		})
	}
}

func named(name string, r Run) Run { r.Name = name; return r }
