package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
)

// TestCounted: both sides print the counters of their devices.
func TestCounted(t *testing.T) {
	labenv.Guest(t)
	p := newPlace(t)
	s := p.serveOn(t, p.asServer("-keep", noDisk)...)
	out := p.asked(t, p.asClient("-test verify -n 20 -size 4096 -json")...)
	var r struct{ Counters counts }
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if sent := r.Counters["sent_pkts"]; sent < 20*4 || r.Counters["rcvd_pkts"] != sent {
		t.Errorf("20 messages of 4 packets: %v", r.Counters)
	}
	out = p.asked(t, p.asClient("-test verify -n 20")...)
	s.ended()
	for side, said := range map[string]string{"client": out, "server": s.Out.String()} {
		if !strings.Contains(said, "meanwhile "+p.device+" counted: ") || !strings.Contains(said, "sent_pkts ") {
			t.Errorf("the %s says %s", side, said)
		}
	}
}
