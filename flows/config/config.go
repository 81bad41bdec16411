package config

import "time"

// Config is a complete configuration. [Load] and [Parse] leave no field
// undecided: what the file does not say has its default.
type Config struct {
	Region  Region
	Workers []Worker // at least one; names and CPUs are unique
	// User is the name or number of the user to run as once everything which
	// needs privilege has been acquired; empty: stay who we are.
	User    string
	Log     Log
	Metrics Metrics
	Control Control
	Flows   []Flow // at least one; names, interfaces and destinations are unique
}

// Region is the memory shared by all devices.
type Region struct {
	// Size covers frames and extents; a multiple of Pages.Bytes.
	Size Size
	// Pages is the kind of page the region is made of.
	Pages Pages
	// Frame is the size of a frame in bytes: 2048 or 4096.
	Frame int
	// Extent is the size of one extent, a power of two.
	Extent Size
	// Extents is how many extents are carved from the region's end, at most
	// half of it in all.
	Extents int
	// Node is the NUMA node the region is bound to; nil: not bound.
	Node *int
	// Reserve lets the starter reserve huge pages which are missing.
	Reserve bool
}

// Worker is one OS thread polling its flows.
type Worker struct {
	Name string
	CPU  *int // the CPU it is pinned to; nil: not pinned
	Wait Wait
	// Sleep is how long it sleeps when there is nothing to do, with WaitSleep.
	Sleep time.Duration
	Pos   Pos // where the worker is configured
}

// Log says what is logged, and how.
type Log struct {
	Level  Level
	Format Format
}

// Metrics says where /metrics, /healthz and /readyz are served.
type Metrics struct {
	Listen string // host:port; empty: not served
}

// Control says where status and profiles are served.
type Control struct {
	Socket string // absolute path of a unix socket
}

// Flow takes packets from a network interface to storage.
type Flow struct {
	Name   string
	Worker string // the name of one of Config.Workers
	From   From
	To     To
	Pos    Pos // where the flow is configured
}

// From is the network end of a flow.
type From struct {
	Interface string
	// Queues are the receive queues to bind; nil: all of them.
	Queues   []int
	ZeroCopy ZeroCopy
	// Filter is a filter expression; empty: everything.
	Filter string
	// Ring is the number of entries of each ring of a queue, a power of two.
	Ring int
	// BusyPoll is the time given to SO_BUSY_POLL, in whole microseconds; 0:
	// off.
	BusyPoll time.Duration
	// Timestamps says whose times of arrival packets have.
	Timestamps Timestamps
	// Promiscuous receives also what is not for this host.
	Promiscuous bool
	// TakeOver accepts that unfiltered traffic of the interface with the
	// default route no longer reaches the host.
	TakeOver bool
}

// To is the storage end of a flow: a File or a Device, never both.
type To struct {
	// File is the absolute path prefix of the segments, without a trailing
	// slash.
	File string
	// Exact makes File the capture file itself, one segment which grows, instead
	// of a prefix. Not to be had in configuration files.
	Exact bool
	// Device is the absolute path of a block device.
	Device string
	// Force allows overwriting a device which holds something.
	Force  bool
	Layout Layout
	// Segment.Keep and Prepare are about a File; a Device is a ring of as many
	// segments as fit, written as it is.
	Segment Segment
	Prepare Prepare
	// Flush bounds the time from a packet's arrival until it can be read in the
	// file.
	Flush time.Duration
	// Durable is the interval of flushes to stable storage; [Written] (0): none,
	// a packet counts as stored once it is written.
	Durable time.Duration
}

// Written is the value of To.Durable for "durable: written".
const Written time.Duration = 0

// Segment says when a new segment begins and how many are kept.
type Segment struct {
	Size  Size          // a multiple of 4096
	Every time.Duration // begin a new one after this time; 0: only when full
	Keep  int           // how many, the newest, are kept; 0: all
}
