//go:build !amd64 && !arm64

package xdp

import "sync/atomic"

// storeRelease32 is stronger here than it need be.
func storeRelease32(word *atomic.Uint32, v uint32) { word.Store(v) }

// storeRelease64 is stronger here than it need be.
func storeRelease64(word *atomic.Uint64, v uint64) { word.Store(v) }
