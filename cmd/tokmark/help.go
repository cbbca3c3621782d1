package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpWidth is how wide the text of options is.
const helpWidth = 100

// flagGroup is a part of a command's options under a title of its own.
type flagGroup struct {
	title string
	flags *pflag.FlagSet
}

// group binds options in a group of their own.
func group(fs *pflag.FlagSet, title string, bind func(*pflag.FlagSet)) flagGroup {
	g := flagGroup{title, pflag.NewFlagSet(title, pflag.ContinueOnError)}
	g.flags.SortFlags = false
	bind(g.flags)
	fs.AddFlagSet(g.flags)
	return g
}

// showGroups makes the command's help list its options by group.
func showGroups(c *cobra.Command, groups []flagGroup) {
	c.SetUsageFunc(func(c *cobra.Command) error {
		w := c.OutOrStderr()
		fmt.Fprintf(w, "Usage:\n  %s\n", c.UseLine())
		if c.HasAvailableSubCommands() {
			fmt.Fprintf(w, "  %s COMMAND --help\n", c.CommandPath())
		}
		if len(c.Aliases) > 0 {
			fmt.Fprintf(w, "\nAliases:\n  %s\n", c.NameAndAliases())
		}
		if c.HasAvailableSubCommands() {
			fmt.Fprint(w, "\nCommands:\n")
			for _, sub := range c.Commands() {
				if sub.IsAvailableCommand() {
					fmt.Fprintf(w, "  %-*s  %s\n", sub.NamePadding(), sub.Name(), sub.Short)
				}
			}
		}
		if c.Example != "" {
			fmt.Fprintf(w, "\nExamples:\n%s\n", c.Example)
		}
		grouped := map[string]bool{}
		for _, g := range groups {
			fmt.Fprintf(w, "\n%s:\n%s", g.title, g.flags.FlagUsagesWrapped(helpWidth))
			g.flags.VisitAll(func(f *pflag.Flag) { grouped[f.Name] = true })
		}
		rest := pflag.NewFlagSet("", pflag.ContinueOnError)
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !grouped[f.Name] {
				rest.AddFlag(f)
			}
		})
		title := "Further options"
		if len(groups) == 0 {
			title = "Options"
		}
		fmt.Fprintf(w, "\n%s:\n%s", title, rest.FlagUsagesWrapped(helpWidth))
		return nil
	})
}
