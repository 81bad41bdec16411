package nvme

import "golang.org/x/sys/unix"

// command queues an NVMe command for the rest of an operation on a node, as much of it as one
// command can move.
func (q *Queue) command(i uint32) {
	o := &q.ops[i]
	n := q.targets[o.target].target.node
	s := sqe{opcode: opURingCmd, flags: sqeFixedFile, fd: int32(o.target), off: nvmeIO, userData: q.userData(i)}
	c := nvmeCommand{nsid: n.id}
	switch o.kind {
	case reading, writing:
		q.moveCommand(i, n, &s, &c)
	case zeroing:
		c.opcode = nvmeWriteZeroes
		o.asked = min(o.total-o.done, n.transfer)
		n.blocks(&c, o)
	case discarding:
		q.datasetCommand(i, n, &c)
	default:
		c.opcode = nvmeFlush
	}
	q.ring.pushCommand(s, c)
}

// blocks sets the range of blocks of a command.
func (n *namespace) blocks(c *nvmeCommand, o *op) {
	first := (o.block + o.done) >> n.shift
	c.cdw10, c.cdw11 = uint32(first), uint32(first>>32)
	c.cdw12 |= uint32(o.asked>>n.shift) - 1
}

// moveCommand fills in a read or write.
func (q *Queue) moveCommand(i uint32, n *namespace, s *sqe, c *nvmeCommand) {
	o := &q.ops[i]
	c.opcode = nvmeRead
	if o.kind == writing {
		c.opcode = nvmeWrite
	}
	if o.durable {
		c.cdw12 = nvmeFUA
	}
	l := &q.targets[o.target].target.limits
	vecs := q.piecesOf(i, min(n.transfer, q.targets[o.target].target.Size()-o.block-o.done), l)
	o.asked = 0
	for _, v := range vecs {
		o.asked += v.len
	}
	q.aim(vecs, s, c)
	n.blocks(c, o)
}

// aim sets a command's memory: one piece of a registered buffer, or a list.
func (q *Queue) aim(vecs []iovec, s *sqe, c *nvmeCommand) {
	first := vecs[0].base - q.base
	s.bufIndex, s.opFlags = q.buffers.of(first), cmdFixed
	fixed := !q.unregistered && !q.targets[s.fd].unfixed
	if len(vecs) == 1 && q.buffers.same(first, vecs[0].len) {
		c.addr, c.dataLen = vecs[0].base, uint32(vecs[0].len)
	} else {
		s.off = nvmeVec
		c.addr, c.dataLen = vecsAddress(vecs), uint32(len(vecs))
		fixed = fixed && q.granted.GatherFixed && q.oneBuffer(vecs)
	}
	if !fixed {
		s.bufIndex, s.opFlags = 0, 0
		q.stats.Own.Pinned++
	}
}

// oneBuffer reports whether all pieces are in the registered buffer of the first.
func (q *Queue) oneBuffer(vecs []iovec) bool {
	for _, v := range vecs {
		if q.buffers.of(v.base-q.base) != q.buffers.of(vecs[0].base-q.base) || !q.buffers.same(v.base-q.base, v.len) {
			return false
		}
	}
	return true
}

// piecesOf lists the next pieces for one command: at most most bytes, and only as many as the disk
// can gather. The kernel would copy the others.
func (q *Queue) piecesOf(i uint32, most uint64, l *Limits) []iovec {
	vecs := q.scratch.pieces[int(i)*q.pieces:][:0:q.pieces]
	skip := q.ops[i].done
	for _, f := range q.chain(i) {
		n := uint64(f.Len)
		if skip >= n {
			skip -= n
			continue
		}
		n = min(n-skip, most)
		if n == 0 || len(vecs) > 0 && !q.joins(vecs, f.Addr, l) {
			break
		}
		vecs = q.joinPiece(vecs, f.Addr+skip, n)
		skip, most = 0, most-n
	}
	return vecs
}

// joins reports whether a command can continue with a piece at addr: it is adjacent to the last
// one, or both meet the disk's boundary.
func (q *Queue) joins(vecs []iovec, addr uint64, l *Limits) bool {
	last := vecs[len(vecs)-1]
	end := last.base - q.base + last.len
	if end == addr && q.buffers.same(end-1, 2) {
		return true
	}
	return uint64(len(vecs)) < max(l.Segments, 1) && (end|addr)&(max(l.Boundary, 1)-1) == 0
}

// datasetCommand fills in a dataset management command that deallocates a range. The kernel copies
// the range when it reads the command.
func (q *Queue) datasetCommand(i uint32, n *namespace, c *nvmeCommand) {
	o := &q.ops[i]
	const most = 1 << 30 // blocks
	o.asked = min(o.total-o.done, most<<n.shift)
	r := &q.scratch.ranges[i]
	*r = dsmRange{blocks: uint32(o.asked >> n.shift), start: (o.block + o.done) >> n.shift}
	c.opcode, c.cdw10, c.cdw11 = nvmeDataset, 0, nvmeDeallocate
	c.addr, c.dataLen = rangeAddress(r), uint32(dsmSize)
}

// tryPinned reports whether to try a command again with its pages pinned. Linux 6.1 refuses a
// registered buffer whose pages are huge (blk_rq_map_user_bvec in block/blk-map.c). All other
// causes of EINVAL have been checked.
func (q *Queue) tryPinned(o *op, errno unix.Errno) bool {
	p := &q.targets[o.target]
	if p.target.node == nil || o.status != 0 || errno != unix.EINVAL || o.kind > writing || o.repeated {
		return false
	}
	p.unfixed, o.repeated = true, true
	return true
}

// settle converts the result of a command on a node.
func (q *Queue) settle(o *op, res int32) unix.Errno {
	if res != 0 {
		o.status = Status(res & statusBits)
		q.stats.answered(o.status)
		return o.status.errno()
	}
	o.done += o.asked
	if o.kind == reading || o.kind == writing {
		q.stats.Own.add(o, o.asked, true)
	}
	return 0
}

// beyond returns the error of an operation at the end of a node. The kernel checks the end of files
// and block devices, but not of nodes.
func (o *op) beyond(t *Target) unix.Errno {
	switch {
	case t.node == nil || o.kind == flushing || o.block+o.done < t.Size():
		return 0
	case o.kind == reading:
		return unix.ENODATA
	}
	return unix.ENOSPC
}
