package group

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// good is a history without a mistake: two clients append five messages, one of them without an
// acknowledgement, and two members are read.
func good() *history {
	log := []record{{2, id{1, 1}}, {3, id{2, 1}}, {5, id{1, 2}}, {6, id{2, 2}}, {7, id{1, 3}}}
	return &history{
		log: log,
		appends: []appended{
			{id{1, 1}, 10, 20, 2}, {id{2, 1}, 15, 30, 3}, {id{1, 2}, 25, 60, 5}, {id{2, 2}, 50, 70, 0}, {id{1, 3}, 80, 0, 0},
			{id{2, 3}, 90, 0, 0}, // it is nowhere
		},
		reads: []reading{
			{0, 12, 14, false, nil},
			{0, 40, 45, false, log[:1]}, // an old one
			{0, 50, 55, false, log[:2]},
			{1, 26, 64, true, log[:3]},
			{1, 72, 76, false, log[:4]},
			{1, 77, 95, true, log[:5]}, // the last message takes effect though its client never learns of it
		},
	}
}

// bad are mistakes, each with what must find it.
var bad = []struct {
	name                    string
	make                    func(h *history)
	appends, reads, linears bool
}{
	{"none", func(*history) {}, false, false, false},
	{"an acknowledged message is lost", func(h *history) { h.log = slices.Delete(slices.Clone(h.log), 3, 4); h.reads = h.reads[:4] }, true, false, true},
	{"the newest acknowledged message is lost", func(h *history) { h.log, h.reads = h.log[:3], h.reads[:4] }, true, false, true},
	{"a message is there twice", func(h *history) { h.log = append(slices.Clone(h.log), record{8, id{2, 1}}) }, true, false, true},
	{"a client's messages are in another order", func(h *history) {
		h.log[2].id, h.log[4].id = h.log[4].id, h.log[2].id
		h.appends[2].position = 7
	}, true, true, true},
	{"a client's message is missing", func(h *history) { h.appends[4].sequence, h.log[4].sequence = 4, 4 }, true, false, false},
	{"the order is not that of time", func(h *history) {
		h.log[0].id, h.log[1].id = h.log[1].id, h.log[0].id
		h.appends[0].position, h.appends[1].position = 3, 2
		h.appends[1].invoked = 21
	}, true, false, true},
	{"nobody sent a message", func(h *history) { h.log = append(slices.Clone(h.log), record{8, id{3, 1}}) }, true, false, true},
	{"a client is told another position", func(h *history) { h.appends[1].position = 4 }, true, false, true},
	{"positions go back", func(h *history) { h.log = slices.Clone(h.log); h.log[4].position = 5; h.reads = h.reads[:4] }, true, false, false},
	{"a read has a message that was not sent yet", func(h *history) { h.reads[1].saw = h.log[:3]; h.reads[1].ended = 24; h.reads[2].saw = h.log[:3] }, false, true, true},
	{"a read goes back", func(h *history) { h.reads[4].saw = h.log[:2] }, false, true, false},
	{"a read lacks a message in the middle", func(h *history) { h.reads[4].saw = []record{h.log[0], h.log[1], h.log[3]} }, false, true, true},
	{"a read has another message", func(h *history) { h.reads[4].saw = slices.Clone(h.log[:4]); h.reads[4].saw[3].sequence = 3 }, false, true, true},
	{"a read has a message at another position", func(h *history) { h.reads[4].saw = slices.Clone(h.log[:4]); h.reads[4].saw[3].position++ }, false, true, true},
	{"a read has a message that the log lost", func(h *history) { h.log = h.log[:4] }, false, true, true},
	{"a read up to now is old", func(h *history) { h.reads[5].saw = h.log[:3]; h.reads[4].saw = h.log[:3] }, false, true, true},
}

// TestBadHistories: the checks accept a good history, and find each mistake.
func TestBadHistories(t *testing.T) {
	for _, b := range bad {
		h := good()
		b.make(h)
		for _, c := range []struct {
			name  string
			check func() error
			finds bool
		}{
			{"appends", h.checkAppends, b.appends},
			{"reads", h.checkReads, b.reads},
			{"porcupine", func() error { return h.checkLinearizable(time.Minute) }, b.linears},
		} {
			if err := c.check(); (err != nil) != c.finds {
				t.Errorf("%s, checked by %s: %v", b.name, c.name, err)
			}
		}
	}
}

// TestHistoryTakesTooLong: a history that porcupine cannot check in time is refused.
func TestHistoryTakesTooLong(t *testing.T) {
	h := &history{}
	for n := range uint64(5000) {
		h.appends = append(h.appends, appended{id{n, 1}, 1, 2, n + 1})
		h.log = append(h.log, record{n + 1, id{n, 1}})
	}
	slices.Reverse(h.appends)
	if err := h.checkLinearizable(time.Millisecond); err == nil || !strings.Contains(err.Error(), "could not say") {
		t.Errorf("the check of a history that is too long for its time: %v", err)
	}
}
