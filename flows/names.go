package flows

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"time"
)

// names makes and recognises the paths of one flow's segments:
// PREFIX-TIME-NUMBER.pcapng, and PREFIX-NUMBER.next for one prepared ahead.
type names struct {
	dir, base string
	final     *regexp.Regexp
	next      *regexp.Regexp
}

func newNames(prefix string) names {
	dir, base := filepath.Split(prefix)
	quoted := regexp.QuoteMeta(base)
	return names{
		dir: dir, base: base,
		final: regexp.MustCompile(`^` + quoted + `-\d{8}T\d{6}Z-(\d{6,15})\.pcapng$`),
		next:  regexp.MustCompile(`^\.` + quoted + `-(\d{6,15})\.next$`),
	}
}

func (n names) prepared(number int) string {
	return filepath.Join(n.dir, fmt.Sprintf(".%s-%06d.next", n.base, number))
}

func (n names) named(number int, at time.Time) string {
	return filepath.Join(n.dir, fmt.Sprintf("%s-%s-%06d.pcapng", n.base, at.UTC().Format("20060102T150405Z"), number))
}

// existing is a segment found on disk.
type existing struct {
	path   string
	number int
	next   bool // prepared ahead
}

// list finds the flow's segments, oldest first. What is no file of its own, a link
// even, is somebody else's.
func (n names) list() ([]existing, error) {
	entries, err := os.ReadDir(n.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list segments: %w (create the directory first)", err)
	}
	if err != nil {
		return nil, fmt.Errorf("list segments: %w (may this user read it?)", err)
	}
	var out []existing
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		for _, re := range []*regexp.Regexp{n.final, n.next} {
			if m := re.FindStringSubmatch(e.Name()); m != nil {
				number, err := strconv.Atoi(m[1])
				if err == nil {
					out = append(out, existing{filepath.Join(n.dir, e.Name()), number, re == n.next})
				}
			}
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].number < out[j].number })
	return out, nil
}
