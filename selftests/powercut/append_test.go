package powercut

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// appender is the argument that makes the test binary a client process.
const appender = "append"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == appender {
		if err := beClients(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// receipt is an acknowledgement: the client's messages up to this one are as safe as the log promises.
type receipt struct {
	Message
	position uint64 // of that message, or of a later one
}

// appending is a process that runs clients of a log.
type appending struct {
	receipts chan receipt // closed once all sent messages are acknowledged
	enough   func()       // makes the clients stop sending

	cmd  *exec.Cmd
	said bytes.Buffer
	last uint64 // highest position in any receipt
	err  error  // why the process ended, valid once receipts is closed
}

// appendTo starts clients at an end that append to a log. Each sends count messages. With count 0
// they send until enough is called.
func appendTo(t *testing.T, e *testenv.End, address, flow string, clients []uint32, count uint64) *appending {
	t.Helper()
	args := []string{appender, "roce:" + e.Ifname, address, flow, fmt.Sprint(count)}
	for _, c := range clients {
		args = append(args, fmt.Sprint(c))
	}
	a := &appending{receipts: make(chan receipt, 1024), cmd: e.Command(os.Args[0], args...)}
	a.cmd.Stderr = &a.said
	in, err := a.cmd.StdinPipe()
	testenv.Must(t, err)
	a.enough = func() { _ = in.Close() } // a second Close does nothing
	out, err := a.cmd.StdoutPipe()
	if err == nil {
		err = a.cmd.Start()
	}
	testenv.Must(t, err)
	t.Cleanup(func() { _ = a.cmd.Process.Kill() })
	go a.follow(out)
	return a
}

// follow passes on receipts until the process ends.
func (a *appending) follow(out io.Reader) {
	defer close(a.receipts)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var r receipt
		if _, err := fmt.Sscan(lines.Text(), &r.Client, &r.Number, &r.position); err != nil {
			a.err = errors.Join(a.err, fmt.Errorf("%q is no receipt: %w", lines.Text(), err))
			continue
		}
		a.last = max(a.last, r.position)
		a.receipts <- r
	}
	a.err = errors.Join(a.err, lines.Err(), a.cmd.Wait())
}

// await returns the remaining receipts. It fails the test if a sent message is not acknowledged.
func (a *appending) await(t *testing.T) (all []receipt) {
	t.Helper()
	for limit := time.After(testenv.Within(time.Minute)); ; {
		select {
		case r, open := <-a.receipts:
			if !open {
				if a.err != nil {
					t.Fatalf("clients: %v\n%s", a.err, &a.said)
				}
				return all
			}
			all = append(all, r)
		case <-limit:
			t.Fatal("the clients do not end")
		}
	}
}

// beClients is the client process. Its arguments are DEVICE ADDRESS FLOW COUNT CLIENT...
func beClients(args []string) error {
	count, err := strconv.ParseUint(args[3], 10, 64)
	if err != nil {
		return err
	}
	k, err := client.Open(client.Config{Device: args[0], Memory: 32 << 20, Pages: umem.Ordinary, Queue: 512})
	if err != nil {
		return err
	}
	ctx, enough := context.WithCancel(context.Background())
	defer enough()
	if count == 0 {
		go func() { _, _ = io.Copy(io.Discard, os.Stdin); enough() }()
	}
	errs := make([]error, len(args[4:]))
	var all sync.WaitGroup
	for i, text := range args[4:] {
		all.Go(func() { errs[i] = beClient(ctx, k, client.AppendConfig{Address: args[1], Flow: args[2]}, text, count) })
	}
	all.Wait()
	return errors.Join(append(errs, k.Close())...)
}

// beClient sends count messages, or sends until the context ends if count is 0. It prints each
// acknowledgement.
func beClient(ctx context.Context, k *client.Client, c client.AppendConfig, name string, count uint64) (err error) {
	number, err := strconv.ParseUint(name, 10, 32)
	if err != nil {
		return err
	}
	all := context.Background()
	a, err := k.Append(all, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	sent := make(chan uint64, 1)
	go func() { sent <- send(ctx, a, uint32(number), count) }()
	total, next := uint64(0), uint64(1)
	for total == 0 || next <= total {
		select {
		case total = <-sent:
			continue
		default:
		}
		wait, cancel := context.WithTimeout(all, 100*time.Millisecond)
		r, err := a.Wait(wait, next)
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			continue
		case err != nil:
			return err
		}
		fmt.Fprintf(os.Stdout, "%d %d %d\n", number, r.Number, r.Position)
		next = r.Number + 1
	}
	return nil
}

// pace is the time between two messages of a client without a count.
const pace = time.Millisecond

// send sends messages and returns how many. It sends at least one, unless Send fails.
func send(ctx context.Context, a *client.Appender, number uint32, count uint64) uint64 {
	for n := uint64(1); ; n++ {
		if _, err := a.Send(context.Background(), Message{number, n}.Bytes()); err != nil {
			return n - 1 // Wait returns the cause
		}
		if n == count || ctx.Err() != nil {
			return n
		}
		if count == 0 {
			time.Sleep(pace)
		}
	}
}
