package soak

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/umem"
)

// party describes a program at the other end of flows. It runs its jobs concurrently over one RDMA device.
type party struct {
	Memory uint64
	Jobs   []job
}

// job is one task that a party performs until it is told to end. Kind is append, receive or read.
type job struct {
	Name, Kind string
	Address    string
	Flow       string
	Seed       uint64
	Size       int
	Rate       float64 // messages or requests a second
	Depth      int     // messages in flight; for receive, from each sender
	Packets    bool    // received messages are packets of testenv
	Lossy      bool    // received messages may have gaps
	Write      bool    // peers write messages (RDMA WRITE) instead of sending them
}

// tally is the progress of a job.
type tally struct {
	Messages uint64 // sent; or received or read, with every byte verified
	Done     uint64 // sent messages that are acknowledged
	Last     uint64 // highest number received
	Missing  uint64 // numbers missing before Last
	Repeated uint64 // numbers received again
	Refused  uint64 // requests that the server could not serve
	Broken   uint64 // connections that ended
	Ended    bool   // without an error
	Error    string `json:",omitempty"` // why the job failed
}

// work is a running job.
type work struct {
	job
	client *client.Client
	ctx    context.Context // ends when the job is to end
	end    context.CancelFunc
	slow   atomic.Bool // receive only a few messages a second
	mu     sync.Mutex  // guards the rest
	now    tally
}

func (w *work) note(f func(*tally)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.now)
}

func (w *work) tally() tally {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// sayEvery is how often a party prints its tallies.
const sayEvery = 100 * time.Millisecond

// beParty is the party's program. It runs the jobs, prints their tallies on standard output, and
// reads orders from standard input. It returns the exit status.
func beParty(text string) int {
	var p party
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	k, err := client.Open(client.Config{Device: "roce:" + roce, Memory: p.Memory, Pages: umem.Ordinary, Queue: 256, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	all := map[string]*work{}
	var working sync.WaitGroup
	for _, j := range p.Jobs {
		w := &work{job: j, client: k}
		w.ctx, w.end = context.WithCancel(context.Background())
		all[j.Name] = w
		working.Go(w.run)
	}
	go obey(all)
	over := make(chan struct{})
	go func() { working.Wait(); close(over) }()
	say(all, over)
	if err := k.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// say prints the tallies at intervals, and once more at the end.
func say(all map[string]*work, over chan struct{}) {
	out := json.NewEncoder(os.Stdout)
	for last := false; ; {
		now := map[string]tally{}
		for name, w := range all {
			now[name] = w.tally()
		}
		_ = out.Encode(now) // the test may have closed the pipe
		if last {
			return
		}
		select {
		case <-over:
			last = true
		case <-time.After(sayEvery):
		}
	}
}

// obey executes orders: a verb and a job's name. When standard input ends, it ends all jobs.
func obey(all map[string]*work) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		order, name, _ := strings.Cut(in.Text(), " ")
		w := all[name]
		if w == nil {
			continue
		}
		switch order {
		case "end":
			w.end()
		case "slow":
			w.slow.Store(true)
		case "fast":
			w.slow.Store(false)
		}
	}
	for _, w := range all {
		w.end()
	}
}

// run runs the job and records its error.
func (w *work) run() {
	err := map[string]func() error{"append": w.append, "receive": w.receive, "read": w.read}[w.Kind]()
	w.note(func(t *tally) {
		if t.Ended = err == nil; err != nil {
			t.Error = err.Error()
		}
	})
}

// pace keeps the job's rate, and catches up if the job is late. It reports whether to continue.
func (w *work) pace(begin time.Time, n uint64) bool {
	early := time.Until(begin.Add(time.Duration(float64(n) / w.Rate * float64(time.Second))))
	if early < time.Millisecond {
		return w.ctx.Err() == nil
	}
	select {
	case <-time.After(max(early, 5*time.Millisecond)): // one wake-up for several messages
		return true
	case <-w.ctx.Done():
		return false
	}
}
