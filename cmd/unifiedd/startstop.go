package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/control"
	"github.com/unifiedd/unifiedd/flows/config"
)

func newStart() *cobra.Command {
	return newFlowCommand("start", control.StartFlow, "Start a flow of the running daemon", `Start one flow of the running daemon, the others untouched: one that was stopped,
that failed, or that is done. 'unifiedd status' lists them. The command waits for about
a second: the exit status is 1 if the flow has failed by then.`)
}

func newStop() *cobra.Command {
	return newFlowCommand("stop", control.StopFlow, "Stop a flow of the running daemon", `Stop one flow of the running daemon, the others untouched. It takes no more packets,
writes and flushes what it has, and gives its interface back to the host. The command
ends when that is done.`)
}

// newFlowCommand makes a command that acts on one flow of the daemon.
func newFlowCommand(verb string, do func(ctx context.Context, socket, flow string) (state []byte, err error), short, long string) *cobra.Command {
	var socket string
	c := &cobra.Command{
		Use: verb + " FLOW", Short: short, Long: long,
		Args: cobra.ExactArgs(1), ValidArgsFunction: completeFlows(&socket, anyFlow),
		RunE: func(c *cobra.Command, args []string) error {
			state, err := do(c.Context(), socket, args[0])
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(state)
			return err
		},
	}
	addSocket(c, &socket)
	return c
}

// addSocket adds the flag that names the daemon's control socket.
func addSocket(c *cobra.Command, socket *string) {
	c.Flags().StringVar(socket, "socket", config.DefaultSocket, "control `SOCKET` of the daemon")
}
