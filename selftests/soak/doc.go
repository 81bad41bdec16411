// Package soak runs the daemon with all five flows over one region, under steady traffic that is verified at the far ends, and has
// one thing after the other go wrong: readers are slow, peers die and vanish in the middle of a message, links go down, disks are full and fail. What
// is not concerned must go on at its rate, and everything must come back.
//
// The daemon and the programs at its other ends are processes of their own, in network namespaces joined by a bridge.
package soak
