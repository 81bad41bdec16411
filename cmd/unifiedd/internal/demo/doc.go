// Package demo shows a capture from end to end on any machine: two network
// namespaces joined by a veth pair, packets from a sender nobody here wrote, a
// daemon that takes them to disk in each layout, and files that independent readers
// judge.
//
// Whatever the demo makes it takes back on every path. While it lives it also keeps
// a record, a locked file under /run, of what it has made: the next demo finds the
// record of a killed one unlocked and takes back what is in it. One demo runs at a
// time.
//
// Threads: Run is called from any goroutine, once at a time. It enters namespaces
// on threads of its own.
package demo
