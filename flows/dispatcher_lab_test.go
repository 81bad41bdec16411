package flows

import (
	"slices"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
)

// TestDispatcher: a flow captures on an interface with XDP programs of libxdp. Programs ahead of its priority
// see packets first, and programs behind it get the packets that the flow leaves.
func TestDispatcher(t *testing.T) {
	labenv.Guest(t)
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	others := testenv.NewLibxdp(t, &l.B)
	others.Load(t, testenv.OtherPass, testenv.OtherDeny)
	text := strings.Replace(l.captures(), "ring: 1024", "ring: 1024, filter: udp port 7 or udp port 9, beside: libxdp, priority: 20", 1)
	f := l.start(t, text, Options{}).Flows()[0]
	if got, want := others.Names(t), []string{testenv.OtherDeny, "unifiedd_capture", testenv.OtherPass}; !slices.Equal(got, want) {
		t.Errorf("in the dispatcher are %v, want %v", got, want)
	}
	var frames [][]byte
	for n := range uint64(300) {
		frames = append(frames, testenv.UDP(&l.A, &l.B, 7+uint16(n%3), n, 100))
	}
	testenv.SendRaw(t, &l.A, frames, testenv.SendOptions{Rate: 10000})
	s := await(t, f, "a third of the packets", func(s status.Flow) bool { return s.Written.Packets >= 100 && s.Passed["kernel_no_match"] >= 100 })
	if s.Beside != "libxdp" || s.Packets != 100 || s.Offered != 200 {
		t.Errorf("beside %q, %d packets of %d, want 100 of 200", s.Beside, s.Packets, s.Offered)
	}
	if denied, passed := others.Count(t, testenv.OtherDeny), others.Count(t, testenv.OtherPass); denied != 100 || passed != 100 {
		t.Errorf("others dropped %d and let %d pass, want 100 each", denied, passed)
	}
	testenv.Must(t, f.Stop())
	if got, want := others.Names(t), []string{testenv.OtherDeny, testenv.OtherPass}; !slices.Equal(got, want) {
		t.Errorf("afterwards there are %v, want %v", got, want)
	}
	for _, frame := range captures.Packets(t, l.files(t)...) {
		if n, ok := testenv.Sequence(frame); !ok || n%3 != 0 {
			t.Fatalf("recorded packet %d, which is for others", n)
		}
	}
}

// TestRefilterDispatched is TestRefilter in libxdp's dispatcher, which each change replaces.
func TestRefilterDispatched(t *testing.T) {
	labenv.Guest(t)
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	testenv.NewLibxdp(t, &l.B).Load(t, testenv.OtherPass)
	l.refilters(t, ", beside: libxdp", int(setting.Number(t, "UNIFIEDD_SWAPS", 10)))
}
