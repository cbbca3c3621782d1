package target

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/tokmark/tokmark/bench/record"
)

// smiColumns are what nvidia-smi is asked for, and what a DCGM exporter calls
// it: first labels, then gauges of the same units.
var smiColumns = []struct{ query, name string }{
	{"index", "gpu"}, {"uuid", "UUID"}, {"name", "modelName"}, {"driver_version", "DCGM_FI_DRIVER_VERSION"},
	{"utilization.gpu", "DCGM_FI_DEV_GPU_UTIL"}, {"memory.used", "DCGM_FI_DEV_FB_USED"}, {"memory.free", "DCGM_FI_DEV_FB_FREE"},
	{"power.draw", "DCGM_FI_DEV_POWER_USAGE"}, {"clocks.sm", "DCGM_FI_DEV_SM_CLOCK"},
}

const smiLabels = 4 // of smiColumns

// NVIDIASMI returns a scraper of this machine's GPUs that runs the nvidia-smi at
// path for each reading. Its figures are those of a DCGM exporter, but for the
// energy, which it does not tell.
func NVIDIASMI(path string, clock func() record.Time) *Scraper {
	return &Scraper{Metrics: DCGM(), From: record.FromGPU, Clock: clock, smi: path}
}

// smiFamilies runs nvidia-smi once.
func smiFamilies(ctx context.Context, path string, timeout time.Duration) (map[string]*dto.MetricFamily, error) {
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no whole answer within %v", timeout))
	defer cancel()
	queries := make([]string, len(smiColumns))
	for i, c := range smiColumns {
		queries[i] = c.query
	}
	c := exec.CommandContext(ctx, path, "--query-gpu="+strings.Join(queries, ","), "--format=csv,noheader,nounits")
	c.WaitDelay = time.Second
	out, err := c.Output()
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		} else if line, _, _ := bytes.Cut(bytes.TrimSpace(out), []byte("\n")); len(line) > 0 { // it complains there
			err = fmt.Errorf("%w: %.200s", err, plain(string(line)))
		}
		return nil, fmt.Errorf("run nvidia-smi: %w", err)
	}
	families, err := smiParse(out)
	if err != nil {
		return nil, fmt.Errorf("run nvidia-smi: %w", err)
	}
	return families, nil
}

// smiParse reads the lines, one for each GPU. What a GPU does not tell is text
// as "[N/A]" in place of a number, and absent.
func smiParse(out []byte) (map[string]*dto.MetricFamily, error) {
	r := csv.NewReader(bytes.NewReader(out))
	r.FieldsPerRecord, r.TrimLeadingSpace = len(smiColumns), true
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("its answer: %w", err)
	}
	if len(rows) == 0 {
		return nil, errors.New("it names no GPU")
	}
	families := map[string]*dto.MetricFamily{}
	for _, row := range rows {
		var labels []*dto.LabelPair
		for i, c := range smiColumns[:smiLabels] {
			labels = append(labels, &dto.LabelPair{Name: &c.name, Value: &row[i]})
		}
		for i, c := range smiColumns[smiLabels:] {
			v, err := strconv.ParseFloat(strings.TrimSpace(row[smiLabels+i]), 64)
			if err != nil {
				continue
			}
			f := families[c.name]
			if f == nil {
				f = &dto.MetricFamily{Name: &c.name, Type: dto.MetricType_GAUGE.Enum()}
				families[c.name] = f
			}
			f.Metric = append(f.Metric, &dto.Metric{Label: labels, Gauge: &dto.Gauge{Value: &v}})
		}
	}
	return families, nil
}
