package status

import "time"

// Cluster is how the daemon finds peers by their names, and how others find it.
type Cluster struct {
	Resolver  string   `json:"resolver"` // etcd or static
	Name      string   `json:"name,omitempty"`
	Endpoints []string `json:"endpoints,omitempty"`
	Prefix    string   `json:"prefix,omitempty"`
	// Lease is how long the daemon stays registered when etcd does not hear it.
	Lease      time.Duration `json:"lease_ns,omitempty"`
	Up         bool          `json:"up" metric:"cluster_up"` // the registry answers
	Since      time.Time     `json:"since"`                  // of Up
	Answered   *time.Time    `json:"answered,omitempty" metric:"cluster_answered_timestamp_seconds"`
	Registered bool          `json:"registered"`
	Taken      string        `json:"name_taken_by,omitempty"` // the instance that has the daemon's name
	// Error is why the registry does not answer, or why the daemon is not registered.
	Error string `json:"error,omitempty"`
	// Unregistered are flows that others cannot find, and why.
	Unregistered map[string]string `json:"unregistered,omitempty"`
	// UnregisteredStates are states that others cannot find, and why.
	UnregisteredStates map[string]string `json:"unregistered_states,omitempty"`
	Counts             map[string]uint64 `json:"counts,omitempty" metric:"cluster_events_total,status"` // of events, by name
	Refused            map[string]uint64 `json:"refused" metric:"cluster_refused_records_total,reason"` // records of others, by reason
	Names              []ClusterName     `json:"names,omitempty"`                                       // that flows use
}

// ClusterName is a daemon that flows name.
type ClusterName struct {
	Name    string        `json:"name"`
	State   string        `json:"state"` // registered, gone (its last addresses are in use), unknown or refused
	Version string        `json:"version,omitempty"`
	Found   *time.Time    `json:"found,omitempty"` // when its record came
	Gone    *time.Time    `json:"gone,omitempty"`  // since when it is not registered
	Refused string        `json:"refused,omitempty"`
	Flows   []ClusterFlow `json:"flows,omitempty"`
}

// States of a ClusterName.
const (
	NameRegistered = "registered"
	NameGone       = "gone"
	NameUnknown    = "unknown"
	NameRefused    = "refused"
)

// ClusterFlow is where a flow, or a state, of another daemon is.
type ClusterFlow struct {
	Name      string   `json:"name"`
	Kind      string   `json:"kind,omitempty"`
	Device    string   `json:"device,omitempty"`
	Addresses []string `json:"addresses"`       // none of a witness
	Group     []string `json:"group,omitempty"` // where it talks with the other members of its group
}

// ClusterDevice is an RDMA device of a daemon.
type ClusterDevice struct {
	Name string   `json:"name"`
	GIDs []string `json:"gids,omitempty"`
}

// Registry has all daemons that are registered. It is the JSON of `unifiedd cluster status --json`.
type Registry struct {
	Cluster *Cluster         `json:"cluster"`         // as the daemon that was asked sees it
	Error   string           `json:"error,omitempty"` // why Daemons are not all
	Daemons []RegistryDaemon `json:"daemons"`
}

// RegistryDaemon is a daemon that is registered.
type RegistryDaemon struct {
	Name         string          `json:"name"`
	Refused      string          `json:"refused,omitempty"` // why its record is not used; it then has no more fields
	Version      string          `json:"version,omitempty"`
	Instance     string          `json:"instance,omitempty"`
	Capabilities []string        `json:"capabilities,omitempty"`
	Devices      []ClusterDevice `json:"devices,omitempty"`
	Flows        []ClusterFlow   `json:"flows,omitempty"`
	States       []ClusterFlow   `json:"states,omitempty"` // that peers may read
}
