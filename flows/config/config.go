package config

import "time"

// Config is a complete configuration. [Load] and [Parse] set every field: a setting that the file
// omits has its default.
type Config struct {
	Region  Region
	Workers []Worker // at least one; names and CPUs are unique
	// User is the name or number of the user that the daemon switches to after it has acquired
	// everything that needs privilege. If it is empty, the daemon keeps its user.
	User    string
	Log     Log
	Metrics Metrics
	Control Control
	Trace   Trace
	TLS     TLS
	Attach  Attach
	Cluster Cluster
	Flows   []Flow // at least one; names, interfaces, addresses and destinations are unique
}

// Region is the memory shared by all devices.
type Region struct {
	// Size covers frames and extents; a multiple of Pages.Bytes.
	Size Size
	// Pages is the kind of page the region is made of.
	Pages Pages
	// Device is a device-DAX device that has the region's frames and extents; empty: huge pages do.
	Device string
	// Frame is the size of a frame in bytes: 2048 or 4096.
	Frame int
	// Extent is the size of one extent, a power of two.
	Extent Size
	// Extents is the number of extents at the region's end, at most half of it in all.
	// [Config.Complete] replaces 0 by what the flows need.
	Extents int
	// Node is the NUMA node the region is bound to; nil: not bound.
	Node *int
	// Reserve lets a parent process that may do so reserve missing huge pages.
	Reserve bool
}

// Worker is one OS thread polling its flows.
type Worker struct {
	Name string
	CPU  *int // the CPU it is pinned to; nil: not pinned
	Wait Wait
	// Sleep is how long the worker sleeps between rounds while packets come, if all of its flows are Moderated; 0: it
	// wakes for each of them. It applies to WaitSleep.
	Sleep time.Duration
	Pos   Pos // where the worker is configured
}

// Log configures the daemon's log.
type Log struct {
	Level  Level
	Format Format
}

// Metrics has the address at which the daemon serves /metrics, /healthz and /readyz.
type Metrics struct {
	Listen string // host:port; empty: not served
}

// Control has the socket on which the daemon serves status and profiles.
type Control struct {
	Socket string // absolute path of a unix socket
	State  string // directory of what the daemon keeps of commands
}

// Trace configures the flight recorder.
type Trace struct {
	// Directory is where the files are, on a file system in memory; empty: beside the control socket.
	Directory string
	// Events is how many rounds of each flow are kept, a power of two; 0: there is no flight recorder.
	Events int
}

// TLS has the files for mutual TLS on all RDMA connections. Either all three are set, or none.
// Without them, connections are in plain text.
type TLS struct {
	// Certificate, Key and Authority are absolute paths of PEM files: the certificate that the daemon
	// shows to peers, its key, and the authority that signs the peers' certificates.
	Certificate, Key, Authority string
}
