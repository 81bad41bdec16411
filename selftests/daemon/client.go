package daemon

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// Client is one run of unified-flow-test, next to a daemon. It ends with the test.
type Client struct {
	*exec.Cmd
	Out Log // its output

	ended chan struct{}
	err   error // how it ended, once ended is closed
}

// StartClient starts a program in a place.
func StartClient(t *testing.T, program string, at Place, args ...string) *Client {
	t.Helper()
	c := &Client{Cmd: at.Command(program, args...), ended: make(chan struct{})}
	c.Stdout, c.Stderr = &c.Out, &c.Out
	testenv.Must(t, c.Start())
	go func() { c.err = c.Cmd.Wait(); close(c.ended) }()
	t.Cleanup(func() { c.Kill() })
	return c
}

// Over reports whether the client has ended.
func (c *Client) Over() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// Await waits until the client has ended. The client must succeed. After limit, longer on a slow
// machine, Await kills it and fails the test.
func (c *Client) Await(t *testing.T, limit time.Duration) {
	t.Helper()
	select {
	case <-c.ended:
		if c.err != nil {
			t.Errorf("%v: %v\n%s", c.Args, c.err, &c.Out)
		}
	case <-time.After(testenv.Within(limit)):
		t.Fatalf("%s did not end within %v\n%s", strings.Join(c.Args, " "), testenv.Within(limit), c.Kill())
	}
}

// Kill kills the client and returns its output.
func (c *Client) Kill() string {
	_ = c.Process.Kill() // an error means that the client has ended
	<-c.ended
	return c.Out.String()
}
