// Package peers has programs that use libraries of other projects, and tests that run them against the
// built programs of this project:
//
//   - xdp-send sends numbered packets through an AF_XDP socket of
//     github.com/asavie/xdp, and a capture must hold every one of them;
//   - ring-read reads a file or device through an io_uring of
//     github.com/pawelgaczynski/giouring, and must find what our ring wrote.
//
// internal/bench compares this project with the C programs xsk-peer and log-peer, and measures with soaker. tick-peer is a
// trader in C for unified-tick-test. It compares groups with etcd, whose server is in etcd-peer, a module of its own.
//
// Neither library works in a way that the data path could use (see
// docs/adr/0002-own-af-xdp-and-io-uring.md). This makes them independent checks. The package is a
// separate module, so that no other package has their dependencies. giouring links only with
// -ldflags=-checklinkname=0.
package peers
