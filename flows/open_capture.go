package flows

import (
	"errors"
	"slices"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/sink/disk"
	"github.com/unifiedd/unifiedd/flows/source/afxdp"
	"github.com/unifiedd/unifiedd/flows/source/packet"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/xdp"
)

func openNetworkStorage(e *pipeline.Env) (*pipeline.Run, error) {
	switch engine, why := e.Flow.ChosenEngine(); engine {
	case config.EnginePacket:
		return openPassive(e, why)
	case config.EngineAuto:
		return openAuto(e)
	default:
		return openTaken(e, why)
	}
}

// openTaken opens a flow that receives from AF_XDP sockets. why is the reason for this engine, if the flow
// may choose.
func openTaken(e *pipeline.Env, why string) (*pipeline.Run, error) {
	source, err := afxdp.Open(e)
	if err != nil {
		return nil, err
	}
	source.Chosen(why)
	least, most := 2*layout.MaxWriteFrames+feedFrames(e), 2*layout.MaxWriteFrames+feedFrames(e)
	if n := disk.FramesInFlight(e.Flow.To); n > 0 {
		most += source.RingFrames() + n
	}
	if err := source.Fill(e, least, most); err != nil {
		return nil, err
	}
	c := disk.Config{Free: source.Free(), Interfaces: source.Interfaces(), Directions: source.Directions(), Statistics: source.Statistics}
	if e.Flow.Feed() != nil {
		c = disk.Config{Free: source.Free(), Interfaces: ofMessages(e.Flow.Name, c.Interfaces)}
	}
	sink := disk.New()
	if err := sink.Open(e, c); err != nil {
		return nil, err
	}
	return joinFeed(e, source, sink, disk.Node(e))
}

// ofMessages returns the interfaces of a capture of a feed's messages, for those of its packets. A message has no
// headers, so its link type is one for private use. Its time is that of the last packet that had come, by the system's
// clock or the card's.
func ofMessages(flow string, packets []pcapng.Interface) []pcapng.Interface {
	one := pcapng.Interface{Name: packets[0].Name, Description: "messages of feed " + flow, LinkType: pcapng.LinkTypeMessages}
	all := []pcapng.Interface{one}
	if i := slices.IndexFunc(packets, func(p pcapng.Interface) bool { return p.CardClock != "" }); i >= 0 {
		one.Description += ", the card's clock"
		one.CardClock = packets[i].CardClock
		all = append(all, one)
	}
	return all
}

// openPassive opens a flow that receives copies from a packet socket.
func openPassive(e *pipeline.Env, why string) (*pipeline.Run, error) {
	source, err := packet.Open(e)
	if err != nil {
		return nil, err
	}
	source.Chosen(why)
	sink := disk.New()
	err = sink.Open(e, disk.Config{Ring: source.Ring(), Interfaces: source.Interfaces(), Statistics: source.Statistics})
	if err != nil {
		return nil, err
	}
	source.SetDisk(sink.Align(), sink.Pins())
	return join(e, source, sink, source.Node(), disk.Node(e)), nil
}

// openAuto opens a flow that may take packets from the host. It does so only where this saves the kernel's
// copy.
func openAuto(e *pipeline.Env) (*pipeline.Run, error) {
	from := &e.Flow.From
	before, policy := len(e.Undo), from.ZeroCopy
	from.ZeroCopy = config.ZeroCopyRequire
	run, err := openTaken(e, "take_over is set, and the driver grants zero copy")
	if !errors.Is(err, xdp.ErrNoZeroCopy) {
		return run, err
	}
	tried := pipeline.Cleanup(slices.Clone(e.Undo[before:]))
	e.Undo = e.Undo[:before]
	from.ZeroCopy = policy
	if err := tried.Run(); err != nil {
		return nil, err
	}
	return openPassive(e, "the driver grants no zero copy: "+err.Error())
}
