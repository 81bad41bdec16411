package journal

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/state"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// applied is a sink that updates a state.
type applied struct{ *state.State }

func (a applied) Update(all []state.Update, _ time.Time) {
	for i := range all {
		a.Skip(all[i].Position - 1)
		a.Apply(all[i].Message)
	}
	a.Publish()
}

// TestReceiveAllocatesNothing: applying a chunk of records allocates nothing.
func TestReceiveAllocatesNothing(t *testing.T) {
	c := state.Config{Name: "book", Objects: 64, Room: 64}
	region, err := umem.Open(umem.Config{Size: 4 << 20, Pages: umem.Ordinary, FrameSize: 4096, Slices: []umem.SliceConfig{c.Slice()}})
	testenv.Must(t, err)
	defer region.Close()
	set, err := state.Open(region, []state.Config{c})
	testenv.Must(t, err)
	defer set.Close()
	e := &pipeline.Env{Region: region, Flow: config.Flow{From: config.From{File: filepath.Join(t.TempDir(), "log")}}}
	defer func() { testenv.Check(t, e.Undo.Run()) }()
	book := set.Find("book")
	s, err := Open(e, 0, applied{book})
	testenv.Must(t, err)
	position, update, now := uint64(0), wire.AppendPutObject(nil, 5, []byte("101.5")), time.Now()
	round := func() {
		c := <-s.reader.empty
		c.reset()
		for range chunkRecords {
			position++
			c.add(&journal.Record{Data: protocol.Data{Position: position}, Payload: update, Time: 1})
		}
		s.reader.filled <- c
		s.Receive(nil, true, now)
	}
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("applying %d records allocates %v times", chunkRecords, n)
	}
	if p, _ := s.Traffic(); p != position || book.Position() != position {
		t.Errorf("%d records of %d were passed on, and the state is at %d", p, position, book.Position())
	}
}
