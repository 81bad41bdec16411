package latency

// Distribution is a summary, and the number of times in each bucket.
type Distribution struct {
	Summary
	Buckets []Bucket `json:"buckets"` // those with something in them, in order
}

// Bucket counts the times that are shorter than a power of two, and not shorter than the power
// before.
type Bucket struct {
	Below int64 `json:"below_ns"`
	Count int64 `json:"count"`
}

// Distribution summarises the recorded times; nil if there are none. Any goroutine may call it.
func (s *Shared) Distribution() *Distribution {
	sum := s.Summary()
	if sum == nil {
		return nil
	}
	d := &Distribution{Summary: *sum}
	for power := range powers + 1 {
		n := int64(0)
		for b := firstOf(power); b < firstOf(power+1); b++ {
			n += int64(s.counts[b].Load())
		}
		if n > 0 {
			d.Buckets = append(d.Buckets, Bucket{Below: 1 << power, Count: n})
		}
	}
	return d
}

// firstOf is the bucket of the shortest time with this number of bits.
func firstOf(bits int) int {
	switch {
	case bits == 0:
		return 0
	case bits > powers:
		return buckets
	}
	return bucketOf(uint64(1) << (bits - 1))
}
