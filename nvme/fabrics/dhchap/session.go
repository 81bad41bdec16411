package dhchap

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"slices"
)

// Config describes the two sides of a session.
type Config struct {
	Host, Subsystem string // NQNs
	Keys            Keys
	Group           Group // the host must agree to it
}

// Session is the controller's side of one queue.
type Session struct {
	config      Config
	state       state
	proven      bool
	why         Reason // of the failure
	next        []byte // message for the host
	transaction uint16
	hash        Hash
	exchange    exchange
	sequence    uint32
	challenge   []byte // ours
}

// state is the message that a session waits for.
type state uint8

const (
	forNegotiate state = iota
	forReply
	forSuccess // only if the host asked for the controller's proof
	failed
)

// NewSession returns a session before the first message.
func NewSession(c Config) *Session { return &Session{config: c} }

// Proven reports whether the host has authenticated. It stays true while the host authenticates
// again, until that fails.
func (s *Session) Proven() bool { return s.proven }

// Err returns why the session failed, a Reason; nil: it has not failed.
func (s *Session) Err() error {
	if s.state != failed {
		return nil
	}
	return s.why
}

// Over reports whether the session failed, and no message for the host is left.
func (s *Session) Over() bool { return s.state == failed && s.next == nil }

// Next returns the next message for the host, once. If there is none, the session fails, and the
// message reports that.
func (s *Session) Next() []byte {
	if s.next == nil {
		s.fail(IncorrectMessage)
	}
	b := s.next
	s.next = nil
	return b
}

// End fails a session without a message to the host.
func (s *Session) End() {
	s.fail(IncorrectPayload)
	s.next = nil
}

// fail ends the session. Next returns the message for the host.
func (s *Session) fail(why Reason) {
	if s.state != failed {
		s.state, s.why, s.proven = failed, why, false
	}
	s.next = s.message(common, failure1, failureLen)
	s.next[6], s.next[7] = reasonFails, byte(s.why)
}

// Take handles a message of the host. It does not keep b.
func (s *Session) Take(b []byte) {
	switch {
	case s.state == failed:
	case s.next != nil || len(b) < headerLen:
		s.fail(IncorrectMessage)
	case b[0] == common && b[1] == negotiate && s.state != forReply:
		s.check(s.takeNegotiate(b))
	case le.Uint16(b[4:]) != s.transaction:
		s.fail(IncorrectPayload)
	case b[0] == dhchap && b[1] == reply && s.state == forReply:
		s.check(s.takeReply(b))
	case b[0] == dhchap && b[1] == success2 && s.state == forSuccess:
		s.state, s.proven = forNegotiate, true
	case b[0] == common && b[1] == failure2 && s.state == forSuccess:
		s.fail(Failed)
		s.next = nil
	default:
		s.fail(IncorrectMessage)
	}
}

func (s *Session) check(why Reason) {
	if why != 0 {
		s.fail(why)
	}
}

// takeNegotiate chooses among the host's hashes and groups, and prepares the challenge.
func (s *Session) takeNegotiate(b []byte) Reason {
	s.transaction = le.Uint16(b[4:])
	if len(b) < negotiateLen {
		return IncorrectPayload
	}
	n := int(b[7])
	switch {
	case n == 0 || len(b) < negotiateLen+n*descriptorLen:
		return IncorrectPayload
	case b[6] != 0:
		return ConcatMismatch
	}
	for d := range slices.Chunk(b[offDescriptor:][:n*descriptorLen], descriptorLen) {
		if d[0] == protocolID {
			return s.choose(d)
		}
	}
	return NotUsable
}

// choose chooses the longest hash of a descriptor, and the configured group.
func (s *Session) choose(d []byte) Reason {
	hashes, groups := int(d[2]), int(d[3])
	if hashes == 0 || groups == 0 || hashes > mostIDs || groups > mostIDs {
		return IncorrectPayload
	}
	s.hash = None
	for _, id := range d[offHashIDs:][:hashes] {
		if h := Hash(id); h.valid() {
			s.hash = max(s.hash, h)
		}
	}
	switch {
	case s.hash == None:
		return HashUnusable
	case !bytes.Contains(d[offGroupIDs:][:groups], []byte{byte(s.config.Group)}):
		return GroupUnusable
	}
	s.ask()
	return 0
}

// ask prepares the challenge.
func (s *Session) ask() {
	var public []byte
	if s.config.Group != Null {
		s.exchange, public = s.config.Group.begin()
	}
	n := s.hash.size()
	s.challenge = make([]byte, n)
	var number [4]byte
	rand.Read(s.challenge) // never fails, nor does the next call
	rand.Read(number[:])
	s.sequence = max(le.Uint32(number[:]), 1)
	b := s.message(dhchap, challenge, bodyLen+n+len(public))
	b[6], b[8], b[9] = byte(n), byte(s.hash), byte(s.config.Group)
	le.PutUint16(b[10:], uint16(len(public)))
	le.PutUint32(b[12:], s.sequence)
	copy(b[bodyLen:], s.challenge)
	copy(b[bodyLen+n:], public)
	s.next, s.state = b, forReply
}

// takeReply checks the host's proof against its key. If the host asks for it, takeReply prepares
// the controller's proof.
func (s *Session) takeReply(b []byte) Reason {
	n := s.hash.size()
	if len(b) < bodyLen || int(b[6]) != n {
		return IncorrectPayload
	}
	asked, length := b[8] == 1, int(le.Uint16(b[10:]))
	sequence := le.Uint32(b[12:])
	if b[8] > 1 || len(b) < bodyLen+2*n+length || asked && sequence == 0 {
		return IncorrectPayload
	}
	proof, theirs, public := b[bodyLen:][:n], b[bodyLen+n:][:n], b[bodyLen+2*n:][:length]
	key, why := s.sessionKey(public)
	if why != 0 {
		return why
	}
	c := &s.config
	if c.Keys.Host.empty() { // anyone can compute the proof of an empty key
		return Failed
	}
	if !hmac.Equal(proof, s.proof(c.Keys.Host.of(c.Host), key, s.challenge, s.sequence, "HostHost", c.Host, c.Subsystem)) {
		return Failed
	}
	if !asked {
		s.accept(nil)
		s.state, s.proven = forNegotiate, true
		return 0
	}
	if c.Keys.Controller == nil || c.Keys.Controller.empty() || bytes.Equal(theirs, s.challenge) {
		return Failed
	}
	s.accept(s.proof(c.Keys.Controller.of(c.Subsystem), key, theirs, sequence, "Controller", c.Subsystem, c.Host))
	s.state = forSuccess
	return 0
}

// sessionKey returns the key that both sides of the exchange compute; nil without a group.
func (s *Session) sessionKey(public []byte) ([]byte, Reason) {
	switch g := s.config.Group; {
	case g == Null && len(public) > 0:
		return nil, IncorrectPayload
	case g == Null:
		return nil, 0
	case len(public) > g.size():
		return nil, GroupUnusable
	}
	key, ok := s.exchange.end(public)
	s.exchange = exchange{}
	if !ok {
		return nil, GroupUnusable
	}
	return key, 0
}

// proof computes the response to a challenge.
func (s *Session) proof(key, session, challenge []byte, sequence uint32, role, from, to string) []byte {
	if session != nil {
		challenge = s.hash.mac(s.hash.sum(session), challenge)
	}
	numbers := le.AppendUint16(le.AppendUint32(nil, sequence), s.transaction)
	return s.hash.mac(key, challenge, numbers, []byte{0}, []byte(role), []byte(from), []byte{0}, []byte(to))
}

// accept prepares the success message, with the controller's proof if there is one.
func (s *Session) accept(proof []byte) {
	b := s.message(dhchap, success1, bodyLen+len(proof))
	b[6] = byte(s.hash.size())
	if proof != nil {
		b[8] = 1
		copy(b[bodyLen:], proof)
	}
	s.next = b
}
