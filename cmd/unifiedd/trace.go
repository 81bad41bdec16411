package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/trace"
	"github.com/unifiedd/unifiedd/internal/printable"
)

// newTrace makes the command that reads the flight recorder.
func newTrace() *cobra.Command {
	var socket, dir string
	var previous, asJSON bool
	var last uint32
	directory := func() string {
		at := cmp.Or(dir, trace.DirectoryOf(socket))
		if previous {
			return trace.Previous(at)
		}
		return at
	}
	c := &cobra.Command{
		Use:   "trace [FLOW] [--previous]",
		Short: "Show what flows did last, also after a crash",
		Long: `Show what the flight recorder has of each flow, or of one: in which step of a round it
was, its last rounds with the packets and bytes of each, the time since the round before
and the frames it held, and states, losses and errors. It has no bytes of packets.

It reads files that the daemon leaves, so it also works after the daemon was killed or
has crashed. --previous shows the daemon before the present one. The daemon is asked for
nothing.`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: completeTraces(directory),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 && !c.Flags().Changed("last") {
				last = 5
			}
			return writeTrace(c.OutOrStdout(), directory(), strings.Join(args, ""), int(last), asJSON)
		},
	}
	addSocket(c, &socket)
	c.Flags().StringVar(&dir, "dir", "", "`DIRECTORY` of the files, which is trace.directory (default beside the socket)")
	c.Flags().BoolVar(&previous, "previous", false, "show the daemon that ran before the present one")
	c.Flags().Uint32VarP(&last, "last", "n", 50, "show the last `NUMBER` of events of each flow (of all flows: 5)")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, with all events")
	return c
}

// traceDirectory returns the directory of a daemon's flight recorder.
func traceDirectory(c *config.Config) string {
	return cmp.Or(c.Trace.Directory, trace.DirectoryOf(c.Control.Socket))
}

// writeTrace prints the files of a directory; flow is empty for all.
func writeTrace(w io.Writer, dir, flow string, last int, asJSON bool) error {
	all, err := trace.ReadAll(dir)
	if errors.Is(err, fs.ErrNotExist) && len(all) == 0 {
		return fmt.Errorf("read the flight recorder: %w (it is beside control.socket, or trace.directory: give --socket or --dir. A daemon with trace.events: 0 has none)", err)
	}
	if flow != "" {
		all = slices.DeleteFunc(all, func(s *trace.Snapshot) bool { return s.Flow != flow })
		if len(all) == 0 {
			return errors.Join(fmt.Errorf("the flight recorder in %s has no flow %q", dir, flow), err)
		}
	}
	if asJSON {
		return errors.Join(printJSON(w, all), err)
	}
	for i, s := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if perr := printTrace(w, s, last); perr != nil {
			return perr
		}
	}
	return err
}

// printTrace prints what one flow did.
func printTrace(w io.Writer, s *trace.Snapshot, last int) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	printable.Document(s)
	state, verb := "which has ended", "was "
	if s.Alive {
		state, verb = "which runs", "is "
	}
	fmt.Fprintf(t, "flow %s\tof process %d, %s; unifiedd %s, flow recorded since %s\n", s.Flow, s.PID, state, s.Version, s.Started.Format(time.RFC3339))
	fmt.Fprintf(t, "  doing\tit %s%s; its last round, of %d, began at %s\n", verb, s.Doing, s.Rounds, s.Round.Format(moment))
	fmt.Fprintf(t, "  received\t%d packets or messages, %d bytes\n", s.Packets, s.Bytes)
	for _, line := range eventLines(s, last) {
		fmt.Fprintf(t, "  %s\t%s\n", line.at.Format(moment), line.text)
	}
	return t.Flush()
}

// moment is the format of times of events.
const moment = "2006-01-02 15:04:05.000000"

type eventLine struct {
	at   time.Time
	text string
}

// eventLines returns the last events and notes of a flow, oldest first.
func eventLines(s *trace.Snapshot, last int) []eventLine {
	lines := make([]eventLine, 0, len(s.Events)+len(s.Notes))
	for i := range s.Events {
		lines = append(lines, eventLine{s.Events[i].Time, roundText(&s.Events[i])})
	}
	for _, n := range s.Notes {
		lines = append(lines, eventLine{n.Time, noteText(n)})
	}
	slices.SortStableFunc(lines, func(a, b eventLine) int { return a.at.Compare(b.at) })
	return lines[len(lines)-min(last, len(lines)):]
}

func roundText(e *trace.Event) string {
	text := fmt.Sprintf("%d packets, %d bytes, %v after the round before; %d frames held", e.Packets, e.Bytes, e.Since, e.Held)
	if e.Blocked {
		text += "; the sink took no more"
	}
	if e.Paused {
		text += "; paused: it held as many frames as it may"
	}
	if e.Failing {
		text += "; it has failed"
	}
	return text
}

// noteText describes a note. Its text may have bytes of a damaged file, and is quoted if it has any that are not
// for a terminal.
func noteText(n trace.Note) string {
	text := n.Text
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		text = fmt.Sprintf("%q", text)
	}
	if n.Kind == trace.State.String() {
		return "state " + text
	}
	return fmt.Sprintf("%s: %d more, %s", n.Kind, n.Value, text)
}
