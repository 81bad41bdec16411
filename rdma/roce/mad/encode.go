package mad

// Encode writes a message. It cuts off the upper bits of fields that are too large, and the end of
// private data that is longer than the kind's.
func (m *Message) Encode(to *[Size]byte) {
	clear(to[:])
	to[0], to[1], to[2], to[3] = baseVersion, class, classVersion, methodSend
	be.PutUint64(to[8:], m.Transaction)
	be.PutUint16(to[16:], uint16(m.Kind))
	b := to[headerBytes:]
	be.PutUint32(b, m.Local)
	be.PutUint32(b[4:], m.Remote)
	switch m.Kind {
	case REQ:
		be.PutUint32(b[4:], 0)
		m.Request.encode(b)
	case REP:
		m.Reply.encode(b)
	case MRA:
		b[8], b[9] = byte(m.About)<<6, m.Timeout<<3
	case REJ:
		b[8], b[9] = byte(m.About)<<6, m.InfoBytes<<1
		be.PutUint16(b[10:], m.Reason)
		copy(b[12:84], m.Info[:])
	case DREQ:
		be.PutUint32(b[8:], m.RemoteQPN<<8)
	case SIDRREQ:
		be.PutUint32(b[4:], 0)
		be.PutUint64(b[8:], m.ServiceID)
	case SIDRREP:
		be.PutUint32(b[4:], uint32(m.Status)<<24)
		be.PutUint64(b[12:], m.ServiceID)
	}
	copy(b[privates[m.Kind.Index()]:], m.Private)
}

func bit(b bool, place int) byte {
	if b {
		return 1 << place
	}
	return 0
}

func (r *Request) encode(b []byte) {
	be.PutUint64(b[8:], r.ServiceID)
	be.PutUint64(b[16:], r.GUID)
	be.PutUint32(b[28:], r.QKey)
	be.PutUint32(b[32:], r.QPN<<8|uint32(r.Responder))
	b[39] = r.Initiator
	b[43] = r.RemoteResponse<<3 | low(r.Transport, 2)<<1 | bit(r.FlowControl, 0)
	be.PutUint32(b[44:], r.PSN<<8|uint32(r.LocalResponse<<3|low(r.Retries, 3)))
	be.PutUint16(b[48:], r.PKey)
	b[50] = byte(r.MTU)<<4 | low(r.RNRRetries, 3)
	b[51] = r.CMRetries<<4 | bit(r.Shared, 3) | low(r.Extended, 3)
	p := &r.Primary
	be.PutUint16(b[52:], p.LocalLID)
	be.PutUint16(b[54:], p.RemoteLID)
	copy(b[56:], p.Local[:])
	copy(b[72:], p.Remote[:])
	be.PutUint32(b[88:], p.FlowLabel<<12|uint32(low(p.Rate, 6)))
	b[92], b[93], b[94], b[95] = p.TrafficClass, p.HopLimit, p.SL<<4|bit(p.SubnetLocal, 3), p.AckTimeout<<3
}

func (r *Reply) encode(b []byte) {
	be.PutUint32(b[8:], r.QKey)
	be.PutUint32(b[12:], r.QPN<<8)
	be.PutUint32(b[20:], r.PSN<<8)
	b[24], b[25] = r.Responder, r.Initiator
	b[26] = r.AckDelay<<3 | low(r.Failover, 2)<<1 | bit(r.FlowControl, 0)
	b[27] = r.RNRRetries<<5 | bit(r.Shared, 4)
	be.PutUint64(b[28:], r.GUID)
}
