package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/netdev"
)

func newCheck() *cobra.Command {
	var file, socket string
	var plan bool
	c := &cobra.Command{
		Use:   "check -c FILE | check --plan [-c FILE]",
		Short: "Check a configuration and report every mistake in it",
		Long: `Check a configuration and report every mistake in it.

Only the file is looked at; whether this machine has the interfaces and disks it
names, and memory enough, says 'unifiedd doctor -c FILE'.

With --plan the running daemon is asked what it would do with the file, or with its
own as that is now: which flows it would keep, change, add and remove at a reload, and
what cannot change while it runs.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if plan {
				return printPlanned(c.Context(), c.OutOrStdout(), socket, file)
			}
			cfg, err := loadConfig(file)
			if err != nil {
				return err
			}
			if why := openSecret(cfg, file); why != "" {
				fmt.Fprintf(c.ErrOrStderr(), "unifiedd: %s\n", why)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s: ok (%s)\n%s", file, summary(cfg), understood(cfg))
			return err
		},
	}
	addConfig(c, &file, "configuration `FILE`")
	addSocket(c, &socket)
	c.Flags().BoolVar(&plan, "plan", false, "say what a reload of the running daemon would do")
	c.MarkFlagsOneRequired("config", "plan")
	return c
}

// openSecret says that all users can read the login at an exchange; empty: there is none, or they cannot.
func openSecret(c *config.Config, file string) string {
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o004 == 0 {
		return ""
	}
	for i := range c.Flows {
		if o := c.Flows[i].To.Order; o != nil && o.Login != nil {
			return fmt.Sprintf("%s has the login of flow %s, and every user of the machine can read it (chmod o= %[1]s, and chgrp it to a group of the daemon's user)", file, c.Flows[i].Name)
		}
	}
	return ""
}

// loadConfig reads a configuration, filters included.
func loadConfig(file string) (*config.Config, error) {
	return config.Load(file, configOptions())
}

// configOptions let a configuration be checked by the packages that will use it.
func configOptions() config.Options {
	return config.Options{CheckFilter: checkFilter, CheckObject: checkObject, FindInterface: netdev.Find}
}

// checkFilter compiles a filter, which also finds filters that are too large.
func checkFilter(expr string, of linktype.Type) error {
	e, err := filter.ParseFor(of, expr)
	if err != nil {
		return err
	}
	_, err = e.Instructions()
	return err
}

// understood returns a line for each flow with a filter: the filter as it is interpreted, with all
// optional parts written out.
func understood(c *config.Config) string {
	var b strings.Builder
	for _, f := range c.Flows {
		if text := f.From.Filter; text != "" {
			fmt.Fprintf(&b, "  flow %s takes: %s\n", f.Name, spelledOut(text))
			if f.From.Steer != "" {
				fmt.Fprintf(&b, "  flow %s has the card steer to queues %v, by %s\n", f.Name, f.From.Queues, plural(rulesFor(text), "rule"))
			}
		}
		for _, r := range f.From.Rules {
			fmt.Fprintf(&b, "  flow %s, rule %s, %ss: %s\n", f.Name, r.Name, r.Action, cmp.Or(spelledOut(r.Match), "every packet"))
		}
	}
	return b.String()
}

// rulesFor returns how many rules of a card an expression needs.
func rulesFor(expr string) int {
	e, err := filter.Parse(expr)
	if err != nil {
		return 0
	}
	all, _ := e.Tuples() // the configuration check has found errors
	return len(all)
}

// spelledOut returns a filter with all optional parts written out, or expr if it is not a valid filter.
func spelledOut(expr string) string {
	e, err := filter.Parse(expr)
	if err != nil {
		return expr
	}
	return e.String()
}

// checkObject reads an object as a flow does. It does not load it, so only a flow finds errors of
// the verifier.
func checkObject(file, program string) (digest string, err error) {
	o, err := bpf.ReadObject(file, program)
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w (make it readable for user %s)", err, userName())
	}
	if err != nil {
		return "", err
	}
	return o.Digest(), nil
}

// summary describes a configuration in a few words.
func summary(c *config.Config) string {
	pages := string(c.Region.Pages)
	if c.Region.Pages == config.PagesAuto {
		pages = "2MiB or ordinary"
	}
	return fmt.Sprintf("%s, %s, region %s on %s pages",
		plural(len(c.Flows), "flow"), plural(len(c.Workers), "worker"), c.Region.Size, pages)
}

// plural returns a number with the name of what it counts.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
