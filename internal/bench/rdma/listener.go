package rdma

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// awaitListener waits until somebody listens on a TCP port, or the server has ended. It does not
// try: a connection that is given up ends the servers of perftest.
func awaitListener(ctx context.Context, port int, served chan error) error {
	for !listens(port) {
		select {
		case err := <-served:
			served <- nil // for who waits for its end
			return fmt.Errorf("the server ended before it had a client: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("wait for the server to listen on TCP port %d: %w", port, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// listens looks for the port among those that the kernel lists: 0A is the state.
func listens(port int) bool {
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, _ := os.ReadFile(file) // without IPv6 the second is not there
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) > 3 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == "0A" {
				return true
			}
		}
	}
	return false
}
