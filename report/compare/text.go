package compare

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	pretty "github.com/jedib0t/go-pretty/v6/text"
)

// figure writes a number with four digits.
func figure(v float64) string {
	if math.Abs(v) >= 1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

func orDash(v *float64) string {
	if v == nil {
		return "-"
	}
	return figure(*v)
}

// percentText writes a share in percent, without the sign.
func percentText(v float64) string {
	digits := 1
	if math.Abs(v) >= 0.1 {
		digits = 0
	}
	return strconv.FormatFloat(100*v, 'f', digits, 64)
}

// plus is percentText with a plus where there is no minus.
func plus(v float64) string {
	s := percentText(v)
	if strings.HasPrefix(s, "-") {
		return s
	}
	return "+" + s
}

// change is the change with its interval: "+12 % [+7, +17]".
func (f Figure) change() (change, interval string) {
	interval = "-"
	if f.Change == nil {
		return "-", interval
	}
	if f.Points {
		change = fmt.Sprintf("%+.2g pp", *f.Change)
		if f.Interval != nil {
			interval = fmt.Sprintf("[%+.2g, %+.2g]", f.Interval.Low, f.Interval.High)
		}
		return change, interval
	}
	change = plus(*f.Change) + " %"
	if f.Interval != nil {
		interval = "[" + plus(f.Interval.Low) + ", " + plus(f.Interval.High) + "]"
	}
	return change, interval
}

// Text is the figure in one line.
func (f Figure) Text() string {
	change, interval := f.change()
	out := fmt.Sprintf("%s (%s to %s %s", change, orDash(f.A), orDash(f.B), f.Unit)
	if f.Interval != nil {
		out = fmt.Sprintf("%s %s (%s to %s %s", change, interval, orDash(f.A), orDash(f.B), f.Unit)
	}
	margin := percentText(f.Margin) + " %"
	if f.Points {
		margin = figure(f.Margin) + " pp"
	}
	return out + "), margin " + margin + ": " + f.verdict()
}

// verdict is the verdict with what belongs to it.
func (f Figure) verdict() string {
	out := string(f.Verdict)
	if len(f.Reasons) > 0 {
		out += " (" + strings.Join(f.Reasons, ", ") + ")"
	}
	if len(f.Doubts) > 0 {
		out += ", doubtful: " + strings.Join(f.Doubts, "; ")
	}
	if s := f.More.Text(); s != "" {
		out += "; needs " + s
	}
	return out
}

// Text says how much more, or "" if nothing is known of it.
func (m *More) Text() string {
	var parts []string
	if m != nil && m.Requests > 0 {
		parts = append(parts, plural(m.Requests, "more request"))
	}
	if m != nil && m.Runs > 0 {
		parts = append(parts, plural(int64(m.Runs), "more run"))
	}
	if len(parts) == 0 {
		return ""
	}
	return "about " + strings.Join(parts, " and ") + " a side"
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// clean makes one line without control characters of what a server, a file or a
// user said.
func clean(s string) string {
	const longest = 200
	var out strings.Builder
	n := 0
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		if n++; n > longest {
			out.WriteRune('…')
			break
		}
		switch {
		case unicode.IsSpace(r):
			r = ' '
		case !unicode.IsPrint(r):
			r = '\uFFFD'
		}
		out.WriteRune(r)
	}
	return out.String()
}

const textWidth = 100

// section is one part of a result, for text and Markdown alike.
type section struct {
	title  string
	lines  []string
	head   []string // of the table, nil if there is none
	rows   [][]string
	widths []int // the most columns of each cell; 0: narrow
}

// WriteText writes the comparison for a terminal: plain text without colour.
// The same comparison gives the same bytes.
func (c *Comparison) WriteText(w io.Writer) error {
	return writeText(w, "COMPARISON: "+c.Headline, c.sections())
}

// WriteText writes the gate's result for a terminal, as Comparison's does.
func (g *GateResult) WriteText(w io.Writer) error {
	return writeText(w, g.title(), g.sections())
}

func writeText(w io.Writer, last string, sections []section) error {
	var b strings.Builder
	putSections(&b, sections)
	b.WriteString("\n" + pretty.WrapSoft(printable(last), textWidth) + "\n")
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintf(w, "%s\n", strings.TrimRight(line, " \n")); err != nil {
			return fmt.Errorf("write comparison: %w", err)
		}
	}
	return nil
}

func putSections(b *strings.Builder, sections []section) {
	for i, s := range sections {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(s.title + "\n")
		for _, line := range s.lines {
			b.WriteString("  " + strings.ReplaceAll(pretty.WrapSoft(printable(line), textWidth-2), "\n", "\n  ") + "\n")
		}
		if len(s.rows) > 0 {
			b.WriteString(textTable(s))
		}
	}
}

// printable is clean for lines of ours around what others said, of any length.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

func textTable(s section) string {
	t := table.NewWriter()
	style := table.StyleLight
	style.Options = table.Options{SeparateHeader: true}
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = pretty.FormatDefault
	t.SetStyle(style)
	const narrow = 30
	var configs []table.ColumnConfig
	row := func(cells []string) table.Row {
		out := make(table.Row, len(cells))
		for i, v := range cells {
			out[i] = printable(v)
		}
		return out
	}
	t.AppendHeader(row(s.head))
	for i := range s.head {
		width := narrow
		if i < len(s.widths) && s.widths[i] > 0 {
			width = s.widths[i]
		}
		configs = append(configs, table.ColumnConfig{Number: i + 1, WidthMax: width, WidthMaxEnforcer: pretty.WrapSoft})
	}
	t.SetColumnConfigs(configs)
	for _, r := range s.rows {
		t.AppendRow(row(r))
	}
	var out strings.Builder
	for line := range strings.Lines(t.Render()) {
		out.WriteString("  " + strings.TrimRight(line, " \n") + "\n")
	}
	return out.String()
}

func (s SideSummary) line(name string) string {
	var n int64
	for _, r := range s.Runs {
		n += r.Requests
	}
	return fmt.Sprintf("%s: %s (%s, %s)", name, clean(s.Name), plural(int64(len(s.Runs)), "run"), plural(n, "valid request"))
}

// stamp is what every output of an overridden comparison says.
func stamp(allowed []string) []string {
	if len(allowed) == 0 {
		return nil
	}
	return []string{"OVERRIDDEN: the sides differ in what disqualifies, and it was allowed by hand: " + strings.Join(allowed, ", ")}
}

func conditionSections(conditions []Condition, vary string) []section {
	var rows [][]string
	var unknown []string
	same := 0
	for _, c := range conditions {
		switch {
		case c.Kind == Same:
			same++
			continue
		case c.Kind == Unknown && c.A == "" && c.B == "":
			unknown = append(unknown, c.Name)
			continue
		}
		kind := string(c.Kind)
		if c.Allowed {
			kind += ", ALLOWED"
		}
		rows = append(rows, []string{clean(c.Name), kind, clean(orUnknown(c.A)), clean(orUnknown(c.B)), c.Why})
	}
	s := section{title: "CONDITIONS", lines: []string{fmt.Sprintf("%d are the same on both sides.", same)}}
	if len(rows) > 0 {
		s.head, s.rows, s.widths = []string{"Condition", "", "A", "B", ""}, rows, []int{20, 13, 20, 20, 15}
	}
	if len(unknown) > 0 {
		s.lines = append(s.lines, "Unknown on both sides, and asked for: "+strings.Join(unknown, ", ")+". Tell them when measuring.")
	}
	if vary != "" {
		s.lines = append(s.lines, vary)
	}
	return []section{s}
}

func blockedHint(blocked []string) string {
	return "If a difference is meant, name it: --vary NAME. To compare all the same: --allow " + strings.Join(blocked, ",") + "."
}

func (c *Comparison) sections() []section {
	out := []section{{title: "SIDES", lines: append([]string{c.A.line("A"), c.B.line("B")}, stamp(c.Allowed)...)}}
	hint := ""
	if len(c.Blocked) > 0 {
		hint = blockedHint(c.Blocked)
	}
	out = append(out, conditionSections(c.Conditions, hint)...)
	if len(c.Notes) > 0 {
		out = append(out, section{title: "NOTES", lines: cleaned(c.Notes)})
	}
	if len(c.Figures) > 0 {
		out = append(out, figureSection(c.Figures, c.Level))
	}
	if len(c.Curve) > 0 {
		s := section{title: fmt.Sprintf("CURVES (intervals at %.3g %%)", 100*c.Level)}
		for _, m := range c.Curve {
			s.lines = append(s.lines, m.Text())
		}
		out = append(out, s)
	}
	return out
}

func cleaned(lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = printable(l)
	}
	return out
}

func figureSection(figures []Figure, level float64) section {
	s := section{
		title: fmt.Sprintf("FIGURES (B against A; intervals at %.3g %%)", 100*level),
		head:  []string{"Figure", "A", "B", "Change", "Interval", "Verdict"},
	}
	for _, f := range figures {
		change, interval := f.change()
		s.rows = append(s.rows, []string{
			strings.TrimSpace(f.Name() + " (" + f.Unit + ")"), orDash(f.A), orDash(f.B), change, interval, f.verdict(),
		})
	}
	return s
}

func (g *GateResult) title() string {
	out := "GATE: " + string(g.Outcome)
	if s := g.More.Text(); s != "" {
		out += ": needs " + s
	}
	if len(g.Allowed) > 0 {
		out += " (OVERRIDDEN: " + strings.Join(g.Allowed, ", ") + ")"
	}
	return out
}

func (g *GateResult) sections() []section {
	runs := section{title: "RUNS", lines: []string{g.Candidate.line("candidate")}}
	if g.Baseline != nil {
		runs.lines = append(runs.lines, g.Baseline.line("baseline"))
	}
	runs.lines = append(runs.lines, stamp(g.Allowed)...)
	out := []section{runs}
	if g.Baseline != nil {
		s := conditionSections(g.Conditions, "A is the baseline, B the candidate.")
		out = append(out, s...)
	}
	if len(g.Notes) > 0 {
		out = append(out, section{title: "NOTES", lines: cleaned(g.Notes)})
	}
	checks := section{
		title: fmt.Sprintf("CHECKS (intervals at %.3g %%)", 100*g.Level),
		head:  []string{"Outcome", "Check", "What was seen"}, widths: []int{12, 34, 46},
	}
	for _, c := range g.Checks {
		checks.rows = append(checks.rows, []string{strings.ToUpper(string(c.Outcome)), clean(c.Name), c.seen()})
	}
	return append(out, checks)
}

// seen is the detail with what would decide it.
func (c Check) seen() string {
	out := printable(c.Detail)
	if s := c.More.Text(); s != "" && !strings.Contains(out, s) {
		out += "; needs " + s
	}
	return out
}
