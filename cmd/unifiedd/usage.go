package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/tune"
	build "github.com/unifiedd/unifiedd/internal/version"
)

// addVersion adds tcpdump's --version. Cobra prints it.
func addVersion(cs ...*cobra.Command) {
	for _, c := range cs {
		c.Flags().Bool("version", false, "say which build this is")
		c.Version = build.Get(version).String()
		c.SetVersionTemplate("{{.Version}}\n")
	}
}

// checkUsage makes each command report what is wrong with its command line, and what to write
// instead, before it runs.
func checkUsage(c *cobra.Command) {
	if c.HasSubCommands() {
		c.Args, c.RunE = cobra.ArbitraryArgs, nameSubcommand
	} else {
		c.Args = explainArgs(c.Args)
		requireFirst(c)
	}
	for _, sub := range c.Commands() {
		checkUsage(sub)
	}
}

// nameSubcommand is the action of a command that only has subcommands. Cobra would print the help
// and report success.
func nameSubcommand(c *cobra.Command, args []string) error {
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	switch {
	case len(args) == 0 && !c.HasParent():
		return c.Help()
	case len(args) == 0:
		return fmt.Errorf("%s needs a command: %s", c.CommandPath(), strings.Join(names, ", "))
	}
	c.SuggestionsMinimumDistance = 2
	text := fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath())
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		return fmt.Errorf("%s (did you mean %s?)", text, strings.Join(near, " or "))
	}
	return fmt.Errorf("%s (there is: %s)", text, strings.Join(names, ", "))
}

// explainArgs reports which arguments a command takes. Cobra reports only their number.
func explainArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if check == nil {
			return nil
		}
		err := check(c, args)
		switch {
		case err == nil:
			return nil
		case len(args) == 0:
			return fmt.Errorf("an argument is missing: %s", c.UseLine())
		case check(c, append(slices.Clone(args), "another")) == nil:
			return fmt.Errorf("an argument is missing after %q: %s", args[len(args)-1], c.UseLine())
		}
		return fmt.Errorf("%q is one argument too many: %s", args[len(args)-1], c.UseLine())
	}
}

// requireFirst makes a command check its required flags before PreRunE. Cobra checks them
// afterwards, so PreRunE would have to handle missing flags.
func requireFirst(c *cobra.Command) {
	next := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if err := cmp.Or(missingFlags(c), c.ValidateFlagGroups()); err != nil || next == nil {
			return err
		}
		return next(c, args)
	}
}

// missingFlags names the required flags that the command line lacks.
func missingFlags(c *cobra.Command) error {
	var missing []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if slices.Equal(f.Annotations[cobra.BashCompOneRequiredFlag], []string{"true"}) && !f.Changed {
			missing = append(missing, flagText(f))
		}
	})
	switch len(missing) {
	case 0:
		return missingOfGroups(c)
	case 1:
		return fmt.Errorf("the flag %s is missing", missing[0])
	}
	return fmt.Errorf("flags are missing: %s", strings.Join(missing, ", "))
}

// oneRequired is cobra's annotation for groups of flags of which one is required.
const oneRequired = "cobra_annotation_one_required"

// missingOfGroups names the flags of each group of which the command line has none although one is
// required.
func missingOfGroups(c *cobra.Command) (err error) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		for _, group := range f.Annotations[oneRequired] {
			names := strings.Fields(group)
			if err != nil || slices.ContainsFunc(names, c.Flags().Changed) {
				continue
			}
			for i, name := range names {
				names[i] = flagText(c.Flags().Lookup(name))
			}
			err = fmt.Errorf("one of the flags is missing: %s", strings.Join(names, "; or "))
		}
	})
	return err
}

// explainValue reports which values a flag takes. Its parser reports only that it failed.
func explainValue(_ *cobra.Command, err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	needs := ""
	switch t := bad.GetFlag().Value.Type(); {
	case errors.Is(err, strconv.ErrRange):
		needs = "a number that fits into 64 bits"
	case strings.HasPrefix(t, "uint"):
		needs = "a whole number, 0 or more"
	case t == "intSlice":
		needs = "whole numbers, such as 0,2"
	case strings.HasPrefix(t, "int"):
		needs = "a whole number"
	case strings.HasPrefix(t, "float"):
		needs = "a number"
	case t == "duration":
		needs = "a time such as 500ms or 10s"
	case t == "settings":
		needs = "some of: " + strings.Join(tune.Settings(), ", ")
	case t == "bool":
		needs = "true or false"
	default:
		return err
	}
	name := "--" + bad.GetFlag().Name
	if letter := bad.GetFlag().Shorthand; letter != "" {
		name = "-" + letter + ", " + name
	}
	return fmt.Errorf("the value %q of %s cannot be read (give %s)", bad.GetValue(), name, needs)
}

// flagText returns a flag as the help prints it, with the name of its value.
func flagText(f *pflag.Flag) string {
	value, _ := pflag.UnquoteUsage(f)
	text := "--" + f.Name
	if f.Shorthand != "" {
		text = "-" + f.Shorthand + ", " + text
	}
	return strings.TrimSpace(text + " " + value)
}

// newHelp returns cobra's help command, with an error for unknown topics.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]...",
		Short: "Say more about a command",
		Args:  cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			about, rest, err := c.Root().Find(args)
			if err != nil {
				return &statusError{exitUsage, err}
			}
			if len(rest) > 0 {
				return &statusError{exitUsage, fmt.Errorf("there is no command %q below %q", rest[0], about.CommandPath())}
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}
