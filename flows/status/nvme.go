package status

// Hosts is the end of a flow at which NVMe hosts write and read.
type Hosts struct {
	Device     string            `json:"device"`
	Listen     string            `json:"listen"`
	Subsystem  string            `json:"subsystem"`
	Subsystems []string          `json:"subsystems"` // that one, and those that are served beside it
	Size       uint64            `json:"size"`       // of the first namespace
	Namespaces []Namespace       `json:"namespaces"`
	Hosts      uint64            `json:"hosts"`    // that are connected
	Queues     uint64            `json:"queues"`   // of theirs
	Commands   map[string]uint64 `json:"commands"` // by what they were; those with an error are refused, failed or abandoned
	Bytes      map[string]uint64 `json:"bytes"`    // read, written, and of those written that came in capsules
	Waited     uint64            `json:"waited"`   // commands that waited for a buffer
	Ended      uint64            `json:"ended"`    // queues that broke the rules, or failed
	Expired    uint64            `json:"expired"`  // hosts that fell silent
	GaveWay    uint64            `json:"gave_way"` // unproven queues ended in favour of newer ones
	Unproven   uint64            `json:"unproven"` // queues whose authentication failed
	Rejected   map[string]uint64 `json:"rejected"` // queues that were refused, by reason
	Connected  []Host            `json:"connected,omitempty"`
}

// Namespace is a disk as NVMe hosts see it.
type Namespace struct {
	Subsystem string `json:"subsystem"`
	ID        int    `json:"id"`
	Path      string `json:"path"`
	Size      uint64 `json:"size"`
	ReadOnly  bool   `json:"read_only"`
	Leaving   bool   `json:"leaving,omitempty"` // hosts have it no more, and something is under way yet

	Commands map[string]uint64 `json:"commands"` // of all hosts, since it is a namespace: those done by what they were, those refused and failed
	Bytes    map[string]uint64 `json:"bytes"`    // read, written
}

// Host is an NVMe host that is connected, by what it says of its name: counters since then, of all its controllers.
type Host struct {
	Name     string            `json:"name"`
	Queues   uint64            `json:"queues"`
	Commands map[string]uint64 `json:"commands"` // all, those of them that had an error, and reads and writes that were done
	Bytes    map[string]uint64 `json:"bytes"`    // read, written
}
