package attach

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// TestLibraryAnswers: a flow that sends orders learns from both libraries which orders answer something, when that
// arrived, and when the program decided.
func TestLibraryAnswers(t *testing.T) {
	testenv.Long(t, "TestLibrary has the steps of given connections")
	testenv.Root(t)
	plain := buildDriver(t)
	for name, driver := range map[string]string{"Go": "", "C": plain} {
		t.Run(name, func(t *testing.T) {
			p := testenv.NewPair(t, testenv.PairOptions{})
			got := sinkOf(t, &p.A)
			dir := t.TempDir()
			socket := filepath.Join(dir, "attach.sock")
			d := daemon.Launch(t, program, &p.B, dir, fmt.Sprintf(`
region: {size: 32MiB, pages: ordinary}
workers: [{name: main}]
attach: {socket: %s, programs: [{name: writer, user: "%d", out: 4MiB}]}
flows: [{name: orders, from: {attach: writer, message: 256}, to: {order: {connect: "%s:7000", interface: %s, retry: 20ms}}}]
`, socket, os.Getuid(), p.A.IP, p.B.Ifname))
			d.Running(t)
			ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(time.Minute))
			defer cancel()
			var l programLibrary = &goLibrary{Context: ctx}
			if driver != "" {
				l = startDriver(ctx, t, daemon.Here{}, driver)
			}
			for _, step := range [][2]string{{"attach " + socket + " writer 7", "attached"}, {"send orders 0", "opened 1"}, {"append 200 40", "done 1 200 200"}} {
				if answer := l.do(step[0]); answer != step[1] {
					t.Fatalf("%s: %q\n%s", step[0], answer, d.Log)
				}
			}
			s := d.Until(t, "the times of all orders", func(s *status.Daemon) bool {
				x := s.Flows[0].Orders.Times
				return x.DecisionToOut != nil && x.DecisionToOut.Count == 200
			})
			if x := s.Flows[0].Orders.Times; x.NoTick != 100 || x.TickToDecision.Count != 100 || x.TickToDecision.Min < 1e6 || x.TickToOut.Min < x.TickToDecision.Min {
				t.Errorf("%+v, tick to decision %+v, tick to out %+v", x, x.TickToDecision, x.TickToOut)
			}
			if err := l.end(); err != nil {
				t.Error(err)
			}
			d.Terminate(t)
			if n := <-got; n != 200*40 {
				t.Errorf("%d bytes arrived", n)
			}
		})
	}
}

// sinkOf takes what comes over one connection, and then says how many bytes.
func sinkOf(t *testing.T, at *testenv.End) <-chan int64 {
	t.Helper()
	var l net.Listener
	at.Do(t, func() {
		var err error
		if l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(at.IP.String(), "7000")); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { l.Close() })
	got := make(chan int64, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		n, _ := io.Copy(io.Discard, c) // a reset shows as too few bytes
		got <- n
	}()
	return got
}
