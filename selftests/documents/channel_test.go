package documents

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

// writerDocument and readersDocument are the configurations of the two hosts of a channel.
const writerDocument, readersDocument = "attach.md.5", "attach.md.6"

// TestChannelAcrossMachines: two daemons with the configurations of the document pass a channel on. What the program
// of one host writes the program of the other one reads, in order.
func TestChannelAcrossMachines(t *testing.T) {
	testenv.Long(t, "TestDocuments checks the configurations")
	testenv.Root(t)
	for _, d := range passOn(t, [2]string{named(t, writerDocument), named(t, readersDocument)}) {
		d.Until(t, "the flow to count messages", func(s *status.Daemon) bool { return s.Flows[0].Packets > 0 })
	}
}

// passOn starts the daemons of a writer's host and of a readers' host, and passes messages from one to the other.
func passOn(t *testing.T, texts [2]string) (daemons []*daemon.Daemon) {
	t.Helper()
	testenv.HugePages(t, 2*294<<20)
	var programs []*attached.Client
	for n, e := range hosts(t, 2) {
		f := newFiles(t)
		d := daemon.Launch(t, f.wrapper, e, f.dir, texts[n])
		d.Running(t)
		t.Cleanup(func() { d.Terminate(t) })
		k, err := attached.Attach(attached.Config{Socket: filepath.Join(f.dir, "run/unifiedd/attach.sock"), Name: []string{"handler", "quoting"}[n]})
		testenv.Must(t, err)
		t.Cleanup(func() { _ = k.Close() })
		daemons, programs = append(daemons, d), append(programs, k)
	}
	w, err := programs[0].WriteChannel("book")
	testenv.Must(t, err)
	defer w.Close()
	r := reader(t, programs[1])
	defer r.Close()
	exchange(t, w, r)
	return daemons
}

// reader opens the channel. It is busy until the host of its writer is connected.
func reader(t *testing.T, k *attached.Client) *attached.ChannelReader {
	t.Helper()
	for end := time.Now().Add(testenv.Within(30 * time.Second)); ; time.Sleep(10 * time.Millisecond) {
		r, err := k.ReadChannel("book")
		refused, _ := errors.AsType[*attached.RefusedError](err)
		switch {
		case err == nil:
			return r
		case refused == nil || refused.Reason != "busy" || time.Now().After(end):
			t.Fatal(err)
		}
	}
}

// exchange writes messages until the reader has 100 of them. Those that are written before the hosts are connected do
// not reach it.
func exchange(t *testing.T, w *attached.ChannelWriter, r *attached.ChannelReader) {
	t.Helper()
	buffer, got, last := make([]byte, r.Longest()), 0, uint64(0)
	for end := time.Now().Add(testenv.Within(30 * time.Second)); got < 100; {
		if time.Now().After(end) {
			t.Fatalf("the reader has %d messages of %d, and lost %d", got, w.Next()-1, r.Lost())
		}
		if _, err := w.WriteWait(t.Context(), fmt.Appendf(nil, "message %d", w.Next())); err != nil {
			t.Fatal(err)
		}
		for {
			n, sequence, ok, err := r.Read(buffer)
			testenv.Must(t, err)
			if !ok {
				break
			}
			if want := fmt.Sprintf("message %d", sequence); string(buffer[:n]) != want || sequence <= last {
				t.Fatalf("message %d, after %d, is %q", sequence, last, buffer[:n])
			}
			got, last = got+1, sequence
		}
		time.Sleep(time.Millisecond)
	}
}
