package xdp

import (
	"errors"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestSteerOnCards: the lab's cards are as the documents say. None accepts rules, although igb's driver
// lists them, and each is refused with the reason. ethtool is refused as well, and lists nothing.
func TestSteerOnCards(t *testing.T) {
	labenv.Guest(t)
	for name, lists := range map[string]bool{"igb0": true, "virtio0": false} {
		testenv.Wait(t, testenv.Within(10*time.Second), name+" to be back from the namespace of the test before", func() bool { _, err := net.InterfaceByName(name); return err == nil })
		dir := t.TempDir()
		for _, text := range []string{"ip and udp dst port 5000", "ether proto 0x88b5", "ether dst 02:00:00:00:00:aa"} {
			s, err := Steer(name, tuplesOf(t, text), []uint32{0}, dir)
			if s != nil || !errors.Is(err, ErrNoSteering) || !errors.Is(err, unix.EOPNOTSUPP) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "this card, or its driver, has no rules") {
				t.Errorf("%s on %s: %v, %v", text, name, s, err)
			}
		}
		if _, err := SteersPackets(name); !errors.Is(err, ErrNoSteering) {
			t.Errorf("%s: %v", name, err)
		}
		noRecords(t, dir)
		if out, err := exec.Command("ethtool", "-N", name, "flow-type", "ether", "proto", "0x88b5", "action", "0").CombinedOutput(); !strings.Contains(string(out), "not supported") { // it may end with 0 all the same
			t.Errorf("%s: ethtool puts a rule in, and we do not: %v, %s", name, err, out)
		}
		out, err := exec.Command("ethtool", "-n", name).CombinedOutput()
		if got := err == nil && strings.Contains(string(out), "Total 0 rules"); got != lists {
			t.Errorf("%s: rules are listed: %v, %s", name, got, out)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); left != nil {
			t.Errorf("left: %v", left)
		}
	}
}
