// Package worker runs flows on dedicated OS threads.
//
// A Worker polls its flows in turn. When none has anything to do, it spins, sleeps or waits for an
// event, as configured. It counts stalls: periods in which it polled no flow. Do runs control work
// on the thread, between two rounds.
package worker
