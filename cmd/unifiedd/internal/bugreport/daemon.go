package bugreport

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/control"
)

// answers is what a daemon says on its control socket.
type answers struct {
	pid     int // of the daemon; 0: not known
	status  []byte
	cluster bool  // it finds peers by their names
	err     error // why there is no status
}

// answerTime is how long a daemon may take for an answer.
const answerTime = 10 * time.Second

// ask asks the daemon for its status. The kernel says which process listens on the socket, even of
// a daemon that does not answer.
func ask(ctx context.Context, socket string) *answers {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	a := &answers{pid: listener(socket)}
	if a.status, a.err = control.Status(ctx, socket); a.err != nil {
		return a
	}
	var s struct {
		PID     int
		Cluster *struct{}
	}
	if err := json.Unmarshal(a.status, &s); err == nil {
		a.pid, a.cluster = cmp.Or(s.PID, a.pid), s.Cluster != nil
	}
	return a
}

// listener returns the process that listens on a socket, or 0.
func listener(socket string) int {
	c, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return 0
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	})
	return pid
}

// errSilent says why a file about the daemon is empty.
var errSilent = errors.New("the daemon did not answer")

// items returns the files with what the daemon says.
func (a *answers) items(o Options) []Item {
	page := func(path string) func(context.Context, io.Writer) error {
		return func(ctx context.Context, w io.Writer) error {
			if a.err != nil {
				return errSilent
			}
			text, err := control.Page(ctx, o.Socket, path)
			if err != nil {
				return err
			}
			_, err = w.Write(text)
			return err
		}
	}
	said := func(print func(io.Writer) error) func(context.Context, io.Writer) error {
		return func(_ context.Context, w io.Writer) error {
			if a.err != nil {
				return errSilent
			}
			return print(w)
		}
	}
	all := []Item{
		{"status.txt", said(func(w io.Writer) error { return o.Print(w, a.status) })},
		{"status.json", said(func(w io.Writer) error { _, err := w.Write(a.status); return err })},
		{"metrics.txt", page("/metrics")},
		{"ready.txt", func(ctx context.Context, w io.Writer) error {
			err := page("/readyz")(ctx, w)
			if err != nil && a.err == nil { // some flows are not ready, and the text says why
				fmt.Fprintln(w, err)
				return nil
			}
			return err
		}},
		{"goroutines.txt", page("/debug/pprof/goroutine?debug=1")},
	}
	if a.cluster {
		all = append(all, Item{"cluster.json", func(ctx context.Context, w io.Writer) error {
			text, err := control.Registry(ctx, o.Socket)
			if err != nil {
				return err
			}
			_, err = w.Write(text)
			return err
		}})
	}
	return all
}
