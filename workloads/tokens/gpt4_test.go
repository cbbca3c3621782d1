package tokens

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The scanners by hand match what the regexp engine matches with the same
// pattern.
func FuzzScanners(f *testing.F) {
	for _, text := range corpus(f) {
		f.Add(text)
	}
	for _, text := range []string{
		"'s'S'ſ'ſa 'K'Kx 't", "'re'RE'rE're", "'ve'll'LLx'l'v'r", "''s", "'\x72\x05", "' s", "a'", " '", "\n'a", "\r\r'd",
		"1234567 ¼½¾ ٣", "\u00a0x\u00a0\u00a0y", " \n ", "  ", " !\n\n!", "\t!", "!\r\n x", "\u0301a\u0301",
	} {
		f.Add(text)
	}
	scanners := map[string]pattern{gpt4Split: nil, qwenSplit: nil, deepSeekDigits: nil, deepSeekCJK: nil}
	engines := map[string]pattern{}
	for expr := range scanners {
		var err error
		if scanners[expr], err = regex(expr); err != nil {
			f.Fatal(err)
		}
		if engines[expr], err = compile(expr); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = validUTF8(text)
		for expr, engine := range engines {
			want, got := engine(nil, text), scanners[expr](nil, text)
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(span{})); diff != "" {
				t.Errorf("%q (-engine +scanner):\n%s", text, diff)
			}
		}
	})
}
