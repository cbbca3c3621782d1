package arrival

import (
	"iter"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func take(t *testing.T, p Plan, n int) []time.Duration {
	t.Helper()
	s, err := p.Schedule()
	if err != nil {
		t.Fatal(err)
	}
	return first(s, n)
}

func first(s Schedule, n int) []time.Duration {
	var out []time.Duration
	for at := range s {
		if len(out) == n {
			break
		}
		out = append(out, at)
	}
	return out
}

func TestConstantIsExact(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	tests := []struct {
		name string
		rate Profile
		want []time.Duration // all of them, or the first
		ends bool
	}{
		{"steady", Steady(4), []time.Duration{0, 250 * ms, 500 * ms, 750 * ms, s}, false},
		{"below one a second", Steady(0.25), []time.Duration{0, 4 * s, 8 * s}, false},
		{"thirds do not drift", Steady(3), []time.Duration{0, 333333333, 666666667, s, 1333333333, 1666666667, 2 * s}, false},
		{"stages stay apart", Profile{{Duration: s, From: 2, To: 2}, {Duration: s, From: 4, To: 4}},
			[]time.Duration{0, 500 * ms, s, 1250 * ms, 1500 * ms, 1750 * ms}, true},
		{"a pause", Profile{{Duration: s, From: 2, To: 2}, {Duration: 5 * s}, {Duration: s, From: 1, To: 1}},
			[]time.Duration{0, 500 * ms, 6 * s}, true},
		// Cumulative rate t²/2·2: arrivals at sqrt(i).
		{"ramp from 0", Profile{{Duration: 3 * s, From: 0, To: 6}},
			[]time.Duration{0, s, 1414213562, 1732050808, 2 * s, 2236067977, 2449489743, 2645751311, 2828427125}, true},
		// 4t - t² = i: t = 2 - sqrt(4-i).
		{"ramp to 0", Profile{{Duration: 2 * s, From: 4, To: 0}}, []time.Duration{0, 267949192, 585786438, s}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := len(tt.want)
			if tt.ends {
				n++
			}
			got := take(t, Plan{Pattern: Constant, Rate: tt.rate}, n)
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestConstantDoesNotDrift(t *testing.T) {
	s, err := Plan{Pattern: Constant, Rate: Steady(1e6 / 7)}.Schedule()
	if err != nil {
		t.Fatal(err)
	}
	next, stop := iter.Pull(s)
	defer stop()
	for i := range 1_000_001 {
		at, ok := next()
		if want := time.Duration(i) * 7000; !ok || at != want {
			t.Fatalf("arrival %d at %d, want %d", i, at, want)
		}
	}
}

func TestGapsHaveTheMomentsOfTheirLaw(t *testing.T) {
	const n = 100_000
	tests := []struct {
		name string
		plan Plan
		cv   float64
	}{
		{"poisson", Plan{Pattern: Poisson}, 1},
		{"gamma 1", Plan{Pattern: Gamma, Smoothness: 1}, 1},
		{"gamma 4", Plan{Pattern: Gamma, Smoothness: 4}, 0.5},
		{"gamma 0.25", Plan{Pattern: Gamma, Smoothness: 0.25}, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.plan.Rate, tt.plan.Seed = Steady(1000), 7
			var sum, square float64
			last := time.Duration(0)
			for _, at := range take(t, tt.plan, n) {
				g := float64(at-last) / 1e6 // in units of the mean gap
				last = at
				sum += g
				square += g * g
			}
			mean := sum / n
			cv := math.Sqrt(square/n-mean*mean) / mean
			if sigma := tt.cv / math.Sqrt(n); math.Abs(mean-1) > 3*sigma {
				t.Errorf("mean gap %v, want 1 ± %v", mean, 3*sigma)
			}
			// The variance of a sample's CV is, to first order,
			// c²/n · ((kurtosis-1)/4 - skewness·c + c²); a gamma law of CV c
			// has kurtosis 3+6c² and skewness 2c.
			c := tt.cv
			sigma := c * math.Sqrt((2+6*c*c)/4-2*c*c+c*c) / math.Sqrt(n)
			if math.Abs(cv-c) > 3*sigma {
				t.Errorf("cv %v, want %v ± %v", cv, c, 3*sigma)
			}
		})
	}
}

// A Poisson load over a ramp has in each stretch as many arrivals as the area
// under the rate says.
func TestPoissonFollowsTheRamp(t *testing.T) {
	p := Plan{Pattern: Poisson, Rate: Profile{{Duration: 100 * time.Second, From: 0, To: 1000}}, Seed: 3}
	s, err := p.Schedule()
	if err != nil {
		t.Fatal(err)
	}
	var count [10]float64
	for at := range s {
		count[min(9, at/(10*time.Second))]++
	}
	for k, got := range count {
		want := 500 * float64(2*k+1)
		if math.Abs(got-want) > 3.5*math.Sqrt(want) {
			t.Errorf("stretch %d: %v arrivals, want about %v", k, got, want)
		}
	}
}

func TestSameSeedSameOffsets(t *testing.T) {
	p := Plan{Pattern: Gamma, Smoothness: 0.5, Rate: Ramp(1, 50, time.Second), Seed: 1}
	a, b := take(t, p, 500), take(t, p, 500)
	if d := cmp.Diff(a, b); d != "" {
		t.Error(d)
	}
	s, _ := p.Schedule()
	if d := cmp.Diff(first(s, 100), first(s, 100)); d != "" {
		t.Errorf("a second range differs: %s", d)
	}
	p.Seed = 2
	if cmp.Equal(a, take(t, p, 500)) {
		t.Error("another seed gave the same offsets")
	}
}

// Published commands must give the same load with a later Go release.
func TestOffsetsArePinned(t *testing.T) {
	got := map[Pattern][]time.Duration{}
	for _, pattern := range []Pattern{Poisson, Gamma} {
		got[pattern] = take(t, Plan{Pattern: pattern, Rate: Steady(10), Smoothness: 2, Seed: 42}, 4)
	}
	want := map[Pattern][]time.Duration{
		Poisson: {88605119, 137288931, 231841960, 245075027},
		Gamma:   {166167954, 208288042, 323730147, 327763942},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestSharesMakeTheWhole(t *testing.T) {
	p := Plan{Pattern: Poisson, Rate: Steady(5), Seed: 9}
	s, err := p.Schedule()
	if err != nil {
		t.Fatal(err)
	}
	whole := first(s, 12)
	merged := make([]time.Duration, 12)
	for c := range 3 {
		for k, at := range first(Share(s, c, 3), 4) {
			merged[3*k+c] = at
		}
	}
	if d := cmp.Diff(whole, merged); d != "" {
		t.Error(d)
	}
}

func TestPlanRefused(t *testing.T) {
	tests := []struct {
		name string
		plan Plan
		say  string
	}{
		{"rate 0", Plan{Pattern: Poisson, Rate: Steady(0)}, "never above 0"},
		{"rate below 0", Plan{Pattern: Poisson, Rate: Steady(-1)}, "stage 1: level -1"},
		{"rate NaN", Plan{Pattern: Constant, Rate: Steady(math.NaN())}, "NaN"},
		{"rate Inf", Plan{Pattern: Constant, Rate: Steady(math.Inf(1))}, "+Inf"},
		{"rate too high", Plan{Pattern: Constant, Rate: Steady(2e9)}, "above"},
		{"no stage", Plan{Pattern: Constant}, "never above 0"},
		{"smoothness 0", Plan{Pattern: Gamma, Rate: Steady(1)}, "smoothness 0"},
		{"smoothness NaN", Plan{Pattern: Gamma, Rate: Steady(1), Smoothness: math.NaN()}, "NaN"},
		{"no pattern", Plan{Rate: Steady(1)}, "constant, poisson or gamma"},
		{"endless in the middle", Plan{Pattern: Constant, Rate: Profile{{From: 1, To: 1}, {Duration: 1, From: 1, To: 1}}}, "stage 1: it has no duration"},
		{"endless ramp", Plan{Pattern: Constant, Rate: Profile{{From: 1, To: 2}}}, "give it a duration"},
		{"all faults", Plan{Pattern: "x", Rate: Steady(-1)}, "pattern \"x\""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.plan.Schedule()
			if err == nil || !strings.Contains(err.Error(), tt.say) {
				t.Errorf("error %v, want one that says %q", err, tt.say)
			}
		})
	}
}

func TestScheduleAscendsAndHasTheAreaOfItsProfile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Profile
		var area float64
		for range rapid.IntRange(1, 4).Draw(t, "stages") {
			s := Stage{
				Duration: time.Duration(rapid.Int64Range(1, int64(20*time.Second)).Draw(t, "duration")),
				From:     rapid.Float64Range(0, 50).Draw(t, "from"),
				To:       rapid.Float64Range(0, 50).Draw(t, "to"),
			}
			area += (s.From + s.To) / 2 * s.Duration.Seconds()
			p = append(p, s)
		}
		s, err := Plan{Pattern: Constant, Rate: p}.Schedule()
		if err != nil {
			t.Skip("never above 0")
		}
		end, _ := p.Duration()
		n, last := 0, time.Duration(0)
		for at := range s {
			if at < last || at > end {
				t.Fatalf("arrival %d at %v, after %v, end %v", n, at, last, end)
			}
			last = at
			n++
		}
		if math.Abs(float64(n)-math.Ceil(area)) > 1 {
			t.Fatalf("%d arrivals under an area of %v", n, area)
		}
	})
}

func TestConcurrency(t *testing.T) {
	const s = time.Second
	p := Profile{{Duration: 4 * s, From: 0, To: 4}, {Duration: s, From: 8, To: 8}, {Duration: s}, {From: 2, To: 2}}
	tests := map[time.Duration]int{-1: 0, 0: 1, s: 1, 2*s - 1: 1, 2 * s: 2, 4*s - 1: 3, 4 * s: 8, 5*s - 1: 8, 5 * s: 0, 6 * s: 2, 1e6 * s: 2}
	for at, want := range tests {
		if got := p.ConcurrencyAt(at); got != want {
			t.Errorf("at %v: %d, want %d", at, got, want)
		}
	}
	var changes []time.Duration
	for at, ok := p.NextChange(0); ok; at, ok = p.NextChange(at) {
		changes = append(changes, at)
	}
	if d := cmp.Diff([]time.Duration{2 * s, 3 * s, 4 * s, 5 * s, 6 * s}, changes); d != "" {
		t.Error(d)
	}
	down := Profile{{Duration: 2 * s, From: 3, To: 1}}
	changes = nil
	for at, ok := down.NextChange(0); ok; at, ok = down.NextChange(at) {
		changes = append(changes, at)
	}
	// Just after 0 it is below 3; after 1 s below 2; at 2 s it is over.
	if d := cmp.Diff([]time.Duration{1, s + 1, 2 * s}, changes); d != "" {
		t.Error(d)
	}
}

func TestUsers(t *testing.T) {
	u := Users{Count: 15, Rate: 4}
	if got := u.Gap(); got != 3750*time.Millisecond {
		t.Errorf("gap %v", got)
	}
	if got := u.Start(3); got != 750*time.Millisecond {
		t.Errorf("start of user 3: %v", got)
	}
	const s = time.Second
	if got := u.Next(10*s, 11*s); got != 13750*time.Millisecond {
		t.Errorf("quick answer: %v", got)
	}
	if got := u.Next(10*s, 20*s); got != 20*s {
		t.Errorf("slow answer: %v", got)
	}
	seen := map[int]int{}
	for k := range 15 {
		seen[u.Age(k, 5)]++
	}
	if d := cmp.Diff(map[int]int{0: 3, 1: 3, 2: 3, 3: 3, 4: 3}, seen); d != "" {
		t.Errorf("ages are not even: %s", d)
	}
	if a, b := u.Age(0, 20), u.Age(1, 20); b-a < 5 {
		t.Errorf("neighbours are of like age: %d, %d", a, b)
	}
	for _, bad := range []Users{{0, 1}, {1, 0}, {1, math.NaN()}, {1, math.Inf(1)}} {
		if bad.Validate() == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
}

func TestTrace(t *testing.T) {
	const s = time.Second
	tests := []struct {
		name string
		tr   Trace
		want []time.Duration
	}{
		{"first is 0", Trace{}, []time.Duration{0, 2 * s, 6 * s}},
		{"speed-up divides gaps", Trace{Speedup: 4}, []time.Duration{0, s / 2, 3 * s / 2}},
		{"slower", Trace{Speedup: 0.5}, []time.Duration{0, 4 * s, 12 * s}},
		{"origin kept", Trace{KeepOrigin: true}, []time.Duration{4 * s, 6 * s, 10 * s}},
		{"cut, ends inclusive", Trace{Start: 5 * s, End: 10 * s}, []time.Duration{s, 5 * s}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []time.Duration
			first := time.Duration(-1)
			for _, at := range []time.Duration{4 * s, 6 * s, 10 * s} {
				if !tt.tr.Keeps(at) {
					continue
				}
				if first < 0 {
					first = at
				}
				got = append(got, tt.tr.Offset(at, first))
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
	for _, bad := range []Trace{{Speedup: -1}, {Speedup: math.NaN()}, {Start: -1}, {Start: 2, End: 1}} {
		if bad.Validate() == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
}

// Together, loads are what each of them is alone.
func TestMerge(t *testing.T) {
	var plans []Schedule
	for k, pattern := range []Pattern{Constant, Poisson, Constant} {
		s, err := Plan{Pattern: pattern, Rate: Steady(float64(10 * (k + 1))), Seed: uint64(k)}.Schedule()
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, s)
	}
	plans = append(plans, Fixed([]time.Duration{time.Second, 0}))
	merged := Merge(plans...)
	for range 2 { // each range begins anew
		got := make([][]time.Duration, len(plans))
		last, n := time.Duration(0), 0
		for at, k := range merged {
			if at < last {
				t.Fatalf("%v comes after %v", at, last)
			}
			last, got[k] = at, append(got[k], at)
			if n++; n == 1000 {
				break
			}
		}
		for k, s := range plans {
			i := 0
			for at := range s {
				if i == len(got[k]) {
					break
				}
				if got[k][i] != at {
					t.Fatalf("schedule %d, arrival %d at %v, alone at %v", k, i, got[k][i], at)
				}
				i++
			}
			if i < 2 {
				t.Errorf("schedule %d: %d arrivals", k, i)
			}
		}
	}
	var places []int
	for _, k := range Merge(Fixed([]time.Duration{5, 5}), Fixed([]time.Duration{5, 3})) {
		places = append(places, k)
	}
	if !slices.Equal(places, []int{1, 0, 0, 1}) {
		t.Errorf("at one moment: %v", places)
	}
}
