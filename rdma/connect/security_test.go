package connect

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

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

// TestAwaitByte: AwaitByte leaves the byte to be read, and waits for a silent peer no longer than
// FirstByteTime.
func TestAwaitByte(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testenv.Must(t, err)
	defer l.Close()
	for _, says := range []string{"x", ""} {
		client, err := net.Dial("tcp", l.Addr().String())
		testenv.Must(t, err)
		defer client.Close()
		server, err := l.Accept()
		testenv.Must(t, err)
		defer server.Close()
		if _, err := client.Write([]byte(says)); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		err = AwaitByte(server)
		switch took := time.Since(begin); {
		case says == "" && (reasonOf(err) != ReasonTimeout || took < FirstByteTime):
			t.Errorf("who says nothing: %v after %v", err, took)
		case says != "" && err != nil:
			t.Error(err)
		}
		if b := make([]byte, 1); says != "" {
			if _, err := server.Read(b); err != nil || string(b) != says {
				t.Errorf("%q, %v", b, err)
			}
		}
	}
}
