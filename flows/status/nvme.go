package status

// Hosts is the sink of a flow to NVMe hosts.
type Hosts struct {
	Device     string            `json:"device"`
	Listen     string            `json:"listen"`
	Subsystem  string            `json:"subsystem"`
	Subsystems []string          `json:"subsystems"` // all subsystems, including Subsystem
	Size       uint64            `json:"size"`       // of the first namespace
	Namespaces []Namespace       `json:"namespaces" label:"!Leaving,subsystem=Subsystem,namespace=ID"`
	Hosts      uint64            `json:"hosts" metric:"nvme_hosts"`                                 // connected hosts
	Queues     uint64            `json:"queues" metric:"nvme_queues"`                               // queues of those hosts
	Commands   map[string]uint64 `json:"commands" metric:"nvme_commands_total,op"`                  // by type; errors by refused, failed, inaccessible, conflict or abandoned
	Bytes      map[string]uint64 `json:"bytes" metric:"nvme_bytes_total,op"`                        // read, written, and written with the data in capsules
	Waited     uint64            `json:"waited" metric:"nvme_waited_total"`                         // commands that waited for a buffer
	Ended      uint64            `json:"ended"`                                                     // queues that failed or violated the protocol
	Expired    uint64            `json:"expired" metric:"nvme_ended_queues_total,reason:silent"`    // hosts that timed out
	GaveWay    uint64            `json:"gave_way" metric:"nvme_ended_queues_total,reason:gave_way"` // queues of unproven hosts ended in favour of newer ones
	Unproven   uint64            `json:"unproven" metric:"nvme_ended_queues_total,reason:unproven"` // queues whose authentication failed
	Rejected   map[string]uint64 `json:"rejected" metric:"nvme_refused_queues_total,reason"`        // queues refused, by reason
	Connected  []Host            `json:"connected,omitempty" label:"host=Name"`
}

// Namespace is a disk that hosts see as a namespace.
type Namespace struct {
	Subsystem string `json:"subsystem"`
	ID        int    `json:"id"`
	Path      string `json:"path"`
	Size      uint64 `json:"size"`
	ReadOnly  bool   `json:"read_only"`
	ANA       string `json:"ana" metric:"nvme_namespace_ana,state"` // optimized, non-optimized or inaccessible

	Reservation string `json:"reservation,omitempty"` // its type; empty: there is none
	Leaving     bool   `json:"leaving,omitempty"`     // removed, with commands still in progress

	Commands map[string]uint64 `json:"commands" metric:"nvme_namespace_commands_total,op"` // of all hosts: successful ones by type, refused, failed, inaccessible and conflict
	Bytes    map[string]uint64 `json:"bytes" metric:"nvme_namespace_bytes_total,op"`       // read, written
}

// Host is a connected NVMe host, by the name that it gives. Counters are over all its controllers,
// since it connected.
type Host struct {
	Name     string            `json:"name"`
	Queues   uint64            `json:"queues" metric:"nvme_host_queues"`
	Commands map[string]uint64 `json:"commands" metric:"nvme_host_commands_total,op"` // all, those with an error, and successful reads and writes
	Bytes    map[string]uint64 `json:"bytes" metric:"nvme_host_bytes_total,op"`       // read, written
}
