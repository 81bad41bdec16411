package main

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/latency"
)

// printPrograms prints the programs that may attach.
func printPrograms(w io.Writer, all *status.Programs) {
	if all == nil {
		return
	}
	fmt.Fprintf(w, "attach\t%s; refused: %s\n", all.Socket, nonzero(all.Refused))
	for i := range all.Programs {
		p := &all.Programs[i]
		state := "not attached"
		if p.Attached {
			state = fmt.Sprintf("attached, process %d", p.PID)
		}
		fmt.Fprintf(w, "program %s\t%s; reads %d bytes, writes %d; attached %d times; ended: %s\n", p.Name, state, p.In, p.Out, p.Attaches, nonzero(p.Ended))
	}
	for i := range all.Channels {
		c := &all.Channels[i]
		fmt.Fprintf(w, "channel %s\t%d messages of %s, which is %s; it had to wait for %d\n", c.Name, c.Last, cmp.Or(c.Writer, "a peer"), here(c.Writing), c.Stalls)
		for _, r := range c.Readers {
			what := "reader"
			if r.Remote {
				what = "peer"
			}
			fmt.Fprintf(w, "  %s\t%s, which is %s: %d messages behind, %d lost\n", what, r.Program, here(r.Reading), r.Lag, r.Lost)
		}
	}
}

// printSubmits prints a source that takes messages of a program.
func printSubmits(w io.Writer, f *status.Flow) {
	if s := f.Submits; s != nil {
		fmt.Fprintf(w, "  program\t%s: port %s, opened %d times; %d messages, %d bytes; it has %d frames%s\n", s.Program, openOrClosed(s.Open), s.Ports, s.Messages, s.Bytes, s.Frames, only(s.Trusted, "; trusted: peers get messages from its memory"))
	}
}

// printOrders prints a sink that sends orders.
func printOrders(w io.Writer, f *status.Flow) {
	o := f.Orders
	if o == nil {
		return
	}
	state := "not connected"
	if o.Connected {
		state = fmt.Sprintf("connected from %s to %s since %s", o.Local, o.Remote, o.Since.Format(time.RFC3339))
	}
	fmt.Fprintf(w, "  exchange\t%s over %s, %s; %d connections, %d ended, %d attempts failed; shortest round trip %s\n", cmp.Or(o.Connects, "connection of program "+o.Given), o.Interface, state, o.Connections, o.Lost, o.Failed, brief(int64(o.RoundTrip*1e9)))
	if o.Stopped {
		fmt.Fprintf(w, "  stopped\tno order leaves (unifiedd orders resume %s); %d held\n", f.Name, o.Held)
	}
	fmt.Fprintf(w, "  orders\t%d in segments of ours; the kernel's way: %s; waited: %s; %d acknowledgements came early\n", o.Segments, nonzero(o.Kernel), nonzero(o.Waits), o.Early)
	if o.NoPath != "" {
		fmt.Fprintf(w, "  no path\t%s\n", o.NoPath)
	}
	if o.NextHop != "" {
		fmt.Fprintf(w, "  next hop\t%s, packets of up to %d bytes\n", o.NextHop, o.MTU)
	}
	printRules(w, o.Rules)
	fmt.Fprintf(w, "  refused\t%s\n", nonzero(f.Dropped))
	fmt.Fprintf(w, "  sent again\t%d by the kernel; %d bytes are not acknowledged; %d segments not taken by the interface, %d orders taken in parts; %d bytes received\n", o.Retransmitted, o.Unacknowledged, o.Broken, o.Partial, o.Received)
	printOrderTimes(w, o.Times)
}

// printOrderTimes prints the times of orders that have left.
func printOrderTimes(w io.Writer, t *status.OrderTimes) {
	if t == nil {
		return
	}
	for _, part := range []struct {
		name string
		of   *latency.Distribution
	}{{"tick to decision", t.TickToDecision}, {"decision to out", t.DecisionToOut}, {"tick to out", t.TickToOut}} {
		if d := part.of; d != nil {
			fmt.Fprintf(w, "  %s\tmedian %s, 99 %% %s, 99.9 %% %s, at most %s, of %d orders\n", part.name, brief(d.P50), brief(d.P99), brief(d.P999), brief(d.Max), d.Count)
		}
	}
	stamps := "segments have stamps of the " + t.Stamps
	if t.Stamps == "none" {
		stamps = "segments have no stamps: " + t.WhyNoStamps
	}
	fmt.Fprintf(w, "  stamps\t%s; %d orders lack one; %d orders do not say what they answer\n", stamps, t.NoStamp, t.NoTick)
	if f := t.File; f != nil {
		fmt.Fprintf(w, "  times\t%d orders in %s; dropped: %s%s\n", f.Orders, f.Path, nonzero(f.Dropped), only(f.Error != "", "; "+f.Error))
	}
}

// printRules prints rules that make orders.
func printRules(w io.Writer, r *status.OrderRules) {
	if r == nil {
		return
	}
	state := "orders may leave"
	if !r.LoggedIn {
		state = "not logged in"
	}
	fmt.Fprintf(w, "  rules\t%s; %d messages matched, %d unmatched, %d short, %d packets without a datagram; %d heartbeats; logins and heartbeats refused: %s\n",
		state, r.Matched, r.Unmatched, r.Short, r.NoUDP, r.Heartbeats, nonzero(r.Refused))
	for _, one := range r.Rules {
		fmt.Fprintf(w, "  rule\t%s: %d messages, %d orders left\n", one.Name, one.Matched, one.Left)
	}
}

// printArrives prints a channel that comes from another machine.
func printArrives(w io.Writer, f *status.Flow) {
	if a := f.Arrives; a != nil {
		fmt.Fprintf(w, "  channel\t%s at %s over %s, from %s, connected %d times; %d messages in %d batches, %d lost between connections; numbered anew %d times; refused: %s; not established: %s\n",
			a.Channel, a.Listen, a.Device, cmp.Or(a.Peer, "nobody"), a.Connections, a.Messages, a.Batches, a.Gaps, a.Renumbered, nonzero(a.Refused), nonzero(a.Handshakes))
		printListenPaths(w, a.Paths)
	}
}

// printGives prints a sink that gives to a program.
func printGives(w io.Writer, f *status.Flow) {
	if g := f.Gives; g != nil {
		fmt.Fprintf(w, "  program\t%s: port %s, opened %d times; %d given, %d bytes; %d released; it has %d frames; lost: %s%s%s\n",
			g.Program, openOrClosed(g.Open), g.Ports, g.Messages, g.Bytes, g.Released, g.Frames, nonzero(f.Dropped),
			only(g.Place == string(config.PlaceHere), "; packets land in its memory"), only(g.Expose && f.ZeroCopy, ", all of the queues"))
	}
}

// only returns the text if it is so.
func only(is bool, text string) string {
	if is {
		return text
	}
	return ""
}

func openOrClosed(open bool) string {
	if open {
		return "open"
	}
	return "closed"
}

func here(is bool) string {
	if is {
		return "here"
	}
	return "not here"
}
