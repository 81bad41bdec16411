package config

import (
	"cmp"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Flow moves packets, messages or blocks from a source to a sink. Its source and its sink determine
// its [Kind]. Most settings apply to some kinds only. Settings that do not apply are zero.
type Flow struct {
	Name   string
	Worker string // the name of one of Config.Workers
	From   From
	// Stages change packets between source and sink, in order. They apply to KindNetworkRDMA and
	// KindRDMARDMA, and Mold and Counter to KindNetworkAttach, KindNetworkStorage and KindNetworkOrder too.
	Stages []Stage
	To     To
	// Watermarks bound the frames in flight. Flows from storage have none.
	Watermarks Watermarks
	Restart    Restart
	Pos        Pos // where the flow is configured

	// Named maps the first name of each interface to the alternative name by which the configuration
	// names it. It is nil if the configuration uses no alternative names. It is not a setting.
	Named map[string]string
}

// Watermarks are numbers of frames in flight between source and sink. Each frame of an extent
// counts. At High the flow stops receiving. It continues when only Low frames are in flight.
type Watermarks struct {
	High int // 0: no limit
	Low  int // less than High; 0: half of it
}

// From is the source of a flow: an Interface, RDMA connections, or a File or Device. A flow may
// also generate packets.
type From struct {
	// Interface is the name of a network interface. The fields from here to TakeOver apply to network
	// interfaces.
	Interface string
	// Interfaces are the names of several interfaces; the first one is Interface. It is nil for a
	// single interface. It applies to KindNetworkStorage.
	Interfaces []string
	// Comments has one comment for each of Interfaces. It is nil if no interface has a comment.
	Comments []string
	// Comment is the comment that captures have about an interface without its own comment. Empty:
	// none. It applies to KindNetworkStorage.
	Comment string
	// Engine is how the flow receives packets. It applies to KindNetworkStorage; empty: EngineXDP, and
	// with Mirror EngineAuto.
	Engine Engine
	// Buffer is the size of the ring of a packet socket, which holds packets while the disk is slow. It
	// applies to EnginePacket and EngineAuto.
	Buffer Size
	// Fanout is a name of this daemon's for a group of flows. Each packet of their interface goes to one of
	// them, all packets of a connection to the same one. Empty: the flow gets every packet. It applies to
	// EnginePacket and EngineAuto.
	Fanout string
	// Queues are the receive queues to bind; nil: all of them.
	Queues   []int
	ZeroCopy ZeroCopy
	// Filter is a filter expression. Without Filter, Object and Rules the flow takes all packets.
	// KindStorageNetwork supports expressions only.
	Filter string
	// Object, if set, selects packets instead of Filter.
	Object Object
	// Rules, if not nil, select packets instead of Filter. The first rule that matches decides.
	Rules []Rule
	// Ring is the number of entries of each ring of a queue, a power of two. For a capture, 0 means
	// the longest ring for which there are frames.
	Ring int
	// BusyPoll is the value of SO_BUSY_POLL, in whole microseconds; 0: off.
	BusyPoll time.Duration
	// Timestamps selects the clock for the arrival times of packets.
	Timestamps Timestamps
	// Promiscuous makes the interface receive packets for other hosts too.
	Promiscuous bool
	// Join are the multicast groups that the host joins while the flow runs, in the network namespace of the
	// daemon.
	Join []Join
	// Mirror makes the flow receive copies of packets; the host keeps the packets. It can also copy
	// packets that the host sends. Empty: no mirror.
	Mirror Mirror
	// Steer makes the card put packets that match Filter into Queues. Empty: the card does not steer.
	Steer Steer
	// Beside makes the XDP program join the dispatcher on the interface. Empty: it does not join one.
	Beside Beside
	// Priority is the run priority in the dispatcher of Beside. Lower priorities run first.
	Priority int
	// TakeOver permits that the host no longer receives unfiltered traffic of the interface with the
	// default route.
	TakeOver bool

	// RDMA is the device that receives messages; see [SoftDevice]. The fields from here to Method
	// apply to RDMA.
	RDMA string
	// Paths are further devices at which clients can connect, each with an address.
	Paths []Path
	// Class is that of packets to clients: ACKs, mostly.
	Class Class
	// Listen is the TCP address, host:port, where clients connect.
	Listen string
	// Message is the longest payload of a message in bytes. See
	// [Region.InFrame].
	Message Size
	// Window is the number of messages that one client may have outstanding.
	Window int
	// Clients is the largest number of clients at a time.
	Clients int
	// Allow has the names of the certificates that may connect. If it is nil, every certificate that
	// the authority signed may connect; without TLS, any client may.
	Allow []string
	// AllowAnyGID lets a client's queue pair have another address than the one from which the client
	// connects.
	AllowAnyGID bool
	// Verify makes the flow check the checksum of every payload. MethodWrite requires it.
	Verify bool
	// Method is how clients send messages: MethodSend or MethodWrite.
	Method Method

	// File is the absolute path of a file. The flow serves the whole file. With KindStorageNetwork it
	// is a capture, or the path prefix of segments.
	File string
	// Files are several captures that the flow sends one after the other. They replace File. It
	// applies to KindStorageNetwork.
	Files []string
	// Loop is how often the flow sends the captures. [Endless] means until the flow is stopped. It
	// applies to KindStorageNetwork.
	Loop int
	// Device is the absolute path of a block device. The flow serves the whole device.
	Device string

	// Attach is the name of a program whose messages the flow takes. Message and Window apply to it: Window
	// is the entries of its rings.
	Attach string
	// Trusted lets peers get the program's messages from where they lie in memory that the program can write.
	Trusted bool

	// Channel is the name of a channel whose messages the flow passes on to peers.
	Channel string

	// Generate is the length in bytes of packets that the flow generates, to measure its sink alone;
	// 0: none.
	Generate Size
	// Rate is the number of generated packets per second; 0: as many as the sink takes.
	Rate int
}

// Endless is the value of From.Loop for "loop: endless".
const Endless = -1

// Captures returns the paths of the captures to send.
func (f *From) Captures() []string {
	if f.Files != nil {
		return f.Files
	}
	return []string{f.File}
}

// All returns the network interfaces.
func (f *From) All() []string {
	if f.Interfaces != nil {
		return f.Interfaces
	}
	return []string{f.Interface}
}

// CommentOf returns the comment that captures have about the interface with this number in All.
func (f *From) CommentOf(number int) string {
	if number < len(f.Comments) && f.Comments[number] != "" {
		return f.Comments[number]
	}
	return f.Comment
}

// generated returns a text that is not empty if the flow generates packets.
func (f *From) generated() string {
	if f.Generate == 0 {
		return ""
	}
	return f.Generate.String()
}

// To is the sink of a flow: a File or a Device (never both), RDMA peers, RDMA clients that
// request blocks, NVMe hosts, or an Interface. A flow may also discard everything.
type To struct {
	// File is the absolute path prefix of the segments, without a trailing slash. The fields from here
	// to Durable apply to storage.
	File string
	// Exact makes File the path of the only capture file, which grows, and not a prefix. Configuration
	// files cannot set it.
	Exact bool
	// Rotate makes an exact capture begin new files.
	Rotate Rotate
	// Device is the absolute path of a block device.
	Device string
	// Force allows overwriting a device that holds something. In a flow to NVMe hosts it applies to
	// the source and allows serving a device that is in use.
	Force  bool
	Layout Layout
	// Comment is the comment in the head of each capture file; empty: none.
	Comment string
	// Segment is the size and number of segments. Segment.Keep and Prepare apply to a File. A Device
	// is a ring of as many segments as fit, and is not prepared.
	Segment Segment
	Prepare Prepare
	// Snaplen is the largest number of bytes to keep of each packet; 0: all. It does not apply to
	// messages.
	Snaplen Size
	// KeepFree is the free-space reserve on the file system. It applies to a File.
	KeepFree Room
	// Create makes the directory of a File if it does not exist.
	Create bool
	// Mode is the permissions of the files; 0: 0640 less the umask.
	Mode fs.FileMode
	// Opened is a path of the capture file that a process with write permission for the directory has
	// created and opened already. If it is empty, the flow creates the file. It is not a setting.
	Opened string
	// Owner is the owner of the files, in the syntax of chown; empty: the user of the process.
	Owner string
	// Index makes the flow index each segment of a File once the segment is complete. It applies to
	// packets only.
	Index bool
	// Flush is the longest time from a packet's arrival until it can be read in the file. With
	// KindRDMAStorage it may be 0: write at once.
	Flush time.Duration
	// Durable is the interval between flushes to stable storage. [Written] (0) means no flushes: a
	// packet counts as stored once it is written. [GroupCommit] applies to KindRDMAStorage only.
	Durable time.Duration

	// RDMA is the device that sends messages or blocks; see [SoftDevice].
	RDMA string
	// Class is that of packets to peers or clients.
	Class Class
	// Peers are the receivers, 1 to 16.
	Peers []Peer
	// Choose selects the peers that get a packet or message.
	Choose Choose
	// Queue is the largest number of messages per peer that wait or are not acknowledged.
	Queue int
	// Method is how the flow sends messages to the peers. With MethodAny each peer decides.
	Method Method
	// Durability is what each peer must guarantee with its acknowledgement ([AcknowledgeReceived] and
	// so on). The flow passes the same guarantee to its clients. It does not connect to peers that
	// guarantee less.
	Durability Acknowledge
	// Participant is the number that identifies this flow to a peer that adds up messages of several
	// senders. It is 0 if the certificate identifies the flow, or if the peer adds up nothing.
	Participant int
	// Acknowledge says when the flow acknowledges a message to its client: when the message is stored
	// (KindRDMAStorage) or sent on (KindRDMARDMA).
	Acknowledge Acknowledge

	// Replicas makes the flow a member of a group that keeps one log; nil: it is not. It applies to
	// KindRDMAStorage.
	Replicas *Replicas

	// Listen is the TCP address, host:port, where clients or NVMe hosts connect. The fields from here to
	// AllowAnyGID apply to serving.
	Listen string
	// Cache is the part of the region that caches blocks that were read; 0: no cache.
	Cache Size
	// CacheIndex is a file that says what the cache has while the flow does not run; empty: the next run begins
	// without.
	CacheIndex string
	// Transfer is the longest request in bytes.
	Transfer Size
	// Window is the number of requests that one client may have outstanding.
	Window int
	// Clients is the largest number of clients at a time.
	Clients int
	// Allow has the names of the certificates that may connect. If it is nil, every certificate that
	// the authority signed may connect; without TLS, any client may.
	Allow []string
	// AllowAnyGID lets a client's queue pair have another address than the one from which the client
	// connects.
	AllowAnyGID bool

	// Subsystem is the NQN by which NVMe hosts find the flow's namespaces. Hosts connect at Listen.
	// With Subsystem, Window is the number of entries of a queue, and Clients is the number of queues
	// of all hosts.
	Subsystem string
	// Hosts has the NQNs of the hosts that may connect. If it is nil, hosts with a key may connect, or
	// all hosts with AllowAnyHost. Hosts, Keys or both are set, or AllowAnyHost alone.
	Hosts        []string
	AllowAnyHost bool
	// Keys is a file with keys for DH-HMAC-CHAP, and Group is the Diffie-Hellman group. If they are
	// empty, hosts do not authenticate.
	Keys  string
	Group AuthGroup
	// ReadOnly forbids hosts to write.
	ReadOnly bool
	// ANA is the state of all namespaces whose subsystem and which themselves have none. It may change
	// while hosts are connected.
	ANA ANAState
	// Controllers are the numbers that the flow gives to its controllers. Flows and daemons that serve
	// one subsystem need different ones.
	Controllers Controllers
	// Reservations is a file with the persistent reservations of all namespaces; empty: hosts cannot
	// reserve them.
	Reservations string
	// Namespaces are further namespaces of the subsystem. The first namespace is the flow's own file
	// or device. The list may change while hosts are connected.
	Namespaces []Namespace
	// Subsystems are further subsystems at the same address. The list may change while hosts are
	// connected. Keys and Group apply to all subsystems.
	Subsystems []Subsystem

	// Interface is the name of the network interface that sends the packets of captures. The fields
	// below apply to it.
	Interface string
	ZeroCopy  ZeroCopy
	// Ring is the number of entries of the transmit rings, a power of two.
	Ring int
	Pace Pace
	// Spin is how long before a packet's due time the worker stops sleeping and spins; 0: it only
	// sleeps.
	Spin time.Duration
	// Late is how long after its due time a packet may leave without counting as late.
	Late time.Duration
	// MaxGap limits the time between two packets of a capture; 0: no limit.
	MaxGap time.Duration

	// Order is the exchange that gets the orders of a program; nil: none.
	Order *Order

	// State is the name of a state that messages update.
	State string

	// Attach is the name of a program that gets packets or messages, of which at most Queue wait for it.
	Attach string
	// Policy says what happens when the program has Queue of them, or is not attached.
	Policy Policy
	// Place says where packets of an interface land that the program gets.
	Place Place
	// Expose permits that the program can read every packet of the queues, also those that its filter leaves to
	// the host: with PlaceHere and zero copy the card writes all of them into the program's memory.
	Expose bool

	// Channel is the name of a channel that the flow gets from a peer.
	Channel string

	// Discard makes the flow count and free everything it receives, to measure its source alone.
	Discard bool
}

// Subsystem is a further subsystem at the address of a flow.
type Subsystem struct {
	NQN          string
	Hosts        []string // as To.Hosts
	AllowAnyHost bool     // as To.AllowAnyHost
	ANA          ANAState // empty: To.ANA
	Namespaces   []Namespace
	Pos          Pos // where the subsystem is configured
}

// Namespace is a further file or device for NVMe hosts.
type Namespace struct {
	ID       int    // from 2 in To.Namespaces: 1 is the flow's own file or device
	File     string // File or Device is set
	Device   string
	ReadOnly bool
	ANA      ANAState // empty: that of the subsystem
	Pos      Pos      // where it is configured
}

// Path returns the path of the file or device.
func (n *Namespace) Path() string { return cmp.Or(n.Device, n.File) }

// Served is a namespace with the NQN of its subsystem.
type Served struct {
	Subsystem string
	Namespace
}

// Same reports whether two are the same disk with the same settings, except for those that may change
// while hosts are connected.
func (s Served) Same(other Served) bool {
	other.Pos, other.ANA = s.Pos, s.ANA
	return s == other
}

// Served returns all namespaces of all subsystems, except the flow's own file or device.
func (t *To) Served() (all []Served) {
	add := func(subsystem string, list []Namespace, state ANAState) {
		for _, n := range list {
			n.ANA = cmp.Or(n.ANA, state)
			all = append(all, Served{subsystem, n})
		}
	}
	add(t.Subsystem, t.Namespaces, t.ANA)
	for i := range t.Subsystems {
		s := &t.Subsystems[i]
		add(s.NQN, s.Namespaces, cmp.Or(s.ANA, t.ANA))
	}
	return all
}

// orders returns a text that is not empty if the flow sends orders.
func (t *To) orders() string {
	if t.Order == nil {
		return ""
	}
	return "order"
}

// discards returns a text that is not empty if the flow discards everything.
func (t *To) discards() string {
	if !t.Discard {
		return ""
	}
	return "true"
}

// Written is the value of To.Durable for "durable: written".
const Written time.Duration = 0

// GroupCommit is the value of To.Durable for "durable: 0s". A flush begins as soon as the flush
// before it has ended and something waits for a flush.
const GroupCommit time.Duration = -1

// Segment says when a new segment begins and how many are kept.
type Segment struct {
	Size  Size          // a multiple of 4096
	Every time.Duration // begin a new segment after this time; 0: only when full
	Keep  Keep          // what stays of a recording
}

// Rotate says when an exact capture begins a new file and how files are named, as tcpdump does with
// -C, -G and -W. The zero value means one file.
type Rotate struct {
	Size  Size          // of a file, a multiple of 4096; 0: no limit
	Every time.Duration // time per file, and the path is a strftime pattern; 0: no limit
	Files int           // with Size: files in the ring; else files until the capture ends; 0: no limit
}

// Replicas is a group of members that keep one log.
type Replicas struct {
	Name string // of the group: the same in all members
	Self string // name of this member
	// Listen is where this member, which is named by Peer, takes connections of the others; empty: at its Address.
	Listen string
	// Members are where members are found: all that the group has, and those that are to join it. The group
	// itself knows which of them count.
	Members []Replica
	// Heartbeat is the longest time between two messages of the leader to a follower.
	Heartbeat time.Duration
	// Suspect is the silence of the leader after which there is an election.
	Suspect time.Duration
	// Lag is how many bytes of memory the leader keeps for a slow follower.
	Lag Size
	// PathMode is how several paths are used; empty: [PathStandby]. With [PathActive] the followers of a leader prefer
	// different paths.
	PathMode PathMode
}

// NumberOf returns the number of a member by its place in Members.
func (g *Replicas) NumberOf(i int) uint32 {
	if n := g.Members[i].Number; n > 0 {
		return uint32(n)
	}
	return uint32(i + 1)
}

// Own returns this member's place in Members; -1: it is not there.
func (g *Replicas) Own() int {
	return slices.IndexFunc(g.Members, func(r Replica) bool { return r.Name == g.Self })
}

// Witnesses reports whether this member is a witness.
func (g *Replicas) Witnesses() bool { i := g.Own(); return i >= 0 && g.Members[i].Witness }

// Replica is a member of a group.
type Replica struct {
	Name string
	// Address is where the members talk about elections; Clients is where clients append to the log, and
	// members get records. A witness has no Clients.
	Address, Clients string
	// Peer is NAME/FLOW, by which the cluster's resolver finds the member; empty: Address and Clients say where it is.
	Peer string
	// Number is the member's number, which is never used again; 0: its place in the list, from 1 on.
	Number int
	// Witness says that the member votes and has no records.
	Witness bool
	// Joins says that the member is not one of those that begin the group.
	Joins bool
	// Certificate is the name in the member's certificate; empty: NAME of Peer, or its Name.
	Certificate string
	// Paths are further ways to the member. Their devices are those of From.Paths, in this order.
	Paths []ReplicaPath
}

// CertificateName returns the name that the member's certificate must have.
func (r *Replica) CertificateName() string {
	name, _, named := strings.Cut(r.Peer, "/")
	if r.Certificate == "" && named {
		return name
	}
	return cmp.Or(r.Certificate, r.Name)
}

// ListensAt returns where this member takes connections of the others.
func (g *Replicas) ListensAt() string {
	if i := g.Own(); g.Listen == "" && i >= 0 {
		return g.Members[i].Address
	}
	return g.Listen
}

// Peer is a receiver that a flow sends to.
type Peer struct {
	Name    string // unique in its flow
	Address string // host:port of its TCP address
	// Others are the addresses of the other members, if the peer is a group that keeps a log. Messages go
	// to the one that leads.
	Others []string
	Flow   string // name of the flow on the peer; empty: any
	// Peer is NAME/FLOW, by which the cluster's resolver finds the peer; empty: Address says where it is. Others are
	// named so too then.
	Peer   string
	Policy Policy
	// Paths are further ways to the peer. They are taken in this order when the first one fails, or used at the same time.
	Paths    []Path
	PathMode PathMode // empty without Paths
	// TrafficClass and Priority replace those of the flow; nil: they do not.
	TrafficClass, Priority *int
	Pos                    Pos // where the peer is configured
}

// Class says how the network treats RDMA packets.
type Class struct {
	TrafficClass int // 0 to 255: byte of the IP header, DSCP in the upper six bits
	Priority     int // 0 to 7: service level, and priority of a VLAN's tag
	// ECN lets routers mark packets when there is congestion, and the sender then slows down.
	ECN bool
	// MinRate is the rate in Mbit/s below which RoCE in software does not slow a queue pair down; 0: a thousandth of the
	// link's.
	MinRate int
}

// ClassOf returns the class of packets to a peer.
func (t *To) ClassOf(p *Peer) Class {
	c := t.Class
	if p.TrafficClass != nil {
		c.TrafficClass = *p.TrafficClass
	}
	if p.Priority != nil {
		c.Priority = *p.Priority
	}
	return c
}

// Stage changes packets in place. Exactly one of its fields is set.
type Stage struct {
	Set       *Set
	Sequence  *Sequence
	Timestamp *Timestamp
	Sum       *Sum  // with KindRDMARDMA, as the only stage
	Mold      *Feed // of packets of MoldUDP64, with KindNetworkRDMA, KindNetworkAttach, KindNetworkStorage and KindNetworkOrder, as the only stage
	Counter   *Feed // of plain packets, with the same kinds, as the only stage
	Pos       Pos   // where the stage is configured
}

// Set overwrites fields of a packet's headers and updates the checksums. A field with its zero
// value stays as it is.
type Set struct {
	MACSource, MACDestination net.HardwareAddr // six bytes
	VLAN                      int              // 1 to 4094, if the packet has a tag
	IPSource, IPDestination   netip.Addr       // if the packet has the same IP version
	PortSource                int              // 1 to 65535, of TCP and UDP
	PortDestination           int
}

// Sequence writes a number that counts the flow's packets from 1, 8 bytes,
// big-endian, at Offset bytes into the UDP payload.
type Sequence struct {
	Offset int
}

// Timestamp writes the time, 8 bytes, big-endian, in nanoseconds since 1970, at
// Offset bytes into the UDP payload.
type Timestamp struct {
	Offset int
}

// Sum adds the messages of all clients, element by element, and the flow sends the sum. Elements
// are little-endian.
type Sum struct {
	Type SumType
}
