package main

import (
	"context"
	"errors"
	"time"

	"github.com/unifiedd/unifiedd/flows/attached"
)

// program is the trader as a program that is attached to a daemon: a flow gives it ticks, each once and in order.
type program struct {
	client *attached.Client
	from   *attached.Receiver
	got    [64]attached.Message
	n, at  int // messages in got, and those that were read
}

// attach attaches to the daemon, and opens the flow.
func attach(o *options) (p *program, err error) {
	p = &program{}
	if p.client, err = attached.Attach(attached.Config{Socket: o.socket, Name: o.as}); err != nil {
		return nil, err
	}
	if p.from, err = p.client.Receive(o.flow, 0); err != nil {
		return nil, errors.Join(err, p.client.Close())
	}
	return p, nil
}

// next returns the next tick, or nil. It is valid until the next call.
func (p *program) next() ([]byte, error) {
	if p.at == p.n {
		p.from.Release(p.got[:p.n])
		p.n, p.at = 0, 0
		var err error
		if p.n, err = p.from.Poll(p.got[:]); err != nil || p.n == 0 {
			return nil, err
		}
	}
	p.at++
	return p.got[p.at-1].Data, nil
}

// wait waits until there is a tick, for some time.
func (p *program) wait(ctx context.Context) error { return p.from.Wait(ctx, 100*time.Millisecond) }

func (p *program) close() error {
	p.from.Release(p.got[:p.n])
	return errors.Join(p.from.Close(), p.client.Close())
}
