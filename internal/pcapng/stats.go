package pcapng

// Unknown is the value of a counter that is left out of the file.
const Unknown = ^uint64(0)

// StatisticsLen is the most bytes AppendStatistics appends.
const StatisticsLen = 20 + 7*12 + 4 + 4

// Statistics of one interface since its capture began: an Interface Statistics Block. Counters are packets; one that
// is Unknown is left out. Times are nanoseconds since the epoch; Start and End are left out when zero.
type Statistics struct {
	Interface  uint32 // index in the head
	Time       uint64 // when the counters were read
	Start, End uint64 // of the capture
	Received   uint64 // isb_ifrecv: seen by the interface
	Dropped    uint64 // isb_ifdrop: lost by the interface for want of room
	Accepted   uint64 // isb_filteraccept: packets that the filter accepted
	OSDropped  uint64 // isb_osdrop: accepted, then lost before they reached us
	Delivered  uint64 // isb_usrdeliv: delivered to us
}

// Option codes of the Interface Statistics Block.
const (
	isbStart = iota + 2
	isbEnd
	isbReceived
	isbDropped
	isbAccepted
	isbOSDropped
	isbDelivered
)

// AppendStatistics appends an Interface Statistics Block: at most StatisticsLen bytes, a multiple of 4. It does not
// allocate when dst has the room.
func AppendStatistics(dst []byte, s Statistics) []byte {
	dst, start := beginBlock(dst, TypeStatistics)
	dst = le.AppendUint32(dst, s.Interface)
	dst = appendTime(dst, s.Time)
	dst = appendTimeOption(dst, isbStart, s.Start)
	dst = appendTimeOption(dst, isbEnd, s.End)
	dst = appendCounter(dst, isbReceived, s.Received)
	dst = appendCounter(dst, isbDropped, s.Dropped)
	dst = appendCounter(dst, isbAccepted, s.Accepted)
	dst = appendCounter(dst, isbOSDropped, s.OSDropped)
	dst = appendCounter(dst, isbDelivered, s.Delivered)
	return endBlock(appendEnd(dst), start)
}

func appendCounter(dst []byte, code uint16, v uint64) []byte {
	if v == Unknown {
		return dst
	}
	return appendUint64(dst, code, v)
}

func appendTimeOption(dst []byte, code uint16, ns uint64) []byte {
	if ns == 0 {
		return dst
	}
	dst = le.AppendUint16(dst, code)
	return appendTime(le.AppendUint16(dst, 8), ns)
}

// appendTime appends a time in pcapng's form: the high 32 bits, then the low.
func appendTime(dst []byte, ns uint64) []byte {
	return le.AppendUint32(le.AppendUint32(dst, uint32(ns>>32)), uint32(ns))
}
