package connect

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestSecurityTable: SECURITY.md states the limits for peers that are not authenticated, as the
// constants have them.
func TestSecurityTable(t *testing.T) {
	text, err := os.ReadFile("../../SECURITY.md")
	testenv.Must(t, err)
	for _, row := range []string{
		fmt.Sprintf("| connections whose handshake is not complete | %d, and %d of one host |", MaxPending, MaxPendingPerAddress),
		fmt.Sprintf("| to the first byte | %v |", FirstByteTime),
		fmt.Sprintf("| then for TLS | %v |", TLSTime),
		fmt.Sprintf("| then for the offer | %v |", OfferTime),
		fmt.Sprintf("| for all of the handshake | %v |", DefaultTimeout),
		fmt.Sprintf("| bytes kept of a connection | %d of an offer |", headerBytes+MaxMessage),
	} {
		if !strings.Contains(string(text), row) {
			t.Errorf("SECURITY.md lacks %q", row)
		}
	}
}
