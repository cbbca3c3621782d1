package compare

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
	Out      string      `xml:"system-out,omitempty"`
}

type junitCase struct {
	Class   string    `xml:"classname,attr"`
	Name    string    `xml:"name,attr"`
	Failure *junitWhy `xml:"failure"`
	Error   *junitWhy `xml:"error"`
	Skipped *junitWhy `xml:"skipped"`
	Out     string    `xml:"system-out,omitempty"`
}

type junitWhy struct {
	Message string `xml:"message,attr"`
}

// WriteJUnit writes the checks as a JUnit test suite: a regression is a
// failure, what is not valid an error, what is inconclusive is skipped.
func (g *GateResult) WriteJUnit(w io.Writer) error {
	s := junitSuite{Name: "tokmark gate", Tests: len(g.Checks), Out: printable(g.title())}
	for _, c := range g.Checks {
		k := junitCase{Class: "tokmark.gate", Name: clean(c.Name)}
		why := &junitWhy{Message: c.seen()}
		switch c.Outcome {
		case Regression:
			k.Failure = why
			s.Failures++
		case NotValid:
			k.Error = why
			s.Errors++
		case Inconclusive:
			k.Skipped = why
			s.Skipped++
		default:
			k.Out = why.Message
		}
		s.Cases = append(s.Cases, k)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return fmt.Errorf("write JUnit: %w", err)
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(s); err != nil {
		return fmt.Errorf("write JUnit: %w", err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// githubEscape is what a workflow command's message needs.
var githubEscape = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")

// githubProperty is what a workflow command's property needs besides.
var githubProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")

// WriteGitHub writes an annotation of a GitHub workflow for each check that
// does not pass, and one for the whole.
func (g *GateResult) WriteGitHub(w io.Writer) error {
	var b strings.Builder
	note := func(level, title, message string) {
		fmt.Fprintf(&b, "::%s title=%s::%s\n", level, githubProperty.Replace(printable(title)), githubEscape.Replace(printable(message)))
	}
	for _, c := range g.Checks {
		switch c.Outcome {
		case Pass:
		case Inconclusive:
			note("warning", c.Name, c.seen())
		default:
			note("error", c.Name, c.seen())
		}
	}
	level := map[Outcome]string{Pass: "notice", Inconclusive: "warning"}[g.Outcome]
	if level == "" {
		level = "error"
	}
	note(level, "tokmark gate", g.title())
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write annotations: %w", err)
	}
	return nil
}

// WriteJSON writes the result as JSON; what is missing is null or absent.
func (g *GateResult) WriteJSON(w io.Writer) error { return WriteJSON(w, g) }

// WriteJSON writes the comparison as JSON; what is missing is null or absent.
func (c *Comparison) WriteJSON(w io.Writer) error { return WriteJSON(w, c) }

// WriteJSON writes results as one JSON document, as they write themselves.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}
