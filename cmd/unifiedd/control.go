package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"
	"github.com/unifiedd/unifiedd/flows"
)

func newStart() *cobra.Command {
	return newControl("start", "Start a flow of the running daemon", `Start one flow of the running daemon, the others untouched: one that was stopped,
that failed, or that is done. 'unifiedd status' lists them.`)
}

func newStop() *cobra.Command {
	return newControl("stop", "Stop a flow of the running daemon", `Stop one flow of the running daemon, the others untouched. It takes no more packets,
writes and flushes what it has, and gives its interface back to the host. The command
ends when that is done.`)
}

// newControl makes a command that does something to one flow of the daemon.
func newControl(verb, short, long string) *cobra.Command {
	var socket string
	c := &cobra.Command{
		Use: verb + " FLOW", Short: short, Long: long,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return control(c.Context(), socket, verb, args[0])
		},
	}
	addSocket(c, &socket)
	return c
}

// control asks the daemon to do something to a flow, which may take as long as the
// disk does.
func control(ctx context.Context, socket, verb, flow string) error {
	_, err := ask(ctx, socket, http.MethodPost, "/flows/"+url.PathEscape(flow)+"/"+verb)
	return err
}

// startOne starts a flow unless it runs.
func startOne(f *flows.Flow) error {
	if s := f.Status(); s.State.Up() {
		return fmt.Errorf("flow %s runs already", s.Name)
	}
	return f.Start()
}

// stopOne stops a flow if it runs.
func stopOne(f *flows.Flow) error {
	if s := f.Status(); !s.State.Up() {
		return fmt.Errorf("%s, and does not run", fully(&s))
	}
	return f.Stop()
}

// onFlow makes a handler that does something to the flow in its path.
func onFlow(d *flows.Daemon, do func(*flows.Flow) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f, err := d.Flow(r.PathValue("name"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		if err := do(f); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	}
}
