package tokens

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// normalizer changes a text before it is split.
type normalizer func(string) string

// parseNormalizers reads a node, at is its place in the file, to the steps in
// order.
func parseNormalizers(raw json.RawMessage, at string) ([]normalizer, error) {
	if isNull(raw) {
		return nil, nil
	}
	typ, err := nodeType(raw, at)
	if err != nil {
		return nil, err
	}
	one := func(n normalizer, err error) ([]normalizer, error) {
		if err != nil {
			return nil, fmt.Errorf("%s (%s): %w", at, typ, err)
		}
		return []normalizer{n}, nil
	}
	plain := func(n normalizer) ([]normalizer, error) {
		return one(n, strict(raw, &struct{ Type string }{}))
	}
	switch typ {
	case "Sequence":
		var p struct {
			Type        string
			Normalizers []json.RawMessage
		}
		if err := strict(raw, &p); err != nil {
			return one(nil, err)
		}
		var all []normalizer
		for i, r := range p.Normalizers {
			ns, err := parseNormalizers(r, fmt.Sprintf("%s.normalizers[%d]", at, i))
			if err != nil {
				return nil, err
			}
			all = append(all, ns...)
		}
		return all, nil
	case "NFC":
		return plain(norm.NFC.String)
	case "NFD":
		return plain(norm.NFD.String)
	case "NFKC":
		return plain(norm.NFKC.String)
	case "NFKD":
		return plain(norm.NFKD.String)
	case "Lowercase":
		return plain(lower)
	case "StripAccents":
		return plain(func(s string) string { return without(s, unicode.IsMark) })
	case "ByteLevel":
		return plain(toByteLevel)
	case "Nmt":
		return plain(nmt)
	case "Strip":
		var p struct {
			Type       string
			StripLeft  bool `json:"strip_left"`
			StripRight bool `json:"strip_right"`
		}
		err := strict(raw, &p)
		return one(func(s string) string {
			if p.StripLeft {
				s = strings.TrimLeftFunc(s, unicode.IsSpace)
			}
			if p.StripRight {
				s = strings.TrimRightFunc(s, unicode.IsSpace)
			}
			return s
		}, err)
	case "Prepend":
		var p struct{ Type, Prepend string }
		err := strict(raw, &p)
		return one(func(s string) string {
			if s == "" {
				return s
			}
			return p.Prepend + s
		}, err)
	case "Replace":
		return one(parseReplace(raw))
	case "BertNormalizer":
		return one(parseBertNormalizer(raw))
	}
	return nil, fmt.Errorf("%s: type %q is not supported", at, typ)
}

// parseReplace reads a Replace node, which normalizers and decoders share.
func parseReplace(raw json.RawMessage) (func(string) string, error) {
	var p struct {
		Type    string
		Pattern json.RawMessage
		Content string
	}
	if err := strict(raw, &p); err != nil {
		return nil, err
	}
	find, err := parsePattern(p.Pattern)
	if err != nil {
		return nil, err
	}
	return func(s string) string {
		var b strings.Builder
		for _, m := range find(nil, s) {
			if m.match {
				b.WriteString(p.Content)
			} else {
				b.WriteString(s[m.start:m.end])
			}
		}
		return b.String()
	}, nil
}

func parseBertNormalizer(raw json.RawMessage) (normalizer, error) {
	p := struct {
		Type         string
		Clean        bool  `json:"clean_text"`
		Chinese      bool  `json:"handle_chinese_chars"`
		StripAccents *bool `json:"strip_accents"`
		Lowercase    bool  `json:"lowercase"`
	}{}
	if err := strict(raw, &p); err != nil {
		return nil, err
	}
	strip := p.Lowercase
	if p.StripAccents != nil {
		strip = *p.StripAccents
	}
	return func(s string) string {
		if p.Clean {
			s = bertClean(s)
		}
		if p.Chinese {
			s = spaceChinese(s)
		}
		if strip {
			s = without(norm.NFD.String(s), func(r rune) bool { return unicode.Is(unicode.Mn, r) })
		}
		if p.Lowercase {
			s = lower(s)
		}
		return s
	}, nil
}

// bertClean drops control, format and private characters, and makes each white
// space a blank.
func bertClean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == 0 || r == utf8.RuneError:
			return -1
		case unicode.IsSpace(r) && r != '\v' && r != '\f' && r != 0x85:
			return ' '
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co):
			return -1
		}
		return r
	}, s)
}

func spaceChinese(s string) string {
	if strings.IndexFunc(s, isChinese) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if isChinese(r) {
			b.WriteByte(' ')
			b.WriteRune(r)
			b.WriteByte(' ')
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isChinese is BERT's own notion: the blocks of CJK ideographs that it knew.
func isChinese(r rune) bool {
	switch {
	case r < 0x3400:
		return false
	case r <= 0x4DBF, r >= 0x4E00 && r <= 0x9FFF, r >= 0xF900 && r <= 0xFAFF,
		r >= 0x20000 && r <= 0x2A6DF, r >= 0x2A700 && r <= 0x2B73F,
		r >= 0x2B740 && r <= 0x2B81F, r >= 0x2B920 && r <= 0x2CEAF,
		r >= 0x2F800 && r <= 0x2FA1F:
		return true
	}
	return false
}

// nmt is the cleaning of Google's translation models.
func nmt(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t', r == '\n', r == '\f', r == '\r', r == 0x1680, r >= 0x200B && r <= 0x200F,
			r == 0x2028, r == 0x2029, r == 0x2581, r == 0xFEFF, r == 0xFFFD:
			return ' '
		case r >= 1 && r < ' ', r == 0x7F, r == 0x8F, r == 0x9F:
			return -1
		}
		return r
	}, s)
}

// lower maps each character to its full lower case, without context.
func lower(s string) string {
	if strings.ContainsRune(s, 'İ') { // the only one that becomes two characters
		s = strings.ReplaceAll(s, "İ", "i\u0307")
	}
	return strings.Map(unicode.ToLower, s)
}

func without(s string, is func(rune) bool) string {
	return strings.Map(func(r rune) rune {
		if is(r) {
			return -1
		}
		return r
	}, s)
}
