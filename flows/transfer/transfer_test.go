package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma/roce"
)

// wholeHash is the hash of bytes, as docs/how-to/transfer.md describes it.
func wholeHash(b []byte) [32]byte {
	var list []byte
	for len(b) > 0 {
		n := min(len(b), leafSize)
		one := blake3.Sum256(b[:n])
		list, b = append(list, one[:]...), b[n:]
	}
	return sha256.Sum256(list)
}

// TestSizes: files of many sizes arrive as they are, under their name and no other, and both sides have the same hash.
func TestSizes(t *testing.T) {
	g := small(t)
	v := g.far.receive(ReceiverConfig{Path: testenv.DiskDir(t)}, nil)
	var names []string
	for i, size := range []int{0, 1, 511, 4096, 4097, leafSize - 1, leafSize, leafSize + 1, 9*leafSize + 12345} {
		want := content(uint64(i), size)
		name := fmt.Sprintf("file%d", i)
		st, digest, err := g.near.send(SenderConfig{Path: file(t, name, want), Address: v.address})
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		c := v.copied()
		equal(t, filepath.Join(v.dir, name), want)
		if c.Name != name || c.Size != uint64(size) || c.Resumed != 0 || c.Digest != digest || digest != wholeHash(want) {
			t.Errorf("%d bytes: %+v, hash %x", size, c, digest)
		}
		if st.Sent != uint64(size) || st.Durable != uint64(size) || st.Connections != 1 || st.Kernel != 0 {
			t.Errorf("%d bytes: %+v", size, st)
		}
		names = append(names, name)
		only(t, v.dir, names...)
	}
	if st := v.Stats(); st.Complete != 9 || st.Kernel != 0 || st.Connections != 9 {
		t.Errorf("%+v", st)
	}
}

// TestInPlace: neither side copies a byte. The device in software copies what arrives into its place, once.
func TestInPlace(t *testing.T) {
	g := small(t)
	v := g.far.receive(ReceiverConfig{Path: testenv.DiskDir(t)}, nil)
	want := content(1, 32<<20)
	if _, _, err := g.near.send(SenderConfig{Path: file(t, "file", want), Address: v.address}); err != nil {
		t.Fatal(err)
	}
	v.copied()
	equal(t, filepath.Join(v.dir, "file"), want)
	soft, is := g.far.device.(*roce.Device)
	if !is {
		return // a card copies nothing
	}
	counts := map[string]uint64{}
	for _, c := range soft.Counters() {
		counts[c.Name] = c.Value
	}
	if placed := counts["copied_bytes"]; placed < uint64(len(want)) || placed > uint64(len(want))*101/100 {
		t.Errorf("%d bytes were copied into place, of %d", placed, len(want))
	}
	for _, c := range g.near.device.(*roce.Device).Counters() {
		if c.Name == "sent_copied_bytes_whole" && c.Value > 0 {
			t.Errorf("%d bytes were copied to be sent", c.Value)
		}
	}
}

// TestPieces: both sides may have pieces of other sizes. The shorter one counts.
func TestPieces(t *testing.T) {
	want := content(1, 21<<20+17)
	for _, c := range []struct{ near, far uint64 }{{1, 4}, {4, 1}, {8, 8}} {
		t.Run(fmt.Sprint(c.near, " to ", c.far), func(t *testing.T) {
			g := newRig(t, memory(c.near<<20, 3), memory(c.far<<20, 6))
			v := g.far.receive(ReceiverConfig{Path: testenv.DiskDir(t), Window: 3}, nil)
			if _, _, err := g.near.send(SenderConfig{Path: file(t, "file", want), Address: v.address, Window: 3}); err != nil {
				t.Fatal(err)
			}
			equal(t, filepath.Join(v.dir, "file"), want)
		})
	}
}

// TestReplaced: a file that is there is replaced when the copy is complete, and keeps its permissions. Times and permissions
// of the source are taken on request.
func TestReplaced(t *testing.T) {
	g := small(t)
	v := g.far.receive(ReceiverConfig{Path: testenv.DiskDir(t)}, nil)
	old := filepath.Join(v.dir, "file")
	testenv.Must(t, os.WriteFile(old, []byte("old"), 0o604))
	testenv.Must(t, os.Chmod(old, 0o604))
	source := file(t, "file", []byte("new"))
	when := time.Date(2001, 2, 3, 4, 5, 6, 7000, time.UTC)
	testenv.Must(t, errors.Join(os.Chtimes(source, when, when), os.Chmod(source, 0o751|os.ModeSetuid)))
	for _, c := range []struct {
		times, perms bool
		mode         os.FileMode
	}{{false, false, 0o604}, {true, false, 0o604}, {true, true, 0o751}} {
		if _, _, err := g.near.send(SenderConfig{Path: source, Address: v.address, Times: c.times, Perms: c.perms}); err != nil {
			t.Fatal(err)
		}
		equal(t, old, []byte("new"))
		info, err := os.Stat(old)
		testenv.Must(t, err)
		if info.Mode() != c.mode || info.ModTime().Equal(when) != c.times {
			t.Errorf("%+v: mode %v, time %v", c, info.Mode(), info.ModTime())
		}
	}
	only(t, v.dir, "file")
}

// TestSparse: holes of a file are not sent, and are holes of the copy, also those within a piece.
func TestSparse(t *testing.T) {
	g := small(t)
	v := g.far.receive(ReceiverConfig{Path: testenv.DiskDir(t)}, nil)
	path := filepath.Join(testenv.DiskDir(t), "file")
	f, err := os.Create(path)
	testenv.Must(t, err)
	const size = 128<<20 + 5000
	want := map[int64][]byte{}
	for i, at := range []int64{0, 3 << 20, 3<<20 + 64<<10, 20<<20 + 8192, 100 << 20, size - 100} {
		want[at] = content(uint64(i), min(70<<10, int(size-at)))
		if i == 1 {
			want[at] = want[at][:4096]
		}
		if _, err := f.WriteAt(want[at], at); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Must(t, errors.Join(f.Truncate(size), f.Sync(), f.Close()))
	st, digest, err := g.near.send(SenderConfig{Path: path, Address: v.address})
	testenv.Must(t, err)
	c := v.copied()
	if c.Size != size || c.Digest != digest || st.Sent > 8<<20 || st.Sent+st.Holes != size {
		t.Errorf("%+v, %+v", c, st)
	}
	copied := filepath.Join(v.dir, "file")
	var a, b unix.Stat_t
	testenv.Must(t, errors.Join(unix.Stat(path, &a), unix.Stat(copied, &b)))
	if b.Size != size || b.Blocks > a.Blocks+64 {
		t.Errorf("the copy has %d bytes in %d blocks, and the source has %d blocks", b.Size, b.Blocks, a.Blocks)
	}
	compareFiles(t, path, copied)
}

// compareFiles compares two files piece by piece.
func compareFiles(t *testing.T, a, b string) {
	t.Helper()
	var files [2]*os.File
	for i, path := range []string{a, b} {
		f, err := os.Open(path)
		testenv.Must(t, err)
		defer f.Close()
		files[i] = f
	}
	var bufs [2][]byte
	for i := range bufs {
		bufs[i] = make([]byte, 1<<20)
	}
	for at := int64(0); ; at += 1 << 20 {
		n, _ := files[0].ReadAt(bufs[0], at) // the end is no error here
		m, _ := files[1].ReadAt(bufs[1], at)
		if n != m || !bytes.Equal(bufs[0][:n], bufs[1][:m]) {
			t.Fatalf("%s and %s differ within 1 MiB from %d", a, b, at)
		}
		if n == 0 {
			return
		}
	}
}

// TestResumes: both sides end over and over, and others follow. They go on from what was durable, and the copy is right.
// Bytes that were there are counted, and are not sent again.
func TestResumes(t *testing.T) {
	g := small(t)
	want := content(3, 64<<20+999)
	path, dir := file(t, "file", want), testenv.DiskDir(t)
	v := g.far.receive(ReceiverConfig{Path: dir}, nil)
	k := g.near.sender(SenderConfig{Path: path, Limit: 96 << 20, Address: v.address})
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	for range 3 {
		short, stop := context.WithCancel(ctx)
		go func() {
			for from := k.Stats().At; k.Stats().At < from+8<<20 && ctx.Err() == nil; {
				sleep(longSleep)
			}
			stop()
		}()
		var err error
		g.near.ns.Do(t, func() { err = k.Run(short) })
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("%v", err)
		}
		before := k.Stats()
		v.end()
		g.near.check(k.Close())
		left, err := Incomplete(dir, "")
		if err != nil || len(left) != 1 || left[0].Name != filepath.Join(dir, "file") || left[0].Durable == 0 || left[0].Durable > before.At {
			t.Fatalf("%+v, %v; the sender was at %d", left, err, before.At)
		}
		if _, err := os.Stat(filepath.Join(dir, "file")); err == nil {
			t.Fatal("the copy has its name before it is complete")
		}
		v = g.far.receive(ReceiverConfig{Path: dir}, nil)
		k = g.near.sender(SenderConfig{Path: path, Limit: 96 << 20, Address: v.address})
	}
	var err error
	g.near.ns.Do(t, func() { err = k.Run(ctx) })
	st := k.Stats()
	g.near.check(k.Close())
	testenv.Must(t, err)
	if c := v.copied(); c.Resumed == 0 || c.Resumed+st.Sent != uint64(len(want)) || c.Digest != wholeHash(want) || st.Resumed != c.Resumed {
		t.Errorf("%+v, %+v", c, st)
	}
	equal(t, filepath.Join(dir, "file"), want)
	only(t, dir, "file")
}

// TestReconnects: the connection is cut several times within one Run.
func TestReconnects(t *testing.T) {
	g := small(t)
	want := content(4, 96<<20)
	v := g.far.receive(ReceiverConfig{Path: testenv.DiskDir(t)}, nil)
	k := g.near.sender(SenderConfig{Path: file(t, "file", want), Address: v.address, Limit: 64 << 20})
	done := make(chan struct{})
	cut := 0
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(300 * time.Millisecond):
			}
			v.mu.Lock()
			for _, s := range v.using {
				s.end(errReplaced)
				cut++
			}
			v.mu.Unlock()
		}
	}()
	var err error
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	g.near.ns.Do(t, func() { err = k.Run(ctx) })
	close(done)
	st := k.Stats()
	g.near.check(k.Close())
	testenv.Must(t, err)
	equal(t, filepath.Join(v.dir, "file"), want)
	if st.Connections < 2 || v.Stats().Resumed == 0 || st.Sent < uint64(len(want)) {
		t.Errorf("cut %d times: %+v, %+v", cut, st, v.Stats())
	}
	only(t, v.dir, "file")
}

// TestSourceChanges: a source that is written while it is sent is not copied, and nothing of it stays.
func TestSourceChanges(t *testing.T) {
	g := small(t)
	v := g.far.receive(ReceiverConfig{Path: testenv.DiskDir(t)}, nil)
	for name, change := range map[string]func(f *os.File) error{
		"written": func(f *os.File) error { _, err := f.WriteAt([]byte("x"), 5); return err },
		"longer":  func(f *os.File) error { _, err := f.WriteAt([]byte("x"), 24<<20); return err },
		"shorter": func(f *os.File) error { return f.Truncate(1 << 20) },
		"utime":   func(f *os.File) error { return os.Chtimes(f.Name(), time.Now(), time.Unix(1, 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t, name, content(5, 24<<20))
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			testenv.Must(t, err)
			defer f.Close()
			late := time.AfterFunc(300*time.Millisecond, func() { g.near.check(change(f)) })
			defer late.Stop()
			_, _, err = g.near.send(SenderConfig{Path: path, Address: v.address, Limit: 16 << 20})
			if !errors.Is(err, protocol.Changed) {
				t.Errorf("%v", err)
			}
			testenv.Wait(t, waitLimit, "an empty directory", func() bool { e, err := os.ReadDir(v.dir); return err == nil && len(e) == 0 })
		})
	}
	testenv.Wait(t, waitLimit, "the reasons", func() bool { return v.Stats().Ended[protocol.Changed] == 4 })
}

// TestSourceGrows: a source has changed also if its end cannot be read, because it grew between two parts of a read, of
// which the second one is then not aligned.
func TestSourceGrows(t *testing.T) {
	g := small(t)
	v := g.far.receive(ReceiverConfig{Path: testenv.DiskDir(t)}, nil)
	path := file(t, "file", content(5, 2<<20+900))
	k := g.near.sender(SenderConfig{Path: path, Address: v.address})
	k.align = 1 // the kernel refuses the read as it refuses the second part
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	g.near.must(err)
	_, err = f.Write(content(6, 100))
	testenv.Must(t, err, f.Close())
	g.near.ns.Do(t, func() { err = k.Run(t.Context()) })
	g.near.check(k.Close())
	if !errors.Is(err, protocol.Changed) {
		t.Errorf("%v", err)
	}
	testenv.Wait(t, waitLimit, "an empty directory", func() bool { e, err := os.ReadDir(v.dir); return err == nil && len(e) == 0 })
}

// TestLongNames: a copy with a name of 255 bytes is listed with its name while it is not complete, and goes on.
func TestLongNames(t *testing.T) {
	g := small(t)
	v := g.far.receive(ReceiverConfig{Path: testenv.DiskDir(t)}, nil)
	path := file(t, "file", content(6, 24<<20))
	testenv.Must(t, os.Mkdir(filepath.Join(v.dir, "sub"), 0o700))
	long := "sub/" + strings.Repeat("я", 127) + "x"
	c := SenderConfig{Path: path, Address: v.address, Name: long, Limit: 12 << 20}
	g.partly(t, c)
	all, err := Incomplete(v.dir, "")
	if err != nil || len(all) != 1 || all[0].Name != filepath.Join(v.dir, long) || all[0].Durable == 0 {
		t.Errorf("%+v, %v", all, err)
	}
	c.Limit = 0
	if st, _, err := g.near.send(c); err != nil || st.Resumed == 0 {
		t.Errorf("%+v, %v", st, err)
	}
	equal(t, filepath.Join(v.dir, long), content(6, 24<<20))
	only(t, filepath.Join(v.dir, "sub"), filepath.Base(long))
}

// TestAnotherSource: a copy of a source that has changed since begins again.
func TestAnotherSource(t *testing.T) {
	g := small(t)
	v := g.far.receive(ReceiverConfig{Path: testenv.DiskDir(t)}, nil)
	path := file(t, "file", content(6, 24<<20))
	g.partly(t, SenderConfig{Path: path, Address: v.address, Limit: 12 << 20})
	want := content(7, 24<<20)
	testenv.Must(t, os.WriteFile(path, want, 0o600))
	st, _, err := g.near.send(SenderConfig{Path: path, Address: v.address})
	if err != nil || st.Resumed != 0 {
		t.Fatalf("%+v, %v", st, err)
	}
	equal(t, filepath.Join(v.dir, "file"), want)
	only(t, v.dir, "file")
}
