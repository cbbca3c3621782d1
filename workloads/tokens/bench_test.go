package tokens

import (
	"strings"
	"testing"
)

// Speed on the corpus (many scripts, few words that come again), cold (the
// same without any word remembered), and on English words. Read MB/s.
func BenchmarkCount(b *testing.B) {
	texts := corpus(b)
	mixed := strings.Join(texts, "\n")
	fields := strings.Fields(strings.Join(texts[80:130], " "))
	var english strings.Builder
	for i := 0; english.Len() < 100_000; i++ {
		english.WriteString(fields[i*i%len(fields)])
		english.WriteByte(' ')
	}
	for _, name := range append([]string{"cl100k_base", "o200k_base"}, bigNames...) {
		b.Run(name, func(b *testing.B) {
			spec := name
			if !strings.HasSuffix(name, "_base") {
				spec = cached(b, name)
			}
			tok := open(b, spec).(*huggingFace)
			for _, run := range []struct {
				name, text string
				cold       bool
			}{{"mixed", mixed, false}, {"cold", mixed, true}, {"words", english.String(), false}} {
				b.Run(run.name, func(b *testing.B) {
					b.SetBytes(int64(len(run.text)))
					b.ReportAllocs()
					for b.Loop() {
						if run.cold {
							w := tok.works.Get().(*work)
							clear(w.words)
							tok.works.Put(w)
						}
						tok.Count(run.text)
					}
				})
			}
		})
	}
}

// BenchmarkOpen is dominated by reading JSON.
func BenchmarkOpen(b *testing.B) {
	for _, name := range append([]string{"cl100k_base", "o200k_base"}, bigNames...) {
		b.Run(name, func(b *testing.B) {
			spec := name
			if !strings.HasSuffix(name, "_base") {
				spec = cached(b, name)
			}
			for b.Loop() {
				open(b, spec)
			}
		})
	}
}
