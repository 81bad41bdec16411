//go:build !amd64 && !arm64

package xdp

// prefetchLines does nothing here.
func prefetchLines(*byte) {}
