// Package testenv gives tests real devices and removes them again: network namespaces with veth
// pairs between them, huge pages, block devices, small file systems, and frames sent exactly as
// given.
//
// A test may change the machine only by an amount that it knows, and gives back exactly that
// amount. Everything is removed in t.Cleanup, also when the test fails. It is also written to a
// ledger, a file under /run that the process locks while it lives. When a test process is killed,
// the next one that uses the package finds its ledger unlocked and undoes the entries. Test
// processes that run at the same time do not disturb each other: names contain the process ID, and
// shared counters are changed by differences, under one lock.
//
// Everything that needs privilege calls Root first. Errors end the test: the helpers return none,
// since a test without its device is of no use. Call helpers from the test's goroutine, except
// where they say otherwise.
package testenv
