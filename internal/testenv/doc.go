// Package testenv gives tests real machinery and takes it away again: network
// namespaces joined by veth pairs, huge pages, block devices, small file
// systems, and frames sent exactly as they are given.
//
// The lesson of the package is that a test may change the machine only by an
// amount it can name, and gives exactly that amount back. Everything made here
// is removed in t.Cleanup, also when the test fails. It is also written to a
// ledger, a file under /run that the process holds locked while it lives;
// when a test process is killed, the next one that uses the package finds the
// unlocked ledger and undoes what is in it. Processes that test at the same
// time do not disturb each other: names carry the process id, and shared
// counters are changed by difference, under one lock.
//
// Everything that needs privilege calls Root first. Errors end the test: the
// helpers have no error results, since a test without its device has nothing
// to say. No helper may be called from a goroutine other than the test's,
// except where it says so.
package testenv
