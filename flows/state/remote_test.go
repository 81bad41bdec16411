package state

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// TestRemote: a peer reads what was written, objects of several packets and keys, without an allocation, and knows the
// position.
func TestRemote(t *testing.T) {
	g := newRig(t, 4, nil, Config{Name: "book", Objects: 32, Room: 5000}, Config{Name: "refs", Keys: 500})
	book, refs := g.set.Find("book"), g.set.Find("refs")
	b, r := g.reader(0), g.reader(1)
	if b.Objects() != 32 || b.Room() != 5000 || r.Objects() != 0 {
		t.Fatalf("%d objects of %d bytes, and %d", b.Objects(), b.Room(), r.Objects())
	}
	dst := make([]byte, 5000)
	for i := range uint64(32) {
		payload := bytes.Repeat([]byte{byte(i + 1)}, int(161*i))
		book.Apply(wire.AppendPutObject(nil, i, payload))
		book.Publish()
		n, version, err := b.Get(i, dst)
		if err != nil || version != 2 || !bytes.Equal(dst[:n], payload) {
			t.Fatalf("object %d has %d bytes, version %d: %v", i, n, version, err)
		}
		if position, run, err := b.Position(); err != nil || position != i+1 || run != book.Stats().Run {
			t.Fatalf("position %d of run %d: %v", position, run, err)
		}
	}
	book.Apply(wire.AppendDeleteObject(nil, 9))
	if _, _, err := b.Get(9, dst); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a removed object: %v", err)
	}
	if _, _, err := b.Get(31, dst[:100]); !errors.Is(err, client.ErrShort) {
		t.Errorf("into 100 bytes: %v", err)
	}
	if _, _, err := b.Get(32, dst); !errors.Is(err, client.ErrObject) {
		t.Errorf("object 32 of 32: %v", err)
	}
	for i := range 500 {
		refs.Apply(wire.AppendPutKey(nil, fmt.Append(nil, "key", i), fmt.Append(nil, i)))
	}
	for i := range 510 {
		n, err := r.Lookup(fmt.Append(nil, "key", i), dst)
		if i >= 500 && errors.Is(err, client.ErrNotFound) {
			continue
		}
		if err != nil || string(dst[:n]) != fmt.Sprint(i) {
			t.Fatalf("key %d is %q: %v", i, dst[:n], err)
		}
	}
	if _, err := r.Lookup(nil, dst); !errors.Is(err, client.ErrKey) {
		t.Errorf("no key: %v", err)
	}
	if _, _, err := r.Get(1, dst); !errors.Is(err, client.ErrKind) {
		t.Errorf("an object of keys: %v", err)
	}
	key, missing := []byte("key1"), []byte("key1000")
	if n := testenv.AllocsPerRun(t, testenv.Fewer(100), func() {
		_, _, _ = b.Get(5, dst)
		_, _ = r.Lookup(key, dst)
		_, _ = r.Lookup(missing, dst)
	}); n >= 1 {
		t.Errorf("reads allocate %v times", n)
	}
	if st := g.servers[0].Stats(); st.Readers != 1 || st.Accepted != 1 || st.Err != nil {
		t.Errorf("%+v", st)
	}
}

// TestRemoteRefusals: a reader that may not read, one too many, and one of another state are refused with a reason. A
// reader whose server closes gets an error.
func TestRemoteRefusals(t *testing.T) {
	allowed := true
	permit := func(connect.Peer, protocol.Hello) error {
		if allowed {
			return nil
		}
		return errors.New("not on the list")
	}
	g := newRig(t, 1, permit, Config{Name: "book", Objects: 4, Room: 64})
	if _, err := g.dial(0, "other"); err == nil || !strings.Contains(err.Error(), `"book"`) {
		t.Errorf("another state: %v", err)
	}
	allowed = false
	if _, err := g.dial(0, "book"); err == nil || !strings.Contains(err.Error(), "not on the list") {
		t.Errorf("a reader that may not: %v", err)
	}
	allowed = true
	b := g.reader(0)
	if _, err := g.dial(0, "book"); err == nil || !strings.Contains(err.Error(), "as many as clients allows") {
		t.Errorf("a second reader: %v", err)
	}
	st := g.servers[0].Stats()
	if st.Refused[protocol.NotPermitted] != 2 || st.Refused[protocol.Busy] != 1 || st.Readers != 1 {
		t.Errorf("%+v", st)
	}
	g.must(b.Close())
	g.until("the reader to be gone", func() bool { return g.servers[0].Stats().Readers == 0 })
	b = g.reader(0)
	g.until("the server to have accepted it", func() bool { return g.servers[0].Stats().Accepted == 2 })
	g.must(g.servers[0].Close())
	g.until("the reader to know", func() bool { _, _, err := b.Position(); return err != nil })
	if _, _, err := b.Get(0, nil); err == nil || !strings.Contains(err.Error(), "ends") {
		t.Errorf("after the end of the server: %v", err)
	}
}
