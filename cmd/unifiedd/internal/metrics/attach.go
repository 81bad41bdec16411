package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/unifiedd/unifiedd/flows/status"
)

// The metrics of attached programs.
var (
	descAttached       = describe("attach_attached", "1 while the program is attached.", "program")
	descAttaches       = describe("attach_attaches_total", "Connections of the program that were accepted.", "program")
	descAttachEnded    = describe("attach_ended_total", "Ends of its connections and ports, and refusals. attach.md has the reasons.", "program", "reason")
	descAttachRefused  = describe("attach_refused_total", "Connections that were refused before or by their hello, by reason.", "reason")
	descAttachOpen     = describe("attach_port_open", "1 while the program has a port of the flow open.", "flow", "program")
	descAttachMessages = describe("attach_messages_total", "Packets or messages that passed between the flow and the program: given, released or submitted.", "flow", "program", "op")
	descChannelLast    = describe("channel_messages_total", "Messages that were written to the channel.", "channel")
	descChannelStalls  = describe("channel_stalls_total", "Messages for which the channel's present writer had to wait.", "channel")
	descChannelLag     = describe("channel_lag", "Messages that the reader has not read; of a peer, that it has not acknowledged.", "channel", "reader")
	descChannelLost    = describe("channel_lost_total", "Messages that the reader has lost; of a peer, that were not sent to it. Writers and programs that read tell these four numbers themselves.", "channel", "reader")
	descChannelReading = describe("channel_reading", "1 while the reader is there; of a peer, while it is connected.", "channel", "reader")
	descChannelArrived = describe("channel_arrived_total", "Sequences that have arrived from the peer.", "flow", "channel")
	descChannelBatches = describe("channel_batches_total", "Batches in which they came.", "flow", "channel")
	descChannelGaps    = describe("channel_gaps_total", "Messages that were lost between two connections of the peer.", "flow", "channel")
	descChannelAnew    = describe("channel_renumbered_total", "Times that the peer's sequences began again.", "flow", "channel")
	descAttachFrames   = describe("attach_frames", "Frames of the flow that the program has.", "flow", "program")
)

// collectPrograms sends the metrics of the programs that may attach.
func collectPrograms(out chan<- prometheus.Metric, all *status.Programs) {
	if all == nil {
		return
	}
	for i := range all.Programs {
		p := &all.Programs[i]
		gauge(out, descAttached, truth(p.Attached), p.Name)
		counter(out, descAttaches, p.Attaches, p.Name)
		each(out, descAttachEnded, p.Ended, p.Name)
	}
	each(out, descAttachRefused, all.Refused)
	for _, c := range all.Channels {
		counter(out, descChannelLast, c.Last, c.Name)
		counter(out, descChannelStalls, c.Stalls, c.Name)
		for _, r := range c.Readers {
			gauge(out, descChannelLag, float64(r.Lag), c.Name, r.Program)
			counter(out, descChannelLost, r.Lost, c.Name, r.Program)
			gauge(out, descChannelReading, truth(r.Reading), c.Name, r.Program)
		}
	}
}

// collectPorts sends the metrics of a flow's end at a program.
func collectPorts(out chan<- prometheus.Metric, f *status.Flow) {
	if a := f.Arrives; a != nil {
		counter(out, descChannelArrived, a.Messages, f.Name, a.Channel)
		counter(out, descChannelBatches, a.Batches, f.Name, a.Channel)
		counter(out, descChannelGaps, a.Gaps, f.Name, a.Channel)
		counter(out, descChannelAnew, a.Renumbered, f.Name, a.Channel)
	}
	if g := f.Gives; g != nil {
		gauge(out, descAttachOpen, truth(g.Open), f.Name, g.Program)
		each(out, descAttachMessages, map[string]uint64{"given": g.Messages, "released": g.Released}, f.Name, g.Program)
		gauge(out, descAttachFrames, float64(g.Frames), f.Name, g.Program)
	}
	if s := f.Submits; s != nil {
		gauge(out, descAttachOpen, truth(s.Open), f.Name, s.Program)
		each(out, descAttachMessages, map[string]uint64{"submitted": s.Messages}, f.Name, s.Program)
		gauge(out, descAttachFrames, float64(s.Frames), f.Name, s.Program)
	}
}
