package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/unifiedd/unifiedd/internal/golden"
	"github.com/unifiedd/unifiedd/internal/testenv"
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

// inline matches commands of ours in the text of a page, and those in its blocks.
var inline = regexp.MustCompile("(?m)[`$] ?(unifiedd (?:[a-z]|-)[^`#&|\\\\\n]*)")

// TestCommandsInPages: each command of ours that a page names exists, with its flags.
func TestCommandsInPages(t *testing.T) {
	names, err := filepath.Glob("../../docs/*/*.md")
	testenv.Must(t, err)
	n := 0
	for _, name := range append(names, "../../README.md", "../../CONTRIBUTING.md", "../../SECURITY.md") {
		text, err := os.ReadFile(name)
		testenv.Must(t, err)
		for _, m := range inline.FindAllSubmatch(text, -1) {
			root, _ := newRoot()
			c, rest, err := root.Find(strings.Fields(string(m[1]))[1:])
			if err != nil || !c.Runnable() {
				t.Errorf("%s: %s: %v", name, m[1], err)
				continue
			}
			for _, word := range rest {
				flag, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
				if strings.HasPrefix(word, "--") && c.Flags().Lookup(flag) == nil || len(word) == 2 && word[0] == '-' && c.Flags().ShorthandLookup(flag) == nil {
					t.Errorf("%s: %s has no flag %s", name, m[1], word)
				}
			}
			n++
		}
	}
	if n < 100 {
		t.Errorf("found %d commands", n)
	}
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
