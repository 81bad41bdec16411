package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestKinds: the source and sink of a flow determine its kind, wherever the file sets them, and NewFlowOf gives a
// program the same flow. TestValid checks the defaults.
func TestKinds(t *testing.T) {
	c, err := Load("testdata/kinds.yaml", Options{})
	testenv.Must(t, err)
	for i := range c.Flows {
		kind := Kind(c.Flows[i].Name)
		t.Run(string(kind), func(t *testing.T) {
			if got := c.Flows[i].Kind(); got != kind {
				t.Errorf("kind is %s", got)
			}
			checkProgram(t, c, i)
		})
	}
	if len(c.Flows) != len(kindOf) {
		t.Errorf("%d of %d kinds", len(c.Flows), len(kindOf))
	}
}

// anyPlace makes comparisons ignore places.
var anyPlace = cmp.Comparer(func(a, b Pos) bool { return true })

// checkProgram checks that a program that names the same source and sink as a flow of a file gets the same flow.
func checkProgram(t *testing.T, c *Config, i int) {
	t.Helper()
	want, f := c.Flows[i], NewFlowOf(c.Flows[i].Kind(), c.Flows[i].Name)
	f.From.Interface, f.From.RDMA, f.From.Listen, f.From.File = want.From.Interface, want.From.RDMA, want.From.Listen, want.From.File
	f.To.File, f.To.Device, f.To.RDMA, f.To.Listen = want.To.File, want.To.Device, want.To.RDMA, want.To.Listen
	f.To.Subsystem, f.To.AllowAnyHost = want.To.Subsystem, want.To.AllowAnyHost
	f.From.Files, f.To.Interface, f.To.Pace = want.From.Files, want.To.Interface, want.To.Pace
	f.From.Generate, f.From.Rate, f.To.Discard, f.Watermarks = want.From.Generate, want.From.Rate, want.To.Discard, want.Watermarks
	f.From.Attach, f.To.Attach, f.From.Channel, f.To.Channel, f.To.State = want.From.Attach, want.To.Attach, want.From.Channel, want.To.Channel, want.To.State
	for _, p := range want.To.Peers {
		f.To.Peers = append(f.To.Peers, Peer{Name: p.Name, Address: p.Address, Flow: p.Flow})
	}
	if f.Kind() == KindAttachState {
		f.From.Message = want.From.Message
	}
	f.To.Order, f.To.Replicas = want.To.Order, want.To.Replicas
	own := Default()
	own.Attach, own.Flows = c.Attach, []Flow{f}
	own.Complete()
	if err := own.Validate(Options{}); err != nil && !strings.Contains(err.Error(), "attach.") {
		t.Errorf("not valid: %v", err)
	}
	if diff := cmp.Diff(want, own.Flows[0], anyPlace); diff != "" {
		t.Errorf("of a program (-want +got):\n%s", diff)
	}
}

// TestDefaultsFollow: Complete derives defaults from other settings.
func TestDefaultsFollow(t *testing.T) {
	const relay = "flows: [{name: r, from: {rdma: a, listen: \":1\"}, to: {rdma: a, peers: [{name: p, address: \"h:1\", flow: w}]"
	tests := map[string]struct {
		text string
		got  func(*Flow) any
		want any
	}{
		"one peer has each message": {relay + ", choose: hash}}]", func(f *Flow) any { return f.To.Acknowledge }, AcknowledgeAny},
		"messages of small frames":  {relay + "}}]\nregion: {frame: 2048}", func(f *Flow) any { return f.From.Message }, KiB},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := Parse("x.yaml", []byte(test.text), Options{})
			testenv.Must(t, err)
			if diff := cmp.Diff(test.want, test.got(&c.Flows[0])); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestInFrame(t *testing.T) {
	for _, frame := range []int{2048, 4096} {
		r := Region{Frame: frame}
		if last := Size(frame) - MessageOverhead; !r.InFrame(last) || r.InFrame(last+1) || r.InFrame(^Size(0)-5) {
			t.Errorf("of %d bytes: %d or more are not told apart", frame, last)
		}
	}
}
