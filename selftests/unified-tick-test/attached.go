package main

import (
	"context"
	"time"

	"github.com/unifiedd/unifiedd/flows/attached"
)

// program is a flow of a daemon that gives the trader ticks, each once and in order.
type program struct {
	from  *attached.Receiver
	got   [64]attached.Message
	n, at int // messages in got, and those that were read
}

// receiveFrom opens the flow.
func receiveFrom(k *attached.Client, flow string) (p *program, err error) {
	p = &program{}
	if p.from, err = k.Receive(flow, 0); err != nil {
		return nil, err
	}
	return p, nil
}

// next returns the next tick, or nil, and when it arrived at the daemon. The tick is valid until the next call.
func (p *program) next() (tick []byte, stamp uint64, err error) {
	if p.at == p.n {
		p.from.Release(p.got[:p.n])
		p.n, p.at = 0, 0
		if p.n, err = p.from.Poll(p.got[:]); err != nil || p.n == 0 {
			return nil, 0, err
		}
	}
	p.at++
	return p.got[p.at-1].Data, p.got[p.at-1].Stamp, nil
}

// wait waits until there is a tick, for a short time: replies come over another port.
func (p *program) wait(ctx context.Context) error { return p.from.Wait(ctx, time.Millisecond) }

func (p *program) close() error {
	p.from.Release(p.got[:p.n])
	return p.from.Close()
}
