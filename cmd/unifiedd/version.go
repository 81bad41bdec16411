package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	build "github.com/unifiedd/unifiedd/internal/version"
)

// version is the release, set by the linker: -X main.version=1.2.3.
var version string

func newVersion() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Say which build this is, and what it runs on",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if asJSON {
				return printJSON(c.OutOrStdout(), build.Get(version))
			}
			_, err := fmt.Fprintln(c.OutOrStdout(), build.Get(version))
			return err
		},
	}
	addJSON(c, &asJSON)
	return c
}

// addJSON adds the flag that asks for JSON.
func addJSON(c *cobra.Command, asJSON *bool) {
	c.Flags().BoolVar(asJSON, "json", false, "print JSON")
}

// printJSON writes a value as JSON that people and programs can read.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
