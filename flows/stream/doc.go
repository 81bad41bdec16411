// Package stream carries messages from a [Sender] to a [Receiver] over an RC queue
// pair, in order and each once: the role "append" of package protocol.
//
//	sender                                             receiver
//	Run    ── dials, hello: flow, session ───────────▶ Serve: checks, Permit
//	       ◀─ hello: next sequence, first credits ──── and answers
//	Send   ── SEND: header and payload ──────────────▶ Recv: checked, in the frame it landed in
//	       ◀─ SEND: progress: acknowledged, limit ──── Acknowledge, Supply
//
// Sessions. A sender draws a random session number and numbers its messages from 1.
// When a connection breaks the sender reconnects with the same session, gets the next
// sequence, and continues from there. Nothing is lost or repeated while both programs
// run.
//
// Credits. A sender sends up to the limit from the receiver. The sum of all limits
// never exceeds the posted receives. Credits depend only on free frames: a slow disk
// holds frames, and when it holds all of them the senders wait. An acknowledgement is
// the receiving flow's promise (protocol.Durability) for a message and all before it.
// It is independent of credits.
//
// Hostile peers. The receiver validates every message before it passes it on. It sends
// a peer that breaks the rules the reason, and disconnects it. The peer's frames become
// receives again.
//
// Threads. The methods that move frames, Poll, Kick and Acknowledge belong to the
// worker's thread. They do not block, lock or allocate. Serve and Run wait for peers
// on goroutines, and reach the worker's thread through a [Doer]. Any goroutine may
// call Stats.
//
// Lifetime. An [Endpoint] outlives its streams, and its device the Endpoint. End the
// contexts of Serve and Run and wait for them before Close, which returns all frames.
package stream
