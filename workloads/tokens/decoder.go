package tokens

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// decoder is one step from the tokens, as the vocabulary writes them, to text.
// It may change the slice that it is given.
type decoder func([]string) []string

// parseDecoders reads a node, at is its place in the file, to the steps in
// order.
func parseDecoders(raw json.RawMessage, at string) ([]decoder, error) {
	if isNull(raw) {
		return nil, nil
	}
	typ, err := nodeType(raw, at)
	if err != nil {
		return nil, err
	}
	one := func(d decoder, err error) ([]decoder, error) {
		if err != nil {
			return nil, fmt.Errorf("%s (%s): %w", at, typ, err)
		}
		return []decoder{d}, nil
	}
	switch typ {
	case "Sequence":
		var p struct {
			Type     string
			Decoders []json.RawMessage
		}
		if err := strict(raw, &p); err != nil {
			return one(nil, err)
		}
		var all []decoder
		for i, r := range p.Decoders {
			ds, err := parseDecoders(r, fmt.Sprintf("%s.decoders[%d]", at, i))
			if err != nil {
				return nil, err
			}
			all = append(all, ds...)
		}
		return all, nil
	case "ByteLevel":
		var p struct {
			Type           string
			AddPrefixSpace bool `json:"add_prefix_space"` // these have no
			TrimOffsets    bool `json:"trim_offsets"`     // effect on
			UseRegex       bool `json:"use_regex"`        // decoding
		}
		return one(decodeByteLevel, strict(raw, &p))
	case "ByteFallback":
		return one(decodeByteFallback, strict(raw, &struct{ Type string }{}))
	case "Fuse":
		return one(func(ts []string) []string { return []string{strings.Join(ts, "")} },
			strict(raw, &struct{ Type string }{}))
	case "Replace":
		replace, err := parseReplace(raw)
		return one(eachToken(replace), err)
	case "Strip":
		var p struct {
			Type        string
			Content     string
			Start, Stop int
		}
		err := strict(raw, &p)
		return one(eachToken(func(t string) string {
			for i := 0; i < p.Start && p.Content != "" && strings.HasPrefix(t, p.Content); i++ {
				t = t[len(p.Content):]
			}
			for i := 0; i < p.Stop && p.Content != "" && strings.HasSuffix(t, p.Content); i++ {
				t = t[:len(t)-len(p.Content)]
			}
			return t
		}), err)
	case "Metaspace":
		m, err := parseMetaspace(raw)
		return one(func(ts []string) []string {
			for i, t := range ts {
				blank := " "
				if i == 0 && m.scheme != "never" {
					blank = ""
				}
				ts[i] = strings.ReplaceAll(t, m.mark, blank)
			}
			return ts
		}, err)
	case "WordPiece":
		var p struct {
			Type    string
			Prefix  string
			Cleanup bool
		}
		err := strict(raw, &p)
		return one(func(ts []string) []string {
			for i, t := range ts {
				if i > 0 {
					if rest, ok := strings.CutPrefix(t, p.Prefix); ok {
						t = rest
					} else {
						t = " " + t
					}
				}
				if p.Cleanup {
					t = cleanUp(t)
				}
				ts[i] = t
			}
			return ts
		}, err)
	case "BPEDecoder":
		var p struct{ Type, Suffix string }
		err := strict(raw, &p)
		return one(func(ts []string) []string {
			for i, t := range ts {
				blank := " "
				if i == len(ts)-1 {
					blank = ""
				}
				ts[i] = strings.ReplaceAll(t, p.Suffix, blank)
			}
			return ts
		}, err)
	}
	return nil, fmt.Errorf("%s: type %q is not supported", at, typ)
}

func eachToken(f func(string) string) decoder {
	return func(ts []string) []string {
		for i, t := range ts {
			ts[i] = f(t)
		}
		return ts
	}
}

func decodeByteLevel(ts []string) []string {
	var b []byte
	for _, t := range ts {
		b = appendFromByteLevel(b, t)
	}
	return []string{lossyUTF8(string(b))}
}

// decodeByteFallback turns runs of tokens like <0x0A> to the characters of
// these bytes. If a run is no UTF-8, each of its bytes becomes U+FFFD.
func decodeByteFallback(ts []string) []string {
	var out []string
	var run []byte
	flush := func() {
		if utf8.Valid(run) {
			if len(run) > 0 {
				out = append(out, string(run))
			}
		} else {
			for range run {
				out = append(out, "\uFFFD")
			}
		}
		run = run[:0]
	}
	for _, t := range ts {
		if b, ok := byteToken(t); ok {
			run = append(run, b)
			continue
		}
		flush()
		out = append(out, t)
	}
	flush()
	return out
}

// byteToken reads tokens like <0x0A>.
func byteToken(t string) (byte, bool) {
	if len(t) != 6 || t[:3] != "<0x" || t[5] != '>' {
		return 0, false
	}
	b, err := strconv.ParseUint(t[3:5], 16, 8)
	return byte(b), err == nil
}

// cleanUp takes back blanks that English does not write.
func cleanUp(t string) string {
	for _, r := range [...][2]string{
		{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"},
		{" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
	} {
		t = strings.ReplaceAll(t, r[0], r[1])
	}
	return t
}
