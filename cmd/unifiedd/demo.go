package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/demo"
	"github.com/unifiedd/unifiedd/flows/config"
	build "github.com/unifiedd/unifiedd/internal/version"
)

func newDemo() *cobra.Command {
	var o demo.Options
	c := &cobra.Command{
		Use:   "demo",
		Short: "Show all flows with real traffic between namespaces, every byte verified (root)",
		Long: `Capture real traffic between two network namespaces to disk, in both layouts, and
have tshark, capinfos and tcpdump check the files. Then run all five flows at once in
one daemon over one region, with RoCE in software, and verify every byte at the far end.
Then let three daemons keep one log, and kill their leader while a client appends: print
the longest time without an acknowledgement, and check that each member's log has every
message once.

Everything is made for the demo and taken back at its end: namespaces, huge pages
and files. The exit status is 1 if anything does not add up or is left behind.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := untilSignal(c.Context())
			defer stop()
			o.Out, o.Version, o.Load = c.OutOrStdout(), build.Get(version).Version, loadConfig
			o.Log = newLog(config.FormatText, slog.LevelWarn, c.ErrOrStderr())
			return demo.Run(ctx, o)
		},
	}
	c.Flags().StringVar(&o.Dir, "dir", "/var/tmp", "`DIRECTORY` for the captures and logs, on a disk")
	c.Flags().DurationVar(&o.Time, "time", demo.DefaultTime, "how long all five flows are sent to")
	c.Flags().StringVar(&o.FlowTest, "flow-test", "", "`PROGRAM` at the other end of the RDMA flows (default unified-flow-test, in this program's directory or in PATH)")
	c.Flags().BoolVar(&o.Keep, "keep", false, "keep the captures, the logs and their configurations")
	return c
}
