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

// Names makes and recognises the paths of segment files that begin with a prefix: PREFIX-TIME-NUMBER.pcapng, and
// .PREFIX-NUMBER.next for one prepared ahead, which has packets for as long as its name was not changed yet.
type Names struct {
	Dir         string
	base        string
	final, next *regexp.Regexp
}

// NewNames is the names of what begins with a prefix: a directory and the beginning of a file's name.
func NewNames(prefix string) Names {
	dir, base := filepath.Split(prefix)
	quoted := regexp.QuoteMeta(base)
	return Names{
		Dir: cmp.Or(dir, "."), base: base,
		final: regexp.MustCompile(`^` + quoted + `-\d{8}T\d{6}Z-(\d{6,15})\.pcapng$`),
		next:  regexp.MustCompile(`^\.` + quoted + `-(\d{6,15})\.next$`),
	}
}

// likeSegment matches the end of every segment name in use.
var likeSegment = regexp.MustCompile(`-\d{8}T\d{6}Z-\d{6,15}\.pcapng$`)

// LikeSegment reports whether a path is one that a segment in use has.
func LikeSegment(path string) bool { return likeSegment.MatchString(path) }

// Prepared is the path of a segment that is prepared ahead.
func (n Names) Prepared(number int) string {
	return filepath.Join(n.Dir, fmt.Sprintf(".%s-%06d.next", n.base, number))
}

// Final is the path of a segment that was taken into use.
func (n Names) Final(number int, at time.Time) string {
	return filepath.Join(n.Dir, fmt.Sprintf("%s-%s-%06d.pcapng", n.base, at.UTC().Format("20060102T150405Z"), number))
}

// Named is a file with the name of a segment.
type Named struct {
	Path     string
	Number   int
	Prepared bool // ahead of use
}

// List returns the segments, oldest first. It leaves out everything that is not a regular file,
// links included. The error is that of reading the directory.
func (n Names) List() ([]Named, error) { return n.ListAt(n.Dir) }

// ListAt is List of the directory that a path leads to, which may be another path of Dir than the names have.
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

// parse reads a file's name; ok is false for what is no segment's.
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
