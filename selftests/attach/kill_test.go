package attach

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

var noLimit = context.Background()

// kills is how often programs and the daemon are killed.
func kills(t *testing.T) int {
	if n, err := strconv.Atoi(os.Getenv("UNIFIEDD_KILLS")); err == nil {
		return n
	}
	return 20
}

// freed returns how long after the end of a process its frames may be with it. In the short form other tests run on
// the same processors.
func freed() time.Duration {
	if os.Getenv("UNIFIEDD_KILLS") == "" {
		return testenv.Within(time.Second)
	}
	return testenv.Within(100 * time.Millisecond)
}

// bed is a daemon with a flow from and a flow to a program, and the programs.
type bed struct {
	*testing.T
	*rand.Rand
	dir, text string
	daemon    *daemon.Daemon
	session   uint64
	programs  map[string]*running
}

// running is a running program.
type running struct {
	*exec.Cmd
	said  *bytes.Buffer
	ended chan struct{}
}

func newBed(t *testing.T) *bed {
	seed := setting.Seed(t)
	b := &bed{T: t, Rand: rand.New(rand.NewPCG(seed, 1)), dir: t.TempDir(), session: seed | 1, programs: map[string]*running{}}
	b.text = fmt.Sprintf(`
region: {size: 32MiB, pages: ordinary}
workers: [{name: main}]
attach:
  socket: %s
  programs:
    - {name: writer, user: "%d", out: 4MiB}
    - {name: reader, user: "%[2]d", in: 4MiB}
flows:
  - {name: orders, from: {attach: writer, message: 1KiB}, to: {file: %s/orders, acknowledge: written, segment: {size: 8MiB}}}
  - {name: md, from: {generate: 200, rate: 20000}, to: {attach: reader}}
`, b.socket(), os.Getuid(), b.dir)
	b.start()
	return b
}

func (b *bed) socket() string { return filepath.Join(b.dir, "attach.sock") }

// start starts the daemon.
func (b *bed) start() {
	b.Helper()
	b.daemon = daemon.Launch(b.T, program, daemon.Here{}, b.dir, b.text)
	b.daemon.Running(b.T)
}

// launch starts a program.
func (b *bed) launch(name string, args ...string) {
	b.Helper()
	self, err := os.Executable()
	testenv.Must(b, err)
	p := &running{Cmd: exec.Command(self, append([]string{b.socket()}, args...)...), said: new(bytes.Buffer), ended: make(chan struct{})}
	p.Env, p.Stderr = append(os.Environ(), role+"="+name), p.said
	testenv.Must(b, p.Start())
	go func() { _ = p.Wait(); close(p.ended) }() // how it ends is in said
	b.programs[name] = p
	b.Cleanup(func() { _ = p.Process.Kill(); <-p.ended })
}

func (b *bed) writer() {
	b.launch("writer", "orders", filepath.Join(b.dir, "done"), strconv.FormatUint(b.session, 10))
}

func (b *bed) reader() { b.launch("reader", "md") }

// kill kills a program, and checks that the flow has all its frames soon.
func (b *bed) kill(name string) {
	b.Helper()
	p := b.programs[name]
	select {
	case <-p.ended:
		b.Fatalf("the %s has ended by itself: %s\n%s", name, p.said, b.daemon.Log)
	default:
	}
	_ = p.Process.Kill() // it runs
	<-p.ended
	killed := time.Now()
	s := b.daemon.Until(b.T, "the frames of the "+name, func(s *status.Daemon) bool {
		for _, one := range s.Programs.Programs {
			if one.Name == name && one.Attached {
				return false
			}
		}
		f := flowOf(s, name)
		return f.Gives != nil && f.Gives.Frames == 0 || f.Submits != nil && f.Submits.Frames == 0
	})
	if took := time.Since(killed); took > freed() {
		b.Errorf("the frames of the %s were back after %v", name, took)
	}
	b.sum(&s)
}

// sum checks that the owners' counts add up to the region's frames.
func (b *bed) sum(s *status.Daemon) {
	b.Helper()
	n := int64(0)
	for _, frames := range s.Region.Owners {
		n += frames
	}
	if n != s.Region.Frames {
		b.Errorf("the owners have %d frames of %d: %v", n, s.Region.Frames, s.Region.Owners)
	}
}

func flowOf(s *status.Daemon, name string) *status.Flow {
	for i := range s.Flows {
		if s.Flows[i].Name == map[string]string{"writer": "orders", "reader": "md"}[name] {
			return &s.Flows[i]
		}
	}
	return &status.Flow{}
}

// done returns how many messages the writer knows to be done.
func (b *bed) done() uint64 {
	data, err := os.ReadFile(filepath.Join(b.dir, "done"))
	if err != nil || len(data) < 8 {
		return 0
	}
	return binary.NativeEndian.Uint64(data)
}

// progress waits until the writer gets more messages done. If it does not, the log has what the writer and the daemon do.
func (b *bed) progress() {
	b.Helper()
	before, went, w := b.done(), false, b.programs["writer"]
	defer func() {
		if !went {
			_ = w.Process.Signal(syscall.SIGQUIT) // it says where its goroutines are
			<-w.ended
			s, err := b.daemon.Status()
			b.Logf("%d messages are done; the writer: %s\nthe flow: %+v, %v\nthe daemon: %s", b.done(), w.said, flowOf(&s, "writer"), err, b.daemon.Log)
		}
	}()
	testenv.Wait(b.T, time.Minute, "the writer to go on", func() bool {
		select {
		case <-w.ended:
			b.Fatal("the writer has ended by itself")
		default:
		}
		went = b.done() > before
		return went
	})
}

// TestKilledPrograms: programs are killed at random moments, also while they attach. Their frames are with the
// flow soon, the sum of the owners is exact, and each message is in the log once.
func TestKilledPrograms(t *testing.T) {
	testenv.Long(t, "programs are killed again and again")
	b := newBed(t)
	b.writer()
	b.reader()
	for range kills(t) {
		time.Sleep(time.Duration(b.Int64N(int64(60 * time.Millisecond))))
		if b.IntN(2) == 0 {
			b.kill("writer")
			b.writer()
		} else {
			b.kill("reader")
			b.reader()
		}
	}
	b.progress()
	b.finish()
}

// TestKilledDaemon: the daemon is killed at random moments under load. The programs attach again by themselves, and
// each message is in the log once.
func TestKilledDaemon(t *testing.T) {
	testenv.Long(t, "the daemon is killed again and again")
	b := newBed(t)
	b.writer()
	b.reader()
	for range kills(t) {
		b.progress()
		time.Sleep(time.Duration(b.Int64N(int64(30 * time.Millisecond))))
		b.daemon.Kill()
		b.start()
	}
	b.progress()
	b.finish()
}

// finish ends everything, and reads the log.
func (b *bed) finish() {
	b.Helper()
	b.kill("writer")
	b.kill("reader")
	s, err := b.daemon.Status()
	testenv.Must(b, err)
	if n := s.Region.Owners["attached"]; n != 0 {
		b.Errorf("no program is attached, and programs have %d frames", n)
	}
	b.sum(&s)
	b.daemon.Terminate(b.T)
	l, err := journal.Open(filepath.Join(b.dir, "orders"))
	testenv.Must(b, err)
	defer l.Close()
	r := l.Reader(1)
	defer r.Close()
	last := uint64(0)
	for {
		one, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			b.Fatalf("after %d records: %v", last, err)
		}
		last++
		var want [1024]byte
		n := fill(want[:], last)
		if one.Session != b.session || one.Sequence != last || one.Position != last || !bytes.Equal(one.Payload, want[:n]) {
			b.Fatalf("record %d is message %d of session %d at position %d, with %d bytes", last, one.Sequence, one.Session, one.Position, len(one.Payload))
		}
	}
	if known := b.done(); last < known {
		b.Errorf("the log has %d messages, and %d were done", last, known)
	}
	b.Logf("%d messages, %d of them known to be done, each once", last, b.done())
}
