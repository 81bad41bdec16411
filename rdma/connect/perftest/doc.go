// Package perftest speaks the TCP protocol of the perftest programs (ib_send_lat, ib_write_bw and
// so on), in both roles, as version 6.06 has it, which Debian's 4.5-0.17 says of itself. It is
// the same from 5.70 to 6.27; with 6.28 the programs began to compare their parameters in a
// layout of their compiler's, and those are refused.
//
// In every step the client writes first and the server answers with as much. A [Session] takes the steps:
//
//	Begin     versions, cycle buffer, cache line, MTU
//	Exchange  a Key for each queue pair; they are led; the keys again
//	Start     both are ready for the messages of one size
//	...       the messages
//	Finish    reports, where the test has them, and "done"
//
// How many times keys go there and back differs from test to test; sequence.go has the table.
// Sizes and counts are not said: both sides are started with the same ([Test.Defaults]).
//
// What the server does with the messages is for whoever drives the queue pair: for READ,
// atomics and the bandwidth of WRITE nothing until Finish; for the bandwidth of SEND it takes as
// many as the client sends; in a latency test of SEND it answers each; in one of WRITE both
// look at the last byte of their memory, which is the number of the message, from 1, cut to
// eight bits, and write theirs.
//
// It is plain TCP to anybody, over IPv4 only: see package connect for our own exchange.
package perftest
