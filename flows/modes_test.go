package flows

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// TestEveryWaitCapturesEverything: workers that spin or sleep capture every packet.
func TestEveryWaitCapturesEverything(t *testing.T) {
	for _, wait := range some("spin", "sleep") {
		t.Run(wait, func(t *testing.T) {
			l := newLab(t, testenv.PairOptions{NoAddresses: true})
			text := "workers: [{name: main, wait: " + wait + "}]\n" + l.defaults("packed")
			f := l.start(t, text, Options{}).Flows()[0]
			frames := testenv.Stream(&l.A, &l.B, 9, 0, 3000, 400)
			l.send(t, f, frames)
			time.Sleep(300 * time.Millisecond) // with nothing to do
			l.send(t, f, frames[:10])
			await(t, f, "all packets durable", func(s status.Flow) bool { return s.Durable.Packets == 3010 })
			testenv.Must(t, f.Stop())
			samePackets(t, "the file", captures.Packets(t, l.files(t)...), append(frames, frames[:10]...))
			balanced(t, f.Status(), 3010)
		})
	}
}

// TestCountTakesExactly: a flow with a count captures exactly the first packets up to that count and is then
// done, also in the middle of a burst.
func TestCountTakesExactly(t *testing.T) {
	for _, layout := range forms(oneOf(t, layouts...)) {
		for _, count := range some(1, 100, 777) {
			t.Run(fmt.Sprintf("%s/%d", layout, count), func(t *testing.T) {
				l := newLab(t, testenv.PairOptions{MTU: 9000, NoAddresses: true})
				f := l.start(t, l.form(layout), Options{Count: uint64(count)}).Flows()[0]
				var frames [][]byte
				for i := range 900 {
					frames = append(frames, testenv.UDP(&l.A, &l.B, 9, uint64(i), 60+(i*997)%(l.MTU-45)))
				}
				sender := testenv.NewSender(t, &l.A)
				sent := sender.SendAll(t, frames, testenv.SendOptions{Rate: 20000})
				testenv.Wait(t, 20*time.Second, "the flow to be done", func() bool {
					select {
					case <-f.Ended():
						return true
					default:
						return false
					}
				})
				s := f.Status()
				if s.State != status.Done || s.Durable.Packets != uint64(count) || s.Error != "" {
					t.Errorf("state %s, %d durable: %s", s.State, s.Durable.Packets, s.Error)
				}
				if sent == len(frames) && lost(s) == s.Dropped["beyond_count"] {
					samePackets(t, "the file", captures.Packets(t, l.files(t)...), frames[:count])
				} else if n := len(captures.Records(t, l.files(t)...)); n != count {
					t.Errorf("the file has %d packets", n)
				}
				balanced(t, s, s.Offered)
				captures.Readable(t, l.files(t)...)
			})
		}
	}
}

// TestStreamIsTheFile captures the same packets to a stream and to a file.
func TestStreamIsTheFile(t *testing.T) {
	l := newLab(t, testenv.PairOptions{MTU: 9000, NoAddresses: true})
	frames := testenv.Frames(testenv.Zoo(&l.A, &l.B, l.MTU))
	var out bytes.Buffer
	f := l.start(t, l.defaults("packed"), Options{Stream: &out}).Flows()[0]
	l.send(t, f, frames)
	testenv.Must(t, f.Stop())
	if found := l.files(t); len(found) > 0 {
		t.Errorf("there are files: %q", found)
	}
	name := filepath.Join(t.TempDir(), "stream.pcapng")
	testenv.Must(t, os.WriteFile(name, out.Bytes(), 0o600))
	s := f.Status()
	balanced(t, s, uint64(len(frames)))
	if s.Written.Packets != uint64(len(frames)) || s.Durable.Packets != s.Written.Packets {
		t.Errorf("of %d packets %d are written, %d durable", len(frames), s.Written.Packets, s.Durable.Packets)
	}
	captures.Readable(t, name)
	cutBlocks(t, out.Bytes())
	closeAudited(t, l.daemon) // the pages are for one region
	g := l.start(t, l.defaults("packed"), Options{}).Flows()[0]
	l.send(t, g, frames)
	testenv.Must(t, g.Stop())
	samePackets(t, "the stream", captures.Packets(t, name), captures.Packets(t, l.files(t)...))
}

// brokenPipe accepts the head of a stream and fails every later write.
type brokenPipe struct{ writes int }

func (b *brokenPipe) Write(p []byte) (int, error) {
	if b.writes++; b.writes > 1 {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

// TestStreamThatBreaks: when a write to the stream fails, the flow fails with that error, and no frame is
// lost.
func TestStreamThatBreaks(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	d := l.start(t, l.defaults("packed"), Options{Stream: &brokenPipe{}})
	f := d.Flows()[0]
	testenv.SendRaw(t, &l.A, testenv.Stream(&l.A, &l.B, 9, 0, 100, 400), testenv.SendOptions{})
	s := await(t, f, "the flow to fail", func(s status.Flow) bool { return s.State == status.Failed })
	if !strings.Contains(s.Error, io.ErrClosedPipe.Error()) {
		t.Errorf("it failed with %q", s.Error)
	}
	if count, err := d.Region().Audit(); err != nil {
		t.Errorf("frames: %v %v", count, err)
	}
}

// TestFlowsDoNotDisturbEachOther runs a slot and a packed flow of different
// interfaces over one region, and stops and starts one while the other loses
// nothing.
func TestFlowsDoNotDisturbEachOther(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	other := l.addPair(t)
	text := fmt.Sprintf(`
region: {size: 96MiB}
workers: [{name: one}, {name: two}]
flows:
  - name: first
    worker: one
    from: {interface: %s, ring: 2048}
    to: {file: %s/first, layout: slot, segment: {size: 16MiB}, flush: 50ms, durable: 100ms}
  - name: second
    worker: %%s
    from: {interface: %s, ring: 1024}
    to: {file: %s/second, layout: packed, segment: {size: 16MiB}, flush: 50ms, durable: 100ms}
`, l.B.Ifname, l.dir, other[1].Ifname, l.dir)
	for _, worker := range some("one", "two") {
		t.Run("worker "+worker, func(t *testing.T) { l.undisturbed(t, fmt.Sprintf(text, worker), &other[0]) })
	}
}

// addPair connects the lab's namespaces by another veth pair.
func (l *lab) addPair(t *testing.T) (ends [2]testenv.End) {
	t.Helper()
	ends[0], ends[1] = l.A, l.B
	ends[0].Ifname, ends[1].Ifname = l.A.Ifname+"x", l.B.Ifname+"x"
	l.A.Run(t, "ip", "link", "add", ends[0].Ifname, "type", "veth", "peer", "name", ends[1].Ifname, "netns", l.B.Name)
	t.Cleanup(func() { ends[0].Delete(t) }) // the namespaces of cards outlive the test
	for i := range ends {
		ends[i].Run(t, "ip", "link", "set", ends[i].Ifname, "up")
	}
	var link *net.Interface
	var err error
	l.A.Do(t, func() { link, err = net.InterfaceByName(ends[0].Ifname) })
	testenv.Must(t, err)
	ends[0].Index = link.Index
	return ends
}

func (l *lab) undisturbed(t *testing.T, text string, second *testenv.End) {
	for _, old := range l.files(t) {
		os.Remove(old)
	}
	d := l.start(t, text, Options{})
	first, err := d.Flow("first")
	testenv.Must(t, err)
	f2 := d.Flows()[1]
	frames := testenv.Stream(&l.A, &l.B, 9, 0, 6000, 600)
	background(t, testenv.NewSender(t, second), frames[0])
	for i := range 3 {
		l.send(t, first, frames[i*2000:(i+1)*2000])
		await(t, f2, "traffic of the other flow", func(s status.Flow) bool { return s.Packets > 0 })
		testenv.Must(t, f2.Stop())
		if s := f2.Status(); s.Packets == 0 || s.Durable.Packets != s.Packets || s.State != status.Stopped {
			t.Errorf("the stopped flow had %d packets, %d durable, and is %s", s.Packets, s.Durable.Packets, s.State)
		}
		l.send(t, first, frames[:500])
		l.begin(t, f2.Start)
	}
	for _, f := range d.Flows() {
		testenv.Must(t, f.Stop())
	}
	s := first.Status()
	balanced(t, s, 7500)
	if s.Packets != 7500 || s.Durable.Packets != 7500 || s.CopiedBytes["multi_frame"] != 0 {
		t.Errorf("of 7500 packets %d were received, %d are durable", s.Packets, s.Durable.Packets)
	}
	blocksOf(t, l.files(t)...)
	closeAudited(t, d) // the pages are for one region
}

// background sends a packet every millisecond until the function it returns is
// called, or the test ends.
func background(t *testing.T, sender *testenv.Sender, frame []byte) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			_, _ = sender.Send(frame)
			select {
			case <-quit:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	stop = sync.OnceFunc(func() { close(quit); <-done })
	t.Cleanup(stop)
	return stop
}
