package nvmet

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
)

// TestWhereItLanded: a disk writes a host's data from the address at which the data arrived, and a
// host gets data from the address to which the disk read it. The test compares addresses in the
// region.
func TestWhereItLanded(t *testing.T) {
	r, s := newSoftRig(t)
	landed(r, s, 2) // a packet's frame, and the buffer into which RoCE in software copies it
}

// landed checks how often data is in the server's region. When a host knows that a write is done,
// its data is once in the buffer from which it went to the disk. The whole region has no more
// copies than most. The data of a read is in the region once.
func landed(r *rig, s *station, most int) {
	r.Helper()
	disk := r.zram(16 << 20)
	v := r.serve(Config{Sessions: 2, Queues: 1, Depth: 32, Capsule: 4096, Small: 8, Large: 4, Subsystems: []Subsystem{{NQN: softNQN, AnyHost: true, Namespaces: []Namespace{{ID: 1, Disk: disk}}}}})
	q := s.connects(softHost, 1, 32).queues[0]
	at := s.room(64 << 10)
	mark := rand.NewChaCha8([32]byte{3})
	inside := blocks(fabrics.OpWrite, 40, 1, fabrics.Data{Place: fabrics.InCapsule, Length: 4096})
	inside.inside = s.bytes(at, 4096)
	for _, c := range []struct {
		name string
		*message
		n uint64
	}{{"write", blocks(fabrics.OpWrite, 0, 1, s.keyed(at, 4096)), 4096}, {"long write", blocks(fabrics.OpWrite, 16, 16, s.keyed(at, 64<<10)), 64 << 10}, {"write in the capsule", inside, 4096}} {
		data := s.bytes(at, c.n)
		_, _ = mark.Read(data)
		piece := data[c.n-100:][:32] // in one packet
		q.succeeds(c.message)
		in, all := v.find(piece)
		if in != 1 || all < 1 || all > most {
			r.Errorf("%s: %d times in the buffers, %d times in the region", c.name, in, all)
		}
		written := make([]byte, c.n)
		readAt(r, disk.Path(), written, int64(c.words[0])<<12)
		if !bytes.Equal(written, data) {
			r.Errorf("%s: the disk has something else", c.name)
		}
		clear(data)
		q.succeeds(blocks(fabrics.OpRead, uint64(c.words[0]), int(c.n>>12), s.keyed(at, c.n)))
		if !bytes.Equal(written, data) {
			r.Errorf("%s: something else is read", c.name)
		}
	}
	fresh := make([]byte, 4096)
	_, _ = mark.Read(fresh)
	writeAt(r, disk.Path(), fresh, 200<<12)
	q.succeeds(blocks(fabrics.OpRead, 200, 1, s.keyed(at, 4096)))
	if in, all := v.find(fresh[2000:2032]); in != 1 || all != 1 || !bytes.Equal(fresh, s.bytes(at, 4096)) {
		r.Errorf("read: %d times in the buffers, %d times in the region", in, all)
	}
	if copied := v.server.Stats().Disk.Copied; copied != 0 {
		r.Errorf("the kernel copied %d bytes", copied)
	}
}

// find returns how often a piece is in the server's buffers, and in its region.
func (v *served) find(piece []byte) (in, all int) {
	v.Helper()
	v.rest()
	v.check(v.do(func() error {
		s := v.server
		all = bytes.Count(s.region.At(0, s.region.Size()), piece)
		for i := range s.pools {
			for _, f := range s.pools[i].free {
				in += bytes.Count(s.region.At(f.Addr, s.pools[i].size), piece)
			}
		}
		for _, f := range s.capsules {
			in += bytes.Count(s.region.At(f.Addr, uint64(s.config.Capsule)), piece)
		}
		return nil
	}))
	return in, all
}

// rest waits until no command is in progress: every buffer is back.
func (v *served) rest() {
	v.Helper()
	testenv.Wait(v, waitLimit, "all buffers", func() (is bool) {
		v.check(v.do(func() error {
			s := v.server
			is = len(s.pools[small].free) == s.config.Small && len(s.pools[large].free) == s.config.Large
			return nil
		}))
		return is
	})
}

func readAt(r *rig, path string, b []byte, at int64) {
	r.Helper()
	f, err := os.Open(path)
	r.must(err)
	defer f.Close()
	_, err = f.ReadAt(b, at)
	r.must(err)
}

// writeAt writes, and flushes the kernel's cache.
func writeAt(r *rig, path string, b []byte, at int64) {
	r.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	r.must(err)
	defer f.Close()
	_, err = f.WriteAt(b, at)
	r.must(err)
	r.must(f.Sync())
}
