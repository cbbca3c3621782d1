package synthetic

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tiktoken-go/tokenizer"
	"pgregory.net/rapid"

	"github.com/tokmark/tokmark/workloads"
)

// pieces cuts words after each four letters, so its counts add up; a token is
// also its own name, for the cache below.
type pieces struct{}

func (pieces) tokens(text string) []string {
	var out []string
	for _, w := range strings.Fields(strings.ReplaceAll(text, ".", " .")) {
		for len(w) > 8 {
			out = append(out, w[:8])
			w = w[8:]
		}
		out = append(out, w)
	}
	return out
}

func (p pieces) Count(text string) int { return len(p.tokens(text)) }

// letters has a token for each byte.
type letters struct{}

func (letters) Count(text string) int { return len(text) }

// lumps does not add up: what a word counts depends on what stands before.
type lumps struct{}

func (lumps) Count(text string) int { return (len(text) + 4) / 5 }

type tiktoken struct{ codec tokenizer.Codec }

func (t tiktoken) Count(text string) int {
	n, err := t.codec.Count(text)
	if err != nil {
		panic(err)
	}
	return n
}

func cl100k(t testing.TB) Counter {
	codec, err := tokenizer.Get(tokenizer.Cl100kBase)
	if err != nil {
		t.Fatal(err)
	}
	return tiktoken{codec}
}

func newGen(t testing.TB, o Options) *Generator {
	t.Helper()
	if o.Lengths == nil {
		o.Lengths = []Lengths{{Input: Fixed(100)}}
	}
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func at(t testing.TB, s workloads.Source, i int) workloads.Session {
	t.Helper()
	session, err := s.At(i)
	if err != nil {
		t.Fatal(err)
	}
	return session
}

// prompt is the text of a request.
func prompt(r workloads.Request) string {
	var all []string
	for _, m := range r.Messages {
		all = append(all, m.Content)
	}
	if r.Prompt != "" {
		all = append(all, r.Prompt)
	}
	return strings.Join(all, " ")
}

func TestLengthsAreExact(t *testing.T) {
	for name, counter := range map[string]Counter{"pieces": pieces{}, "letters": letters{}, "lumps": lumps{}, "cl100k": cl100k(t)} {
		t.Run(name, func(t *testing.T) {
			g := newGen(t, Options{Counter: counter, Lengths: []Lengths{{Input: Uniform{1, 300}}, {Input: Uniform{1, 12}}, {Input: Fixed(2000), Weight: 0.02}},
				Prefixes: 3, PrefixTokens: 20, HitRate: 0.4, TurnsMean: 2})
			for i := -50; i < 250; i++ {
				s := at(t, g, i)
				for k, r := range s.Turns {
					if got := counter.Count(prompt(r)); got != r.OwnTokens || got != r.InputTokens {
						t.Fatalf("session %d, turn %d: %d tokens, said to be %d, wanted %d: %q", i, k, got, r.OwnTokens, r.InputTokens, prompt(r))
					}
				}
			}
		})
	}
}

func TestWantedLengthIsMet(t *testing.T) {
	for name, counter := range map[string]Counter{"pieces": pieces{}, "letters": letters{}, "lumps": lumps{}, "cl100k": cl100k(t), "estimate": nil} {
		for _, n := range []int{1, 2, 3, 5, 7, 16, 100, 1000, 8191} {
			g := newGen(t, Options{Counter: counter, Lengths: []Lengths{{Input: Fixed(n), Output: Fixed(9)}}})
			for i := range 3 {
				r := at(t, g, i).Turns[0]
				if r.InputTokens != n || r.OutputTokens != 9 {
					t.Errorf("%s: asked for %d in, 9 out; got %d, %d: %.80q", name, n, r.InputTokens, r.OutputTokens, prompt(r))
				}
				s, own, err := g.Prompt(i, n)
				if err != nil || counter != nil && (counter.Count(s) != n || own != n) {
					t.Errorf("%s: Prompt of %d tokens: %.80q, %v", name, n, s, err)
				}
			}
		}
	}
}

func TestEstimate(t *testing.T) {
	g := newGen(t, Options{TokensPerWord: 1.3, Lengths: []Lengths{{Input: Fixed(1300)}}})
	if g.Exact() {
		t.Error("an estimate says it is exact")
	}
	r := at(t, g, 0).Turns[0]
	s := prompt(r)
	if n := len(strings.Fields(s)) + strings.Count(s, "."); n < 999 || n > 1001 || r.InputTokens != 1300 || r.OwnTokens != 0 {
		t.Errorf("%d words and stops for %d tokens", n, r.InputTokens)
	}
	if s := prompt(at(t, newGen(t, Options{TokensPerWord: 9, Lengths: []Lengths{{Input: Fixed(1)}}}), 0).Turns[0]); s == "" {
		t.Error("a prompt is empty")
	}
}

func TestTextLooksNatural(t *testing.T) {
	s := prompt(at(t, newGen(t, Options{Counter: pieces{}}), 0).Turns[0])
	seen := map[string]bool{}
	for _, w := range strings.Fields(s) {
		seen[w] = true
	}
	if len(seen) < 50 || !strings.Contains(s, ". ") || strings.ContainsAny(s, "\n\t") || strings.Contains(s, "  ") || strings.TrimSpace(s) != s {
		t.Errorf("odd text: %q", s)
	}
}

func TestSaltAndSeed(t *testing.T) {
	lengths := []Lengths{{Input: Normal{60, 20}, Output: Normal{50, 10}}, {Input: Fixed(30), Class: "b"}}
	mk := func(seed uint64, salt string) *Generator {
		return newGen(t, Options{Seed: seed, Salt: salt, Counter: pieces{}, Lengths: lengths, SystemTokens: 40, TurnsMean: 2, TurnsStddev: 1, DelayMean: time.Second, DelayStddev: time.Second})
	}
	a, b, salted, seeded := mk(1, "x"), mk(1, "x"), mk(1, "y"), mk(2, "x")
	for i := -20; i < 50; i++ {
		s := at(t, a, i)
		if d := cmp.Diff(s, at(t, b, i)); d != "" {
			t.Fatalf("same seed and salt differ: %s", d)
		}
		other := at(t, salted, i)
		// The plan is the same, the texts are not.
		if len(s.Turns) != len(other.Turns) {
			t.Fatalf("the salt changed the turns of session %d", i)
		}
		for k := range s.Turns {
			x, y := s.Turns[k], other.Turns[k]
			if x.InputTokens != y.InputTokens || x.OutputTokens != y.OutputTokens || x.Delay != y.Delay || x.Class != y.Class {
				t.Fatalf("the salt changed the plan of session %d", i)
			}
			for m := range x.Messages {
				if commonTokens(x.Messages[m].Content, y.Messages[m].Content) >= 7 {
					t.Fatalf("session %d shares its first block with another salt", i)
				}
			}
		}
	}
	if a.Hash() != salted.Hash() || a.Hash() == seeded.Hash() {
		t.Error("the hash must name the workload: the seed counts, the salt does not")
	}
	if cmp.Equal(at(t, a, 0), at(t, seeded, 0)) {
		t.Error("another seed gave the same session")
	}
}

func commonTokens(a, b string) int {
	x, y := pieces{}.tokens(a), pieces{}.tokens(b)
	n := 0
	for n < len(x) && n < len(y) && x[n] == y[n] {
		n++
	}
	return n
}

func TestColdPromptsShareNoBlock(t *testing.T) {
	g := newGen(t, Options{Counter: pieces{}, Lengths: []Lengths{{Input: Fixed(32)}}})
	seen := map[string]int{}
	for i := -500; i < 8_000; i++ {
		head := strings.Join(pieces{}.tokens(prompt(at(t, g, i).Turns[0]))[:16], " ")
		if j, ok := seen[head]; ok {
			t.Fatalf("sessions %d and %d begin alike: %q", j, i, head)
		}
		seen[head] = i
	}
}

// A simulated prefix cache finds just what ExpectedCached says.
func TestExpectedCacheHits(t *testing.T) {
	const block = 16
	tests := []struct {
		name string
		o    Options
		rate float64 // of the input tokens; below 0: not checked
	}{
		{"cold", Options{}, 0},
		{"half", Options{HitRate: 0.5}, 0.5},
		{"a tenth, from 5 texts", Options{HitRate: 0.1, HitPrefixes: 5}, 0.1},
		{"most", Options{HitRate: 0.9}, 0.9},
		{"prefix prompts", Options{Prefixes: 4, PrefixTokens: 64}, -1},
		{"a system prompt in a completion", Options{Completion: true, SystemTokens: 32, Prefixes: 2, PrefixTokens: 16, HitRate: 0.25}, -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.o.Counter = pieces{}
			tt.o.Lengths = []Lengths{{Input: Uniform{200, 600}}}
			g := newGen(t, tt.o)
			cache := map[uint64]bool{}
			var input, expected, found float64
			for i := -200; i < 600; i++ {
				r := at(t, g, i).Turns[0]
				h := fnv.New64a()
				hits, hitting := 0, true
				for k, tok := range (pieces{}).tokens(prompt(r)) {
					_, _ = h.Write([]byte(tok + " "))
					if k%block == block-1 {
						if hitting = hitting && cache[h.Sum64()]; hitting {
							hits += block
						}
						cache[h.Sum64()] = true
					}
				}
				if i >= 0 {
					if hits > r.ExpectedCached {
						t.Fatalf("session %d: %d tokens found, %d expected", i, hits, r.ExpectedCached)
					}
					input += float64(r.InputTokens)
					expected += float64(r.ExpectedCached)
					found += float64(hits)
				}
			}
			if tt.rate >= 0 && math.Abs(expected/input-tt.rate) > 0.002 {
				t.Errorf("expected rate %v, want %v", expected/input, tt.rate)
			}
			if math.Abs(found-expected) > 0.002*input {
				t.Errorf("found rate %v, expected %v", found/input, expected/input)
			}
		})
	}
}

func TestBlocks(t *testing.T) {
	for name, counter := range map[string]Counter{"pieces": pieces{}, "cl100k": cl100k(t), "estimate": nil} {
		g := newGen(t, Options{Counter: counter, Salt: "s"})
		blocks := func(tokens int, ids ...int64) string {
			s, _, err := g.Blocks(ids, tokens, 64)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		a, b := blocks(64*2+10, 1, 2, 3), blocks(64*3, 1, 2, 9)
		two := blocks(128, 1, 2)
		if !strings.HasPrefix(a, two) || !strings.HasPrefix(b, two) {
			t.Errorf("%s: equal ids give other text", name)
		}
		if counter != nil && (counter.Count(a) != 138 || counter.Count(b) != 192) {
			t.Errorf("%s: %d and %d tokens", name, counter.Count(a), counter.Count(b))
		}
		if commonTokens(a[len(two):], b[len(two):]) > 5 {
			t.Errorf("%s: other ids give equal text", name)
		}
	}
	g := newGen(t, Options{})
	for _, bad := range []struct {
		ids    []int64
		tokens int
	}{{[]int64{1, 2}, 64}, {[]int64{1}, 65}, {nil, 5}, {[]int64{1}, 0}, {[]int64{1}, -1}} {
		if _, _, err := g.Blocks(bad.ids, bad.tokens, 64); err == nil {
			t.Errorf("%d ids for %d tokens are accepted", len(bad.ids), bad.tokens)
		}
	}
}

func TestSameFromAnyGoroutine(t *testing.T) {
	g := newGen(t, Options{Counter: pieces{}, Lengths: []Lengths{{Input: Normal{200, 50}}}, HitRate: 0.3, TurnsMean: 2})
	var want []workloads.Session
	for i := range 64 {
		want = append(want, at(t, g, i))
	}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for k := range 64 {
				i := (k*7 + w*13) % 64
				s, err := g.At(i)
				if d := cmp.Diff(want[i], s); d != "" || err != nil {
					t.Errorf("session %d: %s %v", i, d, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestSessions(t *testing.T) {
	g := newGen(t, Options{TurnsMean: 4, TurnsStddev: 1, DelayMean: 2 * time.Second, DelayStddev: 500 * time.Millisecond,
		SystemTokens: 10, ContextTokens: 50, Lengths: []Lengths{{Input: Fixed(20), Class: "chat"}}})
	const n = 4000
	var turns, delays, delay float64
	for i := range n {
		s := at(t, g, i)
		turns += float64(len(s.Turns))
		for k, r := range s.Turns {
			wantTokens, wantMessages := 20, 1
			if k == 0 {
				wantTokens, wantMessages = 80, 2
			}
			if r.InputTokens != wantTokens || len(r.Messages) != wantMessages || r.Class != "chat" || r.Messages[wantMessages-1].Role != "user" {
				t.Fatalf("session %d turn %d: %+v", i, k, r)
			}
			if k == 0 && (r.Delay != 0 || r.Messages[0].Role != "system") {
				t.Fatalf("session %d: first turn %+v", i, r)
			}
			if k > 0 {
				delays++
				delay += r.Delay.Seconds()
			}
		}
	}
	if m := turns / n; math.Abs(m-4) > 3*math.Sqrt(1+1.0/12)/math.Sqrt(n) {
		t.Errorf("turns mean %v, want 4", m)
	}
	if m := delay / delays; math.Abs(m-2) > 3*0.5/math.Sqrt(delays) {
		t.Errorf("delay mean %v, want 2", m)
	}
}

func TestOptionsRefused(t *testing.T) {
	one := []Lengths{{Input: Fixed(1)}}
	tests := []struct {
		o   Options
		say string
	}{
		{Options{}, "no input length"},
		{Options{Lengths: []Lengths{{}}}, "entry 1: no input length"},
		{Options{Lengths: []Lengths{{Input: Fixed(0)}}}, "0 tokens"},
		{Options{Lengths: []Lengths{{Input: Normal{math.NaN(), 0}}}}, "NaN tokens"},
		{Options{Lengths: []Lengths{{Input: Fixed(1), Output: Uniform{3, 2}}}}, "from 3 to 2"},
		{Options{Lengths: one, HitRate: 1}, "hit rate 1"},
		{Options{Lengths: one, HitRate: math.NaN()}, "hit rate NaN"},
		{Options{Lengths: one, SystemTokens: -1}, "system prompt length -1"},
		{Options{Lengths: one, TurnsMean: math.Inf(1)}, "session turns +Inf"},
		{Options{Lengths: one, DelayMean: -1}, "turn delay"},
	}
	for _, tt := range tests {
		if _, err := New(tt.o); err == nil || !strings.Contains(err.Error(), tt.say) {
			t.Errorf("error %v, want one that says %q", err, tt.say)
		}
	}
}

func TestAnyLengthIsMet(t *testing.T) {
	g := newGen(t, Options{Counter: pieces{}})
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3000).Draw(t, "tokens")
		i := rapid.Int().Draw(t, "i")
		s, _, err := g.Prompt(i, n)
		if err != nil || (pieces{}).Count(s) != n {
			t.Fatalf("%d tokens: %d, %v", n, (pieces{}).Count(s), err)
		}
	})
}

type numbered struct {
	name string
	len  int
}

func (n numbered) At(i int) (workloads.Session, error) {
	return workloads.Session{ID: n.name + strconv.Itoa(i), Turns: []workloads.Request{{Prompt: n.name, Class: "own"}}}, nil
}
func (n numbered) Len() int { return n.len }

func TestMix(t *testing.T) {
	m, err := NewMix(5, Part{Source: numbered{name: "a"}, Weight: 3, Class: "x"}, Part{Source: numbered{name: "b"}, Model: "lora"})
	if err != nil {
		t.Fatal(err)
	}
	const n = 20_000
	a := 0.0
	for i := range n {
		s := at(t, m, i)
		r := s.Turns[0]
		switch {
		case r.Prompt == "a" && r.Class == "x" && r.Model == "":
			a++
		case r.Prompt == "b" && r.Class == "own" && r.Model == "lora":
		default:
			t.Fatalf("session %d: %+v", i, s)
		}
		if s.ID != r.Prompt+strconv.Itoa(i) || !cmp.Equal(s, at(t, m, i)) {
			t.Fatalf("session %d is %s", i, s.ID)
		}
	}
	if math.Abs(a/n-0.75) > 3*math.Sqrt(0.75*0.25/n) {
		t.Errorf("share of a %v, want 0.75", a/n)
	}
	rot, err := NewRotation(Part{Source: numbered{name: "a"}}, Part{Source: numbered{name: "b"}}, Part{Source: numbered{name: "c"}})
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for i := -4; i < 5; i++ {
		got += at(t, rot, i).Turns[0].Prompt
	}
	if got != "cabcabcab" {
		t.Errorf("rotation %s", got)
	}
	if _, err := NewMix(0); err == nil {
		t.Error("a mix of nothing is accepted")
	}
	if _, err := NewMix(0, Part{Source: numbered{}, Weight: -1}); err == nil {
		t.Error("a weight below 0 is accepted")
	}
}

func BenchmarkPrompts1000(b *testing.B) {
	for name, counter := range map[string]Counter{"tokenizer": cl100k(b), "estimate": nil} {
		b.Run(name, func(b *testing.B) {
			g := newGen(b, Options{Counter: counter, Lengths: []Lengths{{Input: Fixed(1000)}}})
			i := 0
			for b.Loop() {
				if _, err := g.At(i); err != nil {
					b.Fatal(err)
				}
				i++
			}
			b.ReportMetric(float64(i)/b.Elapsed().Seconds(), "prompts/s")
		})
	}
}

func moment(draw func(r *rand.Rand) int, n int) (mean, sd float64) {
	r := rand.New(rand.NewPCG(11, 13))
	var sum, square float64
	for range n {
		x := float64(draw(r))
		sum += x
		square += x * x
	}
	mean = sum / float64(n)
	return mean, math.Sqrt(square/float64(n) - mean*mean)
}

// The first words spell a number that is another one for each session: no two
// prompts of a run can begin alike, however many there are.
func TestFirstWordsTellSessionsApart(t *testing.T) {
	g := newGen(t, Options{Counter: pieces{}, Salt: "s"})
	place := map[string]uint64{}
	for i, w := range g.vocab.word {
		place[w] = uint64(i)
	}
	for _, i := range []int{-1, 0, 1, 1 << 40} {
		var got uint64
		text := strings.ToLower(strings.ReplaceAll(prompt(at(t, g, i).Turns[0]), ".", ""))
		first := strings.Fields(text)[:7]
		for k := 6; k >= 0; k-- {
			got = got*uint64(len(g.vocab.word)) + place[first[k]]
		}
		if got != g.text.unique(i) {
			t.Errorf("session %d begins with the words of %d, want %d", i, got, g.text.unique(i))
		}
	}
	if n := float64(len(g.vocab.word)); math.Pow(n, 7) < math.MaxUint64 || len(place) != len(g.vocab.word) {
		t.Errorf("%d words are too few, or some are doubled", len(g.vocab.word))
	}
}

// No server finds a whole prompt: the last token is always computed.
func TestLastBlockIsNoHit(t *testing.T) {
	g := newGen(t, Options{Counter: pieces{}, HitRate: 0.999, Lengths: []Lengths{{Input: Fixed(160)}, {Input: Fixed(5)}, {Input: Fixed(161)}}})
	want := map[int]int{160: 144, 5: 0, 161: 160}
	for i := range 50 {
		r := at(t, g, i).Turns[0]
		if r.ExpectedCached > want[r.InputTokens] || r.InputTokens != 5 && r.ExpectedCached < 144 {
			t.Fatalf("%d of %d tokens expected", r.ExpectedCached, r.InputTokens)
		}
	}
}
