package group

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// state is a log as porcupine sees it: how many messages it has, a hash of all of them, and how many reads
// have seen exactly these.
type state struct {
	count int
	hash  uint64
	reads int
}

var seed = maphash.MakeSeed()

// with returns the state after another message.
func (s state) with(r record) state {
	return state{count: s.count + 1, hash: maphash.Comparable(seed, [4]uint64{s.hash, r.position, r.session, r.sequence})}
}

// operation is the input of an operation. What it returned is in it, too.
type operation struct {
	read     bool
	appended record
	place    int   // of what is appended in the log, from 0 on; -1: it is not there
	before   int   // how many reads have seen only what is in front of it
	saw      state // by a read
}

// model is a list to which messages are appended, and which is read as a whole. An append is possible
// only at its place in the final log, and after the reads that have seen exactly what is in front of it.
// Both limit the search, which would take too long without, and forbid nothing that would be right: the
// final log is also the last read, and a read has no other time than that between two appends.
var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(before, input, _ any) (bool, any) {
		s, o := before.(state), input.(operation)
		switch {
		case o.read:
			same := s.count == o.saw.count && s.hash == o.saw.hash
			s.reads++
			return same, s
		case o.place != s.count, o.before != s.reads:
			return false, s
		}
		return true, s.with(o.appended)
	},
	Hash: func(s any) uint64 { return s.(state).hash + uint64(s.(state).reads) },
}

// checkLinearizable has porcupine check that the history is linearizable, except that reads may be old
// if they are not up to now: they may take effect at any time before their end. It is an error, too, if
// that takes longer than limit.
func (h *history) checkLinearizable(limit time.Duration) error {
	all := h.operations()
	switch porcupine.CheckOperationsTimeout(model, all, limit) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("porcupine could not say within %v whether %d operations are linearizable", limit, len(all))
	}
	return fmt.Errorf("%d operations are not linearizable", len(all))
}

// operations returns the history for porcupine.
func (h *history) operations() (all []porcupine.Operation) {
	places, _ := h.order()
	first, last := never, int64(0)
	for _, a := range h.appends {
		first, last = min(first, a.invoked), max(last, a.invoked, a.acknowledged)
	}
	for i := range h.reads {
		first, last = min(first, h.reads[i].began), max(last, h.reads[i].ended)
	}
	reads := append(slices.Clone(h.reads), reading{began: last + 1, ended: last + 2, upToNow: true, saw: h.log})
	seen := map[int]int{} // how many reads have seen so many messages
	for i := range reads {
		seen[len(reads[i].saw)]++
	}
	sent := map[id]int64{}
	for _, a := range h.appends {
		o := operation{appended: record{a.position, a.id}, place: -1}
		if at, there := places[a.id]; there {
			o.place, o.before, o.appended.position = at, seen[at], cmp.Or(a.position, h.log[at].position)
		} else if a.acknowledged == 0 {
			continue // it has not happened
		}
		sent[a.id] = a.invoked
		all = append(all, porcupine.Operation{Input: o, Call: a.invoked, Return: cmp.Or(a.acknowledged, last)})
	}
	for i, saw := range states(reads) {
		r := &reads[i]
		begin := r.began
		if n := len(r.saw); !r.upToNow && n == 0 {
			begin = first
		} else if !r.upToNow { // it cannot take effect before its newest message was sent, so the search need not try
			begin = max(first, min(sent[r.saw[n-1].id], r.ended))
		}
		all = append(all, porcupine.Operation{Input: operation{read: true, saw: saw}, Call: begin, Return: r.ended})
	}
	return all
}

// states returns the state that each read saw. Reads begin alike, so that each one only adds to the longest
// one that it continues.
func states(reads []reading) []state {
	all := make([]state, len(reads))
	var of []record
	known := []state{{}} // of the beginnings of of
	for i := range reads {
		saw := reads[i].saw
		same := 0
		for same < min(len(of), len(saw)) && of[same] == saw[same] {
			same++
		}
		if same < len(saw) {
			of, known = saw, known[:same+1]
			for _, r := range saw[same:] {
				known = append(known, known[len(known)-1].with(r))
			}
		}
		all[i] = known[len(saw)]
	}
	return all
}
