package xdp

import "github.com/unifiedd/unifiedd/umem"

// fillAccount is the fill ring of a queue whose packets several ports receive, each from its own rx
// ring. A frame goes to the port that gets the packet in it, so its supplier is not known. Each
// port counts how many frames it supplied and did not get back.
//
// A slow port must not use up the frames of the others. So each keeps a reserve in the ring (Port.reserve),
// as many frames as its rx ring can hold, and receives only what it has supplied beyond that.
//
// It belongs to the thread of all ports' books.
type fillAccount struct {
	ring    *outgoing[uint64]
	anchor  *socket // the socket that owns the ring; it stays open as long as there are ports
	ports   []*Port
	stash   []uint64 // frames for which the ring has no room yet
	surplus int      // frames that former ports have not got back: that many of the stash go to the pool
	back    [64]umem.Frame
}

// join makes the port share the fill ring of its queue.
func (p *Port) join(f *fillAccount) {
	p.fillAccount = f
	f.ports = append(f.ports, p)
	if p.reserve == 0 {
		p.reserve = p.rings.rx.size
		p.most += p.reserve
	}
	p.reserved = p.supplied >= p.reserve
	most := int(f.ring.size)
	for _, other := range f.ports {
		most += int(other.most) + int(other.rings.rx.size)
	}
	f.stash = append(make([]uint64, 0, most), f.stash...)
}

// supplyTogether is Supply on a shared fill ring. The stash takes the frames for which the ring has
// no room.
func (p *Port) supplyTogether(empty []umem.Frame) int {
	f := p.fillAccount
	n := 0
	for ; n < len(empty) && empty[n].Addr-p.extents >= p.extentBytes; n++ {
		f.stash = append(f.stash, empty[n].Addr&^(p.chunk-1))
	}
	p.starved = p.starved || p.zeroCopy && len(f.stash) > 0 && !f.ring.pending()
	if n > 0 {
		p.worker.PassTo(p.held, empty[:n])
		p.supplied += uint32(n)
		p.reserved = p.reserved || p.supplied >= p.reserve
	}
	p.pump()
	return n
}

// pump moves frames from the stash to the ring. It takes the most recent ones first, because they
// are more likely in a cache.
func (p *Port) pump() {
	f := p.fillAccount
	if f.surplus > 0 && len(f.stash) > 0 {
		f.surplus -= p.giveBack(min(f.surplus, len(f.stash), len(f.back)))
	}
	n := f.ring.room(uint32(len(f.stash)))
	if n == 0 {
		return
	}
	left := len(f.stash) - int(n)
	for i, addr := range f.stash[left:] {
		f.ring.set(uint32(i), addr)
	}
	f.stash = f.stash[:left]
	f.ring.publish(n)
}

// giveBack gives n frames of the stash to the pool, at most as many as back holds.
func (p *Port) giveBack(n int) int {
	f := p.fillAccount
	left := len(f.stash) - n
	for i, addr := range f.stash[left:] {
		f.back[i] = umem.Frame{Addr: addr}
	}
	f.stash = f.stash[:left]
	p.held.Give(f.back[:n])
	return n
}

// withdraw leaves the queue to the other ports. The port gets frames from the stash for those that
// it has supplied. The other ports must replace the rest: frames in the rings, and frames that the
// others have received and not returned.
func (p *Port) withdraw() {
	f, rx := p.fillAccount, &p.rings.rx
	n := rx.waiting(rx.size)
	for i := range n {
		f.stash = append(f.stash, rx.at(i).Addr&^(p.chunk-1))
	}
	rx.release(n)
	mine := int(p.supplied)
	for mine > 0 && len(f.stash) > 0 {
		mine -= p.giveBack(min(mine, len(f.stash), len(f.back)))
	}
	f.surplus += mine
	rest := make([]*Port, 0, len(f.ports))
	for _, other := range f.ports {
		if other != p {
			rest = append(rest, other)
		}
	}
	f.ports = rest
	p.held.Merge(rest[0].held)
}
