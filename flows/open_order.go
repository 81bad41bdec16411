package flows

import (
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	to "github.com/unifiedd/unifiedd/flows/sink/order"
	"github.com/unifiedd/unifiedd/flows/source/afxdp"
	from "github.com/unifiedd/unifiedd/flows/source/program"
	"github.com/unifiedd/unifiedd/internal/numa"
)

// openOrders sends orders to an exchange.
func openOrders(e *pipeline.Env) (*pipeline.Run, error) {
	if e.Flow.Kind() == config.KindNetworkOrder {
		return openNetworkOrder(e)
	}
	return openAttachOrder(e)
}

// openAttachOrder sends orders of a program to an exchange. An order is done when it has left, or is refused.
func openAttachOrder(e *pipeline.Env) (*pipeline.Run, error) {
	sink, err := to.Open(e)
	if err != nil {
		return nil, err
	}
	source, err := from.Open(e, from.Config{Numbered: true, Outcome: sink.Outcome, Ready: sink.Ready, Once: true})
	if err != nil {
		return nil, err
	}
	source.AcknowledgeUpTo(sink.Taken, nil)
	sink.SetFree(source.Free())
	sink.OnEnd(source.Shut)
	return join(e, source, sink, numa.Unknown, sink.Node()), nil
}

// openNetworkOrder sends orders that rules make of packets, or of the messages of a feed, to an exchange.
func openNetworkOrder(e *pipeline.Env) (*pipeline.Run, error) {
	sink, err := to.Open(e)
	if err != nil {
		return nil, err
	}
	source, err := afxdp.Open(e)
	if err != nil {
		return nil, err
	}
	frames := 2*pipeline.Burst + feedFrames(e)
	if err := source.Fill(e, frames, frames); err != nil {
		return nil, err
	}
	sink.SetFree(source.Free())
	return joinFeed(e, source, sink, sink.Node())
}
