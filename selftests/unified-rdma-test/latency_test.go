package main

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/umem"
)

// TestSlowBytes has bytes come that are each sooner than the user's patience ends, but not all together; and then none.
func TestSlowBytes(t *testing.T) {
	const patience = 2 * time.Second
	region, err := umem.Open(umem.Config{Size: 2 << 20, Pages: umem.Ordinary})
	if err != nil {
		t.Fatal(err)
	}
	l := &link{session: &session{region: region, options: options{patience: patience}}, job: job{Size: 2}, ctx: t.Context()}
	word, shift := lastWord(l.bytes(l.in, 0))
	for n := range uint32(3) {
		time.AfterFunc(patience*4/10, func() { atomic.StoreUint32(word, (n+1)<<shift) })
		if err := l.awaitByte(byte(n + 1)); err != nil {
			t.Fatalf("byte %d, within the patience: %v", n+1, err)
		}
	}
	l.options.patience = 50 * time.Millisecond
	if err := l.awaitByte(0); err == nil {
		t.Error("a byte came that nobody sent")
	}
	if err := region.Close(); err != nil {
		t.Error(err)
	}
}
