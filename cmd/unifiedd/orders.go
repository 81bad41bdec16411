package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/control"
	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/status"
)

func newOrders() *cobra.Command {
	c := &cobra.Command{
		Use: "orders", Short: "Stop the orders of the running daemon, or let them leave again",
		Long: `Stop the orders of flows to an exchange, or let them leave again. FLOW is the name of such a
flow, or ` + flows.AllOrders + ` for all of them.`,
	}
	c.AddCommand(
		newOrdersCommand("stop", control.StopOrders, "Let no order leave any more", `Let no order of a flow leave any more. When the command has ended, every order that the flow
has not sent is held: it is refused and counted, also if it comes later. The command says how
many that are so far. The kernel may send again what the exchange has not acknowledged.

The connection stays, and so does the switch: over a reload, a stop and a start of the flow, and
a restart of the daemon, until 'unifiedd orders resume'. With `+flows.AllOrders+` it is on for flows, too, that
a reload adds, or gives another name.

The exit status is 1 if the kernel had taken an order that it could not send within a second.
It leaves when the exchange takes it; 'unifiedd stop FLOW' closes the connection. It is 1, too,
if the state of the switch could not be kept in the directory control.state: the orders are
stopped then, and leave again after a restart of the daemon.`),
		newOrdersCommand("resume", control.ResumeOrders, "Let orders leave again", `Let orders of a flow leave again. Those that were held are refused already, and do not leave.`),
		newOrdersStatus(),
	)
	return c
}

// ordersTime is how long a daemon may take to answer.
const ordersTime = 10 * time.Second

// newOrdersCommand makes a command that stops or resumes orders.
func newOrdersCommand(verb string, do func(ctx context.Context, socket, flow string) ([]byte, error), short, long string) *cobra.Command {
	var socket string
	c := &cobra.Command{
		Use: verb + " FLOW|" + flows.AllOrders, Short: short, Long: long, Args: cobra.ExactArgs(1),
		ValidArgsFunction: completeFlows(&socket, ordersFlow, flows.AllOrders),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), ordersTime)
			defer cancel()
			raw, err := do(ctx, socket, args[0])
			if err != nil {
				return fmt.Errorf("orders of %s: %w", args[0], err)
			}
			var all []status.OrderStop
			if err := decode(raw, &all); err != nil {
				return fmt.Errorf("the daemon's answer is not valid: %w (is it of another version?)", err)
			}
			if len(all) == 0 {
				fmt.Fprintln(c.OutOrStdout(), "no flow sends orders now; this is so for those that a reload adds")
			}
			var errs []error
			for _, a := range all {
				what := "may leave again; held meanwhile"
				if a.Stopped {
					what = "are stopped; held so far"
				}
				fmt.Fprintf(c.OutOrStdout(), "flow %s: orders %s: %d\n", a.Flow, what, a.Held)
				if a.Unsent > 0 {
					errs = append(errs, fmt.Errorf("flow %s: the kernel or the interface has %d orders that still leave, when the exchange takes them", a.Flow, a.Unsent))
				}
			}
			return errors.Join(errs...)
		},
	}
	addSocket(c, &socket)
	return c
}

// newOrdersStatus makes the command that says which orders are stopped.
func newOrdersStatus() *cobra.Command {
	var socket string
	c := &cobra.Command{
		Use: "status", Short: "Say which orders are stopped", Args: cobra.NoArgs,
		Long: `Say which orders are stopped, and in which file that is kept over a restart of the daemon. If
that file could not be read when the daemon began, all orders are stopped. Flows are listed that
send orders, or that the file names. The exit status is 1 if the state is not kept.`,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), ordersTime)
			defer cancel()
			raw, err := control.Status(ctx, socket)
			if err != nil {
				return err
			}
			var s status.Daemon
			if err := decode(raw, &s); err != nil || s.Orders == nil {
				return errors.Join(errors.New("the daemon's answer is not valid (is it of another version?)"), err)
			}
			return printStopped(c.OutOrStdout(), &s)
		},
	}
	addSocket(c, &socket)
	return c
}

// printStopped prints which orders are stopped.
func printStopped(w io.Writer, s *status.Daemon) error {
	word := map[bool]string{true: "stopped", false: "leave"}
	fmt.Fprintf(w, "orders of all flows, and of those to come: %s\n", word[s.Orders.All])
	flows := maps.Clone(s.Orders.Flows)
	for i := range s.Flows {
		if f := &s.Flows[i]; strings.HasSuffix(f.Kind, "-order") {
			if _, named := flows[f.Name]; !named {
				flows[f.Name] = s.Orders.All
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(flows)) {
		fmt.Fprintf(w, "flow %s: %s\n", name, word[flows[name]])
	}
	if s.Orders.Error != "" {
		return errors.New(s.Orders.Error)
	}
	fmt.Fprintf(w, "kept in %s\n", s.Orders.File)
	return nil
}
