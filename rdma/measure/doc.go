// Package measure sums up measured latency and bandwidth as perftest does, in its
// columns, so that a row of ours can be laid next to one of ib_send_lat or ib_write_bw.
//
// Both start from points in time, in nanoseconds of any clock that does not go back:
// latency from when each message was posted ([NewLatency]), bandwidth also from when
// messages were complete ([Transfer.Bandwidth]). What is computed, down to the rounding,
// is what perftest 4.5-0.17 (version 6.06) computes in perftest_parameters.c, print_report_lat
// and print_report_bw; the tests hold rows to those that its code prints. MB are 1048576
// bytes, Gb are 125000000 bytes, Mpps millions of messages a second.
//
// Threads. The functions keep nothing and may be called from anywhere. They
// allocate and sort, and belong behind a measurement, not into it.
package measure
