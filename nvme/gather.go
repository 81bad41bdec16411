package nvme

// gather fills in the submission of a chain: the pieces not yet transferred,
// neighbours in memory joined. One piece alone needs no list. The kernel copies
// the list when it takes the submission (IORING_FEAT_SUBMIT_STABLE).
func (q *Queue) gather(i uint32, s *sqe) {
	o := &q.ops[i]
	vecs := q.scratch.pieces[int(i)*q.pieces:][:0:q.pieces]
	skip, fixed := o.done, true
	for _, f := range q.chain(i) {
		n := uint64(f.Len)
		if skip >= n {
			skip -= n
			continue
		}
		vecs = joinPiece(vecs, q.base, f.Addr+skip, n-skip)
		skip = 0
	}
	s.bufIndex = bufferOf(vecs[0].base - q.base)
	for _, v := range vecs {
		fixed = fixed && bufferOf(v.base-q.base) == s.bufIndex && sameBuffer(v.base-q.base, v.len)
	}
	if len(vecs) == 1 && fixed {
		s.addr, s.len = vecs[0].base, uint32(vecs[0].len)
		return
	}
	s.addr, s.len = vecsAddress(vecs), uint32(len(vecs))
	s.opcode = gatherCode(o.kind, fixed && q.granted.GatherFixed)
	if s.opcode == opReadv || s.opcode == opWritev {
		s.bufIndex = 0
		q.count.pinned++
	}
}

// joinPiece appends a piece, or lengthens the last one where it is its
// neighbour in the same registered buffer.
func joinPiece(vecs []iovec, base, addr, n uint64) []iovec {
	if k := len(vecs) - 1; k >= 0 {
		start := vecs[k].base - base
		if start+vecs[k].len == addr && bufferOf(start) == bufferOf(addr) {
			vecs[k].len += n
			return vecs
		}
	}
	return append(vecs, iovec{base: base + addr, len: n})
}

// gatherCode is the operation for a list of pieces.
func gatherCode(k kind, fixed bool) uint8 {
	switch {
	case k == writing && fixed:
		return opWritevFixed
	case k == writing:
		return opWritev
	case fixed:
		return opReadvFixed
	}
	return opReadv
}
