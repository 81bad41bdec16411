//go:build amd64 || arm64

package xdp

// prefetchLines begins to fetch the three cache lines from b on, and waits for nothing. What is not mapped is no fault.
//
//go:noescape
func prefetchLines(b *byte)
