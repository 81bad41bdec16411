package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestNames: names that lead out of the directory, or are those of copies that are not complete, are refused and counted,
// and nothing is made. Names below existing directories are good.
func TestNames(t *testing.T) {
	g := small(t)
	root := testenv.DiskDir(t)
	dir := filepath.Join(root, "in")
	for _, d := range []string{"out", "in/sub", "in/is-a-dir"} {
		testenv.Must(t, os.MkdirAll(filepath.Join(root, d), 0o755))
	}
	outside := filepath.Join(root, "out/secret")
	if err := errors.Join(os.WriteFile(outside, []byte("secret"), 0o600), os.Symlink("../out", filepath.Join(dir, "link")),
		os.Symlink("../out/secret", filepath.Join(dir, "file-link")), unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600)); err != nil {
		t.Fatal(err)
	}
	v := g.far.receive(ReceiverConfig{Path: dir}, nil)
	source := file(t, "file", content(1, 10000))
	bad := []string{"..", ".", "../x", "sub/../../x", "/etc/x", "sub//x", "sub/", "link/x", "file-link", "fifo", "is-a-dir", "missing/x", "file/x",
		".x" + partSuffix, ".x" + recordSuffix, "x\x00y", strings.Repeat("a", 256), "sub/./x", "./x"}
	for _, name := range bad {
		_, _, err := g.near.send(SenderConfig{Path: source, Address: v.address, Name: name})
		if !errors.Is(err, protocol.BadName) {
			t.Errorf("%.40q: %v", name, err)
		}
	}
	if n := v.Stats().Refused[protocol.BadName]; n != uint64(len(bad)) {
		t.Errorf("%d of %d were counted", n, len(bad))
	}
	only(t, dir, "fifo", "file-link", "is-a-dir", "link", "sub")
	only(t, filepath.Join(root, "out"), "secret")
	only(t, filepath.Join(dir, "sub"))
	for _, name := range []string{"x", "sub/y", "..x", "sub/näme with \"spaces\"\n", strings.Repeat("b", 200), strings.Repeat("c", 241), strings.Repeat("d", 255), strings.Repeat("я", 127)} {
		if _, _, err := g.near.send(SenderConfig{Path: source, Address: v.address, Name: name}); err != nil {
			t.Errorf("%.40q: %v", name, err)
			continue
		}
		equal(t, filepath.Join(dir, name), content(1, 10000))
	}
	equal(t, outside, []byte("secret"))
}

// TestHiddenLinks: links in place of the hidden file or of its record lead nowhere.
func TestHiddenLinks(t *testing.T) {
	g := small(t)
	dir, out := testenv.DiskDir(t), testenv.DiskDir(t)
	secret := filepath.Join(out, "secret")
	testenv.Must(t, errors.Join(os.WriteFile(secret, []byte("secret"), 0o600), os.Symlink(secret, filepath.Join(dir, ".a"+partSuffix)), os.Symlink(secret, filepath.Join(dir, ".b"+recordSuffix))))
	v := g.far.receive(ReceiverConfig{Path: dir}, nil)
	source := file(t, "file", content(1, 10000))
	if _, _, err := g.near.send(SenderConfig{Path: source, Address: v.address, Name: "a"}); err != nil { // the link is removed
		t.Error(err)
	}
	if _, _, err := g.near.send(SenderConfig{Path: source, Address: v.address, Name: "b"}); err == nil {
		t.Error("a record behind a link was taken")
	}
	equal(t, secret, []byte("secret"))
	only(t, dir, ".b"+recordSuffix, "a")
}

// TestDiskFull: a copy for which there is no room is refused before anything is sent. One with holes ends when the disk is
// full, keeps what is durable, and goes on when there is room.
func TestDiskFull(t *testing.T) {
	g := small(t)
	dir := testenv.Ext4(t, 48<<20)
	v := g.far.receive(ReceiverConfig{Path: dir}, nil)
	want := content(1, 64<<20)
	_, _, err := g.near.send(SenderConfig{Path: file(t, "dense", want), Address: v.address})
	if !errors.Is(err, protocol.NoSpace) {
		t.Errorf("%v", err)
	}
	only(t, dir, "lost+found")
	path := file(t, "sparse", want[:40<<20])
	testenv.Must(t, os.Truncate(path, 80<<20))
	fill := filepath.Join(dir, "fill")
	testenv.Must(t, os.WriteFile(fill, want[:20<<20], 0o600))
	if _, _, err = g.near.send(SenderConfig{Path: path, Address: v.address}); !errors.Is(err, protocol.NoSpace) {
		t.Errorf("%v", err)
	}
	testenv.Wait(t, waitLimit, "the reason", func() bool { return v.Stats().Ended[protocol.NoSpace] == 1 })
	if v.Stats().Refused[protocol.NoSpace] != 1 {
		t.Errorf("%+v", v.Stats())
	}
	testenv.Must(t, os.Remove(fill))
	st, _, err := g.near.send(SenderConfig{Path: path, Address: v.address})
	if err != nil || st.Resumed == 0 {
		t.Errorf("%+v, %v", st, err)
	}
	compareFiles(t, path, filepath.Join(dir, "sparse"))
	v.end() // the file system is unmounted
}

// TestKeepFree: what must stay free is not taken.
func TestKeepFree(t *testing.T) {
	g := small(t)
	dir := testenv.Ext4(t, 48<<20)
	v := g.far.receive(ReceiverConfig{Path: dir, KeepFree: 30 << 20}, nil)
	if _, _, err := g.near.send(SenderConfig{Path: file(t, "large", content(1, 20<<20)), Address: v.address}); !errors.Is(err, protocol.NoSpace) {
		t.Errorf("%v", err)
	}
	if _, _, err := g.near.send(SenderConfig{Path: file(t, "small", content(1, 1<<20)), Address: v.address}); err != nil {
		t.Error(err)
	}
	v.end()
}

// TestKeepFreeOfHoles: a sender that says that its file has holes does not take what must stay free.
func TestKeepFreeOfHoles(t *testing.T) {
	g := small(t)
	const keep = 30 << 20
	dir := testenv.Ext4(t, 48<<20)
	v := g.far.receive(ReceiverConfig{Path: dir, KeepFree: keep}, nil)
	path := file(t, "sparse", content(1, 32<<20))
	testenv.Must(t, os.Truncate(path, 40<<20))
	if _, _, err := g.near.send(SenderConfig{Path: path, Address: v.address}); !errors.Is(err, protocol.NoSpace) {
		t.Errorf("%v", err)
	}
	testenv.Wait(t, waitLimit, "the reason", func() bool { return v.Stats().Ended[protocol.NoSpace] == 1 })
	var st unix.Statfs_t
	testenv.Must(t, unix.Statfs(dir, &st))
	if free := st.Bavail * uint64(st.Bsize); free < keep {
		t.Errorf("%d bytes are free, and %d were to stay so", free, keep)
	}
	v.end()
}

// TestModes: a file that replaces none has the permissions of its source without the receiver's umask.
func TestModes(t *testing.T) {
	g := small(t)
	old := unix.Umask(0o027)
	found := umask()
	unix.Umask(old)
	if found != 0o027 {
		t.Errorf("the umask is taken for %o", found)
	}
	v := g.far.receive(ReceiverConfig{Path: testenv.DiskDir(t)}, nil)
	v.place.umask = 0o027
	for mode, want := range map[os.FileMode]os.FileMode{0o600: 0o600, 0o644: 0o640, 0o777: 0o640, 0o400: 0o400} {
		path := file(t, fmt.Sprintf("file-%o", mode), content(1, 100))
		testenv.Must(t, os.Chmod(path, mode))
		if _, _, err := g.near.send(SenderConfig{Path: path, Address: v.address}); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(filepath.Join(v.dir, filepath.Base(path))); err != nil || info.Mode() != want {
			t.Errorf("a copy of %o has %v, want %o: %v", mode, info.Mode(), want, err)
		}
	}
}

// TestTimes: the copy has the source's time of modification, also outside of 1970 to 2262. A time that the receiver's file
// system cannot store is refused before anything is sent.
func TestTimes(t *testing.T) {
	g := small(t)
	v := g.far.receive(ReceiverConfig{Path: testenv.Ext4(t, 48<<20)}, nil)
	from, err := os.MkdirTemp("/dev/shm", "transfer") // tmpfs stores all times
	g.near.must(err)
	t.Cleanup(func() { g.near.check(os.RemoveAll(from)) })
	path := filepath.Join(from, "file")
	testenv.Must(t, os.WriteFile(path, content(1, 100), 0o600))
	for _, c := range []struct {
		at   string
		nsec int64
		fits bool
	}{{"1969-12-31T23:59:59Z", 999_999_999, true}, {"1901-12-14T00:00:00Z", 1, true}, {"2038-01-19T03:14:08Z", 0, true}, {"2262-04-12T00:00:00Z", 0, true}, {"2300-01-01T00:00:00Z", 250_000_000, true},
		{"1600-01-01T00:00:00Z", 0, false}, {"2600-01-01T00:00:00Z", 0, false}} {
		at, err := time.Parse(time.RFC3339, c.at)
		g.near.must(err)
		want := unix.Timespec{Sec: at.Unix(), Nsec: c.nsec}
		testenv.Must(t, unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{{Nsec: unix.UTIME_OMIT}, want}, 0))
		_, _, err = g.near.send(SenderConfig{Path: path, Address: v.address, Times: true})
		if !c.fits {
			if !errors.Is(err, protocol.OutOfRange) || !strings.Contains(err.Error(), "--times") {
				t.Errorf("%s: %v", c.at, err)
			}
			continue
		}
		var st unix.Stat_t
		if err := errors.Join(err, unix.Stat(filepath.Join(v.dir, "file"), &st)); err != nil || st.Mtim != want {
			t.Errorf("%s: %+v, want %+v: %v", c.at, st.Mtim, want, err)
		}
	}
	only(t, v.dir, "file", "lost+found")
	v.end()
}

// TestDevices: a file is copied to a device, and the device to a file. The device's record says whether it is complete. A
// device that is not empty is not written unless that is said.
func TestDevices(t *testing.T) {
	g := small(t)
	const size = 24 << 20
	device := testenv.Loop(t, testenv.DiskFile(t, size), 0)
	state := testenv.DiskDir(t)
	v := g.far.receive(ReceiverConfig{Path: device, State: state}, nil)
	want := content(1, 20<<20+700)
	if _, _, err := g.near.send(SenderConfig{Path: file(t, "file", want), Address: v.address}); err != nil {
		t.Fatal(err)
	}
	if c := v.copied(); c.Name != device || c.Digest != wholeHash(want) {
		t.Errorf("%+v", c)
	}
	all, err := Incomplete(device, state)
	if err != nil || len(all) != 1 || !all[0].Complete || all[0].Digest != wholeHash(want) {
		t.Errorf("%+v, %v", all, err)
	}
	v.end()
	got, err := os.ReadFile(device)
	if err != nil || len(got) != size {
		t.Fatalf("%d bytes: %v", len(got), err)
	}
	equal(t, device, append(want, make([]byte, size-len(want))...))

	w := g.far.receive(ReceiverConfig{Path: testenv.DiskDir(t)}, nil)
	if _, _, err := g.near.send(SenderConfig{Path: device, Address: w.address, Name: "image"}); err != nil {
		t.Fatal(err)
	}
	equal(t, filepath.Join(w.dir, "image"), got)
	w.end()

	v = g.far.receive(ReceiverConfig{Path: device, State: state}, nil)
	if _, _, err := g.near.send(SenderConfig{Path: file(t, "too large", content(1, size+1)), Address: v.address}); !errors.Is(err, protocol.NoSpace) {
		t.Errorf("%v", err)
	}
	v.end()
	testenv.Must(t, os.WriteFile(device, append([]byte("XFSB"), got[4:]...), 0))
	v = g.far.receive(ReceiverConfig{Path: device, State: state}, nil)
	if _, _, err := g.near.send(SenderConfig{Path: file(t, "file", want), Address: v.address}); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("%v", err)
	}
	v.end()
	v = g.far.receive(ReceiverConfig{Path: device, State: state, Force: true}, nil)
	sparse := filepath.Join(testenv.DiskDir(t), "sparse")
	testenv.Must(t, errors.Join(os.WriteFile(sparse, want[:1<<20], 0o600), os.Truncate(sparse, size)))
	if _, _, err := g.near.send(SenderConfig{Path: sparse, Address: v.address}); err != nil {
		t.Fatal(err)
	}
	v.end()
	equal(t, device, append(append([]byte(nil), want[:1<<20]...), make([]byte, size-1<<20)...))
}

// TestDeviceResumes: a copy to a device goes on from what is durable, and until it is complete its record says so.
func TestDeviceResumes(t *testing.T) {
	g := small(t)
	device := testenv.Loop(t, testenv.DiskFile(t, 64<<20), 0)
	state := testenv.DiskDir(t)
	want := append([]byte("XFSB"), content(1, 48<<20)...) // the device is not empty then
	want = want[:48<<20]
	path := file(t, "file", want)
	v := g.far.receive(ReceiverConfig{Path: device, State: state}, nil)
	g.partly(t, SenderConfig{Path: path, Address: v.address, Limit: 24 << 20})
	v.end()
	all, err := Incomplete(device, state)
	if err != nil || len(all) != 1 || all[0].Complete || all[0].Durable == 0 || all[0].Size != uint64(len(want)) {
		t.Fatalf("%+v, %v", all, err)
	}
	v = g.far.receive(ReceiverConfig{Path: device, State: state}, nil)
	st, _, err := g.near.send(SenderConfig{Path: path, Address: v.address})
	if err != nil || st.Resumed != all[0].Durable {
		t.Fatalf("%+v, %v", st, err)
	}
	v.end()
	got, err := os.ReadFile(device)
	if err != nil || string(got[:len(want)]) != string(want) {
		t.Errorf("the device differs: %v", err)
	}
}

// TestOlderRecords: what a release with another hash has begun, in a file or on a device, is listed, and begins again. It
// still belongs to its sender. A record of a version that is not known is not touched.
func TestOlderRecords(t *testing.T) {
	g := small(t)
	want := append([]byte("XFSB"), content(1, 48<<20)...) // the device is not empty then
	path := file(t, "file", want[:40<<20])
	dir, state := testenv.DiskDir(t), testenv.DiskDir(t)
	for place, record := range map[string]string{dir: filepath.Join(dir, ".file"+recordSuffix), testenv.Loop(t, testenv.DiskFile(t, 64<<20), 0): ""} {
		c := ReceiverConfig{Path: place, State: state}
		v := g.far.receive(c, nil)
		g.partly(t, SenderConfig{Path: path, Address: v.address, Limit: 24 << 20})
		v.end()
		if record == "" {
			record = filepath.Join(state, oneIn(t, state))
		}
		before, err := os.ReadFile(record)
		g.far.must(err)

		recordVersions(t, record, recordVersion+1)
		v = g.far.receive(c, nil)
		if _, _, err := g.near.send(SenderConfig{Path: path, Address: v.address}); err == nil || !strings.Contains(err.Error(), "let the release that wrote it complete the copy") {
			t.Errorf("%s: %v", place, err)
		}
		v.end()
		recordVersions(t, record, oldVersion)
		all, err := Incomplete(place, state)
		if err != nil || len(all) != 1 || all[0].Complete || all[0].Durable == 0 || all[0].Size != 40<<20 {
			t.Errorf("%+v, %v", all, err)
		}
		f, err := os.OpenFile(record, os.O_RDWR, 0)
		g.far.must(err)
		old, err := openRecord(f)
		g.far.must(errors.Join(err, f.Close()))
		if d := (&destination{record: old}); !errors.Is(d.checkOwner(old.last.owner+1), protocol.NotPermitted) || d.checkOwner(old.last.owner) != nil {
			t.Errorf("the record %+v has no owner", old.last)
		}

		v = g.far.receive(c, nil)
		st, digest, err := g.near.send(SenderConfig{Path: path, Address: v.address})
		if err != nil || st.Resumed != 0 || st.Sent != 40<<20 || digest != wholeHash(want[:40<<20]) {
			t.Errorf("%s: %+v, %v", place, st, err)
		}
		v.end()
		if after, err := os.ReadFile(record); err == nil && be.Uint32(after[8:]) != recordVersion && be.Uint32(after[recordSlot+8:]) != recordVersion {
			t.Errorf("%s: the record is %x, and was %x", place, after[:16], before[:16])
		}
	}
	equal(t, filepath.Join(dir, "file"), want[:40<<20])
	only(t, dir, "file")
}

// TestDeviceUsedMeanwhile: a device that was given other contents after a part of a copy is neither continued nor
// overwritten without force, whatever the record says. With force the copy begins again.
func TestDeviceUsedMeanwhile(t *testing.T) {
	g := small(t)
	device := testenv.Loop(t, testenv.DiskFile(t, 64<<20), 0)
	state := testenv.DiskDir(t)
	want := append([]byte("XFSB"), content(1, 48<<20)...)[:48<<20]
	path := file(t, "file", want)
	other := file(t, "other", content(2, 8<<20))
	v := g.far.receive(ReceiverConfig{Path: device, State: state}, nil)
	g.partly(t, SenderConfig{Path: path, Address: v.address, Limit: 24 << 20})
	v.end()
	if out, err := exec.Command("mkfs.ext4", "-F", "-q", device).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	before, err := os.ReadFile(device)
	g.far.must(err)
	v = g.far.receive(ReceiverConfig{Path: device, State: state}, nil)
	for _, source := range []string{path, other} {
		_, _, err := g.near.send(SenderConfig{Path: source, Address: v.address})
		if err == nil || !strings.Contains(err.Error(), "not empty") || !strings.Contains(err.Error(), "is not on it any more") {
			t.Errorf("%s: %v", source, err)
		}
	}
	v.end()
	equal(t, device, before)
	v = g.far.receive(ReceiverConfig{Path: device, State: state, Force: true}, nil)
	if st, _, err := g.near.send(SenderConfig{Path: path, Address: v.address}); err != nil || st.Resumed != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	v.end()
	got, err := os.ReadFile(device)
	if err != nil || !bytes.Equal(got[:len(want)], want) {
		t.Errorf("the copy differs from its source: %v", err)
	}
}

// oneIn returns the name of the only file in a directory.
func oneIn(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%s has %v: %v", dir, entries, err)
	}
	return entries[0].Name()
}

// recordVersions changes the version of both slots.
func recordVersions(t *testing.T, path string, version uint32) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil || len(b) < recordSlot+recordLen {
		t.Fatalf("%s has %d bytes: %v", path, len(b), err)
	}
	for at := 0; at < 2*recordSlot; at += recordSlot {
		if slot := b[at : at+recordLen]; string(slot[:8]) == recordMagic {
			be.PutUint32(slot[8:], version)
			be.PutUint32(slot[recordSum:], crc32.Checksum(slot[:recordSum], castagnoli))
		}
	}
	testenv.Must(t, os.WriteFile(path, b, 0o600))
}

// TestDeviceChanges: a device that is written while it is sent is not copied.
func TestDeviceChanges(t *testing.T) {
	g := small(t)
	device := testenv.Loop(t, testenv.DiskFile(t, 32<<20), 0)
	v := g.far.receive(ReceiverConfig{Path: testenv.DiskDir(t)}, nil)
	ended := make(chan error, 1)
	k := g.near.sender(SenderConfig{Path: device, Address: v.address, Limit: 16 << 20, Name: "image"})
	go func() { ended <- writeSoon(device, k) }()
	var err error
	g.near.ns.Do(t, func() { err = k.Run(t.Context()) })
	g.near.check(<-ended)
	g.near.check(k.Close())
	if !errors.Is(err, protocol.Changed) {
		t.Errorf("%v", err)
	}
	testenv.Wait(t, waitLimit, "an empty directory", func() bool { e, err := os.ReadDir(v.dir); return err == nil && len(e) == 0 })
}

// writeSoon writes a device when a sender has begun.
func writeSoon(device string, k *Sender) error {
	for k.Stats().At < 4<<20 {
		sleep(longSleep)
	}
	f, err := os.OpenFile(device, os.O_WRONLY|unix.O_SYNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte("changed"), 0)
	return errors.Join(err, f.Close())
}
