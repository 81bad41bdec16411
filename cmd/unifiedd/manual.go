//go:build manual

package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// The tag adds a command that writes the manual pages, for packages. The programs that users run do
// not link what it needs.
func init() { extra = append(extra, newManual) }

func newManual() *cobra.Command {
	var stamp string
	c := &cobra.Command{
		Use:    "manual DIRECTORY",
		Short:  "Write the manual page of each command to a directory",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(c *cobra.Command, args []string) error {
			date, err := time.Parse(time.DateOnly, stamp)
			if err != nil {
				return fmt.Errorf("date of the pages: %w", err)
			}
			root := c.Root()
			root.DisableAutoGenTag = true // it has the time of the build
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Date: &date, Source: "unifiedd " + version, Manual: "unifiedd"}, args[0])
		},
	}
	c.Flags().StringVar(&stamp, "date", "2006-01-02", "`DATE` of the pages, as in 2006-01-02")
	return c
}
