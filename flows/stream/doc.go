// Package stream moves messages from a [Sender] to a [Receiver] over one RC queue pair, in order and each once, with
// credits and acknowledgements: the role "append" of package protocol.
//
//	sender                                             receiver
//	Run    ── dials, hello: flow, session ───────────▶ Serve: checks, Permit
//	       ◀─ hello: next sequence, first credits ──── and answers
//	Send   ── SEND: header and payload ──────────────▶ Recv: checked, in the frame it landed in
//	       ◀─ SEND: progress: acknowledged, limit ──── Acknowledge, Supply
//
// Sessions. A sender draws a random number for its session, and numbers its messages in it from 1 on. When the connection
// breaks it comes back with the same session, is told which sequence is expected next, and goes on from there, so that
// nothing is lost and nothing comes twice while both programs run.
//
// Credits. A sender sends up to the limit it was told. Limits are backed by receives: the sum of what peers may
// still send never exceeds the receives that are posted. They say nothing of the messages' further fate, so a slow disk
// holds frames, and once all are held the senders wait. An acknowledgement is the receiving flow's word for a message and
// all before it (protocol.Durability), and is independent of credits.
//
// Strangers. What a peer sends is checked before anybody sees it. One that breaks the rules is told the reason and
// ended; its frames are receives again, and the other peers notice nothing but that it is gone.
//
// Threads. Verbs that move frames, and Poll, Kick and Acknowledge, belong to the worker's thread, and neither block,
// lock nor allocate. Serve and Run have goroutines that wait for peers, and come to the worker's thread by a [Doer]. Stats may be
// called from anywhere.
//
// Lifetime. An [Endpoint] outlives its streams, and its device the Endpoint. End the contexts of Serve and Run and wait for
// them before Close, which gives all frames back.
package stream
