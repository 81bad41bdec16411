package group

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/unifiedd/unifiedd/selftests/harness"
)

// readers read the members' files while the group runs, as people do: with `unifiedd log read`. It reads
// a member that is stopped, cut off or dead, too.
type readers struct {
	paths []string // of the members' logs
	asks  func() string

	mu    sync.Mutex
	reads []reading
	known [][]record // by member: the longest that was read, so that reads share memory
	errs  []error

	stop    context.CancelFunc
	running sync.WaitGroup
}

// startReaders starts reading. asks returns the history file of a client that sends one message at a time.
func startReaders(paths []string, asks func() string, random *rand.Rand) *readers {
	r := &readers{paths: paths, asks: asks, known: make([][]record, len(paths))}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	for i := range paths {
		r.running.Go(func() { r.follow(ctx, i) })
	}
	random = rand.New(rand.NewPCG(random.Uint64(), 0))
	r.running.Go(func() {
		for n := 0; pause(ctx, 150*time.Millisecond); n++ {
			r.read(n % len(paths))
		}
	})
	r.running.Go(func() { r.upToNow(ctx, random) })
	return r
}

// end ends all readers and returns what they read.
func (r *readers) end() ([]reading, error) {
	r.stop()
	r.running.Wait()
	return r.reads, joined(r.errs)
}

// pause waits, and reports whether the readers go on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// note keeps a read.
func (r *readers) note(one reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := &r.known[one.member]
	if n := min(len(*known), len(one.saw)); slices.Equal((*known)[:n], one.saw[:n]) {
		*known = append(*known, one.saw[n:]...)
		one.saw = (*known)[:len(one.saw):len(one.saw)]
	}
	r.reads = append(r.reads, one)
}

func (r *readers) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

// read reads a member's files once.
func (r *readers) read(member int) (one reading, ok bool) {
	one = reading{member: member, began: harness.Monotonic()}
	var out, complaints bytes.Buffer
	c := exec.Command(program, "log", "read", r.paths[member])
	c.Stdout, c.Stderr = &out, &complaints
	err := c.Run()
	one.ended = harness.Monotonic()
	if err == nil {
		one.saw, err = parseRecords(out.String())
	}
	if err != nil {
		r.fail(fmt.Errorf("read the log of member %d: %w: %s", member+1, err, &complaints))
		return one, false
	}
	r.note(one)
	return one, true
}

// follow reads a member's files as they grow. What arrives together is one read.
func (r *readers) follow(ctx context.Context, member int) {
	began := harness.Monotonic()
	var complaints bytes.Buffer
	c := exec.CommandContext(ctx, program, "log", "read", "--follow", r.paths[member])
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.Stderr = &complaints
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		r.fail(err)
		return
	}
	var saw []record
	var text []byte
	for b := make([]byte, 64<<10); ; {
		n, err := out.Read(b)
		if err != nil {
			break
		}
		ended := harness.Monotonic()
		text = append(text, b[:n]...)
		whole := bytes.LastIndexByte(text, '\n') + 1
		more, err := parseRecords(string(text[:whole]))
		if err != nil {
			r.fail(fmt.Errorf("follow the log of member %d: %w", member+1, err))
		}
		text = slices.Delete(text, 0, whole)
		saw = append(saw, more...)
		r.note(reading{member: member, began: began, ended: ended, saw: slices.Clip(saw)})
	}
	if err := c.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		r.fail(fmt.Errorf("follow the log of member %d: %w: %s", member+1, err, &complaints))
	}
}

// upToNow reads what is in the log up to now: it waits until a client has appended a message, and reads
// the files of any member until the message is there. The read begins when the message is sent.
func (r *readers) upToNow(ctx context.Context, random *rand.Rand) {
	for last := int64(0); pause(ctx, 20*time.Millisecond); {
		name := r.asks()
		if name == "" {
			continue
		}
		all, err := parseHistory(name, 0)
		if err != nil {
			r.fail(err)
			return
		}
		all = slices.DeleteFunc(all, func(a appended) bool { return a.position == 0 })
		if len(all) == 0 || all[len(all)-1].invoked == last {
			continue
		}
		asked := all[len(all)-1]
		last = asked.invoked
		for shown := false; !shown && pause(ctx, 20*time.Millisecond); {
			one, ok := r.read(random.IntN(len(r.paths)))
			if !ok || len(one.saw) == 0 || one.saw[len(one.saw)-1].position < asked.position {
				continue
			}
			shown = true
			one.began, one.upToNow = asked.invoked, true
			r.note(one)
		}
	}
}

// parseRecords reads what `unifiedd log read` has printed.
func parseRecords(text string) (all []record, err error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		var r record
		if len(f) < 4 {
			return all, fmt.Errorf("unexpected line %q", line)
		}
		if _, err := fmt.Sscanf(f[0]+" "+f[2]+" "+f[3], "%d %x %d", &r.position, &r.session, &r.sequence); err != nil {
			return all, fmt.Errorf("unexpected line %q: %w", line, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// parseHistory reads a file of `unified-flow-test append -history`. The last line of a killed client may
// be incomplete.
func parseHistory(name string, session uint64) (all []appended, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	done := 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break
		}
		var number, position uint64
		var at int64
		if n, _ := fmt.Sscanf(line, "acknowledged %d %d %d", &number, &at, &position); n == 3 && number > uint64(done) && number <= uint64(len(all)) {
			for ; done < int(number); done++ {
				all[done].acknowledged = at
			}
			all[done-1].position = position
			continue
		}
		if n, _ := fmt.Sscanf(line, "invoked %d %d", &number, &at); n != 2 || number != uint64(len(all))+1 {
			return all, fmt.Errorf("%s: unexpected line %q", filepath.Base(name), line)
		}
		all = append(all, appended{id: id{session, number}, invoked: at})
	}
	return all, nil
}
