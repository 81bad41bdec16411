package bench

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// listening is the state of a socket that waits for peers, as the kernel lists it.
var listening = map[string]string{"tcp": "0A", "udp": "07"}

// Listens reports whether a socket listens at a port of tcp or udp in the calling thread's network
// namespace: proc_net(5). It sends nothing, since the server would take that for a client's first
// message.
func Listens(protocol string, port int) bool {
	for _, file := range []string{protocol, protocol + "6"} {
		b, _ := os.ReadFile("/proc/thread-self/net/" + file) // without IPv6 the second is not there
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) > 3 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == listening[protocol] {
				return true
			}
		}
	}
	return false
}

// AwaitServer waits until a server is ready for a client. If the server ends first, AwaitServer
// takes the error from ended, returns it, and puts nil back for the goroutine that waits for the
// end.
func AwaitServer(ctx context.Context, ready func() bool, ended chan error) error {
	for !ready() {
		select {
		case err := <-ended:
			ended <- nil
			return fmt.Errorf("the server ended before it had a client: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("wait for the server to be ready: %w", ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}
