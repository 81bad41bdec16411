// Package soak runs the daemon with all five flows on one region, under steady traffic that the
// other ends verify, and injects one fault after another: slow readers, peers that die or vanish
// inside a message, links that go down, disks that are full or fail. Flows without a fault must
// keep their rate, and everything must recover.
//
// The daemon and the programs at its other ends are processes, in network namespaces joined by a
// bridge.
package soak
