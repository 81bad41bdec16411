package rdma

import "fmt"

// EventKind is an asynchronous event: enum ibv_event_type, with its numbers.
type EventKind uint32

const (
	CompletionQueueError EventKind = 0
	QueuePairFatal       EventKind = 1
	QueuePairRequest     EventKind = 2
	QueuePairAccess      EventKind = 3
	Established          EventKind = 4 // a message came to a queue pair in RTR
	SendQueueDrained     EventKind = 5
	DeviceFatal          EventKind = 8
	PortActive           EventKind = 9
	PortError            EventKind = 10
	LIDChange            EventKind = 11
	PKeyChange           EventKind = 12
	SharedQueueError     EventKind = 14
	SharedQueueLimit     EventKind = 15
	LastReceive          EventKind = 16 // of a queue pair with a shared queue that is in error
	GIDChange            EventKind = 18
)

var eventNames = [...]string{"completion queue error", "queue pair fatal", "queue pair request error", "queue pair access error",
	"connection established", "send queue drained", "path migrated", "path migration error", "device fatal", "port active", "port error",
	"LID change", "P_Key change", "subnet manager change", "shared receive queue error", "shared receive queue limit reached",
	"last work request reached", "client reregister", "GID change", "work queue fatal"}

func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("event %d", uint32(k))
}

// Event is something that happened to a device, or to what was made from it.
type Event struct {
	Kind EventKind
	QPN  uint32 // of events of a queue pair
	Port uint8  // of events of a port
}

func (e Event) String() string {
	switch e.Kind {
	case QueuePairFatal, QueuePairRequest, QueuePairAccess, Established, SendQueueDrained, LastReceive:
		return fmt.Sprintf("%v: queue pair %d", e.Kind, e.QPN)
	case PortActive, PortError, LIDChange, PKeyChange, GIDChange:
		return fmt.Sprintf("%v: port %d", e.Kind, e.Port)
	}
	return e.Kind.String()
}
