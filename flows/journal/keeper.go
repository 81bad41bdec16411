package journal

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/unifiedd/unifiedd/internal/newfile"
	"github.com/unifiedd/unifiedd/internal/ring"
)

// A keeper writes the two slots of a manifest alternately. Each slot has two copies.
const (
	slotApart, copyApart = 128 << 10, 64 << 10
	// ManifestSize is the length of a manifest in bytes.
	ManifestSize = slotApart + copyApart + manifestLen
	// ManifestSuffix is appended to the name of the log.
	ManifestSuffix = ".manifest"
)

// copies are the offsets of the four copies of a manifest.
var copies = [4]int64{0, copyApart, slotApart, slotApart + copyApart}

var (
	// errNoManifest means that a log has none: it is new, or written by an older release.
	errNoManifest = errors.New("there is no manifest")
	// errManifest means that no copy of a manifest is intact.
	errManifest = errors.New("no copy of the manifest is intact")
)

// readManifest reads the newest intact copy of a manifest at an offset, and counts copies that are
// neither intact nor empty. On a ring, errNoManifest means that all copies are empty, or that a
// crash interrupted the very first write.
func readManifest(f io.ReaderAt, base int64) (m Manifest, damaged int, err error) {
	var bad []error
	found, empty := false, 0
	for i, at := range copies {
		b := make([]byte, manifestLen)
		n, err := f.ReadAt(b, base+at)
		if err != nil && err != io.EOF {
			return m, 0, fmt.Errorf("read the manifest at offset %d: %w", base+at, err)
		}
		one, why := decodeManifest(b[:n])
		switch {
		case errors.Is(why, errEmptyManifest):
			empty++
		case why != nil:
			bad = append(bad, fmt.Errorf("copy %d at offset %d: %w", i+1, base+at, why))
		case !found || one.Generation > m.Generation:
			m, found = one, true
		}
	}
	switch {
	case found:
		return m, len(bad), nil
	case base > 0 && (empty == len(copies) || empty == len(copies)-1 && len(bad) == 1): // on a ring, no file shows whether a manifest was ever begun
		return m, 0, errNoManifest
	}
	if bad == nil {
		return m, 0, fmt.Errorf("%w: all are empty", errManifest)
	}
	return m, len(bad), fmt.Errorf("%w: %w", errManifest, errors.Join(bad...))
}

// manifestOf reads the manifest beside segment files.
func manifestOf(prefix string) (m Manifest, damaged int, err error) {
	f, err := openRegular(prefix + ManifestSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return m, 0, errNoManifest
	}
	if err != nil {
		return m, 0, err
	}
	defer f.Close()
	if m, damaged, err = readManifest(f, 0); err != nil {
		err = fmt.Errorf("%s: %w", f.Name(), err)
	}
	return m, damaged, err
}

// Keeper writes the manifest of a log. Its methods may be called from any goroutine.
type Keeper struct {
	mu      sync.Mutex
	file    ring.File
	own     *os.File // closed by Close; nil: the caller closes it
	base    int64
	now     Manifest
	durable uint64 // generation of the newest flushed one
}

// KeepFile keeps the manifest of a log in a file of a directory. m is the manifest that was read.
// If the file does not exist, KeepFile makes it, durably. It first calls prepare with the file.
func KeepFile(d *newfile.Dir, name string, m Manifest, prepare func(*os.File) error) (*Keeper, error) {
	f, err := d.OpenFile(name, os.O_RDWR)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f, err = makeManifest(d, name, m, prepare)
	case err == nil:
		if err = errors.Join(prepare(f), f.Sync()); err != nil { // the data that was read may be only in the page cache
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("keep the manifest %s: %w", name, err)
	}
	return &Keeper{file: f, own: f, now: m, durable: m.Generation}, nil
}

// makeManifest makes the file of a manifest under another name and renames it, so that it is never
// incomplete.
func makeManifest(d *newfile.Dir, name string, m Manifest, prepare func(*os.File) error) (_ *os.File, err error) {
	beside := "." + name + ".new"
	if err := d.Remove(beside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := d.Create(beside, 0o640)
	if err != nil {
		return nil, err
	}
	if err = prepare(f); err == nil {
		_, err = f.WriteAt(make([]byte, ManifestSize), 0)
	}
	if err == nil {
		err = putManifest(f, 0, m)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = d.Rename(beside, name)
	}
	if err == nil {
		err = d.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// KeepRing keeps the manifest of a log on a ring's device, which the caller closes. m is the
// manifest that was read; fresh: there was none.
func KeepRing(f ring.File, m Manifest, fresh bool) (*Keeper, error) {
	err := error(nil)
	if fresh { // one copy is durable before the other is written: a crash cannot tear both
		at := ring.ManifestOffset + int64(m.Generation%2)*slotApart
		if _, err = f.WriteAt(m.encode(), at); err == nil {
			err = f.Sync()
		}
		if err == nil {
			_, err = f.WriteAt(m.encode(), at+copyApart)
		}
	}
	if err = errors.Join(err, f.Sync()); err != nil {
		return nil, fmt.Errorf("write the manifest of the log: %w", err)
	}
	return &Keeper{file: f, base: ring.ManifestOffset, now: m, durable: m.Generation}, nil
}

// putManifest writes both copies of a manifest.
func putManifest(f io.WriterAt, base int64, m Manifest) error {
	b := m.encode()
	at := base + int64(m.Generation%2)*slotApart
	_, err := f.WriteAt(b, at)
	if err == nil {
		_, err = f.WriteAt(b, at+copyApart)
	}
	return err
}

// Now returns the present manifest. Its slices must not be changed.
func (k *Keeper) Now() Manifest {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now
}

// Update changes the manifest; with flush, durably. It never overwrites a slot that may be needed
// after a crash. After an error Now returns the old manifest, and the change may be on the disk.
func (k *Keeper) Update(flush bool, change func(*Manifest)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	next := k.now
	change(&next)
	if next.Generation++; next.Generation%2 == k.durable%2 {
		next.Generation++
	}
	err := putManifest(k.file, k.base, next)
	if err == nil && flush {
		err = k.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("write the manifest of the log: %w", err)
	}
	if k.now = next; flush {
		k.durable = next.Generation
	}
	return nil
}

// Close closes what the keeper opened.
func (k *Keeper) Close() error {
	if k.own == nil {
		return nil
	}
	return k.own.Close()
}

// newLogID returns a random log ID.
func newLogID() (id [16]byte, err error) {
	if _, err = rand.Read(id[:]); err != nil {
		err = fmt.Errorf("draw the id of a log: %w", err)
	}
	return id, err
}

// SameBoot reports whether the machine has run since an earlier call of BootID. Where the boot ID cannot be read, it may
// have lost power since.
func SameBoot(earlier [16]byte) bool { return earlier != [16]byte{} && earlier == BootID() }

// BootID returns the kernel's boot ID; zeros if it is not known.
func BootID() (id [16]byte) {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	var hex []byte
	for _, c := range bytes.TrimSpace(text) {
		if c != '-' {
			hex = append(hex, c)
		}
	}
	if len(hex) == 32 {
		if _, err := fmt.Sscanf(string(hex), "%x", &hex); err == nil && len(hex) == 16 {
			copy(id[:], hex)
		}
	}
	return id
}
