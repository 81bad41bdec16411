// Package worker runs flows on OS threads of their own.
//
// A Worker polls its flows in turn. When none has anything to do it spins,
// sleeps or waits for an event, as configured. It counts stalls: times for which
// it polled no flow. Control work runs on the thread by Do, between two rounds.
package worker
