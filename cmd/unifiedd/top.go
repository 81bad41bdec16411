package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/control"
	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/page"
	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/top"
)

// newTop makes the command that shows the running daemon in a terminal.
func newTop() *cobra.Command {
	var socket string
	c := &cobra.Command{
		Use:   "top",
		Short: "Watch the flows of the running daemon",
		Long: `Show in a terminal what the running daemon does, renewed every second: its flows by
rate, loss or latency, the frames of the region by owner, and what needs attention most.
Enter shows a flow in detail, and f all findings. It is what the status page shows;
'unifiedd status' has more.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return runTop(c.Context(), c.InOrStdin(), c.OutOrStdout(), socket)
		},
	}
	addSocket(c, &socket)
	return c
}

// runTop shows the daemon until the user leaves. A daemon that ends is waited for.
func runTop(parent context.Context, in io.Reader, out io.Writer, socket string) error {
	if _, err := control.Page(parent, socket, "/healthz"); err != nil { // before the terminal is changed
		return err
	}
	if !isTerminal(out) {
		return errors.New("top is for a terminal (use unifiedd status)")
	}
	ctx, cancel := context.WithCancel(parent)
	p := tea.NewProgram(top.New(), tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out))
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		watchEvents(ctx, socket, p.Send)
	}()
	_, err := p.Run()
	cancel()
	<-fed
	if errors.Is(err, tea.ErrProgramKilled) && parent.Err() != nil {
		return nil // by a signal
	}
	return err
}

// readShare bounds what reading documents takes: a part in so many of one processor, which the flows may need. Documents
// that come earlier are left out, which happens with thousands of flows.
const readShare = 100

// watchEvents sends the daemon's documents, and begins again after an error.
func watchEvents(ctx context.Context, socket string, send func(tea.Msg)) {
	next := time.Time{}
	for ctx.Err() == nil {
		err := control.Events(ctx, socket, func(text []byte) error {
			begun := time.Now()
			if begun.Before(next) {
				return nil
			}
			d := new(page.Document)
			if err := decode(text, d); err != nil {
				return fmt.Errorf("the daemon's answer is not valid: %w (is it of another version?)", err)
			}
			send(top.Document{Document: d})
			next = begun.Add(readShare * time.Since(begun))
			return nil
		})
		if ctx.Err() != nil {
			return
		}
		send(top.Broken{Err: err})
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}
