// Package peers holds programs on libraries nobody here wrote, and tests that run
// them against the built programs of this project:
//
//   - xdp-send sends numbered packets through an AF_XDP socket of
//     github.com/asavie/xdp, and a capture must hold every one of them;
//   - ring-read reads a file or device through an io_uring of
//     github.com/pawelgaczynski/giouring, and must find what our ring wrote.
//
// The C programs xsk-peer, log-peer and soaker are what internal/bench measures us
// against and with.
//
// Both libraries do the data path's work in a way that cannot carry it (see
// docs/adr/0002-own-af-xdp-and-io-uring.md), which is what makes them good witnesses. They are a module of
// their own, so that their dependencies are nobody else's. giouring links only with
// -ldflags=-checklinkname=0.
package peers
