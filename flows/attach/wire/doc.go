// Package wire has what the daemon and an attached program share: the messages on the unix socket where
// they meet, and the rings in shared memory through which they pass frames.
//
// All numbers are little-endian. libunifiedd/wire.h, which TestHeader writes, has the layouts for C.
package wire
