package cluster

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// readers starts a daemon that gets the channel book, as a daemon with this name, and a program that reads it there.
func (r *rig) readers(host int, name string) (*daemon.Daemon, *attached.ChannelReader) {
	r.t.Helper()
	dir := r.t.TempDir()
	socket := filepath.Join(dir, "attach.sock")
	d := daemon.Launch(r.t, program, r.hosts[host], dir, r.head(name, fmt.Sprintf(`attach:
  socket: %s
  programs: [{name: quoting, user: root}]
  channels: [{name: book, slots: 64, readers: [{program: quoting, policy: wait}]}]
flows:
  - {name: book-in, from: {rdma: "roce:%s", listen: ":%d"}, to: {channel: book}}
`, socket, r.hosts[host].Ifname, flowPort)))
	d.Running(r.t)
	k := r.attach(socket, "quoting")
	var reader *attached.ChannelReader
	testenv.Wait(r.t, 30*time.Second, "the channel to have a writer", func() bool {
		var err error
		reader, err = k.ReadChannel("book")
		if refused, _ := errors.AsType[*attached.RefusedError](err); err != nil && (refused == nil || refused.Reason != "busy") {
			r.t.Fatal(err)
		}
		return err == nil
	})
	r.t.Cleanup(func() { _ = reader.Close() })
	return d, reader
}

func (r *rig) attach(socket, name string) *attached.Client {
	r.t.Helper()
	k, err := attached.Attach(attached.Config{Socket: socket, Name: name})
	testenv.Must(r.t, err)
	r.t.Cleanup(func() { _ = k.Close() })
	return k
}

// TestChannel: the flow of a channel finds its peer by its name, and follows it to another machine.
func TestChannel(t *testing.T) {
	testenv.Long(t, "TestMove has a flow that is followed")
	r := newRig(t, 4)
	dir := t.TempDir()
	socket := filepath.Join(dir, "attach.sock")
	writing := daemon.Launch(t, program, r.hosts[1], dir, r.head("source", fmt.Sprintf(`attach:
  socket: %s
  programs: [{name: handler, user: root}]
  channels: [{name: book, slots: 64, writer: handler}]
flows:
  - name: book-out
    from: {channel: book}
    to: {rdma: "roce:%s", peers: [{peer: desk/book-in}]}
`, socket, r.hosts[1].Ifname)))
	writing.Until(t, "the flow", func(s *status.Daemon) bool { return s.Flows[0].State.Up() })
	w, err := r.attach(socket, "handler").WriteChannel("book")
	testenv.Must(t, err)
	defer w.Close()
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() { // the reader's channel has a writer only once the two daemons are connected
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				_, _ = w.WriteWait(t.Context(), []byte("quote")) // what arrives is checked
			}
		}
	}()
	defer func() { close(stop); <-ended }()
	gets := func(reader *attached.ChannelReader) {
		t.Helper()
		buffer, n := make([]byte, reader.Longest()), 0
		testenv.Wait(t, 30*time.Second, "100 messages", func() bool {
			for {
				length, _, ok, err := reader.Read(buffer)
				testenv.Must(t, err)
				if !ok {
					return n >= 100
				}
				if n++; string(buffer[:length]) != "quote" {
					t.Fatalf("the message is %q", buffer[:length])
				}
			}
		})
	}
	first, reader := r.readers(2, "desk")
	gets(reader)
	first.Terminate(t)
	_, reader = r.readers(3, "desk")
	gets(reader)
	s := writing.Until(t, "the peer's new address", func(s *status.Daemon) bool { return peer(s).Address == r.at(3) && peer(s).State == "connected" })
	if p := peer(&s); p.Named != "desk/book-in" {
		t.Errorf("the peer is %+v", p)
	}
}
