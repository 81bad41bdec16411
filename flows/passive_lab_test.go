package flows

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
)

// TestPassiveRing: the disk writes packets from the ring of a packet socket on every kernel. Linux 6.1 does not register
// that memory, and its pages are pinned for each write.
func TestPassiveRing(t *testing.T) {
	labenv.Guest(t)
	if s := passiveEveryPacket(t); s.Buffer != nil && s.Buffer.Pinned != (labenv.Kernel(t) == labenv.Linux61) {
		t.Errorf("%+v", s.Buffer)
	}
}
