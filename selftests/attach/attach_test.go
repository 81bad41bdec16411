package attach

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// start runs a daemon in this process, with the programs writer and reader of this user.
func start(t *testing.T, dir, wait, flowsText string) *flows.Daemon {
	t.Helper()
	text := fmt.Sprintf(`
region: {size: 32MiB, pages: ordinary}
workers: [{name: main, wait: %s}]
attach:
  socket: %s
  programs:
    - {name: writer, user: "%d", out: 4MiB}
    - {name: reader, user: "%[3]d", in: 4MiB}
flows:
%s`, wait, filepath.Join(dir, "attach.sock"), os.Getuid(), flowsText)
	return startText(t, text)
}

// startText runs a daemon in this process.
func startText(t *testing.T, text string) *flows.Daemon {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(text), config.Options{})
	testenv.Must(t, err)
	d, err := flows.Open(c, flows.Options{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	testenv.Must(t, err)
	testenv.Must(t, d.Start())
	t.Cleanup(func() {
		if _, err := d.Region().Audit(); err != nil {
			t.Log("audit while flows run:", err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func attach(t *testing.T, dir, name string, session uint64) *attached.Client {
	t.Helper()
	k, err := attached.Attach(attached.Config{Socket: filepath.Join(dir, "attach.sock"), Name: name, Session: session})
	testenv.Must(t, err)
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

// TestLog: messages of a program are in the log, once, in order, and their receipts have the positions.
func TestLog(t *testing.T) {
	for _, wait := range []string{"sleep", "spin"} {
		t.Run(wait, func(t *testing.T) {
			testenv.Leaks(t)
			dir := t.TempDir()
			start(t, dir, wait, fmt.Sprintf("  - {name: orders, from: {attach: writer, message: 1KiB}, to: {file: %s/orders, acknowledge: durable, segment: {size: 8MiB}}}\n", dir))
			k := attach(t, dir, "writer", 0)
			s, err := k.Send("orders", 0)
			testenv.Must(t, err)
			sendAll(t, s, 5000)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// sendAll sends messages until all are done, and checks their receipts.
func sendAll(t *testing.T, s *attached.Sender, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(30*time.Second))
	defer cancel()
	var got [64]attached.Receipt
	done := 0
	for sent := 0; done < n; {
		for sent < n {
			f, err := s.Claim()
			if err != nil {
				break
			}
			binary.BigEndian.PutUint64(f.Data, uint64(sent))
			if _, err := s.Commit(f, 64+sent%900); err != nil {
				t.Fatal(err)
			}
			sent++
		}
		k, err := s.Poll(got[:])
		testenv.Must(t, err)
		for _, r := range got[:k] {
			if done++; r.Err != nil || r.Sequence != uint64(done) || r.Position != uint64(done) {
				t.Fatalf("receipt %d is %+v", done, r)
			}
		}
		if k == 0 {
			testenv.Must(t, s.Wait(ctx, time.Second))
		}
	}
}

// TestReceive: a program gets generated packets, in memory that it can only read.
func TestReceive(t *testing.T) {
	for _, wait := range []string{"sleep", "spin"} {
		t.Run(wait, func(t *testing.T) {
			testenv.Leaks(t)
			dir := t.TempDir()
			d := start(t, dir, wait, "  - {name: md, from: {generate: 200, rate: 20000}, to: {attach: reader, policy: wait}}\n")
			k := attach(t, dir, "reader", 0)
			r, err := k.Receive("md", 0)
			testenv.Must(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(30*time.Second))
			defer cancel()
			var got [64]attached.Message
			last := uint64(0)
			for n := 0; n < 20000; {
				k, err := r.Poll(got[:])
				testenv.Must(t, err)
				for _, m := range got[:k] {
					if len(m.Data) != 200 || last > 0 && m.Position != last+1 || binary.BigEndian.Uint64(m.Data[42:]) != m.Position {
						t.Fatalf("packet %d after %d of %d bytes, number %d", m.Position, last, len(m.Data), binary.BigEndian.Uint64(m.Data[42:]))
					}
					last = m.Position
				}
				r.Release(got[:k])
				n += k
				if k == 0 {
					testenv.Must(t, r.Wait(ctx, time.Second))
				}
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			t.Logf("%+v", d.Status().Flows[0].Gives)
		})
	}
}
