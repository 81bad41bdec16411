package transfer

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/authority"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// partly sends a part of a source, of which something becomes durable.
func (g *rig) partly(t *testing.T, c SenderConfig) {
	t.Helper()
	k := g.near.sender(c)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	go func() {
		for k.Stats().Durable == 0 && ctx.Err() == nil {
			sleep(longSleep)
		}
		cancel()
	}()
	var err error
	g.near.ns.Do(t, func() { err = k.Run(ctx) })
	if st := k.Stats(); !errors.Is(err, context.Canceled) || st.Durable == 0 || st.Durable == st.Size {
		t.Fatalf("%+v, %v", st, err)
	}
	g.near.check(k.Close())
}

// raw is a sender that says what it is told to.
type raw struct {
	*side
	link   *link
	conn   *connect.Conn
	answer answer
	grants []message
	others []message
	book   *umem.Book
	hands  *umem.Holder
	piece  umem.Frame
}

// rawSender connects with a request. The end of the test ends it.
func (g *rig) rawSender(t *testing.T, v *taking, r request) *raw {
	t.Helper()
	k := &raw{side: g.near}
	hello, err := r.append(nil)
	k.must(err)
	k.book = k.region.NewBook("raw")
	k.hands, err = k.book.NewHolder(umem.OwnerWorker, "raw")
	k.must(err)
	var one [1]umem.Frame
	if k.hands.TakeExtents(one[:]) == 0 {
		t.Fatal("there is no extent")
	}
	k.piece = one[0]
	k.link, err = newLink(linkConfig{at: k.at, domain: k.at.Domain, memory: k.at.Memory, holder: k.hands, receives: 32, sends: 16, writes: 16, heard: func(m *message) (bool, error) {
		if m.kind == kindGrant {
			k.grants = append(k.grants, *m)
		} else {
			k.others = append(k.others, *m)
		}
		return false, nil
	}, wrote: func(uint64) {}})
	k.must(err)
	t.Cleanup(func() {
		k.check(k.link.close())
		k.hands.Close()
		k.check(k.book.Close())
	})
	k.ns.Do(t, func() {
		settings, err := k.at.SettingsTo(t.Context(), v.address)
		k.must(err)
		end := connect.End{Queue: k.link.pair, Settings: settings, Hello: hello}
		end.Parameters, err = k.link.prepare(k.device, settings)
		k.must(err)
		k.conn, err = connect.Dial(t.Context(), v.address, end, connect.Config{})
		k.must(err)
	})
	t.Cleanup(func() { k.check(k.conn.Close()) })
	k.answer, err = parseAnswer(k.conn.Remote().Hello, &r)
	k.must(err)
	return k
}

// await polls until there are so many grants.
func (k *raw) await(grants int) {
	k.Helper()
	testenv.Wait(k, waitLimit, "grants", func() bool { _, err := k.link.poll(); k.must(err); return len(k.grants) >= grants })
}

// put WRITEs a piece, and returns its header, with the checksum.
func (k *raw) put(bytes []byte, at uint64) message {
	k.Helper()
	k.await(1)
	g := k.grants[0]
	k.grants = k.grants[1:]
	copy(k.region.At(k.piece.Addr, uint64(len(bytes))), bytes)
	k.link.write(0, k.piece.Addr, uint32(len(bytes)), g.at, g.value)
	return message{kind: kindPiece, at: at, length: uint64(len(bytes)), number: g.number, value: crc32.Checksum(bytes, castagnoli)}
}

// ended waits until the receiver ends the connection, and returns what it says.
func (k *raw) ended() error {
	k.Helper()
	_ = k.conn.SetDeadline(time.Now().Add(waitLimit))
	text, err := k.conn.Receive()
	if err != nil {
		return err
	}
	return readReason(string(text))
}

// ask is a request that a receiver accepts.
func ask(name string, size uint64) request {
	return request{piece: minPiece, session: 7, size: size, identity: [32]byte{1, 2, 3}, name: name}
}

// TestOffenders: a sender that breaks the protocol is ended with the reason, which is counted. What is durable before stays.
func TestOffenders(t *testing.T) {
	g := small(t)
	v := g.far.receive(ReceiverConfig{Path: testenv.DiskDir(t)}, nil)
	bytes := content(1, leafSize)
	for name, c := range map[string]struct {
		do   func(k *raw) message
		want protocol.Reason
	}{
		"wrong checksum":     {func(k *raw) message { m := k.put(bytes, 0); m.value++; return m }, protocol.BadPayload},
		"not written":        {func(k *raw) message { m := k.put(bytes[:16], 0); m.length = leafSize; return m }, protocol.BadPayload},
		"out of turn":        {func(k *raw) message { m := k.put(bytes, 0); m.at = leafSize; return m }, protocol.BadSequence},
		"another slot":       {func(k *raw) message { m := k.put(bytes, 0); m.number++; return m }, protocol.NotGranted},
		"no bytes":           {func(k *raw) message { m := k.put(bytes, 0); m.length = 0; return m }, protocol.OutOfRange},
		"beyond the end":     {func(k *raw) message { return message{kind: kindHole, length: 5 * leafSize} }, protocol.OutOfRange},
		"overflow":           {func(k *raw) message { return message{kind: kindHole, length: 1<<64 - 1} }, protocol.OutOfRange},
		"not in whole leafs": {func(k *raw) message { return message{kind: kindHole, length: 4096} }, protocol.Unaligned},
		"longer than a slot": {func(k *raw) message { m := k.put(bytes, 0); m.length = 2 * leafSize; return m }, protocol.TooLong},
		"end too early":      {func(k *raw) message { return message{kind: kindEnd, at: 4 * leafSize} }, protocol.BadSequence},
		"a receiver's":       {func(k *raw) message { return message{kind: kindDurable, at: leafSize} }, protocol.BadKind},
		"wrong hash": {func(k *raw) message {
			k.link.send(&message{kind: kindHole, length: 4 * leafSize})
			return message{kind: kindEnd, at: 4 * leafSize, digest: [32]byte{1}}
		}, protocol.BadPayload},
		"source changed": {func(k *raw) message { return message{kind: kindAbort, number: uint32(protocol.Changed)} }, protocol.Changed},
	} {
		t.Run(name, func(t *testing.T) {
			before := v.Stats().Ended[c.want]
			k := g.rawSender(t, v, ask("file", 4*leafSize))
			m := c.do(k)
			k.link.send(&m)
			if err := k.ended(); !errors.Is(err, c.want) {
				t.Errorf("%v", err)
			}
			testenv.Wait(t, waitLimit, "the reason to be counted", func() bool { return v.Stats().Ended[c.want] == before+1 })
		})
	}
	if st := v.Stats(); st.Complete != 0 {
		t.Errorf("%+v", st)
	}
	if _, err := filepath.Glob(filepath.Join(v.dir, "file")); err != nil {
		t.Error(err)
	}
}

// TestUngranted: a sender that writes after its right has ended, or elsewhere, is ended by the device, and reaches nothing.
func TestUngranted(t *testing.T) {
	g := small(t)
	v := g.far.receive(ReceiverConfig{Path: testenv.DiskDir(t)}, nil)
	bytes := content(1, leafSize)
	for name, do := range map[string]func(k *raw){
		"after the header": func(k *raw) {
			k.await(4)
			first := k.grants[0]
			m := k.put(bytes, 0)
			k.link.send(&m)
			testenv.Wait(k, waitLimit, "the piece to be revoked", func() bool { return v.Stats().Bytes > 0 })
			time.Sleep(50 * time.Millisecond)
			k.link.write(0, k.piece.Addr, 64, first.at, first.value)
		},
		"elsewhere": func(k *raw) {
			k.await(1)
			k.link.write(0, k.piece.Addr, 64, k.grants[0].at+k.grants[0].length, k.grants[0].value)
		},
		"too much": func(k *raw) {
			k.await(1)
			k.link.write(0, k.piece.Addr, leafSize, k.grants[0].at+64, k.grants[0].value)
		},
		"no key": func(k *raw) {
			k.await(1)
			k.link.write(0, k.piece.Addr, 64, k.grants[0].at, k.grants[0].value^0x5a5a5a5a)
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := v.Stats().Ended[protocol.NotGranted]
			k := g.rawSender(t, v, ask(strings.ReplaceAll(name, " ", "-"), 64*leafSize))
			do(k)
			testenv.Wait(t, waitLimit, "the queue pair to fail", func() bool { _, err := k.link.poll(); k.must(err); return k.link.cause != nil })
			testenv.Wait(t, waitLimit, "the reason to be counted", func() bool { return v.Stats().Ended[protocol.NotGranted] == before+1 })
		})
	}
}

// TestTexts: a sender that sends texts is ended. One that leaves is counted, and what it sent is kept.
func TestTexts(t *testing.T) {
	g := small(t)
	v := g.far.receive(ReceiverConfig{Path: testenv.DiskDir(t)}, nil)
	k := g.rawSender(t, v, ask("file", 4*leafSize))
	k.must(k.conn.Send([]byte("hello")))
	if _, err := k.conn.Receive(); err != nil && !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	bytes := content(1, leafSize)
	k = g.rawSender(t, v, ask("other", 4*leafSize))
	m := k.put(bytes, 0)
	k.link.send(&m)
	testenv.Wait(t, waitLimit, "the piece", func() bool { _, err := k.link.poll(); k.must(err); return v.Stats().Written == leafSize })
	k.must(k.conn.Close())
	testenv.Wait(t, waitLimit, "the record", func() bool {
		all, err := Incomplete(v.dir, "")
		return err == nil && len(all) == 2 && all[1].Durable == leafSize
	})
	testenv.Wait(t, waitLimit, "the end to be counted", func() bool { return v.Stats().Left > 0 })
}

// TestSilent: a sender that says nothing is ended.
func TestSilent(t *testing.T) {
	g := small(t)
	v := g.far.receive(ReceiverConfig{Path: testenv.DiskDir(t), Timeout: 300 * time.Millisecond}, nil)
	k := g.rawSender(t, v, ask("file", 4*leafSize))
	if err := k.ended(); err == nil || !strings.Contains(err.Error(), "said nothing") {
		t.Errorf("%v", err)
	}
}

// TestBadRequests: malformed requests are refused and counted.
func TestBadRequests(t *testing.T) {
	g := small(t)
	v := g.far.receive(ReceiverConfig{Path: testenv.DiskDir(t)}, nil)
	k := g.near.sender(SenderConfig{Path: file(t, "file", content(1, 100)), Address: v.address})
	good := k.hello
	for name, c := range map[string]struct {
		hello []byte
		want  protocol.Reason
	}{
		"another role": {func() []byte {
			h := protocol.Hello{Role: protocol.RoleAppend, Session: 1, Message: 64}
			b, err := h.Append(nil)
			testenv.Must(t, err)
			return b
		}(), protocol.NotPermitted},
		"cut":         {good[:150], protocol.BadLength},
		"name cut":    {good[:len(good)-1], protocol.BadLength},
		"flag":        {poke(good, 132, 0x80), protocol.BadReserved},
		"no time":     {poke(good, 140, 0x7f), protocol.OutOfRange},
		"older hash":  {poke(good, 131, 0), protocol.BadVersion},
		"other hash":  {poke(good, 131, 2), protocol.BadVersion},
		"permissions": {poke(good, 136, 1), protocol.BadReserved},
		"no hello":    {[]byte("hello"), protocol.BadMagic},
	} {
		t.Run(name, func(t *testing.T) {
			before := v.Stats().Refused[c.want]
			k.hello = c.hello
			var err error
			g.near.ns.Do(t, func() { _, err = k.connection(t.Context()) })
			if !errors.Is(err, c.want) || v.Stats().Refused[c.want] != before+1 {
				t.Errorf("%v, %+v", err, v.Stats())
			}
		})
	}
	g.near.check(k.Close())
	only(t, v.dir)
}

// TestOlderReceiver: the field of the hash is reserved to a receiver of an older release, which refuses the request. The
// sender then says what to do.
func TestOlderReceiver(t *testing.T) {
	g := small(t)
	k := g.near.sender(SenderConfig{Path: file(t, "file", content(1, 100)), Address: g.olderReceiver(t)})
	var err error
	g.near.ns.Do(t, func() { err = k.Run(t.Context()) })
	g.near.check(k.Close())
	if !errors.Is(err, protocol.BadReserved) || !strings.Contains(err.Error(), "use releases on both sides that have the same") {
		t.Errorf("%v", err)
	}
}

// olderReceiver answers one request as a receiver does that knows no hash but SHA-256, and returns its address.
func (g *rig) olderReceiver(t *testing.T) string {
	t.Helper()
	var l *connect.Listener
	var err error
	g.far.ns.Do(t, func() {
		l, err = connect.Listen(context.Background(), netip.AddrPortFrom(g.far.ns.IP, 0).String(), connect.Config{})
	})
	g.far.must(err)
	ended := make(chan error, 1)
	go func() {
		q, err := l.Accept(t.Context())
		if err == nil && be.Uint16(q.Remote().Hello[130:]) != 0 {
			err = q.Refuse(sayReason(fmt.Errorf("read the request: %w", protocol.BadReserved)))
		}
		ended <- err
	}()
	t.Cleanup(func() { g.far.check(<-ended); g.far.check(l.Close()) })
	return l.Addr().String()
}

// poke returns bytes with one of them changed.
func poke(b []byte, at int, to byte) []byte {
	c := append([]byte(nil), b...)
	c[at] = to
	return c
}

// TestOwners: with certificates, a sender that is not allowed is refused, and one that is cannot go on with, or replace,
// what another has begun.
func TestOwners(t *testing.T) {
	g := small(t)
	ca := authority.New(t)
	credentials := func(name string) *connect.Credentials {
		certificate, key := ca.Issue(t, name, func(c *x509.Certificate) { c.DNSNames = []string{name} })
		c, err := connect.LoadCredentials(certificate, key, ca.File())
		testenv.Must(t, err)
		return c
	}
	v := g.far.receive(ReceiverConfig{Path: testenv.DiskDir(t), Permit: func(p connect.Peer, _ protocol.Hello) error {
		if p.Name == "eve" {
			return errors.New("eve may not send")
		}
		return nil
	}}, credentials("receiver"))
	path := file(t, "file", content(1, 24<<20))
	as := func(name string) SenderConfig {
		return SenderConfig{Path: path, Address: v.address, Limit: 16 << 20, Connect: connect.Config{Credentials: credentials(name), ServerName: "receiver"}}
	}
	if _, _, err := g.near.send(as("eve")); !errors.Is(err, protocol.NotPermitted) {
		t.Errorf("%v", err)
	}
	if _, _, err := g.near.send(SenderConfig{Path: path, Address: v.address}); err == nil {
		t.Error("a sender without a certificate was let in")
	}
	g.partly(t, as("alice"))
	if _, _, err := g.near.send(as("bob")); !errors.Is(err, protocol.NotPermitted) {
		t.Errorf("%v", err)
	}
	st, _, err := g.near.send(as("alice"))
	if err != nil || st.Resumed == 0 {
		t.Errorf("%+v, %v", st, err)
	}
	if n := v.Stats().Refused[protocol.NotPermitted]; n != 2 {
		t.Errorf("%d refused", n)
	}
}
