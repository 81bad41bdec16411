package pages

import (
	"fmt"

	"github.com/unifiedd/unifiedd/internal/record"
	"github.com/unifiedd/unifiedd/umem"
)

// place is what the paths of records begin with. Tests have a place of their own.
var place = "/run/unifiedd-pages-"

// Sweep gives back what killed processes have left. Who may not read their records
// leaves them alone.
func Sweep() error {
	if err := record.Sweep(place, giveBack); err != nil {
		return fmt.Errorf("give back huge pages (see nr_hugepages): %w", err)
	}
	return nil
}

// giveBack gives back what is in a record.
func giveBack(r *record.File) (done bool, err error) {
	var all []umem.Raise
	if _, err := r.Get(&all); err != nil {
		return false, err
	}
	for len(all) > 0 {
		last := len(all) - 1
		if err := all[last].GiveBack(); err != nil {
			return false, err
		}
		all = all[:last]
		if err := r.Put(all); err != nil { // once only, should this process be killed too
			return false, err
		}
	}
	return true, nil
}
