package main

import (
	"cmp"
	"fmt"
	"io"

	"github.com/unifiedd/unifiedd/flows/status"
)

// printReceives prints the end at which RDMA clients send.
func printReceives(w io.Writer, f *status.Flow) {
	r := f.Receives
	if r == nil {
		return
	}
	fmt.Fprintf(w, "  listens\t%s, by %s (%s)\n", r.Listen, r.Device, trust(r.TLS))
	fmt.Fprintf(w, "  received\t%d messages, %d bytes; %d receives wait; %d came twice\n", f.Packets, f.Bytes, r.Posted, r.Replays)
	fmt.Fprintf(w, "  refused\tclients: %s; connections: %s\n", nonzero(r.Refused), nonzero(r.Handshakes))
	if r.Method == "write" {
		fmt.Fprintf(w, "  granted\t%d frames, which clients may write to; %d grants until now\n", r.Granted, r.Grants)
	}
	for i := range r.Clients {
		c := &r.Clients[i]
		fmt.Fprintf(w, "  client\t%s, session %s: %s%s; %d messages, acknowledged up to %d of %d, may %s up to %d\n",
			c.Name, c.Session, c.State, because(c.Error), c.Messages, c.Acknowledged, c.Sequence, r.Method, c.Limit)
	}
}

// printSends prints the end that sends to RDMA peers.
func printSends(w io.Writer, s *status.Sends) {
	for i := range s.Peers {
		p := &s.Peers[i]
		fmt.Fprintf(w, "  peer\t%s (%s): %s%s; %d messages offered, %d acknowledged, %d waiting, %d on their way; lost: %s\n",
			cmp.Or(p.Name, p.Address), p.Address, p.State, because(p.Error), p.Offered, p.Acknowledged, p.Waiting, p.InFlight, nonzero(p.Dropped))
		fmt.Fprintf(w, "  \tconnected %d times, %d failures; %d messages sent again; room for %d%s\n", p.Connections, p.Failures, p.Resent, p.Credit, by(p.Method))
	}
}

// printBlocks prints the end at which RDMA clients ask for blocks.
func printBlocks(w io.Writer, f *status.Flow) {
	b := f.Blocks
	if b == nil {
		return
	}
	fmt.Fprintf(w, "  listens\t%s, by %s (%s)\n", b.Listen, b.Device, trust(b.TLS))
	fmt.Fprintf(w, "  requests\t%d, %d served with %d bytes of %d; %d had to wait, %d were read again by themselves, %d abandoned; refused: %s\n",
		b.Requests, b.Served, b.Bytes, b.Size, b.Waited, b.Retried, b.Abandoned, nonzero(b.Refused))
	fmt.Fprintf(w, "  refused\tclients: %s; connections: %s\n", nonzero(b.TurnedAway), nonzero(b.Handshakes))
	printCache(w, "frames", &b.Frames)
	printCache(w, "extents", &b.Extents)
	for i := range b.Clients {
		c := &b.Clients[i]
		fmt.Fprintf(w, "  client\t%s: %d requests, %d served with %d bytes; refused: %s\n", cmp.Or(c.Name, c.Address), c.Requests, c.Served, c.Bytes, nonzero(c.Refused))
	}
	fmt.Fprintf(w, "  ended\t%d clients broke the protocol, or failed\n", b.Ended)
}

// printHosts prints the end at which NVMe hosts write and read.
func printHosts(w io.Writer, h *status.Hosts) {
	if h == nil {
		return
	}
	fmt.Fprintf(w, "  listens\t%s, by %s, for NVMe hosts: whoever reaches it may connect by a name that is let in\n", h.Listen, h.Device)
	fmt.Fprintf(w, "  serves\t%s, %d bytes, to %d hosts with %d queues\n", h.Subsystem, h.Size, h.Hosts, h.Queues)
	for _, nqn := range h.Subsystems {
		if nqn != h.Subsystem {
			fmt.Fprintf(w, "  serves\t%s, too\n", nqn)
		}
	}
	for i := range h.Namespaces {
		printNamespace(w, h, &h.Namespaces[i])
	}
	fmt.Fprintf(w, "  commands\t%s; bytes: %s; %d had to wait\n", nonzero(h.Commands), nonzero(h.Bytes), h.Waited)
	fmt.Fprintf(w, "  refused\tqueues: %s; %d queues broke the rules, or failed; %d hosts fell silent; %d queues of hosts that did not prove who they are; %d gave way\n", nonzero(h.Rejected), h.Ended, h.Expired, h.Unproven, h.GaveWay)
	for i := range h.Connected {
		c := &h.Connected[i]
		fmt.Fprintf(w, "  host\t%s: %d queues; commands: %s; bytes: %s\n", c.Name, c.Queues, nonzero(c.Commands), nonzero(c.Bytes))
	}
}

func printNamespace(w io.Writer, h *status.Hosts, n *status.Namespace) {
	var of, marks string
	if n.Subsystem != h.Subsystem {
		of = n.Subsystem + " "
	}
	if n.ReadOnly {
		marks += ", read-only"
	}
	if n.Leaving {
		marks += ", leaving: something is under way yet"
	}
	fmt.Fprintf(w, "  namespace\t%s%d: %s, %d bytes%s; commands: %s; bytes: %s\n", of, n.ID, n.Path, n.Size, marks, nonzero(n.Commands), nonzero(n.Bytes))
}

func printCache(w io.Writer, name string, c *status.Cache) {
	if c.Buffers > 0 {
		fmt.Fprintf(w, "  %s\t%d buffers: %d hits, %d misses, %d evictions; %d reads of %d bytes, %d failed\n", name, c.Buffers, c.Hits, c.Misses, c.Evictions, c.Reads, c.BytesRead, c.Failed)
	}
}

// trust says how far what is said on a connection can be relied on.
func trust(tls bool) string {
	if tls {
		return "TLS"
	}
	return "plain TCP: whoever reaches it may connect, and others on the way can read and change what is said"
}

// by adds how messages go to a peer, once that is known.
func by(method string) string {
	if method == "" {
		return ""
	}
	return ", by " + method
}

// because adds why, where there is a reason.
func because(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}

// printRDMADevices says how many queue pairs are open, and what RoCE in software has copied.
func printRDMADevices(w io.Writer, all []status.RDMADevice) {
	for _, d := range all {
		fmt.Fprintf(w, "rdma\t%s: %d queue pairs open", d.Name, d.QueuePairs)
		if d.SentCopied != nil {
			fmt.Fprintf(w, "; %d bytes placed; copied to be sent: %s", d.Placed, nonzero(d.SentCopied))
		}
		fmt.Fprintln(w)
	}
}
