package config

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/unifiedd/unifiedd/internal/linktype"
)

// minimal is the shortest valid configuration.
const minimal = `flows: [{name: md, from: {interface: eth0}, to: {file: /captures/md}}]`

func one(v int) *int { return &v }

// byValue compares addresses by value.
var byValue = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func TestFull(t *testing.T) {
	const file = "testdata/full.yaml"
	var filters []string
	c, err := Load(file, Options{CheckFilter: func(expr string, _ linktype.Type) error {
		filters = append(filters, expr)
		return nil
	}, CheckObject: func(file, program string) (string, error) { return "digest", nil }})
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Region: Region{
			Size: 512 * MiB, Pages: Pages2MiB, Device: "/dev/dax0.0", Frame: 4096,
			Extent: 512 * KiB, Extents: 256, Node: one(0), Reserve: true,
		},
		Workers: []Worker{
			{Name: "main", CPU: one(1), Wait: WaitSleep, Sleep: 500 * time.Microsecond, Pos: Pos{file, 17, 5}},
			{Name: "fast", CPU: one(2), Wait: WaitSpin, Sleep: 200 * time.Microsecond, Pos: Pos{file, 21, 5}},
		},
		User:    "unifiedd",
		Log:     Log{Level: LevelDebug, Format: FormatJSON},
		Metrics: Metrics{Listen: "127.0.0.1:9300"},
		Control: Control{Socket: "/run/unifiedd/test.sock"},
		Trace:   Trace{Directory: "/dev/shm/unifiedd", Events: 1024},
		Cluster: Cluster{
			Resolver: ResolverEtcd, Name: "host-1", Endpoints: []string{"https://10.0.0.5:2379", "https://10.0.0.6:2379"}, Lease: 15 * time.Second, Prefix: "/machines/",
			TLS:   TLS{"/etc/unifiedd/etcd/cert.pem", "/etc/unifiedd/etcd/key.pem", "/etc/unifiedd/etcd/ca.pem"},
			Peers: []ClusterPeer{{Peer: "old-1/wal", Address: "10.0.0.7:7471", Pos: Pos{file, 367, 7}}, {Peer: "old-2/shared", Address: "10.0.0.8:7475", Group: "10.0.0.8:7491", Pos: Pos{file, 368, 7}}},
		},
		Attach: Attach{Socket: "/run/unifiedd/programs.sock", Programs: []Program{
			{Name: "strategy", User: "trader", In: 32 * MiB, Out: 16 * MiB, Pos: Pos{file, 333, 7}},
			{Name: "risk", User: "1003", In: 8 * MiB, Pos: Pos{file, 334, 7}},
		}, Channels: []Channel{
			{Name: "book", Writer: "strategy", Readers: []ChannelReader{{"risk", PolicyWait}}, Slots: 1024, Slot: 512, Pos: Pos{file, 336, 7}},
			{Name: "fills", Readers: []ChannelReader{{"risk", PolicyDropOldest}}, Slots: 4096, Slot: 256, Pos: Pos{file, 341, 7}},
		}, States: []State{
			{Name: "books", Objects: 1024, Room: 336, Readers: []string{"risk"}, Remote: StateRemote{Clients: 16}, Pos: Pos{file, 343, 7}},
			{Name: "refs", Keys: 65536, Remote: StateRemote{RDMA: "mlx5_3", Listen: ":7499", Clients: 4, Allow: []string{"desk"}, AllowAnyGID: true}, Pos: Pos{file, 347, 7}},
			{Name: "turns", Words: 16, Remote: StateRemote{RDMA: "roce:eth18", Listen: ":7498", Clients: 16, Worker: "fast"}, Pos: Pos{file, 354, 7}},
		}},
		TLS: TLS{"/etc/unifiedd/tls/cert.pem", "/etc/unifiedd/tls/key.pem", "/etc/unifiedd/tls/ca.pem"},
		Flows: []Flow{
			{
				Name: "md", Worker: "main", Pos: Pos{file, 35, 5},
				From: From{
					Interface: "eth0", Engine: EngineXDP, Queues: []int{0, 1}, ZeroCopy: ZeroCopyRequire, Timestamps: TimestampsPrefer, Filter: "udp and port 5000",
					Ring: 8192, BusyPoll: 50 * time.Microsecond, Steer: SteerPrefer, Beside: BesideLibxdp, Priority: 60, TakeOver: true,
				},
				To: To{
					File: "/var/lib/unifiedd/md", Layout: LayoutSlot, Prepare: PrepareAllocate, Index: true,
					Segment: Segment{Size: 2 * GiB, Every: time.Hour, Keep: 10},
					Flush:   100 * time.Millisecond, Durable: 2 * time.Second,
				},
			},
			{
				Name: "orders", Worker: "fast", Pos: Pos{file, 62, 5},
				From: From{Interface: "eth1", Engine: EngineAuto, Buffer: DefaultBuffer, Mirror: MirrorIngress, ZeroCopy: ZeroCopyPrefer, Timestamps: TimestampsSoftware, Promiscuous: true, Priority: DefaultPriority},
				To: To{
					Device: "/dev/nvme0n1", Force: true, Layout: LayoutPacked, Prepare: PrepareNone,
					Segment: Segment{Size: GiB}, Flush: 500 * time.Millisecond, Durable: Written,
				},
			},
			{
				Name: "wal", Worker: "main", Pos: Pos{file, 71, 5},
				From: From{
					RDMA: "roce:eth2", Listen: "10.0.0.1:7471", Paths: []Path{{RDMA: "mlx5_1", Listen: "10.0.1.1:7471"}}, Message: 3 * KiB, Window: 128, Clients: 8, Method: MethodSend,
					Allow: []string{"trader1.example", "trader2.example"}, AllowAnyGID: true,
				},
				To: To{
					File: "/var/lib/unifiedd/wal", Layout: LayoutPacked, Prepare: PrepareAllocate, Segment: Segment{Size: GiB},
					Acknowledge: AcknowledgeWritten, Flush: time.Millisecond, Durable: 10 * time.Millisecond,
				},
			},
			{
				Name: "feed", Worker: "fast", Pos: Pos{file, 89, 5},
				From: From{
					Interface: "eth3", Filter: "udp and dst port 5000", ZeroCopy: ZeroCopyPrefer,
					Timestamps: TimestampsSoftware, Ring: 4096, Promiscuous: true, Priority: DefaultPriority,
				},
				Stages: []Stage{
					{Pos: Pos{file, 95, 9}, Set: &Set{
						MACSource: net.HardwareAddr{2, 0, 0, 0, 0, 1}, MACDestination: net.HardwareAddr{2, 0, 0, 0, 0, 2}, VLAN: 100,
						IPSource: netip.MustParseAddr("10.1.0.1"), IPDestination: netip.MustParseAddr("10.1.0.2"),
						PortSource: 4000, PortDestination: 5001,
					}},
					{Pos: Pos{file, 103, 9}, Sequence: &Sequence{}},
					{Pos: Pos{file, 104, 9}, Timestamp: &Timestamp{Offset: 8}},
				},
				To: To{RDMA: "mlx5_0", Choose: ChooseHash, Queue: 4096, Method: MethodWrite, Durability: AcknowledgeReceived, Peers: []Peer{
					{Name: "a", Address: "10.0.0.2:7471", Flow: "wal", Policy: PolicyDropOldest, Pos: Pos{file, 111, 11}},
					{Name: "b", Address: "storage3.example:7471", Flow: "wal", Policy: PolicyWait, Pos: Pos{file, 115, 11}},
				}},
			},
			{
				Name: "blocks", Worker: "fast", Pos: Pos{file, 117, 5},
				From: From{File: "/var/lib/unifiedd/image"},
				To: To{
					RDMA: "mlx5_0", Listen: ":7472", Cache: 64 * MiB, CacheIndex: "/var/lib/unifiedd/blocks.index", Transfer: 256 * KiB, Window: 8, Clients: 4,
					Allow: []string{"reader.example"}, AllowAnyGID: true,
				},
			},
			{
				Name: "relay", Worker: "main", Pos: Pos{file, 132, 5},
				From:   From{RDMA: "mlx5_0", Listen: "10.0.0.1:7473", Message: 2 * KiB, Window: 64, Clients: 16, Verify: true, Method: MethodWrite},
				Stages: []Stage{{Pos: Pos{file, 139, 9}, Sum: &Sum{SumFloat32}}},
				To: To{RDMA: "mlx5_0", Choose: ChooseAll, Queue: 1024, Method: MethodAny, Durability: AcknowledgeDurable, Participant: 3, Acknowledge: AcknowledgeMost, Peers: []Peer{
					{Name: "a", Address: "10.0.0.2:7471", Flow: "wal", Policy: PolicyWait, Pos: Pos{file, 146, 11}},
					{Name: "b", Address: "10.0.0.3:7471", Others: []string{"10.0.1.3:7471", "10.0.2.3:7471"}, Flow: "wal", Policy: PolicyWait,
						Paths: []Path{{RDMA: "mlx5_1", Address: "10.1.0.3:7471", Others: []string{"10.1.1.3:7471", "10.1.2.3:7471"}}}, PathMode: PathStandby, Pos: Pos{file, 147, 11}},
					{Name: "c", Address: "10.0.0.4:7471", Flow: "wal", Policy: PolicyDisconnect, Paths: []Path{{RDMA: "mlx5_1", Address: "10.0.1.4:7471"}}, PathMode: PathActive, Pos: Pos{file, 148, 11}},
				}},
			},
			{
				Name: "disk", Worker: "main", Pos: Pos{file, 150, 5},
				From: From{Device: "/dev/nvme1n1"},
				To:   To{RDMA: "mlx5_0", Listen: ":7474", Transfer: MiB, Window: 32, Clients: 16},
			},
			{
				Name: "disk-alone", Worker: "main", Pos: Pos{file, 152, 5},
				From: From{Generate: KiB, Rate: 100000},
				To: To{Device: "/dev/nvme2n1", Layout: LayoutPacked, Prepare: PrepareNone, Segment: Segment{Size: GiB},
					Flush: 500 * time.Millisecond, Durable: time.Second},
				Watermarks: Watermarks{High: 8192, Low: 2048},
			},
			{
				Name: "card-alone", Worker: "main", Pos: Pos{file, 163, 5},
				From: From{Interface: "eth4", ZeroCopy: ZeroCopyPrefer, Timestamps: TimestampsSoftware, Ring: 4096, Promiscuous: true, Priority: DefaultPriority},
				To:   To{Discard: true},
			},
			{
				Name: "office", Worker: "main", Pos: Pos{file, 165, 5},
				From: From{Interface: "eth7", Interfaces: []string{"eth7", "eth8"}, Comments: []string{"", "out"}, Comment: "in", Engine: EngineAuto, Buffer: 256 * MiB, ZeroCopy: ZeroCopyPrefer, Timestamps: TimestampsSoftware, Promiscuous: true, Priority: DefaultPriority},
				To: To{File: "/var/lib/unifiedd/office", Layout: LayoutPacked, Prepare: PrepareAllocate, Segment: Segment{Size: GiB},
					Flush: 500 * time.Millisecond, Durable: time.Second, Snaplen: 128, KeepFree: -10, Mode: 0o640, Owner: "capture:adm", Comment: "case 7"},
			},
			{
				Name: "volume", Worker: "main", Pos: Pos{file, 176, 5},
				From: From{Device: "/dev/nvme3n1"},
				To: To{RDMA: "mlx5_0", Listen: ":4420", Subsystem: "nqn.2026-01.com.example:volume", Hosts: []string{"nqn.2014-08.org.nvmexpress:uuid:4b1dbb4e-6f4b-4b0c-9a0c-2f1c8b6f0a01"},
					Keys: "/etc/unifiedd/hosts.keys", Group: AuthFFDHE3072, ANA: ANAOptimized, Controllers: Controllers{1, MaxController},
					ReadOnly: true, Window: 64, Clients: 16, Namespaces: []Namespace{{2, "/srv/second", "", true, ANANonOptimized, Pos{file, 188, 10}}, {3, "", "/dev/nvme5n1", false, "", Pos{file, 188, 75}}},
					Subsystems: []Subsystem{{"nqn.2026-01.com.example:other", []string{"nqn.2014-08.org.nvmexpress:uuid:4b1dbb4e-6f4b-4b0c-9a0c-2f1c8b6f0a02"}, false, "",
						[]Namespace{{1, "", "/dev/nvme6n1", false, ANAOptimized, Pos{file, 192, 24}}}, Pos{file, 190, 11}}}},
			},
			{
				Name: "sorted", Worker: "main", Pos: Pos{file, 196, 5},
				From: From{
					Interface: "eth5", ZeroCopy: ZeroCopyPrefer, Timestamps: TimestampsSoftware, Ring: 4096, Promiscuous: true, Priority: DefaultPriority,
					Rules: []Rule{{"noise", "udp port 1900", ActionDrop, Pos{file, 201, 11}}, {"rest", "", ActionTake, Pos{file, 202, 11}}},
				},
				To: To{Discard: true},
			},
			{
				Name: "mine", Worker: "main", Pos: Pos{file, 205, 5},
				From: From{
					Interface: "eth6", ZeroCopy: ZeroCopyPrefer, Timestamps: TimestampsSoftware, Ring: 4096, Promiscuous: true, Priority: DefaultPriority,
					Object: Object{"/etc/unifiedd/mine.o", "mine", "digest"},
				},
				To: To{Discard: true},
			},
			{
				Name: "replay", Worker: "main", Pos: Pos{file, 212, 5},
				From: From{Files: []string{"/captures/monday.pcapng", "/var/lib/unifiedd/feed"}, Filter: "tcp", Loop: 3},
				To: To{Interface: "eth9", ZeroCopy: ZeroCopyCopy, Ring: 2048, Pace: Pace{PaceBits, 2.5e8}, Spin: 20 * time.Microsecond,
					Late: 500 * time.Microsecond, MaxGap: 5 * time.Second},
			},
			{
				Name: "open", Worker: "main", Pos: Pos{file, 227, 5},
				From: From{File: "/srv/open"},
				To: To{RDMA: "mlx5_0", Listen: ":4421", Subsystem: "nqn.2026-01.com.example:open", AllowAnyHost: true, Window: 128, Clients: 8, ANA: ANANonOptimized, Controllers: Controllers{1001, 2000}, Reservations: "/var/lib/unifiedd/open.reservations",
					Subsystems: []Subsystem{{"nqn.2026-01.com.example:open2", nil, true, ANAInaccessible, nil, Pos{file, 235, 20}}}},
			},
			{
				Name: "shared", Worker: "main", Pos: Pos{file, 240, 5},
				From: From{RDMA: "mlx5_0", Class: Class{TrafficClass: 104, Priority: 3, ECN: true, MinRate: 100}, Listen: "10.0.0.1:7475", Paths: []Path{{RDMA: "mlx5_1", Listen: "10.0.1.1:7475"}}, Message: KiB, Window: 16, Clients: 2, Verify: true, Method: MethodSend},
				To: To{
					File: "/var/lib/unifiedd/shared", Layout: LayoutPacked, Prepare: PrepareAllocate, Segment: Segment{Size: GiB},
					Acknowledge: AcknowledgeDurable, Durable: GroupCommit,
					Replicas: &Replicas{Name: "shared", Self: "a", Listen: ":7491", Heartbeat: 500 * time.Microsecond, Suspect: 50 * time.Millisecond, Lag: 16 * MiB, PathMode: PathActive, Members: []Replica{
						{Name: "a", Number: 1, Peer: "host-1/shared", Certificate: "a.example", Paths: []ReplicaPath{{"10.0.1.1:7491", "10.0.1.1:7475"}}},
						{Name: "b", Number: 2, Address: "10.0.0.2:7491", Clients: "10.0.0.2:7475", Paths: []ReplicaPath{{"10.0.1.2:7491", "10.0.1.2:7475"}}},
						{Name: "w", Number: 3, Address: "10.0.0.3:7491", Witness: true, Paths: []ReplicaPath{{"10.0.1.3:7491", ""}}},
						{Name: "d", Number: 4, Address: "10.0.0.4:7491", Clients: "10.0.0.4:7475", Joins: true, Paths: []ReplicaPath{{"10.0.1.4:7491", "10.0.1.4:7475"}}},
					}},
				},
			},
			{
				Name: "submitted", Worker: "main", Pos: Pos{file, 259, 5},
				From: From{Attach: "strategy", Message: KiB, Window: 512},
				To: To{
					File: "/var/lib/unifiedd/orders", Layout: LayoutPacked, Prepare: PrepareAllocate, Segment: Segment{Size: GiB},
					Acknowledge: AcknowledgeDurable, Durable: GroupCommit,
				},
			},
			{
				Name: "ticks", Worker: "main", Pos: Pos{file, 267, 5},
				From: From{Interface: "eth10", ZeroCopy: ZeroCopyPrefer, Timestamps: TimestampsSoftware, Ring: 512, Promiscuous: true, Priority: DefaultPriority},
				To:   To{Attach: "risk", Queue: 256, Policy: PolicyDropOldest, Place: PlaceHere, Expose: true},
			},
			{
				Name: "hedges", Worker: "main", Pos: Pos{file, 277, 5},
				From: From{Attach: "strategy", Trusted: true, Message: 2 * KiB, Window: 256},
				To: To{
					RDMA: "mlx5_9", Class: Class{TrafficClass: 104, Priority: 3, ECN: true, MinRate: 10},
					Peers: []Peer{{Name: "desk", Address: "10.0.0.9:7471", Policy: PolicyWait, TrafficClass: one(72), Priority: one(0), Pos: Pos{file, 282, 100}},
						{Name: "storage-4", Peer: "storage-4/wal", Others: []string{"storage-5/wal"}, Flow: "wal", Policy: PolicyWait, Pos: Pos{file, 282, 172}}},
					Choose: ChooseAll, Queue: 1024, Method: MethodAny, Durability: AcknowledgeReceived, Acknowledge: AcknowledgeAll,
				},
			},
			{
				Name: "books", Worker: "main", Pos: Pos{file, 284, 5},
				From: From{Attach: "strategy", Message: 512, Window: 256},
				To:   To{State: "books"},
			},
			{
				Name: "book-out", Worker: "main", Pos: Pos{file, 289, 5},
				From: From{Channel: "book"},
				To:   To{RDMA: "mlx5_3", Peers: []Peer{{Name: "desk", Address: "10.0.0.9:7480", Policy: PolicyWait, Pos: Pos{file, 295, 11}}}},
			},
			{
				Name: "fills-in", Worker: "main", Pos: Pos{file, 297, 5},
				From: From{RDMA: "mlx5_3", Listen: ":7481", Allow: []string{"desk"}},
				To:   To{Channel: "fills"},
			},
			{
				Name: "quotes", Worker: "main", Pos: Pos{file, 301, 5},
				From: From{Interface: "eth11", ZeroCopy: ZeroCopyPrefer, Timestamps: TimestampsSoftware, Ring: 4096, Promiscuous: true, Priority: DefaultPriority},
				Stages: []Stage{{Mold: &Feed{
					Lines: []FeedLine{{"a", netip.MustParseAddr("239.1.1.1"), 26400, Pos{file, 301, 90}}}, Gap: 20 * time.Millisecond, Hold: 512,
					Server: "10.0.0.9:26401", Ask: 5 * time.Millisecond,
				}, Pos: Pos{file, 301, 69}}},
				To: To{Attach: "risk", Queue: 1024, Policy: PolicyDropNewest, Place: PlaceCopy},
			},
			{
				Name: "half", Worker: "main", Pos: Pos{file, 302, 5},
				From: From{Interface: "eth9", Engine: EnginePacket, Fanout: "eth9", Buffer: DefaultBuffer, Join: []Join{
					{Group: netip.MustParseAddr("239.1.1.1"), Pos: Pos{file, 302, 93}},
					{Group: netip.MustParseAddr("232.1.1.1"), Source: netip.MustParseAddr("10.0.0.5"), Interface: "eth9.100", Pos: Pos{file, 302, 104}},
				}, ZeroCopy: ZeroCopyPrefer, Timestamps: TimestampsSoftware, Promiscuous: true, Priority: DefaultPriority},
				To: To{File: "/var/lib/unifiedd/half", Layout: LayoutPacked, Prepare: PrepareAllocate, Segment: Segment{Size: GiB},
					Flush: 500 * time.Millisecond, Durable: time.Second},
			},
			{
				Name: "numbers", Worker: "main", Pos: Pos{file, 303, 5},
				From: From{Interface: "eth12", Engine: EngineXDP, ZeroCopy: ZeroCopyPrefer, Timestamps: TimestampsSoftware, Promiscuous: true, Priority: DefaultPriority},
				Stages: []Stage{{Counter: &Feed{
					Lines: []FeedLine{{"a", netip.MustParseAddr("239.1.1.2"), 26500, Pos{file, 303, 89}}}, Gap: 20 * time.Millisecond, Hold: 512,
					Counter: &Counter{Offset: 4, Width: 4, Order: LittleEndian},
				}, Pos: Pos{file, 303, 70}}},
				To: To{File: "/var/lib/unifiedd/numbers", Layout: LayoutPacked, Prepare: PrepareAllocate, Segment: Segment{Size: GiB},
					Flush: 500 * time.Millisecond, Durable: time.Second},
			},
			{
				Name: "trades", Worker: "main", Pos: Pos{file, 304, 5},
				From: From{Attach: "strategy", Message: KiB, Window: 256},
				To: To{Order: &Order{
					Connect: "10.0.0.9:4001", Interface: "eth13", Queue: 1, ZeroCopy: ZeroCopyCopy, Ring: 256, Replies: true, Retry: 5 * time.Second, Times: "/var/log/unifiedd/trades.csv", Counter: 1,
					Limits: OrderLimits{Rate: 1000, Burst: 20, Size: 256, Price: &PriceBand{Offset: 26, Bits: 32, Min: 100, Max: 2000000, At: 2, Is: "UO"}},
				}},
			},
			{
				Name: "sessions", Worker: "main", Pos: Pos{file, 305, 5},
				From: From{Attach: "strategy", Message: KiB, Window: 256},
				To:   To{Order: &Order{Given: "risk", Peer: "exchange.example.net:4001", Interface: "eth14", ZeroCopy: ZeroCopyPrefer, Ring: 512, Retry: time.Second, SendTimes: true, Counter: 1}},
			},
			{
				Name: "hits", Worker: "main", Pos: Pos{file, 306, 5},
				From: From{Interface: "eth15", ZeroCopy: ZeroCopyPrefer, Timestamps: TimestampsSoftware, Ring: 4096, Promiscuous: true, Priority: 50},
				To: To{Order: &Order{
					Connect: "exchange.example.net:4001", Interface: "eth16", ZeroCopy: ZeroCopyPrefer, Ring: 512, Retry: time.Second, SendTimes: true, Counter: 1000,
					Rules: []OrderRule{{
						Name: "lift",
						When: []Condition{
							{Is: "A", Order: BigEndian, Max: math.MaxUint64}, {At: 11, Hex: Bytes{0x10, 0x20}, Mask: Bytes{0xf0, 0xff}, Order: BigEndian, Max: math.MaxUint64},
							{At: 20, Bits: 32, Order: LittleEndian, Min: 5, Max: 9},
						},
						Order: []OrderPart{{Text: "UO"}, {Hex: Bytes{0, 10}}, {Copy: one(12), Bytes: 4, Reverse: true}, {Counter: CounterDecimal, Bytes: 14}},
					}},
					Login:     &Login{Send: []OrderPart{{Text: "hello"}, {Hex: Bytes{0}}}, Answer: []Condition{{At: 2, Is: "A", Order: BigEndian, Max: math.MaxUint64}}},
					Heartbeat: &Heartbeat{Every: time.Second, Send: []OrderPart{{Hex: Bytes{0, 1, 0x52}}}},
				}},
			},
		},
	}
	if diff := cmp.Diff(want, c, byValue); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"udp and port 5000", "udp and dst port 5000", "udp port 1900", "tcp"}, filters); diff != "" {
		t.Errorf("filters checked (-want +got):\n%s", diff)
	}
}

func TestDefaults(t *testing.T) {
	c, err := Parse("min.yaml", []byte(minimal), Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Region:  Region{Size: 256 * MiB, Pages: Pages2MiB, Frame: 4096, Extent: MiB, Extents: 16},
		Workers: []Worker{{Name: "main", Wait: WaitSleep, Sleep: 200 * time.Microsecond}},
		Log:     Log{Level: LevelInfo, Format: FormatText},
		Control: Control{Socket: "/run/unifiedd/control.sock"},
		Trace:   Trace{Events: 4096},
		Attach:  Attach{Socket: "/run/unifiedd/attach.sock"},
		Flows: []Flow{{
			Name: "md", Worker: "main", Pos: Pos{"min.yaml", 1, 9},
			From: From{Interface: "eth0", Engine: EngineXDP, ZeroCopy: ZeroCopyPrefer, Timestamps: TimestampsSoftware, Promiscuous: true, Priority: DefaultPriority},
			To: To{
				File: "/captures/md", Layout: LayoutPacked, Prepare: PrepareAllocate,
				Segment: Segment{Size: GiB}, Flush: 500 * time.Millisecond, Durable: time.Second,
			},
		}},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// flowWith returns a configuration with further lines in a flow's from and to.
func flowWith(from, to string) string {
	return fmt.Sprintf("flows:\n- name: md\n  from:\n    interface: eth0\n    %s\n  to:\n    file: /captures/md\n    %s\n", from, to)
}

func TestAccepted(t *testing.T) {
	tests := map[string]struct {
		text string
		got  func(*Config) any
		want any
	}{
		"size without unit": {minimal + "\nregion: {size: 8388608, extents: 2}",
			func(c *Config) any { return c.Region.Size }, 8 * MiB},
		"size rounded to 2 MiB": {minimal + "\nregion: {size: 33MiB}",
			func(c *Config) any { return c.Region.Size }, 34 * MiB},
		"size rounded to 1 GiB": {minimal + "\nregion: {pages: 1GiB}",
			func(c *Config) any { return c.Region.Size }, GiB},
		"size rounded to ordinary pages": {minimal + "\nregion: {pages: ordinary, size: 33554433}",
			func(c *Config) any { return c.Region.Size }, 32*MiB + Size(os.Getpagesize())},
		"region beyond 4 GiB": {minimal + "\nregion: {size: 5GiB, extents: 2560}",
			func(c *Config) any { return c.Region.Size }, 5 * GiB},
		"exactly half for extents": {minimal + "\nregion: {size: 8MiB, extents: 4}",
			func(c *Config) any { return c.Region.Extents }, 4},
		"byte order mark": {"\ufeff" + minimal,
			func(c *Config) any { return c.Flows[0].Pos.Column }, 9},
		"CR LF": {"region:\r\n  node: 3\r\n" + minimal + "\r\n",
			func(c *Config) any { return c.Flows[0].Pos.Line }, 3},
		"explicit document": {"---\n" + minimal + "\n...\n",
			func(c *Config) any { return c.Flows[0].Name }, "md"},
		"sections without content": {minimal + "\nregion:\nlog:\nmetrics: ~\ncontrol: {}",
			func(c *Config) any { return c.Region.Extents }, 16},
		"a word some readers take for false": {strings.Replace(minimal, "eth0", "no", 1),
			func(c *Config) any { return c.Flows[0].From.Interface }, "no"},
		"a number for a name": {strings.Replace(minimal, "md", "0123", 1) + "\nuser: 1000",
			func(c *Config) any { return c.Flows[0].Name + c.User }, "01231000"},
		"quoted number": {flowWith(`ring: "64"`, ""),
			func(c *Config) any { return c.Flows[0].From.Ring }, 64},
		"all queues": {flowWith("queues: all", ""),
			func(c *Config) any { return c.Flows[0].From.Queues == nil }, true},
		"written": {flowWith("", "durable: written"),
			func(c *Config) any { return c.Flows[0].To.Durable }, Written},
		"slot is zeroed": {flowWith("", "layout: slot"),
			func(c *Config) any { return c.Flows[0].To.Prepare }, PrepareZero},
		"segment rounded": {flowWith("", "segment: {size: 1048577}"),
			func(c *Config) any { return c.Flows[0].To.Segment.Size }, MiB + 4*KiB},
		"the only worker": {minimal + "\nworkers: [{name: w}]",
			func(c *Config) any { return c.Flows[0].Worker }, "w"},
		"no filter hook": {flowWith("filter: whatever !", ""),
			func(c *Config) any { return c.Flows[0].From.Filter }, "whatever !"},
		"merge": {"flows:\n- &a {name: a, from: {interface: e0, ring: 64}, to: &t {file: /a, flush: 20ms}}\n" +
			"- {<<: *a, name: b, from: {interface: e1}, to: {<<: [*t], file: /b}}",
			func(c *Config) any { return []any{c.Flows[1].From.Ring, c.Flows[1].To.Flush} },
			[]any{0, 20 * time.Millisecond}},
		"alias": {"flows:\n- {name: a, from: {interface: e0, ring: &r 64}, to: {file: /a}}\n" +
			"- {name: b, from: {interface: e1, ring: *r}, to: {file: /b}}",
			func(c *Config) any { return c.Flows[1].From.Ring }, 64},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := Parse("x.yaml", []byte(test.text), Options{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, test.got(c)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestHostile: the parser quickly refuses input that could cost much time or memory, and reports a
// place and a reason.
func TestHostile(t *testing.T) {
	queues := "[" + strings.Repeat("0,", 20_000) + "0]"
	bomb := "flows:\n- {name: a, from: &f {interface: e, queues: " + queues + "}, to: {file: /a}}\n" +
		strings.Repeat("- {from: *f}\n", 50_000)
	merges := "flows:\n- &a0 {name: a}\n"
	for i := range 30 {
		merges += fmt.Sprintf("- &a%d {<<: [*a%d, *a%d, *a%d, *a%d]}\n", i+1, i, i, i, i)
	}
	tests := map[string]struct {
		text, want string
	}{
		"larger than a megabyte": {strings.Repeat("#\n", maxFile/2) + "#", "1:1: the file is larger than 1 MiB"},
		"not UTF-8":              {"a: b\nuser: é\xff\n", "2:8: the text is not UTF-8"},
		"not UTF-8 but UTF-16":   {"\xff\xfea\x00", "1:1: the text is not UTF-8"},
		"control character":      {"user: a\x00b\n", "not YAML: "},
		"too many values":        {"region: {node: [" + strings.Repeat("0,", 400_000) + "]}", "region.node: a single value is needed"},
		"too many aliases":       {bomb, "more than 100000 values"},
		"too many merges":        {merges, "merge keys are nested more than 8 deep"},
		"deep":                   {strings.Repeat("[", 50_000), "not YAML: "},
		"deep mappings":          {strings.Repeat("{a: ", 9_000), "not YAML: "},
		"many keys":              {"{" + strings.Repeat("flowss, ", 20_000) + "}", `unknown key "flowss"`},
		"alias of itself":        {"region: &r {node: *r}", "region.node: a single value is needed"},
		"long key":               {strings.Repeat("k", 500_000) + ": 1", `unknown key "kkkk`},
		"size beyond 64 bits":    {"region: {size: 99999999TiB}", `region.size: "99999999TiB" is too large`},
		"size near 64 bits":      {"region: {size: 18446744073709551615}", "region.size: at most 64TiB is possible"},
		"number beyond 64 bits":  {"region: {node: 18446744073709551616}", "is not a whole number"},
		"second text not YAML":   {minimal + "\n---\n\t[", "not YAML: "},
		"relative names":         {strings.Replace(minimal, "/captures/md", "/"+strings.Repeat("x", 215), 1), "the name has 215 bytes; at most 214"},
		"zero byte in a path":    {strings.Replace(minimal, "/captures/md", `"/a\0b"`, 1), "the path has control characters"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, err := Parse("x.yaml", []byte(test.text), Options{})
			if took := time.Since(start); took > time.Minute {
				t.Errorf("took %s", took)
			}
			checkErrors(t, test.text, err)
			if len(err.Error()) > 100*maxLine {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
			for _, p := range err.(*Errors).Problems {
				if strings.Contains(p.Pos().String()+": "+p.Message, test.want) {
					return
				}
			}
			t.Errorf("%q is not in:\n%s", test.want, err)
		})
	}
}

func TestLoadWithoutFile(t *testing.T) {
	c, err := Load(filepath.Join(t.TempDir(), "none.yaml"), Options{})
	if c != nil || !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "read configuration: ") {
		t.Errorf("got %v, %v", c, err)
	}
	c, err = Load(t.TempDir(), Options{})
	if c != nil || err == nil {
		t.Errorf("a directory gave %v, %v", c, err)
	}
	c, err = Load("/dev/zero", Options{})
	if c != nil || err == nil {
		t.Errorf("an endless file gave %v, %v", c, err)
	}
}

// TestValidate: Validate checks a Config from a program like a file; its problems have no places.
func TestValidate(t *testing.T) {
	c := Default()
	f := NewFlow("cli")
	f.From.Interface = "eth0"
	f.From.Filter = "udp !"
	f.To.File = "relative"
	f.To.Flush = time.Minute
	c.Flows = []Flow{f, f}
	c.Complete()
	err := c.Validate(Options{CheckFilter: noBang})
	const want = `flows[0].from.filter: unexpected "!" (at byte 4 of the filter)
flows[0].to.file: "relative" is not an absolute path
flows[0].to.flush: 1m0s is not from 10ms to 1s
flows[1].name: flow "cli" is taken already, by flows[0].name
flows[1].from.filter: unexpected "!" (at byte 4 of the filter)
flows[1].to.file: "relative" is not an absolute path
flows[1].to.flush: 1m0s is not from 10ms to 1s
flows[1].to.file: file "relative" is taken already, by flows[0].to.file`
	if err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f.From.Filter, f.To.File, f.To.Flush = "udp", "/captures/x", time.Second
	c.Flows = []Flow{f}
	c.Complete()
	if err := c.Validate(Options{CheckFilter: noBang}); err != nil {
		t.Error(err)
	}
	f = NewFlow("cli")
	f.From.RDMA, f.From.Listen, f.To.File = "mlx5_0", ":7471", "/captures/x"
	c.Flows = []Flow{f}
	c.Complete()
	if err := c.Validate(Options{}); err == nil || !strings.Contains(err.Error(), "flows[0].from.zero_copy: has a meaning only for a network interface") {
		t.Errorf("the defaults of another kind: %v", err)
	}
	if err := (&Config{}).Validate(Options{}); err == nil {
		t.Error("the zero Config is valid")
	}
}

func TestWords(t *testing.T) {
	for level, want := range map[Level]slog.Level{
		LevelDebug: slog.LevelDebug, LevelInfo: slog.LevelInfo, LevelWarn: slog.LevelWarn, LevelError: slog.LevelError,
	} {
		if got := level.Slog(); got != want {
			t.Errorf("%s is %s", level, got)
		}
	}
	if got := (Pos{"a.yaml", 2, 3}).String() + (Pos{}).String(); got != "a.yaml:2:3" {
		t.Errorf("places are %q", got)
	}
}
