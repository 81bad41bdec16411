package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/unifiedd/unifiedd/internal/golden"
)

// TestCommandLinePage: docs/reference/command-line.md has the help of each command. With -update it is written.
func TestCommandLinePage(t *testing.T) {
	root, _ := newRoot()
	var b strings.Builder
	b.WriteString("<!-- Made from code by make generate: DO NOT EDIT. -->\n\n# Command line\n\n" +
		"`man unifiedd-COMMAND` and `unifiedd COMMAND --help` have the same texts.\n")
	for _, c := range root.Commands() {
		writeHelp(&b, c)
	}
	golden.Compare(t, "../../docs/reference/command-line.md", b.String())
}

// writeHelp writes the help of a command and of those below it.
func writeHelp(b *strings.Builder, c *cobra.Command) {
	if !c.IsAvailableCommand() || c.Name() == "completion" || c.Name() == "help" {
		return
	}
	about := c.Long
	if about == "" {
		about = c.Short + "."
	}
	fmt.Fprintf(b, "\n## %s\n\n```\n%s\n\n%s```\n", c.CommandPath(), strings.TrimSpace(about), c.UsageString())
	for _, sub := range c.Commands() {
		writeHelp(b, sub)
	}
}
