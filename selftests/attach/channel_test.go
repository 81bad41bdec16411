package attach

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// startChannel runs a daemon with a channel from writer to reader and risk.
func startChannel(t *testing.T, dir, policy string) *flows.Daemon {
	t.Helper()
	return startText(t, fmt.Sprintf(`
region: {size: 16MiB, pages: ordinary}
attach:
  socket: %s
  programs:
    - {name: writer, user: "%d", out: 2MiB}
    - {name: reader, user: "%[2]d"}
    - {name: risk, user: "%[2]d"}
  channels:
    - {name: book, writer: writer, slots: 64, slot: 128, readers: [{program: reader, policy: %s}, {program: risk}]}
flows:
  - {name: sink, from: {attach: writer, message: 64}, to: {discard: true}}
`, filepath.Join(dir, "attach.sock"), os.Getuid(), policy))
}

// message makes the message with a sequence: it repeats the sequence, so that a torn one is seen.
func message(b []byte, sequence uint64) []byte {
	n := 8 * (1 + int(sequence%14))
	for i := 0; i < n; i += 8 {
		binary.NativeEndian.PutUint64(b[i:], sequence)
	}
	return b[:n]
}

// torn returns an error for a message that is not the one with a sequence.
func torn(b []byte, sequence uint64) error {
	if len(b) != 8*(1+int(sequence%14)) {
		return fmt.Errorf("message %d has %d bytes", sequence, len(b))
	}
	for i := 0; i < len(b); i += 8 {
		if got := binary.NativeEndian.Uint64(b[i:]); got != sequence {
			return fmt.Errorf("message %d has %d at byte %d", sequence, got, i)
		}
	}
	return nil
}

// follow reads messages up to a sequence, and returns how many there were. slow makes it wait now and then.
func follow(ctx context.Context, r *attached.ChannelReader, last uint64, slow time.Duration) (got uint64, err error) {
	buffer := make([]byte, r.Longest())
	for before := uint64(0); before < last; {
		n, sequence, ok, err := r.Read(buffer)
		switch {
		case err != nil:
			return got, err
		case !ok:
			if err := r.Wait(ctx, time.Second); err != nil {
				return got, err
			}
			continue
		}
		if sequence <= before {
			return got, fmt.Errorf("message %d after %d", sequence, before)
		}
		if err := torn(buffer[:n], sequence); err != nil {
			return got, err
		}
		before = sequence
		got++
		if slow > 0 && got%16 == 0 {
			time.Sleep(slow)
		}
	}
	return got, nil
}

// TestChannel: a reader that the writer waits for gets every message once and whole. One that loses the oldest gets
// whole messages, and the counted losses are exact.
func TestChannel(t *testing.T) {
	testenv.Leaks(t)
	dir := t.TempDir()
	d := startChannel(t, dir, "wait")
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(60*time.Second))
	defer cancel()
	k, kr, kk := attach(t, dir, "writer", 0), attach(t, dir, "reader", 0), attach(t, dir, "risk", 0)
	if _, err := kr.ReadChannel("book"); err == nil || !errors.As(err, new(*attached.RefusedError)) {
		t.Fatalf("a channel without a writer can be read: %v", err)
	}
	w, err := k.WriteChannel("book")
	testenv.Must(t, err)
	testenv.Wait(t, testenv.Within(5*time.Second), "the channel to be open", func() bool { return d.Status().Programs.Channels[0].Writing })
	var rs [2]*attached.ChannelReader
	for i, c := range []*attached.Client{kr, kk} {
		testenv.Wait(t, testenv.Within(5*time.Second), "the channel to be sealed", func() bool { rs[i], err = c.ReadChannel("book"); return err == nil })
	}
	const messages = 200000
	var got [2]uint64
	var errs [2]error
	var wg sync.WaitGroup
	for i, r := range rs {
		wg.Go(func() { got[i], errs[i] = follow(ctx, r, messages, []time.Duration{0, time.Millisecond}[i]) })
	}
	var b [112]byte
	for range uint64(messages) {
		if _, err := w.WriteWait(ctx, message(b[:], w.Next())); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(10 * time.Millisecond)
	// The slow reader may have lost the last message: more follow until it has got one of the end.
	wg.Wait()
	testenv.Must(t, errs[:]...)
	if got[0] != messages || rs[0].Lost() != 0 {
		t.Errorf("the reader got %d of %d, and lost %d", got[0], messages, rs[0].Lost())
	}
	if got[1]+rs[1].Lost() != messages || rs[1].Lost() == 0 {
		t.Errorf("the slow reader got %d of %d, and lost %d", got[1], messages, rs[1].Lost())
	}
	s := d.Status().Programs.Channels[0]
	if s.Last != messages || s.Readers[0].Lost != 0 || s.Readers[1].Lost != rs[1].Lost() || !s.Readers[0].Blocks || s.Readers[0].Lag != 0 {
		t.Errorf("status: %+v", s)
	}
	t.Logf("the slow reader lost %d of %d messages", rs[1].Lost(), messages)
	for _, c := range []interface{ Close() error }{w, rs[0], rs[1]} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
