package config

import (
	"slices"
	"time"
)

// DefaultSocket is the control socket's default path.
const DefaultSocket = "/run/unifiedd/control.sock"

// segmentUnit is what segment sizes are rounded up to: enough for direct I/O on
// any disk with blocks of up to 4096 bytes.
const segmentUnit = 4 * KiB

// Default returns what an empty file would mean, were it not for the missing
// flows.
func Default() *Config {
	return &Config{
		Region: Region{
			Size:   256 * MiB,
			Pages:  Pages2MiB,
			Frame:  4096,
			Extent: MiB, // and as many as flows need
		},
		Workers: []Worker{NewWorker("main")},
		Log:     Log{Level: LevelInfo, Format: FormatText},
		Control: Control{Socket: DefaultSocket},
	}
}

// NewWorker returns a worker with the defaults.
func NewWorker(name string) Worker {
	return Worker{Name: name, Wait: WaitSleep, Sleep: 200 * time.Microsecond}
}

// NewFlow returns a flow from a network interface to storage with the defaults;
// interface and destination, which have none, are left to the caller.
// [Config.Complete] settles the rest.
func NewFlow(name string) Flow { return NewFlowOf(KindNetworkStorage, name) }

// NewFlowOf is [NewFlow] for any kind. The flow is of that kind once its ends are
// named.
func NewFlowOf(kind Kind, name string) Flow {
	f := Flow{Name: name}
	switch kind {
	case KindNetworkStorage:
		f.From, f.To = newNetwork(), newStore()
		f.From.Ring = 0
		f.To.Flush, f.To.Durable = 500*time.Millisecond, time.Second
	case KindRDMAStorage:
		f.From, f.To = newClients(), newStore()
		f.To.Durable, f.To.Acknowledge = GroupCommit, AcknowledgeDurable
	case KindNetworkRDMA:
		f.From, f.To = newNetwork(), newPeers()
	case KindStorageRDMA:
		f.To = To{Transfer: MiB, Window: 32, Clients: 16}
	case KindStorageNVMe:
		f.To = To{Window: 128, Clients: 8}
	case KindStorageNetwork:
		f.From, f.To = From{Loop: 1}, To{ZeroCopy: ZeroCopyPrefer, Ring: 4096, Spin: 50 * time.Microsecond, Late: time.Millisecond}
	case KindRDMARDMA:
		f.From, f.To = newClients(), newPeers()
	case KindNullStorage:
		f.To = newStore()
		f.To.Flush, f.To.Durable = 500*time.Millisecond, time.Second
	case KindNullRDMA:
		f.To = newPeers()
	case KindNetworkNull:
		f.From = newNetwork()
	case KindRDMANull:
		f.From = newClients()
	}
	return f
}

func newNetwork() From {
	return From{ZeroCopy: ZeroCopyPrefer, Timestamps: TimestampsSoftware, Ring: 4096, Promiscuous: true, Priority: DefaultPriority}
}

// DefaultPriority is the one that libxdp gives programs.
const DefaultPriority = 50

func newClients() From { return From{Window: 64, Clients: 16, Verify: true, Method: MethodSend} }

func newStore() To { return To{Layout: LayoutPacked, Segment: Segment{Size: GiB}} }

func newPeers() To {
	return To{Choose: ChooseAll, Queue: 1024, Method: MethodAny, Durability: AcknowledgeReceived}
}

// Complete fills in the defaults which depend on other settings and rounds sizes
// up to what they are made of. It may be called again at any time. [Load] and
// [Parse] have called it.
func (c *Config) Complete() {
	c.Region.Size = c.Region.Size.roundUp(c.Region.Pages.Bytes())
	for i := range c.Flows {
		f := &c.Flows[i]
		if f.Worker == "" && len(c.Workers) == 1 {
			f.Worker = c.Workers[0].Name
		}
		f.complete(&c.Region)
	}
	if c.Region.Extents == 0 {
		c.Region.Extents = c.defaultExtents()
	}
}

func (f *Flow) complete(r *Region) {
	kind := f.Kind()
	if f.From.Message == 0 && slices.Contains(fromClients, kind) {
		f.From.Message = Size(r.Frame / 2)
	}
	if f.Watermarks.Low == 0 {
		f.Watermarks.Low = f.Watermarks.High / 2
	}
	switch kind {
	case KindNetworkStorage, KindRDMAStorage, KindNullStorage:
		f.To.complete()
	case KindStorageNVMe:
		if f.To.Keys != "" && f.To.Group == "" {
			f.To.Group = AuthFFDHE2048
		}
	case KindNetworkRDMA, KindNullRDMA:
		f.To.completePeers()
	case KindRDMARDMA:
		f.To.completePeers()
		f.To.completeAcknowledge()
	}
}

func (t *To) completePeers() {
	for i := range t.Peers {
		if p := &t.Peers[i]; p.Policy == "" {
			p.Policy = PolicyWait
		}
	}
}

// completeAcknowledge: what is for one peer is acknowledged when that one has it.
func (t *To) completeAcknowledge() {
	switch {
	case t.Acknowledge != "":
	case t.Choose == ChooseAll:
		t.Acknowledge = AcknowledgeAll
	default:
		t.Acknowledge = AcknowledgeAny
	}
}

func (t *To) complete() {
	t.Segment.Size = t.Segment.Size.roundUp(segmentUnit)
	if t.Prepare == "" {
		t.Prepare = defaultPrepare(t)
	}
}

// defaultPrepare: a device is written as it is; slots are written fast only
// where something was written before.
func defaultPrepare(t *To) Prepare {
	switch {
	case t.Device != "":
		return PrepareNone
	case t.Layout == LayoutSlot:
		return PrepareZero
	}
	return PrepareAllocate
}
