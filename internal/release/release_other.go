//go:build (!amd64 && !arm64) || race

// Package release stores with release order. On this architecture it uses sync/atomic, which is stronger, and
// which the race detector understands.
package release

import "sync/atomic"

// Store32 stores v.
func Store32(word *atomic.Uint32, v uint32) { word.Store(v) }

// Store64 stores v.
func Store64(word *atomic.Uint64, v uint64) { word.Store(v) }
