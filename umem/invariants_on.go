//go:build invariants || race

package umem

// Invariants reports whether this build checks every pass of a frame.
const Invariants = true
