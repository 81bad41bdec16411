package pcapng

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// Names makes and recognises the paths of segment files with a prefix: PREFIX-TIME-NUMBER.pcapng, and
// .PREFIX-NUMBER.next for one that is prepared. A prepared segment may already have packets if it was not
// renamed yet.
type Names struct {
	Dir         string
	base        string
	final, next *regexp.Regexp
}

// NewNames returns the names for a prefix: a directory and the beginning of a file name.
func NewNames(prefix string) Names {
	dir, base := filepath.Split(prefix)
	quoted := regexp.QuoteMeta(base)
	return Names{
		Dir: cmp.Or(dir, "."), base: base,
		final: regexp.MustCompile(`^` + quoted + `-\d{8}T\d{6}Z-(\d{6,15})\.pcapng$`),
		next:  regexp.MustCompile(`^\.` + quoted + `-(\d{6,15})\.next$`),
	}
}

// likeSegment matches the end of every name of a segment in use.
var likeSegment = regexp.MustCompile(`-\d{8}T\d{6}Z-\d{6,15}\.pcapng$`)

// LikeSegment reports whether a path is that of a segment in use.
func LikeSegment(path string) bool { return likeSegment.MatchString(path) }

// Prepared is the path of a prepared segment.
func (n Names) Prepared(number int) string {
	return filepath.Join(n.Dir, fmt.Sprintf(".%s-%06d.next", n.base, number))
}

// Final is the path of a segment in use.
func (n Names) Final(number int, at time.Time) string {
	return filepath.Join(n.Dir, fmt.Sprintf("%s-%s-%06d.pcapng", n.base, at.UTC().Format("20060102T150405Z"), number))
}

// Named is a file with a segment's name.
type Named struct {
	Path     string
	Number   int
	Prepared bool // ahead of use
}

// List returns the segments, oldest first. It leaves out everything that is not a regular file,
// links included. The error is that of reading the directory.
func (n Names) List() ([]Named, error) { return n.ListAt(n.Dir) }

// ListAt is List for the directory at a path, which may be another path of Dir.
func (n Names) ListAt(dir string) ([]Named, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []Named
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		if found, ok := n.parse(e.Name()); ok {
			all = append(all, found)
		}
	}
	slices.SortStableFunc(all, func(a, b Named) int { return cmp.Compare(a.Number, b.Number) })
	return all, nil
}

// parse parses a file name; ok is false if it is not a segment's.
func (n Names) parse(name string) (_ Named, ok bool) {
	m, prepared := n.final.FindStringSubmatch(name), false
	if m == nil {
		m, prepared = n.next.FindStringSubmatch(name), true
	}
	if m == nil {
		return Named{}, false
	}
	number, err := strconv.Atoi(m[1])
	return Named{filepath.Join(n.Dir, name), number, prepared}, err == nil
}
