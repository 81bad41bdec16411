package attach

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
	"github.com/unifiedd/unifiedd/umem"
)

// startStates runs a daemon with a state of objects and one of keys, which writer updates and reader reads.
func startStates(t *testing.T, dir, pages string) *flows.Daemon {
	t.Helper()
	return startText(t, fmt.Sprintf(`
region: {size: 16MiB, pages: %s}
attach:
  socket: %s
  programs:
    - {name: writer, user: "%d", out: 2MiB}
    - {name: reader, user: "%[3]d"}
  states:
    - {name: book, objects: 64, room: 336, readers: [reader]}
    - {name: refs, keys: 1000, readers: [reader, writer]}
flows:
  - {name: books, from: {attach: writer, message: 512}, to: {state: book}}
  - {name: keys, from: {attach: writer, message: 512}, to: {state: refs}}
`, pages, filepath.Join(dir, "attach.sock"), os.Getuid()))
}

// update submits a message and waits until it is done. It returns the position.
func update(t *testing.T, s *attached.Sender, message []byte) uint64 {
	t.Helper()
	f, err := s.Claim()
	testenv.Must(t, err)
	if _, err := s.Commit(f, copy(f.Data, message)); err != nil {
		t.Fatal(err)
	}
	var done [1]attached.Receipt
	for end := time.Now().Add(testenv.Within(10 * time.Second)); ; {
		n, err := s.Poll(done[:])
		if n == 1 {
			return done[0].Position
		}
		if err != nil || time.Now().After(end) {
			t.Fatal("the update is not done:", err)
		}
		testenv.Must(t, s.Wait(t.Context(), time.Second))
	}
}

// TestState: what a program writes another one reads once it is done, with its position. Wrong updates change nothing
// and are counted. A program that is no reader gets no memory.
func TestState(t *testing.T) {
	testenv.Leaks(t)
	dir := t.TempDir()
	d := startStates(t, dir, "ordinary")
	k, kr := attach(t, dir, "writer", 0), attach(t, dir, "reader", 0)
	books, err := k.Send("books", 0)
	testenv.Must(t, err)
	defer books.Close()
	keys, err := k.Send("keys", 0)
	testenv.Must(t, err)
	defer keys.Close()
	book, err := kr.State("book")
	testenv.Must(t, err)
	defer book.Close()
	refs, err := kr.State("refs")
	testenv.Must(t, err)
	defer refs.Close()
	if _, err := k.State("book"); err == nil || !errors.As(err, new(*attached.RefusedError)) {
		t.Errorf("a program that is no reader has the state: %v", err)
	}
	checkObjects(t, books, book)
	checkKeys(t, keys, refs)
	for _, wrong := range [][]byte{
		{1}, attached.AppendPutObject(nil, 64, nil), attached.AppendPutObject(nil, 1, make([]byte, 337)), attached.AppendPutKey(nil, []byte("k"), nil),
	} {
		update(t, books, wrong)
	}
	testenv.Wait(t, testenv.Within(5*time.Second), "the counters", func() bool {
		s := d.Status().States[0]
		r := s.Refused
		return r["bad_update"] == 1 && r["bad_object"] == 1 && r["too_long"] == 1 && r["bad_key"] == 1 && s.Updates == 66 && s.Position == 70 && s.Entries == 63
	})
	s := d.Status()
	if f := s.Flows[0]; f.Dropped["bad_object"] != 1 || f.CopiedBytes["state"] == 0 || f.Updates == nil || f.Updates.State != "book" {
		t.Errorf("the flow: dropped %v, copied %v, %+v", f.Dropped, f.CopiedBytes, f.Updates)
	}
	if r := s.States[1].Readers; len(r) != 2 || !r[0].Reading || r[1].Reading {
		t.Errorf("readers: %+v", r)
	}
}

// checkObjects writes all 64 objects, one of them empty, and removes one.
func checkObjects(t *testing.T, books *attached.Sender, book *attached.State) {
	t.Helper()
	buffer := make([]byte, 512)
	if _, _, err := book.Get(5, buffer); !errors.Is(err, attached.ErrNotFound) {
		t.Errorf("an object that was not written: %v", err)
	}
	for i := range uint64(64) {
		payload := make([]byte, 5*i)
		for k := range payload {
			payload[k] = byte(i)
		}
		position := update(t, books, attached.AppendPutObject(nil, i, payload))
		n, version, err := book.Get(i, buffer)
		if err != nil || n != len(payload) || n > 0 && (buffer[0] != byte(i) || buffer[n-1] != byte(i)) || version != 2 {
			t.Fatalf("object %d has %d bytes, version %d: %v", i, n, version, err)
		}
		if at, run, err := book.Position(); err != nil || at != position || at != i+1 || run == 0 {
			t.Fatalf("update %d is done at position %d, and the state is at %d: %v", i, position, at, err)
		}
	}
	update(t, books, attached.AppendDeleteObject(nil, 7))
	if _, version, err := book.Get(7, buffer); !errors.Is(err, attached.ErrNotFound) || version != 4 {
		t.Errorf("a removed object: version %d, %v", version, err)
	}
	update(t, books, attached.AppendDeleteObject(nil, 7)) // once more, without effect
	if _, _, err := book.Get(64, buffer); !errors.Is(err, attached.ErrObject) {
		t.Errorf("object 64 of 64: %v", err)
	}
	if _, _, err := book.Get(63, buffer[:10]); !errors.Is(err, attached.ErrShort) {
		t.Errorf("into 10 bytes: %v", err)
	}
	if _, err := book.Lookup([]byte("k"), buffer); !errors.Is(err, attached.ErrKind) {
		t.Errorf("a key of objects: %v", err)
	}
	if n := testenv.AllocsPerRun(t, 100, func() { _, _, _ = book.Get(9, buffer) }); n != 0 {
		t.Errorf("Get allocates %v times", n)
	}
}

// checkKeys writes as many keys as the state has room for, and one more.
func checkKeys(t *testing.T, keys *attached.Sender, refs *attached.State) {
	t.Helper()
	buffer := make([]byte, 120)
	for i := range 1001 {
		update(t, keys, attached.AppendPutKey(nil, fmt.Appendf(nil, "isin%d", i), fmt.Append(nil, i)))
	}
	for i := range 1001 {
		n, err := refs.Lookup(fmt.Appendf(nil, "isin%d", i), buffer)
		if i == 1000 && errors.Is(err, attached.ErrNotFound) {
			break
		}
		if err != nil || string(buffer[:n]) != fmt.Sprint(i) {
			t.Fatalf("key %d is %q: %v", i, buffer[:n], err)
		}
	}
	update(t, keys, attached.AppendDeleteKey(nil, []byte("isin5")))
	if _, err := refs.Lookup([]byte("isin5"), buffer); !errors.Is(err, attached.ErrNotFound) {
		t.Errorf("a removed key: %v", err)
	}
	if _, err := refs.Lookup(nil, buffer); !errors.Is(err, attached.ErrKey) {
		t.Errorf("no key: %v", err)
	}
	key := []byte("isin77")
	if n := testenv.AllocsPerRun(t, 100, func() { _, _ = refs.Lookup(key, buffer) }); n != 0 {
		t.Errorf("Lookup allocates %v times", n)
	}
}

// TestStateOverRestart: a reader learns that the daemon is gone, and finds the state empty, with another run, when it is
// back.
func TestStateOverRestart(t *testing.T) {
	testenv.Long(t, "TestLibrary has states over restarts")
	testenv.Leaks(t)
	dir := t.TempDir()
	d := startStates(t, dir, "ordinary")
	k, kr := attach(t, dir, "writer", 0), attach(t, dir, "reader", 0)
	books, err := k.Send("books", 0)
	testenv.Must(t, err)
	book, err := kr.State("book")
	testenv.Must(t, err)
	defer book.Close()
	update(t, books, attached.AppendPutObject(nil, 3, []byte("x")))
	_, run, err := book.Position()
	testenv.Must(t, err)
	_ = books.Close()
	testenv.Must(t, d.Close())
	buffer := make([]byte, 336)
	testenv.Wait(t, testenv.Within(5*time.Second), "the reader to know", func() bool {
		_, _, err := book.Get(3, buffer)
		return errors.Is(err, attached.ErrGone)
	})
	startStates(t, dir, "ordinary")
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(10*time.Second))
	defer cancel()
	testenv.Must(t, book.Resume(ctx))
	if position, again, err := book.Position(); err != nil || position != 0 || again == run {
		t.Errorf("position %d, run %d after %d: %v", position, again, run, err)
	}
	if _, _, err := book.Get(3, buffer); !errors.Is(err, attached.ErrNotFound) {
		t.Errorf("the state is not empty: %v", err)
	}
}

// TestStateIsReadOnly: a reader can map the memory of a state to read only, whatever it tries, and what it got is
// exactly the state.
func TestStateIsReadOnly(t *testing.T) {
	testenv.Leaks(t)
	dir := t.TempDir()
	startStates(t, dir, "ordinary")
	c := dialRaw(t, dir).attach("reader")
	c.send(&wire.Open{Flow: "book", Role: wire.Look})
	body, _, fds := c.receive()
	o, is := body.(*wire.Opened)
	if !is || len(fds) != 1 {
		t.Fatalf("%+v with %d descriptors", body, len(fds))
	}
	fd := fds[0]
	defer unix.Close(fd)
	if b, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); !errors.Is(err, unix.EACCES) {
		t.Errorf("mapped to write: %d bytes, %v", len(b), err)
	}
	again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		if b, err := unix.Mmap(again, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); !errors.Is(err, unix.EPERM) {
			t.Errorf("opened again and mapped to write: %d bytes, %v", len(b), err)
		}
		if _, err := unix.Pwrite(again, []byte{1}, 4096); !errors.Is(err, unix.EPERM) {
			t.Errorf("written: %v", err)
		}
		if err := unix.Ftruncate(again, 0); !errors.Is(err, unix.EPERM) {
			t.Errorf("truncated: %v", err)
		}
		_ = unix.Close(again)
	}
	b, err := unix.Mmap(fd, 0, int(o.Size), unix.PROT_READ, unix.MAP_SHARED)
	testenv.Must(t, err)
	if err := unix.Mprotect(b, unix.PROT_READ|unix.PROT_WRITE); !errors.Is(err, unix.EACCES) {
		t.Errorf("mprotect: %v", err)
	}
	if got := binary.LittleEndian.Uint64(b[8:]); got != 64 {
		t.Errorf("the state has %d objects", got)
	}
	if err := unix.Munmap(b); err != nil {
		t.Error(err)
	}
}

// TestStateOfPrograms: while a program updates a state, another one on the host and one on another host read and verify
// it, objects longer than a packet and keys. The daemon counts exactly what was written. RDMA clients update a state, too.
func TestStateOfPrograms(t *testing.T) {
	p := newPair(t)
	d := daemon.Launch(t, program, &p.B, p.dir, fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary}
workers: [{name: main}]
attach:
  socket: %[1]s
  programs:
    - {name: writer, user: "%[2]d", out: 4MiB}
    - {name: keeper, user: "%[2]d", out: 4MiB}
    - {name: reader, user: "%[2]d"}
    - {name: finder, user: "%[2]d"}
  states:
    - {name: book, objects: 16, room: 1500, readers: [reader], rdma: "roce:%[3]s", listen: "%[4]s:7490"}
    - {name: refs, keys: 100, readers: [finder], rdma: "roce:%[3]s", listen: "%[4]s:7491"}
    - {name: fed, objects: 4, room: 64, rdma: "roce:%[3]s", listen: "%[4]s:7492"}
flows:
  - {name: books, from: {attach: writer, message: 2KiB}, to: {state: book}}
  - {name: keys, from: {attach: keeper, message: 2KiB}, to: {state: refs}}
  - {name: feed, from: {rdma: "roce:%[3]s", listen: "%[4]s:7471", message: 1KiB, clients: 2}, to: {state: fed}}
`, p.socket, os.Getuid(), p.B.Ifname, p.B.IP))
	d.Running(t)
	const updates, reads = "30000", "3000"
	limit := testenv.Within(60 * time.Second)
	writer := daemon.StartClient(t, flowTest, daemon.Here{}, "state", "-socket", p.socket, "-as", "writer", "-writes", "books", "-size", "1400", "-count", updates, "-rate", "6000")
	keeper := daemon.StartClient(t, flowTest, daemon.Here{}, "state", "-socket", p.socket, "-as", "keeper", "-writes", "keys", "-keys", "100", "-size", "64", "-count", updates, "-rate", "6000")
	reader := daemon.StartClient(t, flowTest, daemon.Here{}, "state", "-socket", p.socket, "-as", "reader", "-reads", "book", "-count", reads)
	finder := daemon.StartClient(t, flowTest, daemon.Here{}, "state", "-socket", p.socket, "-as", "finder", "-reads", "refs", "-keys", "100", "-count", reads)
	at := p.B.IP.String()
	remote := daemon.StartClient(t, flowTest, &p.A, "get", "-device", "roce:"+p.A.Ifname, "-ordinary", "-from", at+":7490", "-reads", "book", "-count", reads,
		"+", "get", "-from", at+":7491", "-reads", "refs", "-keys", "100", "-count", reads)
	for _, c := range []*daemon.Client{writer, keeper, reader, finder, remote} {
		c.Await(t, limit)
	}
	for _, c := range []*daemon.Client{reader, finder, remote} {
		if want := "read and verified " + reads + " messages"; strings.Count(c.Out.String(), want) == 0 {
			t.Errorf("a reader says: %s", &c.Out)
		}
	}
	s, err := d.Status()
	if err != nil || len(s.States) != 3 {
		t.Fatalf("%d states: %v", len(s.States), err)
	}
	for i, one := range s.States[:2] {
		if one.Updates != 30000 || one.Position != 30000 || one.Entries != []uint64{16, 100}[i] || one.Remote == nil || one.Remote.Accepted != 1 || one.Remote.Error != "" {
			t.Errorf("state %s: %+v, %+v", one.Name, one, one.Remote)
		}
	}
	t.Setenv(role, "updater")
	p.A.Run(t, os.Args[0], "roce:"+p.A.Ifname, at)
	if s, err = d.Status(); err != nil || s.States[2].Updates != 2 || s.States[2].Refused["bad_object"] != 1 || s.States[2].Position != 3 {
		t.Errorf("updates of an RDMA client: %+v, %v", s.States[2], err)
	}
	text := p.B.Run(t, program, "status", "-o", "wide", "--socket", filepath.Join(p.dir, "control.sock"))
	t.Logf("local: %s%sremote: %sstatus: %s", &reader.Out, &finder.Out, &remote.Out, text)
}

// updateState updates the state fed as an RDMA client of its flow, and reads it back.
func updateState(args []string) (err error) {
	device, host := args[0], args[1]
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Within(20*time.Second))
	defer cancel()
	k, err := client.Open(client.Config{Device: device, Pages: umem.Ordinary})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	a, err := k.Append(ctx, client.AppendConfig{Address: host + ":7471", Flow: "feed", Message: 512})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	s, err := k.State(ctx, client.StateConfig{Address: host + ":7492", State: "fed"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for i, update := range [][]byte{attached.AppendPutObject(nil, 2, []byte("first")), attached.AppendPutObject(nil, 9, nil), attached.AppendPutObject(nil, 2, []byte("second"))} {
		number, err := a.Send(ctx, update)
		if err != nil {
			return err
		}
		if receipt, err := a.Wait(ctx, number); err != nil || receipt.Position != uint64(i+1) {
			return fmt.Errorf("update %d: %+v, %w", i, receipt, err)
		}
	}
	b := make([]byte, 64)
	if n, version, err := s.Get(2, b); err != nil || string(b[:n]) != "second" || version != 4 {
		return fmt.Errorf("the object is %q, version %d: %w", b[:n], version, err)
	}
	if position, _, err := s.Position(); err != nil || position != 3 {
		return fmt.Errorf("the state is at position %d: %w", position, err)
	}
	return nil
}

// TestWordsOfAState: a program reads words, which begin as 0, and gets errors for what the state does not have.
func TestWordsOfAState(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	pair, dir := testenv.NewPair(t, testenv.PairOptions{}), t.TempDir()
	pair.B.Do(t, func() {
		startText(t, fmt.Sprintf(`
region: {size: 16MiB, pages: ordinary}
attach:
  socket: %s
  programs: [{name: reader, user: "%d"}, {name: second, user: "%[2]d"}]
  states: [{name: turns, words: 4, readers: [reader, second], rdma: "roce:%[3]s", listen: ":7491", worker: main}]
workers: [{name: main, wait: spin}]
flows:
  - {name: idle, from: {generate: 64, rate: 1}, to: {discard: true}}
`, filepath.Join(dir, "attach.sock"), os.Getuid(), pair.B.Ifname))
	})
	turns, err := attach(t, dir, "reader", 0).State("turns")
	testenv.Must(t, err)
	defer turns.Close()
	for n := range uint64(4) {
		if word, err := turns.Word(n); err != nil || word != 0 {
			t.Errorf("word %d is %d: %v", n, word, err)
		}
	}
	if _, err := turns.Word(4); !errors.Is(err, attached.ErrWord) {
		t.Errorf("word 4 of 4: %v", err)
	}
	if _, err := turns.Lookup([]byte("k"), nil); !errors.Is(err, attached.ErrKind) {
		t.Errorf("a key of words: %v", err)
	}
	pair.A.Do(t, func() {
		c, err := client.Open(client.Config{Device: "roce:" + pair.A.Ifname, Memory: 16 << 20, Pages: umem.Ordinary, Queue: 256})
		testenv.Must(t, err)
		defer c.Close()
		s, err := c.State(t.Context(), client.StateConfig{Address: pair.B.IP.String() + ":7491", State: "turns"})
		testenv.Must(t, err)
		defer s.Close()
		if before, err := s.FetchAdd(2, 40); err != nil || before != 0 {
			t.Errorf("the word was %d: %v", before, err)
		}
		if before, err := s.CompareSwap(2, 40, 42); err != nil || before != 40 {
			t.Errorf("the word was %d: %v", before, err)
		}
	})
	if word, err := turns.Word(2); err != nil || word != 42 {
		t.Errorf("the program reads %d: %v", word, err)
	}
	if n := turns.Words(); n != 4 {
		t.Errorf("the state has %d words, not 4", n)
	}
	d := startDriver(t.Context(), t, daemon.Here{}, buildChecked(t))
	for _, step := range [][2]string{
		{"attach " + filepath.Join(dir, "attach.sock") + " second 1", "attached"}, {"state turns", "words 4"}, {"getword 2", "word 42"},
		{"getword 3", "word 0"}, {"getword 4", "error invalid none"}, {"getobject 2 8", "error invalid none"},
		{"getkey k 8", "error invalid none"},
	} {
		got := d.do(step[0])
		for retries(step[0], got, step[1]) {
			time.Sleep(time.Millisecond)
			got = d.do(step[0])
		}
		if got != step[1] {
			t.Errorf("%s: %q instead of %q", step[0], got, step[1])
		}
	}
	if err := d.end(); err != nil {
		t.Error(err)
	}
}
