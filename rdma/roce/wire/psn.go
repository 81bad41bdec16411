package wire

// PSN is a packet sequence number: 24 bits, counted in a circle. Comparisons hold for numbers
// less than 1<<23 apart, which the window of a queue pair never exceeds. IBTA
// specification, volume 1, 9.7.1.
type PSN uint32

// MakePSN returns the lower 24 bits of v.
func MakePSN(v uint32) PSN { return PSN(v & mask24) }

// Add returns the number n packets ahead, or back if n is negative.
func (p PSN) Add(n int) PSN { return PSN(uint32(int64(p)+int64(n)) & mask24) }

// Distance returns by how many packets p is ahead of q, from -1<<23 to 1<<23-1; it is negative if
// p is before q.
func (p PSN) Distance(q PSN) int { return int(int32(uint32(p-q)<<8) >> 8) }

// Before reports whether p is before q.
func (p PSN) Before(q PSN) bool { return p.Distance(q) < 0 }

// After reports whether p is ahead of q.
func (p PSN) After(q PSN) bool { return p.Distance(q) > 0 }
