package main

import (
	"cmp"
	"fmt"
	"io"

	"github.com/unifiedd/unifiedd/flows/status"
)

// printBlocks prints the server that RDMA clients read blocks from.
func printBlocks(w io.Writer, f *status.Flow) {
	b := f.Blocks
	if b == nil {
		return
	}
	fmt.Fprintf(w, "  listens\t%s, by %s (%s)\n", b.Listen, b.Device, trust(b.TLS))
	fmt.Fprintf(w, "  requests\t%d, %d served with %d bytes of %d; %d had to wait, %d were read again by themselves, %d abandoned; refused: %s\n",
		b.Requests, b.Served, b.Bytes, b.Size, b.Waited, b.Retried, b.Abandoned, nonzero(b.Refused))
	fmt.Fprintf(w, "  refused\tby the flow: %s; in the handshake: %s\n", nonzero(b.TurnedAway), nonzero(b.Handshakes))
	printCache(w, "frames", &b.Frames)
	printCache(w, "extents", &b.Extents)
	if b.Discarded != nil {
		fmt.Fprintf(w, "  cached before\t%d buffers are used again; not used: %s\n", b.Kept, nonzero(b.Discarded))
	}
	for i := range b.Clients {
		c := &b.Clients[i]
		fmt.Fprintf(w, "  client\t%s: %d requests, %d served with %d bytes; refused: %s\n", cmp.Or(c.Name, c.Address), c.Requests, c.Served, c.Bytes, nonzero(c.Refused))
	}
	fmt.Fprintf(w, "  ended\t%d clients broke the protocol, or failed\n", b.Ended)
}

func printCache(w io.Writer, name string, c *status.Cache) {
	if c.Buffers > 0 {
		fmt.Fprintf(w, "  %s\t%d buffers: %d hits, %d misses, %d evictions; %d reads of %d bytes, %d failed\n", name, c.Buffers, c.Hits, c.Misses, c.Evictions, c.Reads, c.BytesRead, c.Failed)
	}
}
