package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/control"
	"github.com/unifiedd/unifiedd/flows/status"
)

func newGroup() *cobra.Command {
	c := &cobra.Command{
		Use: "group", Short: "Look at a group of daemons that keep one log, and change it",
		Long: `Look at a group of daemons that keep one log, and change it.

FLOW is the flow of this daemon that is a member of the group. Members have the names that
they have in the configuration. The commands work on each member: one that does not lead
asks the leader.`,
	}
	c.AddCommand(newGroupStatus(), newTransfer(), newAdd(), newRemove(), newReplace())
	return c
}

func newGroupStatus() *cobra.Command {
	var socket string
	c := &cobra.Command{
		Use: "status FLOW", Short: "Print the members and who leads",
		Long: `Print the members, who leads, up to which position each has all records, and the version of
each. Positions, and who is away, are what the leader knows. A member that does not lead asks it. Versions
are what the member has heard: the leader those of all, and others that of the leader. A member of an older
release may not say its version.

The exit status is 1 if the member knows no leader, if the leader does not answer, or if it
hears too few others to go on.`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: completeFlows(&socket, groupFlow),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), 10*time.Second)
			defer cancel()
			raw, err := control.Status(ctx, socket)
			if err != nil {
				return fmt.Errorf("flow %s: %w", args[0], err)
			}
			var s status.Daemon
			if err := decode(raw, &s); err != nil {
				return fmt.Errorf("the daemon's answer is not valid: %w (is it of another version?)", err)
			}
			i := slices.IndexFunc(s.Flows, func(f status.Flow) bool { return f.Name == args[0] })
			switch {
			case i < 0:
				return fmt.Errorf("there is no flow %s", args[0])
			case s.Flows[i].Group == nil:
				return fmt.Errorf("flow %s is not a member of a group, or does not run", args[0])
			}
			g := s.Flows[i].Group
			if g.Leader == "" {
				return errors.Join(printMembers(c.OutOrStdout(), g, false), errors.New("there is no leader now"))
			}
			now, err := askMembers(ctx, socket, args[0], g)
			if err != nil {
				return fmt.Errorf("flow %s: %w", args[0], err)
			}
			g.Members = now.Members
			if err := printMembers(c.OutOrStdout(), g, now.Error == ""); err != nil {
				return err
			}
			if now.Error != "" {
				return fmt.Errorf("how far the members are is not known here: %s", now.Error)
			}
			return mayGoOn(g)
		},
	}
	addSocket(c, &socket)
	return c
}

// askMembers returns the members as the leader knows them. A daemon of a release that cannot ask the leader has what its status
// says.
func askMembers(ctx context.Context, socket, flow string, g *status.Group) (now status.Members, err error) {
	raw, err := control.GroupMembers(ctx, socket, flow)
	if older, is := errors.AsType[*control.UnknownError](err); is {
		now.Members = g.Members
		if g.Leader != g.Member {
			now.Error = older.Error()
		}
		return now, nil
	}
	if err == nil {
		err = decode(raw, &now)
	}
	return now, err
}

// printMembers prints a line for each member. known: they are as the leader knows them.
func printMembers(w io.Writer, g *status.Group, known bool) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "MEMBER\tNUMBER\tROLE\tSTATE\tPOSITION\tVERSION\n")
	for _, m := range g.Members {
		state, position := "-", "-"
		switch {
		case m.Name == g.Leader:
			state = fmt.Sprintf("leads epoch %d", g.Epoch)
		case m.Away:
			state = "away"
		case known:
			state = "follows"
		}
		if known && m.Role != "witness" {
			position = fmt.Sprint(m.Safe)
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\n", m.Name, m.Number, m.Role, state, position, cmp.Or(m.Version, "-"))
	}
	return t.Flush()
}

// mayGoOn reports whether the group takes records, as its leader knows the members.
func mayGoOn(g *status.Group) error {
	voters, there := 0, 0
	for _, m := range g.Members {
		if m.Role == "voter" || m.Role == "witness" {
			voters++
			if !m.Away {
				there++
			}
		}
	}
	if there <= voters/2 {
		return fmt.Errorf("the leader hears %d of %d members that vote: nothing is committed until it hears more than half", there, voters)
	}
	return nil
}

func newTransfer() *cobra.Command {
	return newGroupChange("transfer FLOW MEMBER", 2, "Make another member lead",
		`Make another member lead. Nothing is lost, and clients go there by themselves. The command ends
when that member leads.`,
		func(ctx context.Context, socket string, args []string) error {
			return control.TransferGroup(ctx, socket, args[0], args[1])
		})
}

func newAdd() *cobra.Command {
	return newGroupChange("add FLOW MEMBER", 2, "Take a member in",
		`Take a member in. First write it into the configuration of each member, with its number and
joins: true, reload them, and start its daemon. It gets all records, and votes from then on.
The command ends when it does.`,
		func(ctx context.Context, socket string, args []string) error {
			return control.ChangeGroup(ctx, socket, args[0], args[1], "")
		})
}

func newRemove() *cobra.Command {
	return newGroupChange("remove FLOW MEMBER", 2, "Make a member leave",
		`Make a member leave. When the command has ended, stop its daemon and take it out of the
configurations. Its number must not be used again.`,
		func(ctx context.Context, socket string, args []string) error {
			return control.ChangeGroup(ctx, socket, args[0], "", args[1])
		})
}

func newReplace() *cobra.Command {
	return newGroupChange("replace FLOW OLD NEW", 3, "Take a member in, in place of another one",
		`Take a member in, in place of another one, which may be away for good. It is as 'add' and
'remove', in one step: there are never fewer members that vote.`,
		func(ctx context.Context, socket string, args []string) error {
			return control.ChangeGroup(ctx, socket, args[0], args[2], args[1])
		})
}

// newGroupChange makes a command that changes the group. It waits until the change is made.
func newGroupChange(use string, n int, short, long string, do func(ctx context.Context, socket string, args []string) error) *cobra.Command {
	var socket string
	var timeout time.Duration
	c := &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.ExactArgs(n), ValidArgsFunction: completeFlows(&socket, groupFlow),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeoutCause(c.Context(), timeout, fmt.Errorf("%s takes longer than %v: run it again to wait on", strings.Fields(use)[0], timeout))
			defer cancel()
			err := do(ctx, socket, args)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		},
	}
	addSocket(c, &socket)
	c.Flags().DurationVar(&timeout, "timeout", time.Hour, "longest `TIME` to wait")
	return c
}
