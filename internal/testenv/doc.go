// Package testenv gives tests real devices and removes them again: network namespaces with veth pairs
// between them, huge pages, block devices, small file systems, and frames sent exactly as given.
//
// A test may change the machine only by an amount that it knows, and must give back exactly that
// amount. t.Cleanup removes everything, also when the test fails. The package also writes each
// change to a ledger, a file under /run that the process locks while it lives. When a test process
// is killed, the next process that uses the package finds the ledger unlocked and undoes the
// entries. Concurrent test processes do not disturb each other: names contain the process ID, and
// shared counters change by differences, under one lock.
//
// Every helper that needs privilege calls Root first. Errors end the test: the helpers return none,
// because a test without its device is of no use. Call helpers from the test's goroutine, unless
// they say otherwise.
package testenv
