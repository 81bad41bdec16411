package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestKinds: the source and sink of a flow determine its kind and defaults, wherever the file sets
// them, and NewFlowOf gives a program the same flow.
func TestKinds(t *testing.T) {
	const peers = "peers: [{name: p, address: \"h:1\", flow: w}]"
	clients := From{RDMA: "roce:e", Listen: ":7471", Message: 2 * KiB, Window: 64, Clients: 16, Verify: true, Method: MethodSend}
	packets := From{Interface: "e0", ZeroCopy: ZeroCopyPrefer, Timestamps: TimestampsSoftware, Ring: 4096, Promiscuous: true, Priority: DefaultPriority}
	captured := packets
	captured.Ring, captured.Engine = 0, EngineXDP
	to := []Peer{{Name: "p", Address: "h:1", Flow: "w", Policy: PolicyWait}}
	tests := map[Kind]struct {
		text string
		want Flow
	}{
		KindNetworkStorage: {"{to: {file: /f}, from: {interface: e0}", Flow{From: captured, To: To{
			File: "/f", Layout: LayoutPacked, Segment: Segment{Size: GiB}, Prepare: PrepareAllocate,
			Flush: 500 * time.Millisecond, Durable: time.Second,
		}}},
		KindRDMAStorage: {"{to: {device: /d}, from: {listen: \":7471\", rdma: \"roce:e\"}", Flow{From: clients, To: To{
			Device: "/d", Layout: LayoutPacked, Segment: Segment{Size: GiB}, Prepare: PrepareNone,
			Durable: GroupCommit, Acknowledge: AcknowledgeDurable,
		}}},
		KindNetworkRDMA: {"{to: {" + peers + ", rdma: mlx5_0}, from: {interface: e0}", Flow{From: packets, To: To{
			RDMA: "mlx5_0", Peers: to, Choose: ChooseAll, Queue: 1024, Method: MethodAny, Durability: AcknowledgeReceived,
		}}},
		KindStorageRDMA: {"{to: {rdma: mlx5_0, listen: \"h:7472\"}, from: {file: /f}", Flow{From: From{File: "/f"}, To: To{
			RDMA: "mlx5_0", Listen: "h:7472", Transfer: MiB, Window: 32, Clients: 16,
		}}},
		KindStorageNVMe: {"{to: {subsystem: \"nqn.2026-01.com.example:d\", rdma: mlx5_0, listen: \"h:4420\", allow_any_host: true}, from: {file: /f}", Flow{From: From{File: "/f"}, To: To{
			RDMA: "mlx5_0", Listen: "h:4420", Subsystem: "nqn.2026-01.com.example:d", AllowAnyHost: true, Window: 128, Clients: 8, ANA: ANAOptimized, Controllers: Controllers{1, MaxController},
		}}},
		KindStorageNetwork: {"{to: {interface: e1, pace: 2x}, from: {files: [/a, /b]}", Flow{From: From{Files: []string{"/a", "/b"}, Loop: 1}, To: To{
			Interface: "e1", ZeroCopy: ZeroCopyPrefer, Ring: 4096, Pace: Pace{PaceTimes, 2}, Spin: 50 * time.Microsecond, Late: time.Millisecond,
		}}},
		KindRDMARDMA: {"{from: {rdma: \"roce:e\", listen: \":7471\"}, to: {rdma: mlx5_0, " + peers + "}", Flow{From: clients, To: To{
			RDMA: "mlx5_0", Peers: to, Choose: ChooseAll, Queue: 1024, Method: MethodAny, Durability: AcknowledgeReceived, Acknowledge: AcknowledgeAll,
		}}},
		KindNullStorage: {"{to: {file: /f}, from: {generate: 1KiB, rate: 5}", Flow{From: From{Generate: KiB, Rate: 5}, To: To{
			File: "/f", Layout: LayoutPacked, Segment: Segment{Size: GiB}, Prepare: PrepareAllocate,
			Flush: 500 * time.Millisecond, Durable: time.Second,
		}}},
		KindNullRDMA: {"{to: {" + peers + ", rdma: mlx5_0}, from: {generate: 64}", Flow{From: From{Generate: 64}, To: To{
			RDMA: "mlx5_0", Peers: to, Choose: ChooseAll, Queue: 1024, Method: MethodAny, Durability: AcknowledgeReceived,
		}}},
		KindNetworkNull: {"{to: {discard: true}, from: {interface: e0}", Flow{From: packets, To: To{Discard: true}}},
		KindRDMANull:    {"{to: {discard: true}, from: {rdma: \"roce:e\", listen: \":7471\"}", Flow{From: clients, To: To{Discard: true}}},
		KindNullNull: {"{from: {generate: 60}, to: {discard: true}, watermarks: {high: 100}", Flow{
			From: From{Generate: 60}, To: To{Discard: true}, Watermarks: Watermarks{High: 100, Low: 50}}},
	}
	for kind, test := range tests {
		t.Run(string(kind), func(t *testing.T) {
			c, err := Parse("x.yaml", []byte("flows:\n- "+test.text+", name: f}"), Options{})
			if err != nil {
				t.Fatal(err)
			}
			got := c.Flows[0]
			test.want.Name, test.want.Worker = "f", "main"
			if diff := cmp.Diff(test.want, got, anyPlace); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got.Kind() != kind {
				t.Errorf("kind is %s", got.Kind())
			}
			checkProgram(t, c, kind)
		})
	}
}

// anyPlace makes comparisons ignore places.
var anyPlace = cmp.Comparer(func(a, b Pos) bool { return true })

// checkProgram checks that a program that names the same source and sink gets the same flow.
func checkProgram(t *testing.T, c *Config, kind Kind) {
	t.Helper()
	want, f := c.Flows[0], NewFlowOf(kind, "f")
	f.From.Interface, f.From.RDMA, f.From.Listen, f.From.File = want.From.Interface, want.From.RDMA, want.From.Listen, want.From.File
	f.To.File, f.To.Device, f.To.RDMA, f.To.Listen = want.To.File, want.To.Device, want.To.RDMA, want.To.Listen
	f.To.Subsystem, f.To.AllowAnyHost = want.To.Subsystem, want.To.AllowAnyHost
	f.From.Files, f.To.Interface, f.To.Pace = want.From.Files, want.To.Interface, want.To.Pace
	f.From.Generate, f.From.Rate, f.To.Discard, f.Watermarks = want.From.Generate, want.From.Rate, want.To.Discard, want.Watermarks
	for _, p := range want.To.Peers {
		f.To.Peers = append(f.To.Peers, Peer{Name: p.Name, Address: p.Address, Flow: p.Flow})
	}
	own := Default()
	own.Flows = []Flow{f}
	own.Complete()
	if err := own.Validate(Options{}); err != nil {
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
			if err != nil {
				t.Fatal(err)
			}
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
