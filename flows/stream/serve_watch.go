package stream

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

const (
	// finalMessageTime is how long a peer has to take the message that says why it is ended, and what it was told before: a packet that is lost on the
	// way there is sent again within a third of it.
	finalMessageTime = time.Second
	// byeTime is how long the TCP connection may take for the same.
	byeTime = time.Second
	// restTime is from when a queue pair is in Error to when it is closed: a device completes meanwhile what it had begun.
	restTime = 10 * time.Millisecond
	// lookTime is from one look at the queue pair of a peer that writes to the next.
	lookTime = 250 * time.Millisecond
)

var (
	errLeft  = errors.New("the peer left")
	errTalks = errors.New("the peer says something after its hello, which nothing is expected of")
)

// watch waits for the end of a peer, and returns the cause. A peer that can still be told is told.
func (v *server) watch(p *peer, conn *connect.Conn) error {
	left := make(chan error, 1)
	v.all.Go(func() { left <- hear(conn) })
	look := time.NewTicker(lookTime)
	defer look.Stop()
	for over := false; !over; {
		select {
		case err := <-left:
			return err
		case <-p.over:
			over = true
		case <-look.C:
			if err := v.look(p); err != nil {
				return err
			}
		case <-v.ctx.Done():
			if err := v.do(func() error { v.finish(p, protocol.Closing); return nil }); err != nil {
				return err
			}
			over = true
		}
	}
	<-p.over
	finalMessage(p, left)
	return p.cause
}

// look asks for the queue pair of a peer that writes: where its device refuses what the peer wants, no completion says so.
func (v *server) look(p *peer) error {
	if p.granted == nil {
		return nil
	}
	return v.do(func() error { return v.inspect(p) })
}

// hear waits until the peer says goodbye, or is gone.
func hear(conn *connect.Conn) error {
	_, err := conn.Receive()
	switch {
	case err == nil:
		return errTalks
	case errors.Is(err, io.EOF):
		return errLeft
	}
	return err
}

// finalMessage waits until the peer has taken its last progress message, or leaves without.
func finalMessage(p *peer, left <-chan error) {
	late := time.NewTimer(finalMessageTime)
	defer late.Stop()
	select {
	case <-p.said:
	case <-left:
	case <-late.C:
	}
}

// tellEnd says the cause to a peer over TCP, where it is still there.
func tellEnd(conn *connect.Conn, why error) {
	_ = conn.SetDeadline(time.Now().Add(byeTime)) // it fails where the connection is closed
	_ = conn.Send([]byte(why.Error()))
}

// takeDown ends a peer's queue pair and gives its place back.
func (v *server) takeDown(p *peer, why error) error {
	defer close(p.away)
	err := v.do(func() error { return v.stop(p, why) })
	time.Sleep(restTime)
	if err := errors.Join(err, v.do(func() error { return v.detach(p) })); err != nil {
		return fmt.Errorf("take down the queue pair of %s: %w", p.name, err)
	}
	return nil
}
