package flows

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	library "github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// here returns a configuration of a flow from end B to the program reader. The program's memory has 2048 frames.
func (l *lab) here(to string) string {
	return fmt.Sprintf(`
region: {size: 64MiB}
attach: {socket: %s/attach.sock, programs: [{name: reader, user: "%d", in: 8MiB}]}
flows:
  - name: md
    from: {interface: %s, ring: 512, filter: udp dst port 5000}
    to: {attach: reader, queue: 512, %s}
`, l.dir, os.Getuid(), l.B.Ifname, to)
}

// receiver attaches as the program reader, and opens the flow md.
func (l *lab) receiver(t *testing.T) (*library.Client, *library.Receiver) {
	t.Helper()
	k, err := library.Attach(library.Config{Socket: filepath.Join(l.dir, "attach.sock"), Name: "reader"})
	testenv.Must(t, err)
	r, err := k.Receive("md", 0)
	testenv.Must(t, err)
	return k, r
}

// get takes n packets, which stay the program's.
func get(t *testing.T, r *library.Receiver, n int) (all []library.Message) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(20*time.Second))
	defer cancel()
	for len(all) < n {
		batch := make([]library.Message, min(64, n-len(all)))
		k, err := r.Poll(batch)
		testenv.Must(t, err)
		all = append(all, batch[:k]...)
		if k > 0 {
			continue
		}
		if err := r.Wait(ctx, time.Second); err != nil {
			t.Fatalf("after %d of %d packets: %v", len(all), n, err)
		}
	}
	return all
}

// marked returns a packet that has a mark, and the mark.
func (l *lab) marked(port uint16, i int) (frame, mark []byte) {
	mark = fmt.Appendf(nil, "packet %d for port %d, which nothing else says", i, port)
	frame = testenv.UDP(&l.A, &l.B, port, uint64(i), 400)
	copy(frame[200:], mark)
	return frame, mark
}

// TestHere: packets land in the program's memory, and the program gets them from there. Each is in the region once
// and lies where only the kernel puts packets, so nothing of ours has copied it. Packets that the filter leaves to
// the host come there only with zero copy. With place: copy each is there twice: that is the test of the test.
func TestHere(t *testing.T) {
	for _, place := range []string{"here", "copy"} {
		t.Run(place, func(t *testing.T) {
			l := newLab(t, testenv.PairOptions{NoAddresses: true})
			to := "policy: wait, place: " + place
			if place == "here" {
				to += ", expose: true"
			}
			f := l.start(t, l.here(to), Options{}).Flows()[0]
			k, r := l.receiver(t)
			defer k.Close()
			in := l.daemon.Region().Slice("reader").In
			before := l.daemon.Region().Snapshot()
			if place == "here" && before.Of(umem.OwnerPool) != l.daemon.Region().Frames()-before.Of(umem.OwnerXDP)-before.Of(umem.OwnerWorker)-before.Of(umem.OwnerNVMe) {
				t.Errorf("before: %v", before)
			}
			const n = 300
			var sent, marks, others [][]byte
			for i := range n {
				frame, mark := l.marked(5000, i)
				other, left := l.marked(6000, i)
				sent, marks, others = append(sent, frame, other), append(marks, mark), append(others, left)
			}
			l.send(t, f, sent)
			got := get(t, r, n)
			lands := map[string]uintptr{"here": umem.PacketHeadroom, "copy": 28}[place]
			for i := range got {
				if !bytes.Equal(got[i].Data, sent[2*i]) || got[i].Position != uint64(i+1) {
					t.Fatalf("packet %d, number %d: % x", i, got[i].Position, got[i].Data)
				}
				if at := inFrame(&got[i]); at != lands {
					t.Fatalf("packet %d is %d bytes behind the start of its frame, want %d", i, at, lands)
				}
			}
			l.copies(t, place, in, marks, others)
			r.Release(got)
			l.send(t, f, sent)
			again := get(t, r, n)
			r.Release(again)
			s := f.Status()
			want := map[string]uint64{"here": 0, "copy": 2 * n * 400}[place]
			if s.CopiedBytes["attach"] != want || s.Gives.Messages != 2*n || s.Gives.Place != place || lost(s) != 0 {
				t.Errorf("copied %v, want %d; %+v; lost %v", s.CopiedBytes, want, *s.Gives, s.Dropped)
			}
			testenv.Check(t, r.Close())
		})
	}
}

// copies checks how often packets are in the region.
func (l *lab) copies(t *testing.T, place string, in *umem.Part, marks, others [][]byte) {
	t.Helper()
	all := l.daemon.Region().Data()
	theirs := all[in.Base() : in.Base()+in.Size()]
	for _, i := range []int{0, len(marks) / 2, len(marks) - 1} {
		there, anywhere := bytes.Count(theirs, marks[i]), bytes.Count(all, marks[i])
		if there != 1 || anywhere != map[string]int{"here": 1, "copy": 2}[place] {
			t.Errorf("packet %d is in the program's memory %d times, in the region %d times", i, there, anywhere)
		}
	}
	exposed := bytes.Count(theirs, []byte("for port 6000"))
	if want := place == "here" && granted.zeroCopy; (exposed > 0) != want {
		t.Errorf("the program's memory has %d of %d packets that the filter leaves to the host, with zero copy: %v", exposed, len(others), granted.zeroCopy)
	}
}

// TestHereHeld: a program that gives nothing back has all frames in the end. Then the fill rings are empty, and the
// kernel loses packets, which are counted with their reason. When it gives them back, or goes, packets come again.
func TestHereHeld(t *testing.T) {
	for policy, reason := range map[string]string{"wait": "", "drop_newest": "slow_program", "drop_oldest": "slow_program", "disconnect": ""} {
		t.Run(policy, func(t *testing.T) {
			l := newLab(t, testenv.PairOptions{NoAddresses: true})
			f := l.start(t, l.here("place: here, expose: true, policy: "+policy), Options{}).Flows()[0]
			k, r := l.receiver(t)
			defer func() { _ = k.Close() }() // the daemon may have ended it
			frames := testenv.Stream(&l.A, &l.B, 5000, 0, 4000, 200)
			testenv.SendRaw(t, &l.A, frames, testenv.SendOptions{Rate: 20000})
			s := l.counted(t, f)
			if s.Gives.Messages != 512 || s.Gives.Frames != 512 && policy != "disconnect" {
				t.Errorf("%+v", *s.Gives)
			}
			kernel := s.Dropped["lost_no_frames"] + s.Dropped["lost_ring_full"] + s.Dropped["lost_missed"] + s.Dropped["lost_driver"]
			if policy == "wait" && kernel == 0 || reason != "" && s.Dropped[reason] == 0 {
				t.Errorf("lost: %v", s.Dropped)
			}
			if policy == "disconnect" {
				if s.Dropped["no_program"] == 0 || s.Gives.Open {
					t.Errorf("open %v, lost %v", s.Gives.Open, s.Dropped)
				}
				return
			}
			held := get(t, r, 512)
			for i := range held {
				if !bytes.Equal(held[i].Data, frames[i]) {
					t.Fatalf("packet %d has changed while the program had it: % x", i, held[i].Data)
				}
			}
			r.Release(held)
			await(t, f, "the frames to be back", func(s status.Flow) bool { return s.Gives.Released == 512 })
			drain(t, r, f)
			before := f.Status().Gives.Messages
			l.send(t, f, frames[:100])
			r.Release(get(t, r, 100))
			if n := f.Status().Gives.Messages - before; n != 100 {
				t.Errorf("%d packets came after that", n)
			}
			l.counted(t, f)
		})
	}
}

// drain takes what the flow still has for the program.
func drain(t *testing.T, r *library.Receiver, f *Flow) {
	t.Helper()
	batch := make([]library.Message, 64)
	for idle := 0; idle < 20; {
		n, err := r.Poll(batch)
		testenv.Must(t, err)
		r.Release(batch[:n])
		if idle++; n > 0 {
			idle = 0
			continue
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// counted waits until every packet that was sent is accounted for.
func (l *lab) counted(t *testing.T, f *Flow) status.Flow {
	t.Helper()
	offered := l.offered(t)
	s := await(t, f, "every packet to be accounted for", func(s status.Flow) bool { return s.Offered >= offered && s.Missing == 0 })
	time.Sleep(50 * time.Millisecond) // what is received may still be given
	s = f.Status()
	dropped := maps.Clone(s.Dropped)
	afterwards := dropped["slow_program"] + dropped["no_program"] + dropped["too_long"]
	sum := s.Packets + s.Waiting + lost(s) - afterwards
	for _, n := range s.Passed {
		sum += n
	}
	if sum != s.Offered || s.Offered != offered {
		t.Errorf("%d packets are sent, %d offered, %d have a reason: %+v", offered, s.Offered, sum, s)
	}
	return s
}

// TestHereLong: a packet of several frames is lost with its reason, since a program gets one frame with each packet,
// and those before and after it come.
func TestHereLong(t *testing.T) {
	l := newLab(t, testenv.PairOptions{MTU: 9000, NoAddresses: true})
	f := l.start(t, l.here("place: here, expose: true, policy: wait"), Options{}).Flows()[0]
	k, r := l.receiver(t)
	defer k.Close()
	var frames [][]byte
	for i := range 30 {
		frames = append(frames, testenv.UDP(&l.A, &l.B, 5000, uint64(i), []int{400, 8000, 3000}[i%3]))
	}
	l.send(t, f, frames)
	got := get(t, r, 20)
	for i := range got {
		if want := frames[i/2*3+i%2*2]; !bytes.Equal(got[i].Data, want) || got[i].Position != uint64(i/2*3+i%2*2+1) {
			t.Fatalf("packet %d, number %d, has %d bytes, want %d", i, got[i].Position, len(got[i].Data), len(want))
		}
	}
	r.Release(got)
	if s := l.counted(t, f); s.Dropped["too_long"] != 10 || lost(s) != 10 {
		t.Errorf("lost %v", s.Dropped)
	}
}

// TestHereAllocatesNothing: giving packets from where they landed allocates nothing.
func TestHereAllocatesNothing(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	d := l.open(t, l.here("place: here, expose: true, policy: wait"), Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var r *pipeline.Run
	var err error
	l.B.Do(t, func() { r, err = d.Flows()[0].open() })
	testenv.Must(t, err)
	poll := func() bool { return r.Flow.Poll(time.Now()) }
	defer func() { endRun(t, r, poll) }()
	testenv.Must(t, r.Flow.Begin())
	k, from := l.receiver(t)
	ordered := func() { // the race detector sees that the worker's steps for the session and the test's follow each other
		if err := d.Flows()[0].worker.Do(func() error { return nil }); err != nil {
			t.Error(err)
		}
	}
	ordered()
	defer func() {
		ordered()
		testenv.Check(t, k.Close())
		testenv.Wait(t, testenv.Within(5*time.Second), "the program to be gone", func() bool { return !d.Status().Programs.Programs[0].Attached })
		ordered()
	}()
	l.Carry(t)
	sender := testenv.NewSender(t, &l.A)
	frames := testenv.Stream(&l.A, &l.B, 5000, 0, 64, 300)
	batch, total := make([]library.Message, 64), 0
	round := func() {
		for _, f := range frames {
			if _, err := sender.Send(f); err != nil {
				t.Fatal(err)
			}
		}
		for end := time.Now().Add(time.Second); time.Now().Before(end); {
			poll()
			n, err := from.Poll(batch)
			testenv.Must(t, err)
			from.Release(batch[:n])
			if total += n; total%64 == 0 && n > 0 {
				break
			}
		}
	}
	for range 50 {
		round()
	}
	if n := testenv.AllocsPerRun(t, 200, round); n >= 1 || total != 251*64 {
		t.Errorf("giving 64 packets allocates %v times; %d packets came", n, total)
	}
}
