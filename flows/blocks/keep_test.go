package blocks

import (
	"encoding/binary"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/umem"
)

// keeper is a disk that servers on one region serve one after the other.
type keeper struct {
	*rig
	disk   *disk
	config Config
	served *served
}

func newKeeper(t *testing.T) *keeper {
	region, c := small()
	c.Cache, c.Index = 4<<20, filepath.Join(t.TempDir(), "index")
	k := &keeper{rig: newRig(t, region), disk: newDisk(t, diskSize), config: c}
	k.settle()
	return k
}

// settle waits until the times of the file tell of the next write.
func (k *keeper) settle() {
	k.Helper()
	testenv.Wait(k, waitLimit, "the file to have been written some time ago", func() bool {
		id, err := identityOf(k.disk.target)
		testenv.Must(k, err)
		return id != [32]byte{}
	})
}

// next serves the disk by the next server, and returns what it has of the earlier one.
func (k *keeper) next() Stats {
	k.Helper()
	if k.served != nil {
		k.served.stop()
	}
	k.served = k.far.serve(k.disk, k.config)
	return k.served.server.Stats()
}

// read reads short and long blocks, and returns the number of reads of the disk.
func (k *keeper) read() uint64 {
	k.Helper()
	u := k.near.newCustomer(k.served, ClientConfig{}, 1, 1)
	for _, at := range []uint64{0, 8192, 1 << 20, diskSize - 4096} {
		u.get(at, u.frames[0], 4096)
	}
	u.get(2<<20, u.extents[0], 512<<10)
	testenv.Must(k, u.Client.Close())
	return k.served.settled().Disk.Reads
}

// buffers is how many buffers the reads take.
const buffers = 4 + 2

// lost fails unless so many buffers were discarded for a reason, and all others are used.
func (k *keeper) lost(st Stats, why Discard, n uint64) {
	k.Helper()
	if umem.Invariants { // frames in the pool have other bytes
		for one := range maps.Keys(st.Discarded) {
			if one != why && one != BadTag && one != NoBuffer {
				k.Errorf("%+v were discarded", st.Discarded)
			}
		}
		return
	}
	kept := buffers - n
	if why == Unclean || why == Damaged {
		kept = 0
	}
	want := map[Discard]uint64{}
	if n > 0 {
		want[why] = n
	}
	if !maps.Equal(st.Discarded, want) || st.Kept != kept {
		k.Errorf("%d buffers were kept, and %v discarded; want %d and %v", st.Kept, st.Discarded, kept, want)
	}
}

// TestKept: a server uses what the one before has cached, and does not read it again, unless it may not be what the disk
// has.
func TestKept(t *testing.T) {
	k := newKeeper(t)
	if st := k.next(); st.Kept != 0 || len(st.Discarded) != 0 {
		t.Errorf("there was no server before: %+v", st)
	}
	k.read()
	k.lost(k.next(), "", 0)
	if n := k.read(); n != 0 && !umem.Invariants {
		t.Errorf("%d reads of the disk for what is cached", n)
	}

	k.served.stop()
	k.disk.fill(2)
	testenv.Must(t, os.WriteFile(k.disk.path, k.disk.content, 0o600))
	k.settle()
	k.lost(k.next(), Changed, buffers)
	k.read()

	testenv.Must(t, k.served.do(func() error { k.served.server.Invalidate(0, 4096); return nil }))
	st := k.next()
	if st.Kept != buffers-1 && !umem.Invariants {
		t.Errorf("%d buffers were kept after one was invalidated", st.Kept)
	}
	k.read()
}

// TestKeptRecent: a file that was written just before cannot be told from one that is written at the same moment as
// it is read.
func TestKeptRecent(t *testing.T) {
	k := newKeeper(t)
	testenv.Must(t, os.WriteFile(k.disk.path, k.disk.content, 0o600))
	k.next()
	k.read()
	k.settle()
	k.lost(k.next(), Changed, buffers)
	k.read()
}

// TestKeptUnclean: of a server that was killed nothing is used.
func TestKeptUnclean(t *testing.T) {
	k := newKeeper(t)
	k.next()
	k.read()
	left, err := os.ReadFile(k.config.Index) // as a kill would leave it
	testenv.Must(t, err)
	k.served.stop()
	testenv.Must(t, os.WriteFile(k.config.Index, left, 0o600))
	k.lost(k.next(), Unclean, 1)
	k.read()
}

// TestKeptBytes: buffers that somebody has, or has written, are not used. The others are.
func TestKeptBytes(t *testing.T) {
	k := newKeeper(t)
	k.next()
	k.read()
	k.served.stop()
	all := k.entries()
	if len(all) != buffers {
		t.Fatalf("the index has %d entries", len(all))
	}
	k.far.region.At(all[0].address, 4096)[17]++
	k.lost(k.next(), BadTag, 1)
	k.read()

	k.served.stop()
	other := k.far.hands("other")
	one := []umem.Frame{{Addr: k.entries()[0].address}}
	if other.TakeAt(one) != 1 {
		t.Fatal("a buffer of a server that has ended is not in the pool")
	}
	k.lost(k.next(), NoBuffer, 1)
	k.read()
	other.Close()

	k.served.stop()
	k.config.Cache = 0
	k.config.Index = ""
	k.next()
	k.read()
}

// TestKeptOnce: one server at a time has an index.
func TestKeptOnce(t *testing.T) {
	k := newKeeper(t)
	k.next()
	c := k.served.config
	c.Worker = k.far.hands("second")
	if s, err := Open(c); err == nil || !strings.Contains(err.Error(), "another flow or daemon uses it") {
		t.Errorf("a second server has the index: %v, %v", s, err)
	}
	c.Index, c.Cache = c.Index+"2", 0
	if s, err := Open(c); err == nil || !strings.Contains(err.Error(), "Cache") {
		t.Errorf("an index without a cache: %v, %v", s, err)
	}
	k.read()
}

// entries reads the index.
func (k *keeper) entries() []indexed {
	k.Helper()
	b, err := os.ReadFile(k.config.Index)
	testenv.Must(k, err)
	x := index{boot: bootID(), region: [32]byte(b[56:88]), source: [32]byte(b[88:120])}
	all, _, why, _ := x.decode(b)
	if why != "" {
		k.Fatalf("the index is %s", why)
	}
	return all
}

// TestIndexTorn: no part of an index is used, and none with another byte.
func TestIndexTorn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index")
	x, err := openIndex(path)
	testenv.Must(t, err)
	defer x.close()
	x.boot, x.region, x.source = "boot", [32]byte{1}, [32]byte{2}
	want := []indexed{{4096, 8192, 4096, [16]byte{3}}, {1 << 20, 0, 512, [16]byte{4}}}
	key := newKey()
	testenv.Must(t, x.write(indexComplete, key, want))
	all, got, why, n, err := x.read()
	if err != nil || why != "" || n != 2 || !slices.Equal(all, want) || string(got) != string(key) {
		t.Fatalf("read %v, %v, %v, %v", all, why, n, err)
	}
	whole, err := os.ReadFile(path)
	testenv.Must(t, err)
	damaged := func(b []byte) {
		t.Helper()
		testenv.Must(t, os.WriteFile(path, b, 0o600))
		if all, _, why, _, err := x.read(); err != nil || why != Damaged || all != nil {
			t.Fatalf("of %d bytes, %v: %v, %v, %v", len(b), b, all, why, err)
		}
	}
	for n := 1; n < len(whole); n++ {
		damaged(whole[:n])
	}
	for i := range whole {
		b := slices.Clone(whole)
		b[i] ^= 0x40
		damaged(b)
	}
	damaged(append(slices.Clone(whole), 0))

	for why, change := range map[Discard]func(y *index){
		Restarted: func(y *index) { y.boot = "other" }, OtherRegion: func(y *index) { y.region[0]++ }, Changed: func(y *index) { y.source[0]++ },
	} {
		testenv.Must(t, os.WriteFile(path, whole, 0o600))
		y := *x
		change(&y)
		if all, _, got, n, err := y.read(); err != nil || got != why || n != 2 || all != nil {
			t.Errorf("%s: %v, %v, %v", why, all, got, err)
		}
	}
	y := *x
	y.source = [32]byte{}
	testenv.Must(t, y.write(indexComplete, key, want))
	if all, _, why, _, err := y.read(); why != Changed || all != nil {
		t.Errorf("of a source without an identity: %v, %v", all, err)
	}
	b := slices.Clone(whole)
	binary.LittleEndian.PutUint64(b[152:], 1<<60)
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b[12:], castagnoli))
	damaged(b)
}

// TestIdentity: the identity of a target changes when somebody writes it, by whatever way that counts.
func TestIdentity(t *testing.T) {
	testenv.Root(t)
	path := testenv.DiskFile(t, 1<<20)
	identity := func(path string) ([32]byte, error) {
		t.Helper()
		target, err := nvme.OpenTarget(nvme.TargetConfig{Path: path, ReadOnly: true})
		testenv.Must(t, err)
		defer target.Close()
		return identityOf(target)
	}
	if _, err := identity(testenv.Loop(t, path, 0)); err == nil || !strings.Contains(err.Error(), "serve the file") {
		t.Errorf("a loop device has an identity: %v", err)
	}
	if target, err := nvme.OpenTarget(nvme.TargetConfig{Path: path, ReadOnly: true}); err == nil {
		defer target.Close()
		testenv.Wait(t, waitLimit, "the file to have been written some time ago", func() bool { id, _ := identityOf(target); return id != [32]byte{} })
	}
	before, err := identity(path)
	testenv.Must(t, err)
	if again, err := identity(path); err != nil || again != before {
		t.Errorf("it changes: %v", err)
	}
	testenv.Must(t, os.Chmod(path, 0o644))
	if now, err := identity(path); err != nil || now == before {
		t.Errorf("it stays: %v", err)
	}
}
