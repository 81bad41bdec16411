package main

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/control"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/printable"
)

func newStart() *cobra.Command {
	return newFlowCommand("start", control.StartFlow, "Start a flow of the running daemon", `Start one flow of the running daemon, the others untouched: one that was stopped,
that failed, or that is done. 'unifiedd status' lists them. A flow that runs goes on. The
command waits for about a second: the exit status is 1 if the flow has failed by then.`)
}

func newStop() *cobra.Command {
	return newFlowCommand("stop", control.StopFlow, "Stop a flow of the running daemon", `Stop one flow of the running daemon, the others untouched. It takes no more packets,
writes and flushes what it has, and gives its interface back to the host. The command
ends when that is done, and at once for a flow that does not run.`)
}

func newRestart() *cobra.Command {
	return newFlowCommand("restart", control.RestartFlow, "Stop a flow of the running daemon and start it again", `Stop one flow of the running daemon, if it runs, and start it, the others untouched. It
writes and flushes what it has in between.`)
}

// newFlowCommand makes a command that acts on one flow of the daemon.
func newFlowCommand(verb string, do func(ctx context.Context, socket, flow string) (string, error), short, long string) *cobra.Command {
	var socket string
	c := &cobra.Command{
		Use: verb + " FLOW", Short: short, Long: long,
		Args: cobra.ExactArgs(1), ValidArgsFunction: completeFlows(&socket, anyFlow),
		RunE: func(c *cobra.Command, args []string) error {
			done, err := do(c.Context(), socket, args[0])
			if err == nil && done != "" {
				_, err = fmt.Fprintln(c.OutOrStdout(), printable.Text(done))
			}
			return err
		},
	}
	addSocket(c, &socket)
	return c
}

// socketVariable names the daemon's control socket where a command line does not.
const socketVariable = "UNIFIEDD_SOCKET"

// daemonSocket returns the daemon's control socket for a command line that does not name it.
func daemonSocket() string { return cmp.Or(os.Getenv(socketVariable), config.DefaultSocket) }

// addSocket adds the flag that names the daemon's control socket.
func addSocket(c *cobra.Command, socket *string) {
	c.Flags().StringVar(socket, "socket", daemonSocket(), "control `SOCKET` of the daemon; the environment variable "+socketVariable+" sets the default")
}
