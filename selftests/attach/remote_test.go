package attach

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

func init() {
	roles["channel-writer"], roles["channel-reader"] = writeChannel, readChannel
}

// seen is what a program of a channel keeps in a file: a writer its last sequence, a reader also what it has got and lost.
type seen struct{ last, got, lost uint64 }

func (s seen) keep(f *os.File) error {
	var b [24]byte
	binary.NativeEndian.PutUint64(b[:], s.last)
	binary.NativeEndian.PutUint64(b[8:], s.got)
	binary.NativeEndian.PutUint64(b[16:], s.lost)
	_, err := f.WriteAt(b[:], 0)
	return err
}

// keptIn reads what a program has kept in a file.
func keptIn(path string) (s seen) {
	b, err := os.ReadFile(path)
	if err != nil || len(b) < 24 {
		return s
	}
	return seen{binary.NativeEndian.Uint64(b), binary.NativeEndian.Uint64(b[8:]), binary.NativeEndian.Uint64(b[16:])}
}

// writeChannel writes messages until it is killed, also over ends of the daemon.
func writeChannel(args []string) error {
	rate, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	file, err := os.OpenFile(args[1], os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	k, err := attempts(args[0], "writer", 0)
	if err != nil {
		return err
	}
	w, err := opened(&k, args[0], "writer", 0, func() (*attached.ChannelWriter, error) { return k.WriteChannel("book") })
	if err != nil {
		return err
	}
	var b [112]byte
	begun, written := time.Now(), 0
	for {
		n, err := w.WriteWait(noLimit, message(b[:], w.Next()))
		if err == nil {
			err = w.Err()
		}
		if err != nil {
			if err := w.Resume(noLimit); err != nil {
				return err
			}
			continue
		}
		if err := (seen{last: n}).keep(file); err != nil {
			return err
		}
		for written++; rate > 0 && time.Since(begun) < time.Duration(written)*time.Second/time.Duration(rate); {
			time.Sleep(50 * time.Microsecond)
		}
	}
}

// readChannel reads messages until it is killed. It ends with an error for a message that is torn, comes twice, or does
// not follow from those that it has got and lost.
func readChannel(args []string) error {
	file, err := os.OpenFile(args[1], os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	k, err := attempts(args[0], "reader", 0)
	if err != nil {
		return err
	}
	r, err := opened(&k, args[0], "reader", 0, func() (*attached.ChannelReader, error) { return k.ReadChannel("book") })
	if err != nil {
		return err
	}
	buffer := make([]byte, r.Longest())
	var s seen
	for before := uint64(0); ; {
		n, sequence, ok, err := r.Read(buffer)
		if err != nil || !ok {
			if err := r.Wait(noLimit, 20*time.Millisecond); err != nil {
				return err
			}
			continue
		}
		s.last, s.got, s.lost = sequence, s.got+1, r.Lost()
		if s.got == 1 {
			before = sequence - s.lost - 1
		}
		if err := torn(buffer[:n], sequence); err != nil {
			return err
		}
		if sequence-before != s.got+s.lost {
			return fmt.Errorf("message %d is the %dth since %d, and %d were got and %d lost", sequence, sequence-before, before, s.got, s.lost)
		}
		if err := s.keep(file); err != nil {
			return err
		}
	}
}

// machines are two daemons in namespaces of their own: a has the writer of a channel and b its reader.
type machines struct {
	*testing.T
	*testenv.Pair
	dirs     [2]string
	texts    [2]string
	daemons  [2]*daemon.Daemon
	programs [2]*running
}

func newMachines(t *testing.T, peerPolicy, readerPolicy string, slots int) *machines {
	t.Helper()
	testenv.Root(t)
	m := &machines{T: t, Pair: testenv.NewPair(t, testenv.PairOptions{}), dirs: [2]string{t.TempDir(), t.TempDir()}}
	m.texts[0] = fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary}
workers: [{name: main}]
attach:
  socket: %s
  programs: [{name: writer, user: "%d"}]
  channels: [{name: book, writer: writer, slots: %d, slot: 128}]
flows:
  - {name: out, from: {channel: book}, to: {rdma: "roce:%s", peers: [{name: b, address: "%s:7471", policy: %s}]}}
`, m.socket(0), os.Getuid(), slots, m.A.Ifname, m.B.IP, peerPolicy)
	m.texts[1] = fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary}
workers: [{name: main}]
attach:
  socket: %s
  programs: [{name: reader, user: "%d"}]
  channels: [{name: book, readers: [{program: reader, policy: %s}], slots: %d, slot: 128}]
flows:
  - {name: in, from: {rdma: "roce:%s", listen: "%s:7471"}, to: {channel: book}}
`, m.socket(1), os.Getuid(), readerPolicy, slots, m.B.Ifname, m.B.IP)
	m.start(0)
	m.start(1)
	return m
}

func (m *machines) socket(i int) string { return filepath.Join(m.dirs[i], "attach.sock") }

// start starts a daemon. It does not wait for its flow: that of the writer may have no peer.
func (m *machines) start(i int) {
	m.Helper()
	m.daemons[i] = daemon.Launch(m.T, program, []*testenv.End{&m.A, &m.B}[i], m.dirs[i], m.texts[i])
	m.daemons[i].Until(m.T, "the daemon to answer", func(s *status.Daemon) bool { return s.Programs != nil })
}

// run starts a program.
func (m *machines) run(i int, args ...string) {
	m.Helper()
	self, err := os.Executable()
	testenv.Must(m, err)
	p := &running{Cmd: exec.Command(self, append([]string{m.socket(i), m.file(i)}, args...)...), said: new(bytes.Buffer), ended: make(chan struct{})}
	p.Env, p.Stderr = append(os.Environ(), role+"="+[]string{"channel-writer", "channel-reader"}[i]), p.said
	testenv.Must(m, p.Start())
	go func() { _ = p.Wait(); close(p.ended) }() // how it ends is in said
	m.programs[i] = p
	m.Cleanup(func() { _ = p.Process.Kill(); <-p.ended })
}

func (m *machines) file(i int) string { return filepath.Join(m.dirs[i], "seen") }

func (m *machines) kill(i int) {
	_ = m.programs[i].Process.Kill() // it may have ended
	<-m.programs[i].ended
}

// progress waits until the reader has got messages that were written from now on.
func (m *machines) progress(what string, messages uint64) {
	m.Helper()
	from := keptIn(m.file(0)).last
	end := time.Now().Add(testenv.Within(30 * time.Second))
	for keptIn(m.file(1)).last < from+messages {
		for i, p := range m.programs {
			select {
			case <-p.ended:
				m.Fatalf("%s: program %d has ended: %s", what, i, p.said)
			default:
			}
		}
		if time.Now().After(end) {
			m.Fatalf("%s: nothing new has come: written %+v, read %+v\n%s\n%s", what, keptIn(m.file(0)), keptIn(m.file(1)), m.daemons[0].Log, m.daemons[1].Log)
		}
		time.Sleep(5 * time.Millisecond)
	}
	m.Logf("%s: written %d, read %+v", what, keptIn(m.file(0)).last, keptIn(m.file(1)))
}

// channelOf returns the channel of a daemon's status.
func (m *machines) channelOf(i int) status.Channel {
	m.Helper()
	s, err := m.daemons[i].Status()
	testenv.Must(m, err)
	return s.Programs.Channels[0]
}

// lost returns what the sender to the peer has lost, by reason.
func (m *machines) lost() map[string]uint64 {
	m.Helper()
	s, err := m.daemons[0].Status()
	testenv.Must(m, err)
	return s.Flows[0].Sends.Peers[0].Dropped
}

// TestRemoteChannel: a reader on another machine gets every message once and whole, if both policies are wait. With
// drop_oldest it costs the writer nothing, and each gap is counted exactly: readChannel checks that for every message.
func TestRemoteChannel(t *testing.T) {
	for _, test := range []struct{ peer, reader string }{{"wait", "wait"}, {"drop_oldest", "wait"}, {"drop_oldest", "drop_oldest"}} {
		t.Run(test.peer+"-"+test.reader, func(t *testing.T) {
			if test.peer != test.reader {
				testenv.Long(t, "the other cases have each policy")
			}
			testenv.Leaks(t)
			m := newMachines(t, test.peer, test.reader, 256)
			m.run(0, "1000")
			m.run(1)
			m.progress("slowly", 500)
			m.kill(0)
			m.run(0, "0") // the next writer, as fast as it goes
			m.progress("as fast as it goes", 20000)
			s, c := keptIn(m.file(1)), m.channelOf(0)
			if lost := m.lost(); test.peer == "wait" && (s.lost > lost["gap"] || lost["passed"] > 0) { // gap: until it was connected
				t.Errorf("the reader has lost %d messages, and the sender %v", s.lost, lost)
			}
			if len(c.Readers) != 1 || !c.Readers[0].Remote || c.Readers[0].Program != "b" || !c.Readers[0].Reading || c.Readers[0].Blocks != (test.peer == "wait") {
				t.Errorf("the writer's daemon tells of the peer: %+v", c.Readers)
			}
			if test.peer == "drop_oldest" && c.Stalls > 0 {
				t.Errorf("the writer has waited %d times for a peer that costs it nothing", c.Stalls)
			}
			m.kill(0)
			m.kill(1)
			m.daemons[0].Terminate(t)
			m.daemons[1].Terminate(t)
		})
	}
}

// TestRemoteChannelConnectsLate: a writer that has written more than a ring when its peer connects waits from then on. What
// it writes over between the greeting and the connection is a gap, and nothing else is lost.
func TestRemoteChannelConnectsLate(t *testing.T) {
	testenv.Long(t, "TestRemoteChannel has a writer that is slow and one that is fast")
	testenv.Leaks(t)
	m := newMachines(t, "wait", "wait", 256)
	m.daemons[1].Terminate(t)
	m.run(0, "0")
	testenv.Wait(t, testenv.Within(30*time.Second), "some rings to be written", func() bool { return keptIn(m.file(0)).last > 2000 })
	m.start(1)
	m.run(1)
	m.progress("as fast as it goes", 20000)
	s, lost := keptIn(m.file(1)), m.lost() // no gap: the peer was connected before a ring was written
	if lost["passed"] > 0 || s.lost > lost["gap"] {
		t.Errorf("the reader has lost %d messages, and the sender %v", s.lost, lost)
	}
	t.Logf("the reader has lost %d messages, and the sender %v", s.lost, lost)
	m.kill(0)
	m.kill(1)
	m.daemons[0].Terminate(t)
	m.daemons[1].Terminate(t)
}

// TestRemoteChannelBreaks: the link is cut, and each of the four processes killed, while messages flow. Sequences go on,
// no message is torn or comes twice, and what is lost is counted exactly: readChannel checks that for every message.
func TestRemoteChannelBreaks(t *testing.T) {
	testenv.Long(t, "the processes are killed")
	testenv.Leaks(t)
	m := newMachines(t, "drop_oldest", "drop_oldest", 1024)
	m.run(0, "5000")
	m.run(1)
	m.progress("the beginning", 2000)
	lost := keptIn(m.file(1)).lost
	m.A.Run(t, "ip", "link", "set", m.A.Ifname, "down")
	time.Sleep(time.Second)
	m.A.Run(t, "ip", "link", "set", m.A.Ifname, "up")
	m.progress("after the link was cut", 2000)
	if s := keptIn(m.file(1)); s.lost-lost < 2000 {
		t.Logf("the cut lost %d messages of about 5000", s.lost-lost)
	}
	last := keptIn(m.file(0)).last
	m.kill(0)
	m.run(0, "5000")
	m.progress("after the writer was killed", 2000)
	if now := keptIn(m.file(0)).last; now < last+2000 {
		t.Errorf("the next writer is at %d, and the one before has written %d", now, last)
	}
	last = keptIn(m.file(0)).last
	m.daemons[0].Kill()
	m.start(0)
	m.progress("after the writer's daemon was killed", 2000)
	if now := keptIn(m.file(0)).last; now < last {
		t.Errorf("the sequences have gone back from %d to %d", last, now)
	}
	m.daemons[1].Kill()
	m.start(1)
	m.progress("after the reader's daemon was killed", 2000)
	m.kill(1)
	m.run(1)
	m.progress("after the reader was killed", 2000)
	m.kill(0)
	m.kill(1)
	m.daemons[0].Terminate(t)
	m.daemons[1].Terminate(t)
}

// TestRemoteChannelDisconnects: a peer with the policy disconnect that is too slow is cut off, and its readers are told.
func TestRemoteChannelDisconnects(t *testing.T) {
	testenv.Long(t, "flows/attach tests the policies")
	testenv.Leaks(t)
	m := newMachines(t, "disconnect", "wait", 64)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(60*time.Second))
	defer cancel()
	k, kr := attach(t, m.dirs[0], "writer", 0), attach(t, m.dirs[1], "reader", 0)
	w, err := k.WriteChannel("book")
	testenv.Must(t, err)
	var r *attached.ChannelReader
	testenv.Wait(t, testenv.Within(10*time.Second), "the channel to be connected", func() bool { r, err = kr.ReadChannel("book"); return err == nil })
	testenv.Wait(t, testenv.Within(10*time.Second), "the peer to read", func() bool { return w.Readers() == 1 })
	var b [112]byte
	for range 64 * 20 { // the reader reads nothing
		if _, err := w.WriteWait(ctx, message(b[:], w.Next())); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Microsecond)
	}
	buffer := make([]byte, r.Longest())
	for {
		_, _, ok, err := r.Read(buffer)
		if err == nil && !ok {
			err = r.Wait(ctx, time.Second)
		}
		if refused, is := errors.AsType[*attached.RefusedError](err); is && refused.Reason == "too_slow" {
			break
		}
		testenv.Must(t, err)
	}
	for _, c := range []interface{ Close() error }{w, r} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	m.daemons[0].Terminate(t)
	m.daemons[1].Terminate(t)
}
