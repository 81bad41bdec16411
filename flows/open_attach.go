package flows

import (
	"errors"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/sink/discard"
	"github.com/unifiedd/unifiedd/flows/sink/disk"
	"github.com/unifiedd/unifiedd/flows/sink/peers"
	to "github.com/unifiedd/unifiedd/flows/sink/program"
	"github.com/unifiedd/unifiedd/flows/source/afxdp"
	"github.com/unifiedd/unifiedd/flows/source/generator"
	"github.com/unifiedd/unifiedd/flows/source/message"
	from "github.com/unifiedd/unifiedd/flows/source/program"
	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/umem"
)

// openNetworkAttach copies packets into the memory of a program, or has them land there.
func openNetworkAttach(e *pipeline.Env) (*pipeline.Run, error) {
	if e.Flow.To.Place == config.PlaceHere {
		return openNetworkHere(e)
	}
	source, err := afxdp.Open(e)
	if err != nil {
		return nil, err
	}
	frames := 2*pipeline.Burst + feedFrames(e)
	if err := source.Fill(e, frames, frames); err != nil {
		return nil, err
	}
	sink, err := to.Open(e, to.Config{Free: source.Free()})
	if err != nil {
		return nil, err
	}
	return joinFeed(e, source, sink, numa.Unknown)
}

// openNetworkHere fills the rings of an interface with frames of a program's memory.
func openNetworkHere(e *pipeline.Env) (*pipeline.Run, error) {
	target := &e.Flow.To
	source, err := afxdp.Open(e)
	if err != nil {
		return nil, err
	}
	if source.ZeroCopy() && !target.Expose {
		return nil, errors.New("the card writes all packets of the queues into the program's memory: say to.expose: true, or from.zero_copy: copy")
	}
	sink, err := to.Open(e, to.Config{Free: source.Free(), Here: true})
	if err != nil {
		return nil, err
	}
	part := sink.Part()
	share := int(part.Size()/uint64(e.Region.FrameSize())) / e.Shared.Config.Receiving(target.Attach)
	reserve := target.Queue
	if target.Policy == config.PolicyDropOldest { // as many wait for the program
		reserve *= 2
	}
	if err := source.FillFrom(e, part, share, reserve); err != nil {
		return nil, err
	}
	return join(e, source, sink, source.Node(), numa.Unknown), nil
}

func openNullAttach(e *pipeline.Env) (*pipeline.Run, error) {
	source := generator.New(e)
	if err := source.Fill(e, 0, 0); err != nil {
		return nil, err
	}
	sink, err := to.Open(e, to.Config{Free: source.Free()})
	if err != nil {
		return nil, err
	}
	return join(e, source, sink, numa.Unknown, numa.Unknown), nil
}

// openRDMAAttach has messages of clients land in the memory of a program. They have positions from 1 on, at each
// start, and are acknowledged when they have arrived.
func openRDMAAttach(e *pipeline.Env) (*pipeline.Run, error) {
	free := &umem.FreeList{}
	sink, err := to.Open(e, to.Config{Free: free, Messages: true})
	if err != nil {
		return nil, err
	}
	source, err := message.Open(e, message.Config{
		MinReserve: 2, MaxReserve: e.Flow.To.Queue, Durability: protocol.Received, Numbered: true, Part: sink.Part(),
	})
	if err != nil {
		return nil, err
	}
	sink.SetFree(source.Free())
	source.Supply()
	return join(e, source, sink, numa.Unknown, numa.Unknown), nil
}

// openAttachLog opens a log of a program's messages. The layout copies each message once, and computes its
// checksum of the copy.
func openAttachLog(e *pipeline.Env) (*pipeline.Run, error) {
	end, err := logEnd(e)
	if err != nil {
		return nil, err
	}
	source, err := from.Open(e, from.Config{Records: true, End: &end, Acknowledge: string(e.Flow.To.Acknowledge)})
	if err != nil {
		return nil, err
	}
	d := disk.Config{Free: source.Free(), Records: source.Records()}
	sink, _, err := openLogDisk(e, d, end, source, nil, func(records pcapng.Interface, _ uint64) pcapng.Interface { return records })
	if err != nil {
		return nil, err
	}
	acknowledgeBy(e, source, sink)
	return join(e, source, sink, numa.Unknown, disk.Node(e)), nil
}

// openAttachRelay copies messages of a program and sends the copies to peers. A message is acknowledged when
// enough peers have it. Messages of a trusted program are sent from where they lie.
func openAttachRelay(e *pipeline.Env) (*pipeline.Run, error) {
	target := &e.Flow.To
	if len(e.Flow.Stages) > 0 {
		return nil, errors.New("stages cannot change messages of a program")
	}
	c := from.Config{Copies: 2, MaxCopies: max(2*pipeline.Burst, len(target.Peers)*target.Queue)}
	if e.Flow.From.Trusted {
		c = from.Config{Records: true, Lent: true}
	}
	c.Relayed = true
	c.Asks = len(target.Peers) == 1 && len(target.Peers[0].Others) > 0 // it is a group
	source, err := from.Open(e, c)
	if err != nil {
		return nil, err
	}
	sink, err := peers.Open(e, peers.Config{
		Free: source.Free(), Length: uint32(e.Flow.From.Message), Frames: 1, Queue: relayQueue(target, source.Spare()), Relay: true,
		Records: source.Records(),
	})
	if err != nil {
		return nil, err
	}
	source.AcknowledgeUpTo(sink.Acknowledged, sink.Delivered)
	if c.Asks {
		source.AskNext(e, sink.NextOf())
	}
	return join(e, source, sink, numa.Unknown, numa.Unknown), nil
}

func openAttachNull(e *pipeline.Env) (*pipeline.Run, error) {
	source, err := from.Open(e, from.Config{Numbered: true})
	if err != nil {
		return nil, err
	}
	return join(e, source, discard.New(e.Region, source.Free()), numa.Unknown, numa.Unknown), nil
}
