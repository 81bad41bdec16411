package cm

import "fmt"

// EventKind is what happened to an identifier: enum rdma_cm_event_type, with its numbers.
type EventKind uint32

const (
	AddressResolved EventKind = iota
	AddressError
	RouteResolved
	RouteError
	ConnectRequest
	ConnectResponse
	ConnectError
	Unreachable
	Rejected
	Established
	Disconnected
	DeviceRemoval
	MulticastJoin
	MulticastError
	AddressChange
	TimewaitExit
)

var eventNames = [...]string{"ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR", "CONNECT_REQUEST", "CONNECT_RESPONSE", "CONNECT_ERROR",
	"UNREACHABLE", "REJECTED", "ESTABLISHED", "DISCONNECTED", "DEVICE_REMOVAL", "MULTICAST_JOIN", "MULTICAST_ERROR", "ADDR_CHANGE", "TIMEWAIT_EXIT"}

// String returns librdmacm's name.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return "RDMA_CM_EVENT_" + eventNames[k]
	}
	return fmt.Sprintf("event %d", uint32(k))
}

// event is an event of the kernel.
type event struct {
	kind   EventKind
	id     uint32 // the kernel's identifier
	uid    uint64 // ours; for a request, the listener's
	status int32  // a negative errno, or why a peer rejects
	// said holds the values that the peer has announced, from our point of view.
	said said
}

// said holds the values that a peer announces for a connection, from our point of view.
type said struct {
	private            []byte
	reads, remoteReads uint8
}

// eventOf translates an event of the kernel.
func eventOf(r *reported) event {
	p := &r.parameters
	e := event{kind: EventKind(r.event), id: r.id, uid: r.uid, status: r.status}
	if e.kind == ConnectRequest || e.kind == ConnectResponse || e.kind == Rejected || e.kind == Established {
		e.said = said{private: append([]byte(nil), p.private[:p.length]...), reads: p.reads, remoteReads: p.remoteReads}
	}
	return e
}
