package log

import (
	"fmt"
	"strconv"
	"time"
)

// Durabilities of the log, as both servers know them.
const (
	received = "received"
	durable  = "durable"
)

// work is the work of both sides.
type work struct {
	size       int // bytes of a record
	clients    int
	durability string
}

// works are the cases.
func works() (all []work) {
	for _, size := range []int{64, 512, 4096} {
		for _, clients := range []int{1, 8, 64} {
			all = append(all, work{size, clients, received})
		}
	}
	for _, size := range []int{64, 4096} {
		for _, clients := range []int{1, 64} {
			all = append(all, work{size, clients, durable})
		}
	}
	return all
}

// gather is how long both sides wait for more before they write and flush; 0: they do when the disk is done with the last.
func (w work) gather() time.Duration {
	if w.durability == durable {
		return 0
	}
	return 10 * time.Millisecond
}

// depth is how many records each client has in flight.
const depth = 1

func (w work) name() string {
	who := "clients"
	if w.clients == 1 {
		who = "client"
	}
	return fmt.Sprintf("%s, %d B, %d %s", w.durability, w.size, w.clients, who)
}

// span is the warm-up, which is not measured, and the time that is.
type span struct{ warm, counted time.Duration }

// flags are the options of unified-flow-test load, words the arguments of log-client.
func (w work) flags(s span) []string {
	return []string{"-clients", strconv.Itoa(w.clients), "-depth", strconv.Itoa(depth), "-size", strconv.Itoa(w.size),
		"-warm", s.warm.String(), "-for", s.counted.String()}
}

func (w work) words(s span) []string {
	return []string{strconv.Itoa(w.clients), strconv.Itoa(depth), strconv.Itoa(w.size), milliseconds(s.warm), milliseconds(s.counted)}
}

// toDisk returns the part of the daemon's configuration that says when to write and flush.
func (w work) toDisk() string {
	if w.gather() == 0 {
		return ""
	}
	return fmt.Sprintf(", flush: %[1]v, durable: %[1]v", w.gather())
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
