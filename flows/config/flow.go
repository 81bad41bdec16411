package config

import (
	"cmp"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"strings"
	"time"
)

// Flow takes packets, messages or blocks from one place to another. What its ends
// are is its [Kind], and most settings have a meaning for some kinds only; those
// of others are zero.
type Flow struct {
	Name   string
	Worker string // the name of one of Config.Workers
	From   From
	// Stages change packets on their way, in order. With KindNetworkRDMA and
	// KindRDMARDMA.
	Stages []Stage
	To     To
	// Watermarks bound the frames in flight. KindStorageRDMA has none.
	Watermarks Watermarks
	Pos        Pos // where the flow is configured

	// Named are the interfaces that the configuration has by an alternative name: that, by their first name, which stands
	// here. Nil: there are none. It is no setting.
	Named map[string]string
}

// Watermarks are numbers of frames between the ends of a flow. Each frame of an extent counts. At
// High the flow stops receiving, until only Low are in flight.
type Watermarks struct {
	High int // 0: as many as there are
	Low  int // less than High; 0: half of it
}

// From is where a flow takes from: an Interface, RDMA connections, the File or
// Device it serves, or nowhere: it generates packets.
type From struct {
	// Interface and what follows up to TakeOver are about a network interface.
	Interface string
	// Interfaces are all of several, the first of which is Interface; nil: there is
	// one. With KindNetworkStorage.
	Interfaces []string
	// Comments has one comment for each of Interfaces; nil: none has one.
	Comments []string
	// Comment is what captures say of an interface that has no comment of its own;
	// empty: nothing. With KindNetworkStorage.
	Comment string
	// Queues are the receive queues to bind; nil: all of them.
	Queues   []int
	ZeroCopy ZeroCopy
	// Filter is a filter expression; empty, without an Object and Rules: everything. With KindStorageNetwork there are only
	// expressions.
	Filter string
	// Object decides instead of Filter, if there is one.
	Object Object
	// Rules decide instead of Filter, the first that matches; nil: there are none.
	Rules []Rule
	// Ring is the number of entries of each ring of a queue, a power of two; of a capture 0: as many as there are frames for.
	Ring int
	// BusyPoll is the time given to SO_BUSY_POLL, in whole microseconds; 0:
	// off.
	BusyPoll time.Duration
	// Timestamps says whose times of arrival packets have.
	Timestamps Timestamps
	// Promiscuous receives packets for other hosts too.
	Promiscuous bool
	// Mirror takes copies of packets, also of those the host sends, instead of the
	// packets; empty: not so.
	Mirror Mirror
	// Steer has the card put the packets that Filter matches into Queues; empty: not so.
	Steer Steer
	// Beside has the program join the dispatcher that is on the interface; empty: not so.
	Beside Beside
	// Priority is the run priority in the dispatcher of Beside: lower ones run first.
	Priority int
	// TakeOver accepts that unfiltered traffic of the interface with the
	// default route no longer reaches the host.
	TakeOver bool

	// RDMA is the device messages arrive at, see [SoftDevice]; what follows up to
	// Verify is about it.
	RDMA string
	// Listen is the TCP address, host:port, where clients connect.
	Listen string
	// Message is the longest payload of a message in bytes. See
	// [Region.InFrame].
	Message Size
	// Window is how many messages one client may have under way.
	Window int
	// Clients is how many clients there may be at once.
	Clients int
	// Allow are the names of the certificates which may connect; nil: all that
	// the authority signed, or anyone without TLS.
	Allow []string
	// AllowAnyGID lets clients have their queue pairs at other addresses than they connect from.
	AllowAnyGID bool
	// Verify checks the checksum of every payload. Messages that are written must be checked.
	Verify bool
	// Method is how clients' messages come: MethodSend or MethodWrite.
	Method Method

	// File is the absolute path of a file that is served, as a whole; with KindStorageNetwork of a capture, or the prefix of
	// segments.
	File string
	// Files are several captures instead, sent one after the other. With KindStorageNetwork.
	Files []string
	// Loop is how often captures are sent; [Endless]: until the flow is stopped. With KindStorageNetwork.
	Loop int
	// Device is the absolute path of a block device that is served, as a whole.
	Device string

	// Generate is the length of packets that the flow makes itself, in bytes, to
	// measure its other end alone; 0: none.
	Generate Size
	// Rate is how many it makes a second; 0: as many as are taken.
	Rate int
}

// Endless is the value of From.Loop for "loop: endless".
const Endless = -1

// Captures are the captures that are sent.
func (f *From) Captures() []string {
	if f.Files != nil {
		return f.Files
	}
	return []string{f.File}
}

// All are the network interfaces.
func (f *From) All() []string {
	if f.Interfaces != nil {
		return f.Interfaces
	}
	return []string{f.Interface}
}

// CommentOf is what captures say of the interface with this number among All.
func (f *From) CommentOf(number int) string {
	if number < len(f.Comments) && f.Comments[number] != "" {
		return f.Comments[number]
	}
	return f.Comment
}

// generated is not empty where packets are generated.
func (f *From) generated() string {
	if f.Generate == 0 {
		return ""
	}
	return f.Generate.String()
}

// To is where a flow takes to: a File or a Device, never both; peers over RDMA;
// clients over RDMA who ask for it; or nowhere.
type To struct {
	// File is the absolute path prefix of the segments, without a trailing
	// slash. It and what follows up to Durable are about storage.
	File string
	// Exact makes File the capture file itself, one segment which grows, instead
	// of a prefix. Not to be had in configuration files.
	Exact bool
	// Rotate has an exact capture begin new files.
	Rotate Rotate
	// Device is the absolute path of a block device.
	Device string
	// Force allows overwriting a device which holds something. Of a flow to NVMe hosts it is the source: a device that is in
	// use is served.
	Force  bool
	Layout Layout
	// Comment is what each capture file says of itself; empty: nothing.
	Comment string
	// Segment.Keep and Prepare are about a File; a Device is a ring of as many
	// segments as fit, written as it is.
	Segment Segment
	Prepare Prepare
	// Snaplen is how many bytes of each packet are kept at most; 0: all. Not of
	// messages.
	Snaplen Size
	// KeepFree is how much of the file system is left free. Of a File.
	KeepFree Room
	// Mode is the permissions of the files; 0: 0640 less the umask.
	Mode fs.FileMode
	// Opened is a path by which the one capture file is open already, made by a process
	// that may write to its directory; empty: the flow makes it. It is no setting.
	Opened string
	// Owner is whose the files are, as in chown; empty: who writes them.
	Owner string
	// Index says that each segment of a File gets an index once it is complete, for packets only.
	Index bool
	// Flush bounds the time from a packet's arrival until it can be read in the
	// file; 0, with KindRDMAStorage only: it is written at once.
	Flush time.Duration
	// Durable is the interval of flushes to stable storage; [Written] (0): none,
	// a packet counts as stored once it is written; [GroupCommit], with
	// KindRDMAStorage only.
	Durable time.Duration

	// RDMA is the device messages or blocks leave by, see [SoftDevice].
	RDMA string
	// Peers are the receivers, 1 to 16.
	Peers []Peer
	// Choose says which of the peers a packet or message is for.
	Choose Choose
	// Queue is how many messages may wait or be unacknowledged for each peer.
	Queue int
	// Method is how messages go to the peers; MethodAny: as each takes them.
	Method Method
	// Durability is what each peer must promise with its acknowledgement, and what clients are told then: [AcknowledgeReceived] and so on. Peers that promise less are not
	// connected to.
	Durability Acknowledge
	// Participant is which one of several senders this flow is, to a peer that adds up the messages of all; 0: its certificate says so, or the peer adds up nothing.
	Participant int
	// Acknowledge says when a client hears that its message is stored, with
	// KindRDMAStorage, or sent on, with KindRDMARDMA.
	Acknowledge Acknowledge

	// Listen is the TCP address, host:port, where clients connect who ask for
	// blocks; what follows is about them.
	Listen string
	// Cache is how much of the region keeps what was read; 0: nothing is kept.
	Cache Size
	// Transfer is the longest request in bytes.
	Transfer Size
	// Window is how many requests one client may have under way.
	Window int
	// Clients is how many clients there may be at once.
	Clients int
	// Allow are the names of the certificates which may connect; nil: all that
	// the authority signed, or anyone without TLS.
	Allow []string
	// AllowAnyGID lets clients have their queue pairs at other addresses than they connect from.
	AllowAnyGID bool

	// Subsystem is the NQN under which NVMe hosts find what is served, who connect at Listen. With it Window is the
	// entries of a queue, and Clients are queues, of all hosts.
	Subsystem string
	// Hosts are the NQNs of those who may connect; nil: those with a key, or with AllowAnyHost all. One of Hosts, Keys and AllowAnyHost is set.
	Hosts        []string
	AllowAnyHost bool
	// Keys is a file with the keys for DH-HMAC-CHAP, and Group the Diffie-Hellman group. Empty:
	// hosts do not authenticate.
	Keys  string
	Group AuthGroup
	// ReadOnly lets hosts write nothing.
	ReadOnly bool
	// Namespaces are further namespaces of the subsystem; the first is the flow's own file or
	// device. They may change while hosts are connected.
	Namespaces []Namespace
	// Subsystems are served at the same address beside Subsystem; they come and go likewise. Keys and Group are for all.
	Subsystems []Subsystem

	// Interface is the name of the network interface that packets of captures are sent by; what follows is about it.
	Interface string
	ZeroCopy  ZeroCopy
	// Ring is the number of entries of the rings for sending, a power of two.
	Ring int
	Pace Pace
	// Spin is how long before a packet's time the worker waits for it without sleeping; 0: it sleeps until then.
	Spin time.Duration
	// Late is how long after its time a packet may leave without being counted as late.
	Late time.Duration
	// MaxGap bounds the time between two packets of a capture; 0: it is as it was recorded.
	MaxGap time.Duration

	// Discard counts what comes and gives it back, to measure the other end alone.
	Discard bool
}

// Subsystem is one more that NVMe hosts find at the address of a flow.
type Subsystem struct {
	NQN          string
	Hosts        []string // as To.Hosts
	AllowAnyHost bool     // as To.AllowAnyHost
	Namespaces   []Namespace
	Pos          Pos // where it is configured
}

// Namespace is a further file or device for NVMe hosts.
type Namespace struct {
	ID       int    // from 2 in To.Namespaces, where 1 is what the flow is from
	File     string // one of the two
	Device   string
	ReadOnly bool
	Pos      Pos // where it is configured
}

// Path is the path of the file or device.
func (n *Namespace) Path() string { return cmp.Or(n.Device, n.File) }

// Served is a namespace with the NQN of its subsystem.
type Served struct {
	Subsystem string
	Namespace
}

// Served are all namespaces of all subsystems but what the flow is from.
func (t *To) Served() (all []Served) {
	for _, n := range t.Namespaces {
		all = append(all, Served{t.Subsystem, n})
	}
	for i := range t.Subsystems {
		for _, n := range t.Subsystems[i].Namespaces {
			all = append(all, Served{t.Subsystems[i].NQN, n})
		}
	}
	return all
}

// discards is not empty where everything is discarded.
func (t *To) discards() string {
	if !t.Discard {
		return ""
	}
	return "true"
}

// Written is the value of To.Durable for "durable: written".
const Written time.Duration = 0

// GroupCommit is the value of To.Durable for "durable: 0s": a flush begins as soon
// as the one before it has ended and something waits for it.
const GroupCommit time.Duration = -1

// Segment says when a new segment begins and how many are kept.
type Segment struct {
	Size  Size          // a multiple of 4096
	Every time.Duration // begin a new one after this time; 0: only when full
	Keep  int           // how many, the newest, are kept; 0: all
}

// Rotate says when an exact capture begins a new file, and what files are called, as tcpdump
// does by -C, -G and -W. The zero value is one file.
type Rotate struct {
	Size  Size          // of a file, a multiple of 4096; 0: not by size
	Every time.Duration // the name is a pattern of strftime; 0: not by time
	Files int           // by size, so many are used over and over; else the capture ends with so many; 0: no end
}

// Peer is one of those a flow sends to.
type Peer struct {
	Name    string // unique in its flow
	Address string // host:port of its TCP address
	Flow    string // the name of the flow that it serves; empty: whichever it is
	Policy  Policy
	Pos     Pos // where the peer is configured
}

// Stage changes packets on their way, where they are. Exactly one of its fields
// is set.
type Stage struct {
	Set       *Set
	Sequence  *Sequence
	Timestamp *Timestamp
	Sum       *Sum // with KindRDMARDMA, and alone
	Pos       Pos  // where the stage is configured
}

// Set overwrites fields of a packet's headers, and keeps its checksums right. A
// field with its zero value stays as it is.
type Set struct {
	MACSource, MACDestination net.HardwareAddr // six bytes
	VLAN                      int              // 1 to 4094, of a packet which has a tag
	IPSource, IPDestination   netip.Addr       // of a packet of the same version of IP
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

// Sum adds the messages of all clients, element by element; what is sent on is
// their sum. Elements are little-endian.
type Sum struct {
	Type SumType
}

// Object is an eBPF program that decides which packets a flow takes.
type Object struct {
	File    string // absolute path of the ELF object; empty: there is none
	Program string // its name
	Digest  string // tells other contents of the file apart, as Options.CheckObject has it
}

// Rule decides on the packets that it matches.
type Rule struct {
	Name   string // unique in its flow
	Match  string // a filter expression; empty, of the last: every packet
	Action Action
	Pos    Pos // where the rule is configured
}

// Action says what happens to the packets that a rule matches.
type Action string

// The actions.
const (
	ActionTake  Action = "take"  // the flow has them
	ActionLeave Action = "leave" // the host has them
	ActionDrop  Action = "drop"  // nobody has
)

var allActions = []Action{ActionTake, ActionLeave, ActionDrop}

// Wanted is what says which packets the flow takes, for people; empty: it takes all.
func (f *From) Wanted() string {
	switch {
	case f.Object.File != "":
		return "program " + f.Object.Program + " of " + f.Object.File
	case f.Rules != nil:
		all := make([]string, len(f.Rules))
		for i, r := range f.Rules {
			all[i] = r.String()
		}
		return strings.Join(all, "; ")
	}
	return f.Filter
}

// TakesAll reports whether no packet is left to the host: without a filter, or when the last rule
// keeps what no other matches.
func (f *From) TakesAll() bool {
	if n := len(f.Rules); n > 0 {
		return f.Rules[n-1].Match == "" && f.Rules[n-1].Action != ActionLeave
	}
	return f.Wanted() == ""
}

// String is the rule for people.
func (r *Rule) String() string {
	match := r.Match
	if match == "" {
		match = "every packet"
	}
	return fmt.Sprintf("%s: %s %s", r.Name, r.Action, match)
}
