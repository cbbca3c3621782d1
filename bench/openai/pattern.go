package openai

import (
	"bytes"

	"github.com/tokmark/tokmark/bench/record"
)

// pattern is the text of an event around the one string that is its output. The
// events of an answer mostly differ in that string alone, and to compare the
// rest takes a twentieth of the time of parsing it.
//
// It is exact, not a guess: an event that has the same bytes around a string
// without quotes and escapes parses to the same value but for that string, and
// learn has made sure that the string decides nothing but whether there is
// output at all.
type pattern struct {
	head, tail []byte
	kind       record.Kind // of the output
	choice     int
	model      string // the record's, when the pattern was learnt

	// A server that changes more than the text with each event, as one that
	// sends its usage along, must not cost a second parse each time: after a
	// pattern that matched nothing, twice as many events pass before the next.
	wait, patience int
}

// forgotten returns an empty pattern with the same buffers.
func (p *pattern) forgotten() pattern { return pattern{head: p.head[:0], tail: p.tail[:0]} }

// around reports whether data begins and ends as the pattern does, with
// something between.
func (p *pattern) around(data []byte) bool {
	return len(p.head) > 0 && len(data) > len(p.head)+len(p.tail) && bytes.HasPrefix(data, p.head) && bytes.HasSuffix(data, p.tail)
}

// text returns the string of an event of the pattern; ok: data is one.
func (p *pattern) text(data []byte) (text []byte, ok bool) {
	if !p.around(data) {
		return nil, false
	}
	text = data[len(p.head) : len(data)-len(p.tail)]
	if bytes.IndexByte(text, '"') >= 0 || bytes.IndexByte(text, '\\') >= 0 {
		return nil, false
	}
	p.patience, p.wait = 0, 0
	return text, true
}

// texts of an answer, by the names that they stand under.
var textNames = [...]string{`"content":`, `"reasoning_content":`, `"reasoning":`, `"text":`}

// learn makes the pattern from an event whose output has the kind, if the event
// holds nothing else that counts.
func (a *Answer) learn(data []byte, kind record.Kind) {
	p := &a.like
	if p.around(data) {
		return // only its text has escapes
	}
	if p.wait > 0 {
		p.wait--
		return
	}
	const longest = 1023
	p.patience = min(2*p.patience+1, longest)
	p.wait = p.patience
	p.head, p.tail = p.head[:0], p.tail[:0]
	for _, name := range textNames {
		from, to := stringAfter(data, name)
		if from == to {
			continue
		}
		// With an empty string in this place there must be no output.
		p.head = append(append(p.head[:0], data[:from]...), data[to:]...)
		choice, ok := a.isPlain(p.head)
		if !ok {
			p.head = p.head[:0]
			return
		}
		p.head, p.tail = p.head[:from], append(p.tail, data[to:]...)
		p.kind, p.choice, p.model = kind&^record.SameRead, choice, a.rec.ResponseModel
		return
	}
}

// stringAfter finds the string that is the value of a name, without its quotes.
// What it finds in a valid text is always the inside of a string.
func stringAfter(data []byte, name string) (from, to int) {
	at := bytes.Index(data, []byte(name))
	if at < 0 {
		return 0, 0
	}
	for from = at + len(name); from < len(data) && data[from] == ' '; from++ {
	}
	if from >= len(data) || data[from] != '"' {
		return 0, 0
	}
	from++
	for to = from; to < len(data) && data[to] != '"'; to++ {
		if data[to] == '\\' {
			to++
		}
	}
	if to >= len(data) {
		return 0, 0
	}
	return from, to
}

// isPlain reports whether an event has one choice without output, tokens listed
// and finish reason, and nothing that is told of the whole answer. It returns
// the index of the choice.
func (a *Answer) isPlain(data []byte) (index int, ok bool) {
	v := a.parse(data)
	if v == nil {
		return 0, false
	}
	list := v.GetArray("choices")
	if len(list) != 1 || readPhases(v).source != "" || v.Exists("timings") || readUsage(v.Get("usage")) != record.NoUsage || readUsage(v.Get("x_groq", "usage")) != record.NoUsage {
		return 0, false
	}
	kind, n := choice(list[0], nil)
	return choiceIndex(list[0], 0), kind == 0 && n == counts{} && len(list[0].GetStringBytes("finish_reason")) == 0
}
