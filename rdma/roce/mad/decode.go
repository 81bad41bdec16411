package mad

import "github.com/unifiedd/unifiedd/rdma"

// Decode reads a MAD. Private is then a part of b. The message is valid only if the result is
// WellFormed.
func (m *Message) Decode(b []byte) Malformed {
	if why := check(b); why != WellFormed {
		return why
	}
	*m = Message{Kind: Kind(be.Uint16(b[16:])), Transaction: be.Uint64(b[8:])}
	b = b[headerBytes:]
	m.Private = b[privates[m.Kind.Index()]:]
	m.Local, m.Remote = be.Uint32(b), be.Uint32(b[4:])
	switch m.Kind {
	case REQ:
		m.Remote = 0
		m.Request.decode(b)
	case REP:
		m.Reply.decode(b)
	case MRA:
		m.About, m.Timeout = About(b[8]>>6), b[9]>>3
	case REJ:
		m.About, m.InfoBytes, m.Reason = About(b[8]>>6), min(b[9]>>1, uint8(len(m.Info))), be.Uint16(b[10:])
		copy(m.Info[:m.InfoBytes], b[12:])
	case DREQ:
		m.RemoteQPN = be.Uint32(b[8:]) >> 8
	case SIDRREQ:
		m.Remote, m.ServiceID = 0, be.Uint64(b[8:])
	case SIDRREP:
		m.Remote, m.Status, m.ServiceID = 0, b[4], be.Uint64(b[12:])
	}
	return WellFormed
}

func check(b []byte) Malformed {
	switch {
	case len(b) != Size:
		return Length
	case b[0] != baseVersion:
		return Version
	case b[1] != class:
		return Class
	case b[2] != classVersion:
		return Version
	case b[3] != methodSend:
		return Method
	}
	if i := Kind(be.Uint16(b[16:])).Index(); i < 0 || i >= Kinds {
		return Attribute
	}
	return WellFormed
}

// low returns that many lower bits of a byte.
func low(b byte, bits int) byte { return b & (1<<bits - 1) }

func (r *Request) decode(b []byte) {
	r.ServiceID, r.GUID, r.QKey = be.Uint64(b[8:]), be.Uint64(b[16:]), be.Uint32(b[28:])
	r.QPN, r.Responder = be.Uint32(b[32:])>>8, b[35]
	r.Initiator = b[39]
	r.RemoteResponse, r.Transport, r.FlowControl = b[43]>>3, low(b[43]>>1, 2), low(b[43], 1) != 0
	r.PSN, r.LocalResponse, r.Retries = be.Uint32(b[44:])>>8, b[47]>>3, low(b[47], 3)
	r.PKey, r.MTU, r.RNRRetries = be.Uint16(b[48:]), rdma.MTU(b[50]>>4), low(b[50], 3)
	r.CMRetries, r.Shared, r.Extended = b[51]>>4, b[51]&8 != 0, low(b[51], 3)
	p := &r.Primary
	p.LocalLID, p.RemoteLID, p.Local, p.Remote = be.Uint16(b[52:]), be.Uint16(b[54:]), rdma.GID(b[56:72]), rdma.GID(b[72:88])
	p.FlowLabel, p.Rate = be.Uint32(b[88:])>>12, low(b[91], 6)
	p.TrafficClass, p.HopLimit, p.SL, p.SubnetLocal, p.AckTimeout = b[92], b[93], b[94]>>4, b[94]&8 != 0, b[95]>>3
	r.Alternate = be.Uint16(b[96:]) != 0 || rdma.GID(b[100:116]) != rdma.GID{}
}

func (r *Reply) decode(b []byte) {
	r.QKey, r.QPN, r.PSN, r.Responder, r.Initiator = be.Uint32(b[8:]), be.Uint32(b[12:])>>8, be.Uint32(b[20:])>>8, b[24], b[25]
	r.AckDelay, r.Failover, r.FlowControl = b[26]>>3, low(b[26]>>1, 2), low(b[26], 1) != 0
	r.RNRRetries, r.Shared, r.GUID = b[27]>>5, b[27]&16 != 0, be.Uint64(b[28:])
}
