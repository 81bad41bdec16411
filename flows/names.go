package flows

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// names are the paths of one flow's segments.
type names struct{ pcapng.Names }

// list finds the flow's segments, oldest first.
func (n names) list() ([]pcapng.Named, error) {
	found, err := n.List()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("list segments: %w (create the directory first)", err)
	case err != nil:
		return nil, fmt.Errorf("list segments: %w (may this user read it?)", err)
	}
	return found, nil
}
