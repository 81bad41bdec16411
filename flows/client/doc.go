// Package client is how a program talks to the flows of unifiedd over RDMA: it appends to a log, takes
// what a flow sends, and reads blocks. docs/protocol.md has the wire formats, for programs in other languages.
//
// A [Client] has a region of its own, registered with one RDMA device, and one thread that drives it. An
// [Appender] sends messages to a flow that takes them (a log, a relay), a [Sink] takes the messages of flows
// that send, and [Blocks] reads what a flow serves:
//
//	c, err := client.Open(client.Config{Device: "roce:eth1"})
//	a, err := c.Append(ctx, client.AppendConfig{Address: "10.0.0.1:7471", Flow: "wal"})
//	number, err := a.Send(ctx, record)
//	receipt, err := a.Wait(ctx, number) // acknowledged, as durably as the flow is configured to
//
// Copies. Send copies a message into the region once, and a Sink's messages are read where they landed. Programs
// that want to have no copy at all use packages stream and blocks, on which this one is built, with frames of their
// own.
//
// Threads. All methods may be called from any goroutine.
package client
