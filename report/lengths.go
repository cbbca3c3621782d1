package report

import (
	"fmt"
	"math"

	"github.com/tokmark/tokmark/bench/record"
)

// Lengths compares the lengths asked for with those that came, in tokens, over
// valid requests; nil is unknown. Input is compared for the first turns of
// conversations only: what later turns repeat is the server's answer, of which
// nobody asked a length.
type Lengths struct {
	// AskedInput, OwnInput and ServerInput are mean prompt lengths: aimed at,
	// by our own tokenizer, and by the server's usage less Template.
	AskedInput  *float64 `json:"asked_input_avg,omitempty"`
	OwnInput    *float64 `json:"own_input_avg,omitempty"`
	ServerInput *float64 `json:"server_input_avg,omitempty"`
	// Template is what the chat template adds to every prompt, if it is known.
	Template *float64 `json:"template_tokens,omitempty"`

	ServerToAsked *Deviation `json:"server_to_asked_input,omitempty"`
	ServerToOwn   *Deviation `json:"server_to_own_input,omitempty"`
	OwnToAsked    *Deviation `json:"own_to_asked_input,omitempty"`

	// AskedOutput is the mean output limit sent, Output the mean output of the
	// same requests.
	AskedOutput   *float64   `json:"asked_output_avg,omitempty"`
	Output        *float64   `json:"output_avg,omitempty"`
	OutputToAsked *Deviation `json:"output_to_asked,omitempty"`
}

// Deviation is how far one count lies from another that it should be, as a
// share of the latter, above it positive.
type Deviation struct {
	Mean  float64 `json:"mean"` // of the sums
	Worst float64 `json:"worst"`
	Count int64   `json:"count"`
}

// The bounds of input_length_off.
const (
	lengthOff = 0.05
	// unknownTemplate is how many tokens more than asked for the server may
	// count where the length of its chat template is not known.
	unknownTemplate = 64
)

// deviation collects a Deviation.
type deviation struct {
	got, want, worst float64
	n                int64
	// above and below sum by how much got may differ from want.
	above, below float64
}

func (d *deviation) add(got, want, above, below float64) {
	if want <= 0 {
		return
	}
	d.got, d.want, d.n = d.got+got, d.want+want, d.n+1
	d.above, d.below = d.above+above, d.below+below
	if rel := (got - want) / want; math.Abs(rel) > math.Abs(d.worst) || math.Abs(rel) == math.Abs(d.worst) && rel > d.worst {
		d.worst = rel
	}
}

func (d *deviation) result() *Deviation {
	if d.n == 0 {
		return nil
	}
	return &Deviation{Mean: (d.got - d.want) / d.want, Worst: d.worst, Count: d.n}
}

// off is the part of the deviation beyond what is allowed, as a share.
func (d *deviation) off() float64 {
	if d.n == 0 {
		return 0
	}
	return (max(0, d.got-d.want-d.above) + min(0, d.got-d.want+d.below)) / d.want
}

// lengths is what is kept for Lengths.
type lengths struct {
	asked, own, server, askedOutput, output sum
	serverToAsked, serverToOwn, ownToAsked  deviation
	outputToAsked                           deviation
}

func (t *tally) addLengths(r *record.Record) {
	l := &t.lengths
	if osl, ok := r.OSL(); ok && r.AskedOutput.IsKnown() {
		l.askedOutput.add(int64(r.AskedOutput))
		l.output.add(osl)
		l.outputToAsked.add(float64(osl), float64(r.AskedOutput), 0, 0)
	}
	if r.Turn > 0 {
		return
	}
	asked, own, server := r.AskedInput, r.OwnInput, float64(r.Usage.Prompt)
	above, below := float64(unknownTemplate), 0.0
	if c := t.m.Calibration; c != nil {
		// A prompt that was made by it has whole words, too.
		server, above = server-c.Template, c.Error+c.TokensPerWord/2
		below = above
	}
	l.asked.addKnown(int64(asked), asked.IsKnown())
	l.own.addKnown(int64(own), own.IsKnown())
	if asked.IsKnown() && own.IsKnown() {
		l.ownToAsked.add(float64(own), float64(asked), 0, 0)
	}
	if !r.Usage.Prompt.IsKnown() {
		return
	}
	l.server.add(int64(r.Usage.Prompt))
	if asked.IsKnown() {
		l.serverToAsked.add(server, float64(asked), above, below)
	}
	if own.IsKnown() {
		l.serverToOwn.add(server, float64(own), above, below)
	}
}

func (l *lengths) result(m *record.Manifest) *Lengths {
	mean := func(s sum) *float64 { return ratio(float64(s.sum), float64(s.n)) }
	out := Lengths{
		AskedInput: mean(l.asked), OwnInput: mean(l.own), ServerInput: mean(l.server),
		ServerToAsked: l.serverToAsked.result(), ServerToOwn: l.serverToOwn.result(), OwnToAsked: l.ownToAsked.result(),
		AskedOutput: mean(l.askedOutput), Output: mean(l.output), OutputToAsked: l.outputToAsked.result(),
	}
	if out.AskedInput == nil && out.OwnInput == nil && out.AskedOutput == nil {
		return nil // nothing to compare with
	}
	if c := m.Calibration; c != nil {
		out.Template = &c.Template
		if out.ServerInput != nil {
			*out.ServerInput -= c.Template
		}
	}
	return &out
}

// inputLengthOff spoils a run whose lengths were to be exact. Without a
// tokenizer and without calibration they are a guess, and are only named.
func inputLengthOff(t *tally, s *Summary) (string, Level) {
	l := s.Lengths
	if l == nil {
		return "", Valid
	}
	effect := Valid
	if t.m.Tokenizer != "" || t.m.Calibration != nil {
		effect = Suspect
	}
	template := ""
	if l.Template != nil {
		template = ", without its chat template"
	}
	switch {
	case math.Abs(t.lengths.serverToOwn.off()) > lengthOff:
		return fmt.Sprintf("The server counts %.4g input tokens a request where our tokenizer counts %.4g (%+.3g %%%s).",
			*l.ServerInput, *l.OwnInput, 100*l.ServerToOwn.Mean, template), effect
	case math.Abs(t.lengths.serverToAsked.off()) > lengthOff:
		return fmt.Sprintf("The server counts %.4g input tokens a request where %.4g were asked for (%+.3g %%%s).",
			*l.ServerInput, *l.AskedInput, 100*l.ServerToAsked.Mean, template), effect
	case math.Abs(t.lengths.ownToAsked.off()) > lengthOff:
		return fmt.Sprintf("Our tokenizer counts %.4g input tokens a request where %.4g were asked for (%+.3g %%).",
			*l.OwnInput, *l.AskedInput, 100*l.OwnToAsked.Mean), effect
	}
	return "", Valid
}
