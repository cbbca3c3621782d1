package compare

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/stats"
)

// Run is one measured run. It is not changed after it was loaded and may be
// read concurrently.
type Run struct {
	// Path is what the run is called by. Files is where its files lie, if that
	// is elsewhere, as those of a capsule do.
	Path     string
	Files    string
	Manifest *record.Manifest
	Partial  bool
	Verdict  report.Verdict
	Warnings []report.Warning
	Counts   report.Counts
	Lengths  *report.Lengths
	Cache    *report.Cache
	Tokens   []report.TokenSource
	// Records tells that the requests themselves are known, not only figures:
	// without them one run has no interval.
	Records bool

	// values holds the figures by tag and statistic ("" for a run's own),
	// counts how many values stand behind a tag.
	values map[string]map[string]float64
	counts map[string]int64
	// series holds, by tag, one value a valid request in the order of start;
	// of throughputs one value for each of equal parts of the run, whose mean
	// is the figure.
	series map[string][]float64
	// failed is 1 for each failed and 0 for each valid request.
	failed []float64
}

// Load reads a run: a run directory, or a summary.json. From a directory
// without records only its summary.json is read. It fails with record.ErrNoRun
// if there is no run.
func Load(path string) (*Run, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read run %s: %w (no such file or directory)", path, record.ErrNoRun)
	}
	if err != nil {
		return nil, fmt.Errorf("read run: %w", err)
	}
	if !info.IsDir() {
		return loadSummary(path, path)
	}
	dir := record.Dir(path)
	m, err := dir.ReadManifest()
	if errors.Is(err, record.ErrNoRun) && exists(dir.Path(record.SummaryJSONFile)) {
		return loadSummary(path, dir.Path(record.SummaryJSONFile))
	}
	if err != nil {
		return nil, err
	}
	if !exists(dir.Path(record.RecordsFile)) && exists(dir.Path(record.SummaryJSONFile)) {
		r, err := loadSummary(path, dir.Path(record.SummaryJSONFile))
		if err == nil {
			r.Manifest = m
		}
		return r, err
	}
	samples, _, err := dir.Samples()
	if err != nil {
		return nil, err
	}
	return newRun(path, m, dir.Records(), samples)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// newRun summarizes the records and keeps their values.
func newRun(path string, m *record.Manifest, records iter.Seq2[*record.Record, error], samples []record.Sample) (*Run, error) {
	var kept []request
	s, err := report.Summarize(m, func(yield func(*record.Record, error) bool) {
		for rec, err := range records {
			if err == nil && rec.Phase == record.PhaseMeasure && rec.Start.IsSet() && !m.Late(rec) {
				if q, ok := newRequest(rec); ok {
					kept = append(kept, q)
				}
			}
			if !yield(rec, err) {
				return
			}
		}
	}, samples, report.Options{})
	if err != nil {
		return nil, err
	}
	r := &Run{
		Path: path, Manifest: m, Partial: s.Partial, Verdict: s.Verdict, Warnings: s.Warnings, Counts: s.Counts,
		Lengths: s.Lengths, Cache: s.Cache, Tokens: s.Tokens, Records: true,
		values: map[string]map[string]float64{}, counts: map[string]int64{},
	}
	for _, v := range s.Metrics {
		if v.Adjusted { // holds infinities, which have no ratio
			continue
		}
		if v.Statistic == nil {
			r.values[v.Tag] = map[string]float64{"": v.Value}
			continue
		}
		r.values[v.Tag] = valuesOf(v.Statistic)
		r.counts[v.Tag] = v.Statistic.Count
	}
	slices.SortStableFunc(kept, func(a, b request) int { return cmp.Compare(a.start, b.start) })
	r.keep(kept)
	return r, nil
}

func valuesOf(st *stats.Statistic) map[string]float64 {
	out := map[string]float64{"avg": st.Avg, "min": st.Min, "max": st.Max}
	for i, p := range stats.Percents {
		out[report.PercentileKey(p)] = st.Percentiles[i]
	}
	return out
}

// request is what is kept of a record.
type request struct {
	start, first, last record.Time
	failed             bool
	osl                float64 // -1: unknown
	values             []float64
	tags               []string
}

func newRequest(rec *record.Record) (request, bool) {
	q := request{start: rec.Start, osl: -1}
	if !rec.Valid() {
		q.failed = rec.Outcome != record.Cancelled && rec.Outcome != record.Dropped
		return q, q.failed
	}
	q.first, q.last = rec.Chunks[0].At, rec.Chunks[len(rec.Chunks)-1].At
	if n, ok := rec.OSL(); ok {
		q.osl = float64(n)
	}
	for _, m := range report.Metrics() {
		if m.Scope != report.PerRequest {
			continue
		}
		if v, ok := m.Of(rec); ok {
			q.tags, q.values = append(q.tags, m.Tag), append(q.values, v)
		}
	}
	return q, true
}

// The throughputs that have a series.
const (
	requestRate = "request_throughput"
	tokenRate   = "output_token_throughput"
	errorRate   = "request_error_rate"
	goodShare   = "good_request_fraction"
	outputMean  = "output_sequence_length"
)

// keep fills series and failed from requests in the order of start.
func (r *Run) keep(kept []request) {
	r.series = map[string][]float64{}
	first, last, valid := record.Unset, record.Unset, 0
	for i := range kept {
		q := &kept[i]
		if q.failed {
			r.failed = append(r.failed, 1)
			continue
		}
		r.failed = append(r.failed, 0)
		for k, tag := range q.tags {
			if _, told := r.values[tag]; told {
				r.series[tag] = append(r.series[tag], q.values[k])
			}
		}
		if valid == 0 {
			first, last = q.start, q.last
		}
		first, last = min(first, q.start), max(last, q.last)
		valid++
	}
	const fewest, most, perBin = 20, 200, 10
	bins := min(max(valid/perBin, fewest), most)
	if valid < 2*fewest || last <= first {
		return
	}
	width := last.Sub(first).Seconds() / float64(bins)
	at := func(t record.Time) float64 { return t.Sub(first).Seconds() / width }
	requests, tokens := make([]float64, bins), make([]float64, bins)
	for i := range kept {
		q := &kept[i]
		if q.failed {
			continue
		}
		// A request is done evenly from start to end, as its tokens come
		// evenly: bins then do not depend on where their borders lie.
		spread(requests, at(q.start), at(q.last), 1/width)
		if q.osl > 0 {
			spread(tokens, at(q.first), at(q.last), q.osl/width)
		}
	}
	r.series[requestRate] = requests
	if _, told := r.values[tokenRate]; told {
		r.series[tokenRate] = tokens
	}
}

// spread adds amount evenly to the bins from place to place, all to one if the
// two are the same.
func spread(bins []float64, from, to, amount float64) {
	for k := min(max(int(from), 0), len(bins)-1); k < len(bins); k++ {
		if to <= from {
			bins[k] += amount
			return
		}
		if overlap := min(to, float64(k+1)) - max(from, float64(k)); overlap > 0 {
			bins[k] += amount * overlap / (to - from)
		}
		if to <= float64(k+1) {
			return
		}
	}
}

// value is a figure of the run.
func (r *Run) value(tag, stat string) (float64, bool) {
	v, ok := r.values[tag][stat]
	return v, ok
}

// loadSummary reads a summary.json. What it does not say is unknown.
func loadSummary(path, file string) (*Run, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read summary: %w", err)
	}
	var doc struct {
		Schema int `json:"schema"`
		Run    struct {
			ID           string            `json:"id"`
			Tool         record.Build      `json:"tool"`
			Outcome      record.RunOutcome `json:"outcome"`
			Partial      bool              `json:"partial"`
			Workload     string            `json:"workload"`
			WorkloadHash string            `json:"workload_hash"`
			Seed         uint64            `json:"seed"`
			Stamps       string            `json:"stamps"`
		} `json:"run"`
		Target *record.Target `json:"target"`
		Load   struct {
			Asked record.Load `json:"asked"`
		} `json:"load"`
		Config     map[string]json.RawMessage `json:"input_config"`
		Conditions []record.Condition         `json:"conditions"`
		Verdict    report.Verdict             `json:"verdict"`
		Warnings   []report.Warning           `json:"warnings"`
		Counts     report.Counts              `json:"requests"`
		Lengths    *report.Lengths            `json:"lengths"`
		Cache      *report.Cache              `json:"cache"`
		Tokens     []report.TokenSource       `json:"token_sources"`
	}
	var all map[string]json.RawMessage
	err = json.Unmarshal(text, &doc)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	isSummary := err == nil && doc.Schema != 0 && doc.Target != nil
	if !isSummary && filepath.Base(file) != record.SummaryJSONFile {
		return nil, fmt.Errorf("read run %s: %w: it is a file, and no summary.json of tokmark", file, record.ErrNoRun)
	}
	if err != nil {
		return nil, fmt.Errorf("read summary %s: %w", file, err)
	}
	if !isSummary {
		return nil, fmt.Errorf("read summary %s: it is no summary.json of tokmark", file)
	}
	if doc.Schema > report.Schema {
		return nil, fmt.Errorf("read summary %s: it has schema version %d and this tokmark knows up to %d: use a newer tokmark", file, doc.Schema, report.Schema)
	}
	m := &record.Manifest{
		ID: doc.Run.ID, Tool: doc.Run.Tool, Outcome: doc.Run.Outcome, Workload: doc.Run.Workload, WorkloadHash: doc.Run.WorkloadHash,
		Seed: doc.Run.Seed, Stamps: doc.Run.Stamps, Target: *doc.Target, Load: doc.Load.Asked, Config: doc.Config, Conditions: doc.Conditions,
		MeasureStart: record.Unset, MeasureEnd: record.Unset,
	}
	if doc.Cache != nil {
		m.Cache.Mode = doc.Cache.Mode
	}
	r := &Run{
		Path: path, Manifest: m, Partial: doc.Run.Partial, Verdict: doc.Verdict, Warnings: doc.Warnings, Counts: doc.Counts,
		Lengths: doc.Lengths, Cache: doc.Cache, Tokens: doc.Tokens,
		values: map[string]map[string]float64{}, counts: map[string]int64{},
	}
	for _, metric := range report.Metrics() {
		var fields map[string]any
		if json.Unmarshal(all[metric.Tag], &fields) != nil {
			continue
		}
		values := map[string]float64{}
		for key, v := range fields {
			n, isNumber := v.(float64)
			switch {
			case !isNumber:
			case key == "count":
				r.counts[metric.Tag] = int64(n)
			case metric.Scope == report.PerRun && key == "avg":
				values[""] = n
			case key == "avg" || key == "min" || key == "max" || strings.HasPrefix(key, "p"):
				values[key] = n
			}
		}
		if len(values) > 0 {
			r.values[metric.Tag] = values
		}
	}
	return r, nil
}

// Side is one or more runs of the same thing: repeats, or with other loads the
// points of a curve.
type Side struct {
	Name string
	Runs []*Run
}

// LoadSide reads a side from paths: run directories, summaries, or directories
// that hold run directories. Runs are in the order of paths and names.
func LoadSide(paths ...string) (Side, error) {
	side := Side{Name: strings.Join(paths, ", ")}
	for _, path := range paths {
		r, err := Load(path)
		if err == nil {
			side.Runs = append(side.Runs, r)
			continue
		}
		if !errors.Is(err, record.ErrNoRun) {
			return side, err
		}
		inside, noRun := record.Dir(path).Runs()
		if noRun != nil {
			return side, err
		}
		for _, dir := range inside {
			if r, err = Load(string(dir)); err != nil {
				return side, err
			}
			side.Runs = append(side.Runs, r)
		}
	}
	if len(side.Runs) == 0 {
		return side, errors.New("read runs: no path was given")
	}
	return side, nil
}

// globQuote takes the meaning from the characters of a pattern.
func globQuote(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
