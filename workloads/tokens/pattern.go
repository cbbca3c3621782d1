package tokens

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// span is a part of a text, and whether it matched.
type span struct {
	start, end int
	match      bool
}

// pattern appends spans to dst that cover the whole text in order. Matches may
// be empty.
type pattern func(dst []span, text string) []span

// parsePattern reads {"String": "…"} or {"Regex": "…"}.
func parsePattern(raw json.RawMessage) (pattern, error) {
	var p struct{ String, Regex *string }
	if err := strict(raw, &p); err != nil {
		return nil, err
	}
	switch {
	case p.Regex != nil && p.String == nil:
		return regex(*p.Regex)
	case p.String != nil && p.Regex == nil && *p.String != "":
		return literal(*p.String), nil
	}
	return nil, errors.New("want a String that is not empty, or a Regex")
}

// regex matches a regular expression in the dialect of Oniguruma. What the
// engine used here reads in another way is translated or refused.
func regex(expr string) (pattern, error) {
	switch expr {
	case gpt4Split:
		return gpt4Scanner(3), nil
	case qwenSplit:
		return gpt4Scanner(1), nil
	case deepSeekDigits:
		return runs(unicode.IsNumber, 3), nil
	case deepSeekCJK:
		return runs(isDeepSeekCJK, math.MaxInt), nil
	}
	return compile(expr)
}

func compile(expr string) (pattern, error) {
	translated, err := translate(expr)
	if err != nil {
		return nil, fmt.Errorf("regex %q: %w", expr, err)
	}
	// Multiline: ^ and $ of Oniguruma always mean lines.
	re, err := regexp2.Compile(translated, regexp2.Multiline, regexp2.OptionMaxBacktrackingStackSize(-1))
	if err != nil {
		return nil, fmt.Errorf("regex %q is not supported: %w", expr, err)
	}
	return func(dst []span, text string) []span {
		found, err := re.FindAllStringIndex(text, -1)
		if err != nil {
			panic("tokens: " + err.Error()) // there is neither a time limit nor one of the stack
		}
		at := 0
		for _, m := range found {
			if at < m[0] {
				dst = append(dst, span{at, m[0], false})
			}
			dst = append(dst, span{m[0], m[1], true})
			at = m[1]
		}
		if at < len(text) {
			dst = append(dst, span{at, len(text), false})
		}
		return dst
	}, nil
}

// oddEscapes mean something else in Oniguruma, or a slightly different set.
const oddEscapes = "wWbBhHRXKGZgyYNOk0123456789"

// translate turns an expression of Oniguruma to one of regexp2. Classes within
// classes, [a[bc]], are flattened: regexp2 would take the bracket as it is.
func translate(expr string) (string, error) {
	for _, mode := range []string{"(?m", "(?s", "(?-m", "(?im", "(?mi"} {
		if strings.Contains(expr, mode) {
			return "", fmt.Errorf("%s is not supported", mode)
		}
	}
	var b strings.Builder
	depth := 0          // of classes
	quantified := false // the character before was ?, * or +
	for i := 0; i < len(expr); i++ {
		c, rest := expr[i], expr[i+1:]
		switch {
		case c == '\\' && rest != "":
			if strings.IndexByte(oddEscapes, rest[0]) >= 0 {
				return "", fmt.Errorf(`\%c is not supported`, rest[0])
			}
			b.WriteString(expr[i : i+2])
			i++
			quantified = false
			continue
		case c == '[':
			for _, odd := range []string{"]", "^]", ":"} {
				if strings.HasPrefix(rest, odd) {
					return "", fmt.Errorf("a class that begins with %q is not supported", odd)
				}
			}
			if depth++; depth > 1 {
				if strings.HasPrefix(rest, "^") || expr[i-1] == '-' {
					return "", errors.New("this class within a class is not supported")
				}
				continue
			}
		case c == ']' && depth > 0:
			if depth--; depth > 0 {
				continue
			}
		case c == '&' && depth > 0 && strings.HasPrefix(rest, "&"):
			return "", errors.New("&& in a class is not supported")
		case c == '+' && depth == 0 && quantified:
			return "", errors.New("possessive quantifiers are not supported")
		}
		b.WriteByte(c)
		quantified = strings.IndexByte("?*+", c) >= 0
	}
	return b.String(), nil
}

func literal(lit string) pattern {
	return func(dst []span, text string) []span {
		for at := 0; at < len(text); {
			i := strings.Index(text[at:], lit)
			if i < 0 {
				return append(dst, span{at, len(text), false})
			}
			if i > 0 {
				dst = append(dst, span{at, at + i, false})
			}
			at += i + len(lit)
			dst = append(dst, span{at - len(lit), at, true})
		}
		return dst
	}
}

// each matches every single character of which is holds.
func each(is func(rune) bool) pattern {
	return func(dst []span, text string) []span {
		at := 0
		for i, r := range text {
			if !is(r) {
				continue
			}
			if at < i {
				dst = append(dst, span{at, i, false})
			}
			at = i + utf8.RuneLen(r)
			dst = append(dst, span{i, at, true})
		}
		if at < len(text) {
			dst = append(dst, span{at, len(text), false})
		}
		return dst
	}
}

// The first two patterns of DeepSeek-V3. They look through the whole text for
// the few places where they match.
const (
	deepSeekDigits = `\p{N}{1,3}`
	deepSeekCJK    = `[一-龥぀-ゟ゠-ヿ]+`
)

func isDeepSeekCJK(r rune) bool {
	return r >= '一' && r <= '龥' || r >= '\u3040' && r <= '\u30FF'
}

// runs matches up to limit characters in a row of which is holds.
func runs(is func(rune) bool, limit int) pattern {
	return func(dst []span, text string) []span {
		at, n := 0, 0 // the start of the span, and how many characters match in it
		for i, r := range text {
			switch yes := is(r); {
			case yes && n > 0 && n < limit:
				n++
			case yes:
				if at < i {
					dst = append(dst, span{at, i, n > 0})
				}
				at, n = i, 1
			case n > 0:
				dst = append(dst, span{at, i, true})
				at, n = i, 0
			}
		}
		if at < len(text) {
			dst = append(dst, span{at, len(text), n > 0})
		}
		return dst
	}
}

func invert(p pattern) pattern {
	return func(dst []span, text string) []span {
		from := len(dst)
		dst = p(dst, text)
		for i := range dst[from:] {
			dst[from+i].match = !dst[from+i].match
		}
		return dst
	}
}

// behavior is what becomes of the matches of a split.
type behavior string

const (
	isolated           behavior = "Isolated"
	removed            behavior = "Removed"
	mergedWithPrevious behavior = "MergedWithPrevious"
	mergedWithNext     behavior = "MergedWithNext"
	contiguous         behavior = "Contiguous"
)

func (b behavior) check() error {
	switch b {
	case isolated, removed, mergedWithPrevious, mergedWithNext, contiguous:
		return nil
	}
	return fmt.Errorf("behavior %q is not supported", string(b))
}

// apply turns the matches of a text, which it overwrites, to its parts.
func (b behavior) apply(spans []span) []span {
	out := spans[:0]
	before := false // was the span before this one a match
	switch b {
	case removed:
		for _, s := range spans {
			if !s.match {
				out = append(out, s)
			}
		}
	case contiguous:
		for _, s := range spans {
			if len(out) > 0 && s.match == before {
				out[len(out)-1].end = s.end
			} else {
				out = append(out, s)
			}
			before = s.match
		}
	case mergedWithPrevious:
		for _, s := range spans {
			if len(out) > 0 && s.match && !before {
				out[len(out)-1].end = s.end
			} else {
				out = append(out, s)
			}
			before = s.match
		}
	case mergedWithNext:
		// From the end: a match joins what follows unless that is a match.
		w := len(spans)
		for i := len(spans) - 1; i >= 0; i-- {
			s := spans[i]
			if w < len(spans) && s.match && !before {
				spans[w].start = s.start
			} else {
				w--
				spans[w] = s
			}
			before = s.match
		}
		out = spans[w:]
	default:
		out = spans
	}
	return out
}
