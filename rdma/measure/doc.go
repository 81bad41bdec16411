// Package measure computes latency and bandwidth as perftest does, in its columns, so that a row
// can be compared with one of ib_send_lat or ib_write_bw.
//
// Both start from points in time, in nanoseconds of any clock that does not go back. Latency takes
// the time when each message was posted ([NewLatency]). Bandwidth also takes the times when
// messages were complete ([Transfer.Bandwidth]). The results, including the rounding, are those
// that perftest 4.5-0.17 (version 6.06) computes in perftest_parameters.c, print_report_lat and
// print_report_bw. The tests compare rows with those that its code prints. MB are 1048576 bytes, Gb
// are 125000000 bytes, Mpps millions of messages a second.
//
// Threads. The functions keep no state and may be called from any goroutine. They allocate and
// sort, so call them after a measurement, not during it.
package measure
