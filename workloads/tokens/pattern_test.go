package tokens

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRegex(t *testing.T) {
	for _, tt := range []struct{ expr, text, want string }{
		{`[^a[bc]d]+`, "xxabxcd[]x", "(xx)ab(x)cd([]x)"}, // a class in a class is its union
		{`[\[\]]`, "a[b]", "a([)b(])"},
		{`^a`, "a\nab", "(a)\n(a)b"}, // ^ is the start of any line
		{`a$`, "a\nba", "(a)\nb(a)"},
		{`\s+(?!\S)`, "a   b  ", "a(  ) b(  )"},
		{`(?i:'s)`, "'S", "('S)"},
		{`x*`, "axb", "()a(x)b()"},
	} {
		find, err := regex(tt.expr)
		if err != nil {
			t.Error(err)
			continue
		}
		var got strings.Builder
		for _, s := range find(nil, tt.text) {
			part := tt.text[s.start:s.end]
			if s.match {
				part = "(" + part + ")"
			}
			got.WriteString(part)
		}
		if got.String() != tt.want {
			t.Errorf("%s in %q: %s, want %s", tt.expr, tt.text, got.String(), tt.want)
		}
	}
	for _, expr := range []string{
		`[a&&b]`, `[[:alpha:]]`, `[a[^b]]`, `[a-z-[b]]`, `[]a]`, `[^]a]`,
		`\w`, `\W`, `\bx`, `\h`, `\K`, `(a)\1`, `a?+`, `a++`, `(?m:.)`, `(`, `[`, `\`,
	} {
		if _, err := regex(expr); err == nil {
			t.Errorf("%s is not refused", expr)
		}
	}
}

func TestBehavior(t *testing.T) {
	const text = "The-final--countdown-"
	for b, want := range map[behavior][]string{
		removed:            {"The", "final", "countdown"},
		isolated:           {"The", "-", "final", "-", "-", "countdown", "-"},
		mergedWithPrevious: {"The-", "final-", "-", "countdown-"},
		mergedWithNext:     {"The", "-final", "-", "-countdown", "-"},
		contiguous:         {"The", "-", "final", "--", "countdown", "-"},
	} {
		var got []string
		for _, p := range split(literal("-"), b)(nil, piece{text, -1, true}, newWork().(*work)) {
			got = append(got, p.text)
			if first := len(got) == 1; p.first != first {
				t.Errorf("%s: part %d: first = %v", b, len(got)-1, p.first)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", b, diff)
		}
	}
}

func TestByteLevel(t *testing.T) {
	var all []byte
	for b := range 256 {
		all = append(all, byte(b))
	}
	if back := appendFromByteLevel(nil, toByteLevel(string(all))); string(back) != string(all) {
		t.Errorf("bytes come back as %q", back)
	}
	for in, want := range map[string]string{"a b": "aĠb", "b\nc": "bĊc", "é": "Ã©", "\x7f\xad": "ġŃ"} {
		if got := toByteLevel(in); got != want {
			t.Errorf("toByteLevel(%q) = %q, want %q", in, got, want)
		}
	}
}
