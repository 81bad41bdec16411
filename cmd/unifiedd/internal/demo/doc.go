// Package demo shows a capture from end to end on any machine: two network namespaces with a veth
// pair between them, packets from an independent sender, a daemon that captures them to disk in
// each layout, and independent readers that check the files. Then one daemon runs all five kinds of
// flows, and three daemons keep one log while their leader is killed.
//
// The demo removes everything that it makes, also after an error. While it runs it keeps a record
// of these things, a locked file under /run. If a demo was killed, the next one finds its record
// unlocked, and removes everything in it. One demo runs at a time.
//
// Threads: any goroutine may call Run, one at a time. It uses separate threads to enter namespaces.
package demo
