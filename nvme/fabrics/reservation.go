package fabrics

import (
	"fmt"
	"slices"
)

// ReservationType is the type of a persistent reservation.
type ReservationType uint8

// Types. With the first two, the holder alone has access; with the next two, every registrant; with
// the last two, every registrant is a holder.
const (
	WriteExclusive             ReservationType = 1
	ExclusiveAccess            ReservationType = 2
	WriteExclusiveRegistrants  ReservationType = 3
	ExclusiveAccessRegistrants ReservationType = 4
	WriteExclusiveAll          ReservationType = 5
	ExclusiveAccessAll         ReservationType = 6
)

var reservationNames = [...]string{"", "write exclusive", "exclusive access", "write exclusive, registrants only", "exclusive access, registrants only",
	"write exclusive, all registrants", "exclusive access, all registrants"}

// String returns the specification's name for it; empty: there is no reservation.
func (t ReservationType) String() string {
	if int(t) < len(reservationNames) {
		return reservationNames[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

func (t ReservationType) valid() bool { return t >= WriteExclusive && t <= ExclusiveAccessAll }

// all reports whether every registrant is a holder.
func (t ReservationType) all() bool { return t >= WriteExclusiveAll }

// MaxRegistrants is the largest number of hosts that may be registered with a namespace.
const MaxRegistrants = 128

// HostIdentity is who a host is: its identifier, and the name that it may have to prove.
type HostIdentity struct {
	ID  [16]byte
	NQN string
}

// Registrant is a host that is registered with a namespace.
type Registrant struct {
	Host [16]byte // host identifier
	Key  uint64   // never 0
	NQN  string   `json:",omitempty"` // of the host; empty: of an older release, and any host with the identifier is meant
}

// is reports whether a host is the registrant.
func (g *Registrant) is(host HostIdentity) bool {
	return g.Host == host.ID && (g.NQN == host.NQN || g.NQN == "")
}

// Reservations is the state of a namespace. The zero value has no registrants.
type Reservations struct {
	Generation  uint32          // counts successful Register, Preempt and Clear, also those that change nothing else
	Type        ReservationType // 0: there is no reservation
	Holder      [16]byte        // of a reservation whose holders are not all registrants
	Persist     bool            // through a loss of power (PTPL)
	Registrants []Registrant
}

// Check returns what is wrong with a state that comes from outside.
func (r *Reservations) Check() error {
	if len(r.Registrants) > MaxRegistrants {
		return fmt.Errorf("%d registrants are too many, %d are possible", len(r.Registrants), MaxRegistrants)
	}
	for i, one := range r.Registrants {
		if one.Key == 0 || one.Host == [16]byte{} || r.with(one.Host) != i {
			return fmt.Errorf("registrant %d has no key or no host identifier, or is there twice", i)
		}
		if one.NQN != "" && !ValidNQN(one.NQN) {
			return fmt.Errorf("%q of registrant %d is no NQN", one.NQN, i)
		}
	}
	switch {
	case r.Type == 0 && r.Holder == [16]byte{}:
	case r.Type == 0:
		return fmt.Errorf("a holder without a reservation")
	case !r.Type.valid():
		return fmt.Errorf("%d is no type of reservation", r.Type)
	case r.Type.all() && r.Holder != [16]byte{}:
		return fmt.Errorf("all registrants are holders, and one is named")
	case r.Type.all() && len(r.Registrants) == 0, !r.Type.all() && r.with(r.Holder) < 0:
		return fmt.Errorf("a reservation without a holder")
	}
	return nil
}

// find returns the index of a host's registration, or -1. It does not allocate.
func (r *Reservations) find(host HostIdentity) int {
	if i := r.with(host.ID); i >= 0 && r.Registrants[i].is(host) {
		return i
	}
	return -1
}

// with returns the index of the registration with a host identifier, or -1. It does not allocate.
func (r *Reservations) with(id [16]byte) int {
	for i := range r.Registrants {
		if r.Registrants[i].Host == id {
			return i
		}
	}
	return -1
}

// Other returns the NQN of another host that is registered with a host's identifier; empty: there is none.
func (r *Reservations) Other(host HostIdentity) string {
	if i := r.with(host.ID); i >= 0 && !r.Registrants[i].is(host) {
		return r.Registrants[i].NQN
	}
	return ""
}

// Conflicts reports whether a reservation forbids a host a command to the namespace. It does not
// allocate.
func (r *Reservations) Conflicts(host HostIdentity, opcode uint8) bool {
	switch r.Type {
	case 0:
		return false
	case WriteExclusive, WriteExclusiveRegistrants, WriteExclusiveAll:
		if opcode == OpRead || opcode == OpCompare {
			return false
		}
	}
	switch opcode {
	case OpReservationRegister, OpReservationReport, OpReservationAcquire, OpReservationRelease:
		return false // these have rules of their own
	}
	if (r.Type == WriteExclusive || r.Type == ExclusiveAccess) && r.Holder != host.ID {
		return true
	}
	return r.find(host) < 0
}

// holds reports whether the host with an identifier is a holder of the reservation.
func (r *Reservations) holds(id [16]byte) bool {
	return r.Type != 0 && (r.Type.all() && r.with(id) >= 0 || !r.Type.all() && r.Holder == id)
}

// Notice is an event about reservations for one host.
type Notice struct {
	Host [16]byte
	Kind NoticeKind
}

// NoticeKind is the type of a notice, as the reservation notification log page has it.
type NoticeKind uint8

// Kinds.
const (
	RegistrationPreempted NoticeKind = 1
	ReservationReleased   NoticeKind = 2
	ReservationPreempted  NoticeKind = 3
)

// ReservationCommand is a decoded command that changes the state.
type ReservationCommand struct {
	Opcode    uint8
	Action    uint8
	IgnoreKey bool // IEKEY
	Type      ReservationType
	Persist   uint8  // CPTPL
	Key       uint64 // CRKEY
	Other     uint64 // NRKEY or PRKEY
}

// Actions.
const (
	actRegister   = 0
	actUnregister = 1
	actReplace    = 2
	actAcquire    = 0
	actPreempt    = 1
	actAbort      = 2 // preempt and abort
	actRelease    = 0
	actClear      = 1

	persistNot = 2 // CPTPL
	persistYes = 3
)

// ReservationData returns the length of the data that a command brings from the host; 0: none.
func ReservationData(opcode uint8) uint32 {
	switch opcode {
	case OpReservationRegister, OpReservationAcquire:
		return 16
	case OpReservationRelease:
		return 8
	}
	return 0
}

// ReservationOf decodes a command with its ReservationData. The status says why it is refused.
func ReservationOf(c *Command, data []byte) (r ReservationCommand, s Status) {
	if uint32(len(data)) != ReservationData(c.Opcode) || len(data) == 0 {
		return r, InvalidSGLLength | DoNotRetry
	}
	w := c.Words[0]
	r = ReservationCommand{Opcode: c.Opcode, Action: uint8(w & 7), IgnoreKey: w&(1<<3) != 0, Key: le.Uint64(data)}
	if len(data) == 16 {
		r.Other = le.Uint64(data[8:])
	}
	last := uint8(actAbort)
	if c.Opcode == OpReservationRegister {
		r.Persist = uint8(w >> 30)
	} else {
		r.Type = ReservationType(w >> 8)
	}
	if c.Opcode == OpReservationRelease {
		last = actClear
	}
	switch {
	case r.Action > last, r.Persist == 1:
		s = InvalidField | DoNotRetry
	case c.Opcode != OpReservationRegister && r.IgnoreKey:
		s = InvalidField | DoNotRetry
	case c.Opcode == OpReservationAcquire && !r.Type.valid():
		s = InvalidField | DoNotRetry
	case c.Opcode == OpReservationRegister && r.Action != actUnregister && r.Other == 0:
		s = InvalidField | DoNotRetry
	}
	return r, s
}

// conflict is the status of a command that the state forbids.
const conflict = ReservationConflict | DoNotRetry

// Apply executes a command of a host. If changed, the state is another one, and the notices are for
// other hosts.
func (r *Reservations) Apply(by HostIdentity, c ReservationCommand) (notices []Notice, changed bool, s Status) {
	host := by.ID
	if host == [16]byte{} {
		return nil, false, OperationDenied | DoNotRetry
	}
	before := *r
	before.Registrants = slices.Clone(r.Registrants)
	switch i := r.find(by); {
	case i < 0 && r.with(host) >= 0: // the identifier is another host's
		s = conflict
	case c.Opcode == OpReservationRegister:
		notices, s = r.register(by, i, c)
	case i < 0 || r.Registrants[i].Key != c.Key:
		s = conflict
	case c.Opcode == OpReservationRelease && c.Action == actRelease:
		notices, s = r.release(host, c.Type)
	case c.Opcode == OpReservationRelease:
		notices = r.clear(host)
	case c.Action == actAcquire:
		s = r.acquire(host, c.Type)
	default:
		notices, s = r.preempt(host, c)
	}
	if s != Success {
		*r = before
		return nil, false, s
	}
	return notices, !r.equal(&before), Success
}

func (r *Reservations) equal(o *Reservations) bool {
	return r.Generation == o.Generation && r.Type == o.Type && r.Holder == o.Holder && r.Persist == o.Persist && slices.Equal(r.Registrants, o.Registrants)
}

// register executes Reservation Register. i is the index of the host's registration.
func (r *Reservations) register(host HostIdentity, i int, c ReservationCommand) (notices []Notice, s Status) {
	matches := i >= 0 && (c.IgnoreKey || r.Registrants[i].Key == c.Key)
	switch {
	case c.Action == actRegister && i >= 0 && r.Registrants[i].Key == c.Other:
	case c.Action == actRegister && i >= 0:
		return nil, conflict
	case c.Action == actRegister, c.Action == actReplace && i < 0 && c.IgnoreKey:
		if len(r.Registrants) == MaxRegistrants {
			return nil, InternalError | DoNotRetry
		}
		r.Registrants = append(r.Registrants, Registrant{host.ID, c.Other, host.NQN})
	case !matches:
		return nil, conflict
	case c.Action == actReplace:
		r.Registrants[i].Key = c.Other
	default:
		notices = r.unregister(host.ID)
	}
	if i = r.with(host.ID); i >= 0 {
		r.Registrants[i].NQN = host.NQN // an older release did not keep it
	}
	r.Generation++
	switch c.Persist {
	case persistNot:
		r.Persist = false
	case persistYes:
		r.Persist = true
	}
	return notices, Success
}

// unregister removes a registration. The holder's takes the reservation with it.
func (r *Reservations) unregister(host [16]byte) (notices []Notice) {
	held := r.holds(host)
	r.Registrants = slices.DeleteFunc(r.Registrants, func(one Registrant) bool { return one.Host == host })
	if held && (!r.Type.all() || len(r.Registrants) == 0) {
		notices = r.free(host)
	}
	return notices
}

// free ends the reservation. Registrants that had access through it are told.
func (r *Reservations) free(by [16]byte) (notices []Notice) {
	if r.Type >= WriteExclusiveRegistrants {
		notices = r.tell(by, ReservationReleased)
	}
	r.Type, r.Holder = 0, [16]byte{}
	return notices
}

// tell returns a notice for each registrant but one.
func (r *Reservations) tell(but [16]byte, kind NoticeKind) (notices []Notice) {
	for _, one := range r.Registrants {
		if one.Host != but {
			notices = append(notices, Notice{one.Host, kind})
		}
	}
	return notices
}

func (r *Reservations) acquire(host [16]byte, t ReservationType) Status {
	switch {
	case r.Type == 0:
		r.reserve(host, t)
	case !r.holds(host) || r.Type != t:
		return conflict
	}
	return Success
}

// reserve makes a host the holder of a new reservation.
func (r *Reservations) reserve(host [16]byte, t ReservationType) {
	if r.Type, r.Holder = t, host; t.all() {
		r.Holder = [16]byte{}
	}
}

func (r *Reservations) release(host [16]byte, t ReservationType) ([]Notice, Status) {
	switch {
	case !r.holds(host):
		return nil, Success
	case r.Type != t:
		return nil, conflict
	}
	return r.free(host), Success
}

// clear removes all registrations and the reservation.
func (r *Reservations) clear(host [16]byte) []Notice {
	notices := r.tell(host, ReservationPreempted)
	r.Registrants, r.Type, r.Holder = nil, 0, [16]byte{}
	r.Generation++
	return notices
}

// preempt removes registrations with a key, and takes the reservation if one of them holds it.
func (r *Reservations) preempt(host [16]byte, c ReservationCommand) (notices []Notice, s Status) {
	was := r.Type
	var key uint64 // of the holder
	if i := r.with(r.Holder); was != 0 && !was.all() && i >= 0 {
		key = r.Registrants[i].Key
	}
	takes := was != 0 && (was.all() && c.Other == 0 || !was.all() && c.Other == key)
	switch {
	case c.Other == 0 && !takes:
		return nil, InvalidField | DoNotRetry
	case takes:
		goes := func(one Registrant) bool { return one.Host != host && (c.Other == 0 || one.Key == c.Other) }
		notices = r.expel(goes)
		r.reserve(host, c.Type)
		if was != c.Type && was >= WriteExclusiveRegistrants {
			notices = append(notices, r.tell(host, ReservationReleased)...)
		}
	default:
		n := len(r.Registrants)
		notices = r.expel(func(one Registrant) bool { return one.Key == c.Other })
		if len(r.Registrants) == n {
			return nil, conflict
		}
		notices = slices.DeleteFunc(notices, func(one Notice) bool { return one.Host == host })
		if was.all() && len(r.Registrants) == 0 {
			r.Type = 0
		}
	}
	r.Generation++
	return notices, Success
}

// expel removes registrations, and returns a notice for each of them.
func (r *Reservations) expel(goes func(Registrant) bool) (notices []Notice) {
	r.Registrants = slices.DeleteFunc(r.Registrants, func(one Registrant) bool {
		if goes(one) {
			notices = append(notices, Notice{one.Host, RegistrationPreempted})
			return true
		}
		return false
	})
	return notices
}

// Clone returns a copy that shares nothing.
func (r *Reservations) Clone() *Reservations {
	c := *r
	c.Registrants = slices.Clone(r.Registrants)
	return &c
}

// Lengths of the reservation status data structure: the header, with the extended format, and one
// registrant.
const (
	reportLen         = 64
	registrantLen     = 64
	dynamicController = 0xffff
)

// ReportLength returns how many bytes a Reservation Report asks for. It is refused without the
// extended format, because host identifiers have 128 bits.
func ReportLength(c *Command) (uint64, Status) {
	if c.Words[1]&1 == 0 {
		return 0, HostIdentifierFormat | DoNotRetry
	}
	return (uint64(c.Words[0]) + 1) * 4, Success
}

// Report writes as much of the status data structure as fits into zeroed bytes.
func (r *Reservations) Report(b []byte) {
	whole := make([]byte, reportLen, reportLen+len(r.Registrants)*registrantLen)
	le.PutUint32(whole, r.Generation)
	whole[4] = uint8(r.Type)
	le.PutUint16(whole[5:], uint16(len(r.Registrants)))
	if r.Persist {
		whole[9] = 1
	}
	for _, one := range r.Registrants {
		var e [registrantLen]byte
		le.PutUint16(e[:], dynamicController)
		if r.holds(one.Host) {
			e[2] = 1
		}
		le.PutUint64(e[8:], one.Key)
		copy(e[16:], one.Host[:])
		whole = append(whole, e[:]...)
	}
	copy(b, whole)
}
