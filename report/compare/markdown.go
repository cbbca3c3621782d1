package compare

import (
	"fmt"
	"io"
	"strings"
)

// markdownEscape takes the meaning from every character that has one.
var markdownEscape = strings.NewReplacer(
	`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "<", "&lt;", ">", "&gt;", "|", `\|`, "#", `\#`, "!", `\!`, "&", "&amp;", "@", "@\u200b", "~", `\~`, "$", `\$`,
)

// WriteMarkdown writes the comparison as Markdown, as for a pull request.
func (c *Comparison) WriteMarkdown(w io.Writer) error {
	return writeMarkdown(w, c.Headline, c.sections())
}

// WriteMarkdown writes the gate's result as Markdown, as for a step summary.
func (g *GateResult) WriteMarkdown(w io.Writer) error {
	return writeMarkdown(w, g.title(), g.sections())
}

func writeMarkdown(w io.Writer, title string, sections []section) error {
	var b strings.Builder
	safe := func(s string) string { return markdownEscape.Replace(printable(s)) }
	fmt.Fprintf(&b, "### %s\n", safe(title))
	for _, s := range sections {
		fmt.Fprintf(&b, "\n**%s**\n\n", safe(s.title))
		for _, line := range s.lines {
			fmt.Fprintf(&b, "- %s\n", safe(line))
		}
		if len(s.rows) == 0 {
			continue
		}
		if len(s.lines) > 0 {
			b.WriteByte('\n')
		}
		for i, row := range append([][]string{s.head}, s.rows...) {
			b.WriteByte('|')
			for _, cell := range row {
				fmt.Fprintf(&b, " %s |", safe(cell))
			}
			b.WriteByte('\n')
			if i == 0 {
				b.WriteString("|" + strings.Repeat(" --- |", len(row)) + "\n")
			}
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write Markdown: %w", err)
	}
	return nil
}
