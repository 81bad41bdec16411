package blocks

import (
	"crypto/sha256"
	"errors"

	"github.com/unifiedd/unifiedd/umem"
)

// openKept opens the index, and takes the buffers whose data it vouches for. From then on the index says that the
// cache is in use, so that a server that does not end in good order leaves nothing to the next one.
func (s *Server) openKept() error {
	if s.config.Index == "" {
		return nil
	}
	if !s.plan.keep {
		return errors.New("an index is of use only with a Cache")
	}
	source, err := identityOf(s.config.Target)
	if err != nil {
		return err
	}
	if s.index, err = openIndex(s.config.Index); err != nil {
		return err
	}
	s.index.boot, s.index.source = bootID(), source
	s.index.region = sha256.Sum256([]byte(s.region.Contents()))
	all, key, why, n, err := s.index.read()
	if err != nil {
		return err
	}
	if why != "" {
		s.discarded[why] += n
		s.config.Log.Warn("cached data of an earlier server is not used", "server", s.config.Name, "why", string(why), "buffers", n)
	}
	if err := s.takeKept(all, key); err != nil {
		return err
	}
	return s.index.write(indexOpen, nil, nil)
}

// takeKept takes the buffers of an index out of the pool, those with the right bytes first.
func (s *Server) takeKept(all []indexed, key []byte) error {
	if len(all) == 0 {
		return nil
	}
	tags, err := newTagger(key)
	if err != nil {
		return err
	}
	frames := make([]umem.Frame, 0, len(all))
	good := all[:0]
	var many [shelves]int
	for _, e := range all {
		cache, valid := s.shelfOf(e)
		if !valid || many[cache] == s.plan.caches[cache].buffers {
			s.discarded[NoBuffer]++
			continue
		}
		many[cache]++
		good, frames = append(good, e), append(frames, umem.Frame{Addr: e.address})
	}
	s.config.Worker.TakeAt(frames)
	for i, e := range good {
		cache, _ := s.shelfOf(e)
		switch h := &s.caches[cache]; {
		case frames[i].Len == 0: // somebody has it, or it is there twice
			s.discarded[NoBuffer]++
		case tags.of(e.address, s.region.At(e.address, uint64(e.length))) != e.tag:
			s.discarded[BadTag]++
			h.spare = append(h.spare, frames[i])
		default:
			s.kept++
			h.kept = append(h.kept, e)
		}
	}
	return nil
}

// shelfOf returns the cache to which an entry belongs, and whether the entry makes sense there.
func (s *Server) shelfOf(e indexed) (cache int, valid bool) {
	p := s.plan
	start, room := s.region.Start(umem.Frame{Addr: e.address})
	size, cache := p.frame, frameCache
	if base, bytes := s.region.ExtentRange(); e.address-base < bytes {
		size, cache = p.extent, extentCache
	}
	step := p.align
	if cache == frameCache {
		step = size
	}
	switch {
	case size == 0, e.address >= s.region.Size(), start != e.address, room != size:
	case e.length == 0, uint64(e.length) > size, e.offset > p.size, uint64(e.length) > p.size-e.offset:
	case e.offset%step != 0, uint64(e.length)%p.align != 0:
	default:
		return cache, true
	}
	return cache, false
}

// keep writes the index of what the cache has. Nothing uses the buffers any more.
func (s *Server) keep() error {
	if s.index == nil {
		return nil
	}
	key := newKey()
	tags, err := newTagger(key)
	if err != nil {
		return err
	}
	var all []indexed
	for i := range s.caches {
		for _, b := range s.caches[i].buffers {
			if b.found && b.holder == s.cached && s.cached != nil {
				all = append(all, indexed{b.start, b.at, b.length, tags.of(b.start, s.region.At(b.start, uint64(b.length)))})
			}
		}
	}
	err = errors.Join(s.index.write(indexComplete, key, all), s.index.close())
	s.index = nil
	return err
}

// taken copies the buffers that takeKept took to frames, those with data first, and returns their number.
func (s *bufferCache) taken(frames []umem.Frame) (n int) {
	for _, e := range s.kept {
		frames[n] = umem.Frame{Addr: e.address}
		n++
	}
	return n + copy(frames[n:], s.spare)
}

// takeOver makes the first buffers those with the data of an earlier server.
func (s *bufferCache) takeOver(cached *umem.Holder) {
	s.empty = s.empty[:0]
	for i := range s.buffers {
		b := &s.buffers[i]
		if i >= len(s.kept) || s.find(s.kept[i].offset) != none { // no server caches an offset twice
			s.empty = append(s.empty, int32(i))
			continue
		}
		b.at, b.length = s.kept[i].offset, s.kept[i].length
		s.list(int32(i))
		s.hold(int32(i), cached)
	}
	s.kept, s.spare = nil, nil
}
