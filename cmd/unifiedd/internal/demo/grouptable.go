package demo

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
)

// part says what the member did.
func (g *group) part(m *member) string {
	switch m {
	case g.killed:
		return "led, was killed, came back"
	case g.next:
		return "took over"
	}
	return "followed"
}

// table prints a line for each member, and what the client saw.
func (g *group) table(w io.Writer) error {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "member\t\tacknowledged\tverified\tbytes\tlast position\tby\t")
	for _, m := range g.members {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%s\t\n", m.name, g.part(m), g.appended.Messages, m.found.Messages, m.found.Bytes, m.found.Position, "its log")
	}
	if err := t.Flush(); err != nil {
		return err
	}
	took := ""
	if l := g.appended.Latency; l != nil {
		took = fmt.Sprintf("Acknowledgements took %s us (p50), %s us (p99). ", micros(l.P50), micros(l.P99))
	}
	_, err := fmt.Fprintf(w, "%sThe longest time without one was %.1f ms, the fail-over from %s to %s included.\n"+
		"Each epoch begins with a record of its own, hence %d more positions than messages.\n",
		took, float64(g.appended.Gap)/1e6, g.killed.name, g.next.name, g.appended.Position-g.appended.Messages)
	return err
}

// problems returns everything that does not add up.
func (g *group) problems() (errs []error) {
	if g.appended.Messages != groupCount {
		errs = append(errs, fmt.Errorf("group: of %d messages %d were acknowledged", groupCount, g.appended.Messages))
	}
	if g.appended.Gap <= 0 {
		errs = append(errs, errors.New("group: the longest time without an acknowledgement was not measured"))
	}
	if g.appended.Connections < 2 {
		errs = append(errs, errors.New("group: the client has not changed to another member, so its leader did not fail"))
	}
	for _, m := range g.members {
		if m.found.Messages != g.appended.Messages {
			errs = append(errs, fmt.Errorf("group: %d messages were acknowledged, and the log of member %s has %d, each once", g.appended.Messages, m.name, m.found.Messages))
		}
		if m.found.Position != g.appended.Position {
			errs = append(errs, fmt.Errorf("group: the last message is at position %d, and in the log of member %s at %d", g.appended.Position, m.name, m.found.Position))
		}
	}
	return errs
}
