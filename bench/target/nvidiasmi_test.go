package target

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// fakeSMI is a program that looks at its arguments as nvidia-smi does and then
// does what the shell script says.
func fakeSMI(t *testing.T, script string) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the stand-in for nvidia-smi is a shell script")
	}
	path := filepath.Join(t.TempDir(), "nvidia-smi")
	const asked = `[ "$*" = "--query-gpu=index,uuid,name,driver_version,utilization.gpu,memory.used,memory.free,power.draw,clocks.sm --format=csv,noheader,nounits" ] || { echo "not asked as expected: $*"; exit 2; }`
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+asked+"\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

const twoGPUs = `cat <<END
0, GPU-a, NVIDIA H200, 570.86.15, 40, 1024, 2048, 310.5, 1980
1, GPU-b, NVIDIA H200, 570.86.15, 60, 1, 0, [N/A], [Not Supported]
END`

func TestNVIDIASMI(t *testing.T) {
	gpus := NVIDIASMI(fakeSMI(t, twoGPUs), clock)
	got, err := gpus.Scrape(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := Sample{
		At: got.At, From: "gpu",
		Gauges: map[Metric]float64{
			GPUUtilization: 0.5, GPUMemory: 1025 << 20, GPUMemoryFree: 2048 << 20, GPUPower: 310.5, GPUClock: 1980e6,
		},
		Replicas: []string{`UUID="GPU-a",gpu="0"`, `UUID="GPU-b",gpu="1"`},
	}
	if d := cmp.Diff(want, got, ignoreParts, cmpopts.EquateApprox(0, 1e-12)); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	list, _, err := serve(t, &script{}).Conditions(t.Context(), mustBe("generic"), Facts{}, "m", gpus, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"gpu=NVIDIA H200", "gpu_count=2", "driver=570.86.15"}, told(list)); d != "" {
		t.Error(d)
	}
}

func TestNVIDIASMIFails(t *testing.T) {
	for _, c := range []struct{ name, script, want string }{
		{"no driver", "echo 'NVIDIA-SMI has failed because it could not talk to the driver.'; exit 9", "exit status 9: NVIDIA-SMI has failed because it could not talk to the driver."},
		{"no GPU", "exit 0", "it names no GPU"},
		{"other words", "echo 'No devices were found'", "wrong number of fields"},
		{"hangs", "exec sleep 60", "no whole answer within 100ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			gpus := NVIDIASMI(fakeSMI(t, c.script), clock)
			if c.name == "hangs" {
				gpus.Timeout = 100 * time.Millisecond
			}
			_, err := gpus.Scrape(t.Context())
			if err == nil || !strings.Contains(err.Error(), "run nvidia-smi: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	if _, err := NVIDIASMI(filepath.Join(t.TempDir(), "none"), clock).Scrape(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that is not there: %v", err)
	}
}
