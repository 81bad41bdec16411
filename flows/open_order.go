package flows

import (
	"github.com/unifiedd/unifiedd/flows/pipeline"
	to "github.com/unifiedd/unifiedd/flows/sink/order"
	from "github.com/unifiedd/unifiedd/flows/source/program"
	"github.com/unifiedd/unifiedd/internal/numa"
)

// openAttachOrder sends orders of a program to an exchange. An order is done when it has left, or is refused.
func openAttachOrder(e *pipeline.Env) (*pipeline.Run, error) {
	sink, err := to.Open(e)
	if err != nil {
		return nil, err
	}
	source, err := from.Open(e, from.Config{Numbered: true, Outcome: sink.Outcome, Ready: sink.Ready})
	if err != nil {
		return nil, err
	}
	source.AcknowledgeUpTo(sink.Taken, nil)
	sink.SetFree(source.Free())
	sink.OnEnd(source.Shut)
	return join(e, source, sink, numa.Unknown, sink.Node()), nil
}
