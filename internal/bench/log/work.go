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
	gather     time.Duration // how long both sides wait for more before they write and flush; 0: they do when the disk is done with the last
}

// depth is how many records each client has in flight.
const depth = 1

func (w work) name() string {
	who := "clients"
	if w.clients == 1 {
		who = "client"
	}
	how := w.durability
	if w.gather > 0 {
		how += " (disk each " + w.gather.String() + ")"
	}
	return fmt.Sprintf("%s, %d B, %d %s", how, w.size, w.clients, who)
}

// hasFloor reports whether our packets are also measured alone: in cases where the disk is the
// smallest part of the cost.
func (w work) hasFloor() bool { return w.durability == received && w.gather > 0 }

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
	if w.gather == 0 {
		return ""
	}
	return fmt.Sprintf(", flush: %[1]v, durable: %[1]v", w.gather)
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
