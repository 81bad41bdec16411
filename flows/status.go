package flows

import "github.com/unifiedd/unifiedd/flows/status"

// The documents of package status, by their former names.
type (
	Status           = status.Daemon
	RegionStatus     = status.Region
	WorkerStatus     = status.Worker
	AbsenceStatus    = status.Stall
	FlowStatus       = status.Flow
	Position         = status.Position
	InterfaceStatus  = status.Interface
	RuleStatus       = status.Rule
	CountStatus      = status.FilterCount
	StageStatus      = status.Stage
	LevelStatus      = status.Watermarks
	FrameTimes       = status.FrameTimes
	GeneratedStatus  = status.Generated
	DiscardedStatus  = status.Discarded
	Held             = status.Usage
	HeldRing         = status.Ring
	FloorStatus      = status.FreeSpace
	CutStatus        = status.Truncated
	IndexStatus      = status.Index
	LogStatus        = status.Log
	ReceivesStatus   = status.Receives
	ClientStatus     = status.Client
	SendsStatus      = status.Sends
	PeerStatus       = status.Peer
	BlocksStatus     = status.Blocks
	CacheStatus      = status.Cache
	ReaderStatus     = status.Reader
	RDMADeviceStatus = status.RDMADevice
	HostsStatus      = status.Hosts
	NamespaceStatus  = status.Namespace
	HostStatus       = status.Host
	ReplayStatus     = status.Replay
	ConfigStatus     = status.Config
	ReloadStatus     = status.Reload
	State            = status.State
	Outcome          = status.Outcome
)

// The states of a flow.
const (
	Stopped = status.Stopped
	Running = status.Running
	Waiting = status.Waiting
	Failed  = status.Failed
	Done    = status.Done
)

// The outcomes of a reload.
const (
	Applied    = status.Applied
	Unchanged  = status.Unchanged
	Refused    = status.Refused
	RolledBack = status.RolledBack
	Broken     = status.Broken
	Busy       = status.Busy
)
