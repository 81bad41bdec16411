package flows

import (
	"github.com/unifiedd/unifiedd/flows/attach"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/serve"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/umem"
)

// channelConfigs returns the channels of a configuration with their readers: programs, then peers.
func channelConfigs(c *config.Config) (all []attach.ChannelConfig) {
	for _, one := range c.Attach.Channels {
		channel := attach.ChannelConfig{Name: one.Name, Writer: one.Writer, Slots: uint32(one.Slots), Slot: uint32(one.Slot)}
		for _, r := range one.Readers {
			channel.Readers = append(channel.Readers, attach.ReaderConfig{Program: r.Program, Blocks: r.Policy == config.PolicyWait, Strict: r.Policy == config.PolicyDisconnect})
		}
		if f := c.ChannelFlow(one.Name); f != nil && f.From.Channel == one.Name {
			channel.Readers = append(channel.Readers, serve.PeersOf(f)...)
		}
		all = append(all, channel)
	}
	return all
}

// ringSlices returns the memory of the rings of channels that flows use: devices must have registered it. Programs map a
// part of it, which needs ordinary pages.
func ringSlices(c *config.Config) (all []umem.SliceConfig) {
	for _, one := range channelConfigs(c) {
		if c.ChannelFlow(one.Name) == nil {
			continue
		}
		s := umem.SliceConfig{Name: attach.RingSlice(one.Name), Ordinary: true}
		if one.Writer == "" {
			s.In = one.RingLen()
		} else {
			s.Out = one.RingLen()
		}
		all = append(all, s)
	}
	return all
}

// channelStatus describes the channels.
func channelStatus(h *attach.Hub) (all []status.Channel) {
	for _, c := range h.Channels() {
		one := status.Channel{Name: c.Name, Writer: c.Writer, Writing: c.Writing, Last: c.Last, Stalls: c.Stalls}
		for _, r := range c.Readers {
			one.Readers = append(one.Readers, status.ChannelReader{Program: r.Program, Remote: r.Remote, Blocks: r.Blocks, Reading: r.Reading, Lag: r.Lag, Lost: r.Lost})
		}
		all = append(all, one)
	}
	return all
}
