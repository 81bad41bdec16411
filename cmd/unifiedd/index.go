package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/privsep"
	"github.com/unifiedd/unifiedd/internal/caps"
	"github.com/unifiedd/unifiedd/internal/index"
)

func newIndex() *cobra.Command {
	var beside bool
	c := &cobra.Command{
		Use:   "index FILE...",
		Short: "Make the index of segment files, so that export finds packets without reading all",
		Long: `Make the index of segment files that are complete, beside each: FILE.idx. 'unifiedd
export' then reads only what may hold packets of the times, addresses, ports and
protocols asked for. A flow with 'to: {index: true}' makes them itself. A FILE may be
the prefix of the segments of a recording flow.`,
		Example: `  unifiedd index /captures/md
  unifiedd export -r md-20261120T140500Z-000001.pcapng -w - host 10.0.0.1 and port 443 | tshark -r -`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, names []string) error {
			if beside {
				index.Yield()
			}
			return runIndex(c.Context(), names, beside, c.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&beside, "idle", false, "use only what processors and disks have left, and keep nothing in the page cache")
	return c
}

// runIndex makes all indexes that it can. It returns the errors of the others.
func runIndex(ctx context.Context, names []string, beside bool, stdout io.Writer) error {
	var bad []error
	for _, name := range withSegments(names) {
		s, err := index.Make(ctx, name, beside)
		if err != nil {
			bad = append(bad, fmt.Errorf("index %s: %w", name, err))
			continue
		}
		fmt.Fprintf(stdout, "%s: %d packets in %d blocks, %d bytes\n", name+index.Suffix, s.Packets, s.Blocks, s.Bytes)
	}
	return errors.Join(bad...)
}

// indexApart makes an index in a separate process with the lowest priority. If a thread of this
// process had that priority, it would delay all other threads whenever the Go runtime stops them.
func indexApart(ctx context.Context, path string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "index", "--idle", path)
	cmd.Args[0] = "unifiedd"
	var said bytes.Buffer
	cmd.Stderr = &said
	start := privsep.StartBare
	if self, err := caps.Self(); err == nil && self.Effective.Has(caps.DACOverride) { // needed for a segment that was given to another user
		start = func(cmd *exec.Cmd) (wait func() error, err error) { return cmd.Wait, cmd.Start() }
	}
	wait, err := start(cmd)
	if err == nil {
		err = wait()
	}
	if err != nil && said.Len() > 0 {
		err = fmt.Errorf("%s", bytes.TrimSpace(said.Bytes()))
	}
	if cmd.ProcessState == nil {
		return 0, err
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), err
}
