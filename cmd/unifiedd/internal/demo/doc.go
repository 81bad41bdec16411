// Package demo shows a capture from end to end on any machine: two network namespaces with a veth
// pair between them, packets of a foreign sender, a daemon that captures them to disk in each
// layout, and files that independent readers check.
//
// The demo removes what it makes on every path. While it runs it keeps a record of that, a locked
// file under /run. The next demo finds the record of a killed one unlocked, and removes what is in
// it. One demo runs at a time.
//
// Threads: any goroutine may call Run, one at a time. It enters namespaces on threads of its own.
package demo
