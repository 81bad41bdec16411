package flows

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// names are the paths of one flow's segments.
type names struct {
	pcapng.Names
	turns *turns // nil: files have the names of segments
}

// list finds the flow's segments, oldest first.
func (n names) list() ([]pcapng.Named, error) {
	if n.turns != nil {
		return n.turns.list(), nil
	}
	found, err := n.List()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("list segments: %w (create the directory first)", err)
	case err != nil:
		return nil, fmt.Errorf("list segments: %w (may this user read it?)", err)
	}
	return found, nil
}

// christen gives a prepared file its final name, which is of a time, and returns it. An exact one has it already.
func (n names) christen(next *segment, at time.Time, exact bool) (final string, err error) {
	switch {
	case n.turns != nil:
		return n.turns.christen(next, at)
	case exact:
		return next.path, nil
	}
	final = n.Final(next.number, at)
	return final, os.Rename(next.path, final)
}
