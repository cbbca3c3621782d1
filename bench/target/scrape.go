package target

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/tokmark/tokmark/bench/record"
)

// ErrNoMetrics tells that there are no Prometheus metrics at the address.
var ErrNoMetrics = errors.New("no Prometheus metrics there")

// Scraper reads one metrics endpoint, or the GPUs of this machine. It is safe for concurrent use; what is
// counted is read anew each time.
type Scraper struct {
	// Client carries the requests; nil: http.DefaultClient.
	Client *http.Client
	// URL is the address of the metrics. Header goes with each request: only
	// to the server that it is meant for.
	URL    *url.URL
	Header http.Header
	// Metrics names the series: Dialect.Metrics, or DCGM().
	Metrics Metrics
	// Model keeps out series that name another model; empty: all count.
	Model string
	// From goes into the samples: server, gpu.
	From string
	// Timeout bounds one reading; 0: 5 s.
	Timeout time.Duration
	// Clock tells the offset from the run's origin.
	Clock func() record.Time

	smi string // path of the nvidia-smi to run in place of a request
}

// Scraper returns a scraper of the server's own metrics; ok is false if its
// dialect has none.
func (s *Server) Scraper(d Dialect, modelName string, clock func() record.Time) (sc *Scraper, ok bool) {
	if d.Metrics.Path == "" {
		return nil, false
	}
	return &Scraper{
		Client: s.Client, URL: s.at(d.Metrics.Path), Header: s.Header, Timeout: s.Timeout,
		Metrics: d.Metrics, Model: modelName, From: "server", Clock: clock,
	}, true
}

// Run samples at once and then every interval, and hands each sample to sink
// in the caller's goroutine, until ctx is done. A reading that takes longer
// than the interval delays the next one; none is made up for. A failed reading
// is a sample with an Error; one that ctx cuts short is none.
func (s *Scraper) Run(ctx context.Context, interval time.Duration, sink func(Sample)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		sample, err := s.Scrape(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			sample.Error = err.Error()
		}
		sink(sample)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// Scrape reads the endpoint once. With an error the sample holds only when
// that was; the error is ErrNoMetrics if the endpoint is not there or is
// switched off.
func (s *Scraper) Scrape(ctx context.Context) (Sample, error) {
	sample := Sample{At: s.Clock(), From: s.From}
	families, err := s.families(ctx)
	sample.Took = s.Clock().Sub(sample.At)
	if err != nil {
		return sample, err
	}
	r := reading{metrics: &s.Metrics, model: s.Model, families: families, sample: &sample}
	r.read()
	return sample, nil
}

// families fetches and parses.
func (s *Scraper) families(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	if s.smi != "" {
		return smiFamilies(ctx, s.smi, s.Timeout)
	}
	header := s.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set("Accept", string(expfmt.FmtText))
	a, err := fetch(ctx, s.Client, http.MethodGet, s.URL, header, nil, s.Timeout)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	families, err := parse(a)
	if err != nil {
		return nil, fmt.Errorf("read metrics: GET %s: %w", bare(s.URL), err)
	}
	return families, nil
}

// parse reads the Prometheus text format. The server's words are not repeated
// in errors: they might hold what we sent.
func parse(a *answer) (map[string]*dto.MetricFamily, error) {
	kind, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	start := bytes.TrimSpace(a.body[:min(len(a.body), 512)])
	switch {
	case a.status == http.StatusUnauthorized || a.status == http.StatusForbidden:
		return nil, fmt.Errorf("status %d: it wants other credentials", a.status)
	case a.status/100 == 3 || a.status == http.StatusNotFound || a.status == http.StatusMethodNotAllowed ||
		a.status == http.StatusNotImplemented: // llama.cpp without --metrics
		return nil, fmt.Errorf("status %d: %w", a.status, ErrNoMetrics)
	case !a.ok():
		return nil, fmt.Errorf("status %d", a.status)
	case kind == "text/html" || bytes.HasPrefix(start, []byte("<")):
		return nil, errors.New("the answer is HTML, not Prometheus metrics")
	case strings.HasSuffix(kind, "json") || bytes.HasPrefix(start, []byte("[")):
		return nil, errors.New("the answer is JSON, not Prometheus metrics")
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(a.body))
	if err != nil {
		var at expfmt.ParseError
		if errors.As(err, &at) {
			return nil, fmt.Errorf("line %d is not in the Prometheus text format", at.Line)
		}
		return nil, errors.New("it is not in the Prometheus text format")
	}
	return families, nil
}

// reading turns families into a sample.
type reading struct {
	metrics  *Metrics
	model    string
	families map[string]*dto.MetricFamily
	sample   *Sample

	others   []string // models of series that were left out
	kept     bool
	replicas map[string]bool
}

func (r *reading) read() {
	r.replicas = map[string]bool{}
	s := r.sample
	s.parts = map[Metric]map[string]float64{}
	known := false
	for _, m := range slices.Sorted(maps.Keys(r.metrics.Series)) {
		series := r.metrics.Series[m]
		found, err := r.metric(m, series)
		known = known || found
		if err != nil {
			s.Warnings = append(s.Warnings, fmt.Sprintf("%s: %v", m, err))
		}
	}
	if f := r.families[started]; f != nil && len(f.GetMetric()) == 1 {
		if v, ok := number(f.GetMetric()[0]); ok {
			s.Started = &v
		}
	}
	s.Replicas = slices.Sorted(maps.Keys(r.replicas))
	switch {
	case !known:
		s.Warnings = append(s.Warnings, "none of the known series is there")
	case !r.kept && len(r.others) > 0:
		s.Warnings = append(s.Warnings, fmt.Sprintf("no series is of model %q; there are some of %s", r.model, strings.Join(r.others, ", ")))
	}
}

// metric reads one metric into the sample; found tells that the server has
// such series, if only of other models.
func (r *reading) metric(m Metric, series Series) (found bool, err error) {
	i := slices.IndexFunc(series.Names, func(name string) bool { return r.families[name] != nil })
	if i < 0 {
		return false, nil
	}
	scale := series.Scale
	if scale == 0 {
		scale = 1
	}
	k := kinds[m]
	main, err := r.sum(series.Names[i], series, k, scale)
	if err != nil || main.n == 0 {
		return true, err
	}
	for _, other := range []string{series.Plus, series.Over} {
		if other == "" {
			continue
		}
		o, err := r.sum(other, series, k, scale)
		if err != nil || o.n == 0 {
			return true, err
		}
		if other == series.Over {
			if o.value == 0 {
				return true, nil
			}
			main.value = main.value / o.value * float64(main.n) // undone by the mean
			continue
		}
		main.value += o.value
		maps.Copy(main.parts, o.parts)
	}
	if math.IsInf(main.value, 0) || math.IsNaN(main.value) || math.IsInf(main.count, 0) {
		return true, errTooLarge
	}
	maps.Copy(r.replicas, main.replicas)
	s := r.sample
	switch k {
	case sumGauge, meanGauge:
		if s.Gauges == nil {
			s.Gauges = map[Metric]float64{}
		}
		if s.Gauges[m] = main.value; k == meanGauge {
			s.Gauges[m] /= float64(main.n)
		}
	case counter:
		if s.Counters == nil {
			s.Counters = map[Metric]float64{}
		}
		s.Counters[m] = main.value
		s.parts[m] = main.parts
	case times:
		if s.Times == nil {
			s.Times = map[Metric]Total{}
		}
		total := Total{Seconds: main.value}
		if main.counted {
			total.Count = &main.count
			s.parts[m+countPart] = main.counts
		}
		s.Times[m] = total
		s.parts[m+secondsPart] = main.parts
	}
	return true, nil
}

// sums is what the series of one name add up to.
type sums struct {
	n             int
	value, count  float64
	counted       bool
	parts, counts map[string]float64
	replicas      map[string]bool
}

// Why a metric is left out of a sample.
var (
	errTwice    = errors.New("the same series stands there twice: left out")
	errTooLarge = errors.New("the sum of the series is no number: left out")
)

// sum adds up the series of a name that are of the model and have the label.
// Series whose type cannot hold such a metric, and values that are no numbers,
// count as absent.
func (r *reading) sum(name string, series Series, k kind, scale float64) (sums, error) {
	out := sums{parts: map[string]float64{}, counts: map[string]float64{}, replicas: map[string]bool{}}
	f := r.families[name]
	if f == nil || (k == counter || k == times) && f.GetType() == dto.MetricType_GAUGE {
		return out, nil // a gauge of the moment is no counter
	}
	seen := map[string]bool{}
	for _, m := range f.GetMetric() {
		of, replica, own := r.labels(m, series)
		if !own {
			continue
		}
		whole := name + "{" + labelText(m, nil, nil) + "}"
		if seen[whole] {
			return sums{}, errTwice
		}
		seen[whole] = true
		value, count, counted, ok := measured(m, k)
		if !ok {
			continue
		}
		value *= scale
		key := name + "{" + of + "}"
		if old, again := out.parts[key]; again {
			// A rank or a pod that repeats what another said.
			if value <= old {
				continue
			}
			out.value -= old
			out.count -= out.counts[key]
			out.n--
		}
		out.n++
		out.value += value
		out.parts[key] = value
		if counted {
			out.counted = true
			out.count += count
			out.counts[key] = count
		}
		if replica != "" {
			out.replicas[replica] = true
		}
	}
	return out, nil
}

// replicaLabels tell engines apart. A counter of one that appears late did not
// begin at 0.
var replicaLabels = []string{"engine", "dp_rank", "rank", "instance", "pod", "worker_id"}

// labels returns what tells the series apart, which engine it is of, and
// whether it is one of those asked for.
func (r *reading) labels(m *dto.Metric, series Series) (identity, replica string, own bool) {
	own = series.Label == ""
	for _, l := range m.GetLabel() {
		switch l.GetName() {
		case series.Label:
			own = own || l.GetValue() == series.Value
		case "model_name", "model":
			if r.model == "" || strings.EqualFold(l.GetValue(), r.model) {
				continue
			}
			if !slices.Contains(r.others, l.GetValue()) {
				r.others = append(r.others, l.GetValue())
			}
			return "", "", false
		}
	}
	r.kept = r.kept || own
	engines := replicaLabels
	if r.metrics.apart != nil {
		engines = r.metrics.apart
	}
	return labelText(m, r.metrics.apart, r.metrics.same), labelText(m, engines, nil), own
}

// labelText writes the labels in order: only those listed, if any are, and
// none of those left out.
func labelText(m *dto.Metric, only, without []string) string {
	var out []string
	for _, l := range m.GetLabel() {
		if only != nil && !slices.Contains(only, l.GetName()) || slices.Contains(without, l.GetName()) {
			continue
		}
		out = append(out, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

// measured returns the value of a series, and the count of a histogram.
func measured(m *dto.Metric, k kind) (value, count float64, counted, ok bool) {
	switch {
	case m.GetHistogram() != nil:
		h := m.GetHistogram()
		value, count = h.GetSampleSum(), float64(h.GetSampleCount())
		if h.SampleCountFloat != nil {
			count = h.GetSampleCountFloat()
		}
		ok = h.SampleSum != nil && k != sumGauge && k != meanGauge
		counted = h.SampleCount != nil || h.SampleCountFloat != nil
	case m.GetSummary() != nil:
		s := m.GetSummary()
		value, count = s.GetSampleSum(), float64(s.GetSampleCount())
		ok = s.SampleSum != nil && k != sumGauge && k != meanGauge
		counted = s.SampleCount != nil
	default:
		value, ok = number(m)
	}
	return value, count, counted, ok && !math.IsNaN(value) && !math.IsInf(value, 0)
}

// number returns the value of a gauge, a counter or a series without a type.
func number(m *dto.Metric) (float64, bool) {
	var v float64
	switch {
	case m.GetGauge() != nil:
		v = m.GetGauge().GetValue()
	case m.GetCounter() != nil:
		v = m.GetCounter().GetValue()
	case m.GetUntyped() != nil:
		v = m.GetUntyped().GetValue()
	default:
		return 0, false
	}
	return v, !math.IsNaN(v) && !math.IsInf(v, 0)
}
