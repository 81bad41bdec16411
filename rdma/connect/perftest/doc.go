// Package perftest speaks the TCP protocol of the perftest programs (ib_send_lat, ib_write_bw and
// so on), in both roles, in version 6.06, which Debian's 4.5-0.17 reports. It is the same from
// 5.70 to 6.27. From 6.28 on the programs compare their parameters in a layout that depends on
// their compiler; this package refuses those versions.
//
// In every step the client writes first and the server answers with as much. A [Session] takes the steps:
//
//	Begin     versions, cycle buffer, cache line, MTU
//	Exchange  a Key for each queue pair; they go to RTS; the keys again
//	Start     both are ready for the messages of one size
//	...       the messages
//	Finish    reports, if the test has them, and "done"
//
// How many times both sides exchange keys depends on the test; sequence.go has the table.
// Sizes and counts are not exchanged: both sides are started with the same ([Test.Defaults]).
//
// The caller's server handles the messages. For READ, atomics and the bandwidth of WRITE it does
// nothing until Finish. For the bandwidth of SEND it receives as many as the client sends. In a
// latency test of SEND it answers each message. In one of WRITE both sides poll the last byte of
// their memory, which is the number of the message, from 1, cut to eight bits, and then write
// theirs.
//
// The protocol is plain TCP without authentication, over IPv4 only: see package connect for our
// own exchange.
package perftest
