package reference

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/golden"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

const root = "../../../.."

// TestPages: the pages are what the code says now. With -update they are written.
func TestPages(t *testing.T) {
	status, err := Status(filepath.Join(root, "flows", "status"))
	testenv.Must(t, err)
	for name, text := range map[string]string{"configuration": Settings(), "metrics": Metrics(), "status": status} {
		golden.Compare(t, filepath.Join(root, "docs", "reference", name+".md"), text)
	}
}

// TestKeysOfKinds: the page has a row for each key that a kind of flow may have.
func TestKeysOfKinds(t *testing.T) {
	page := Settings()
	for _, k := range kinds {
		for _, key := range config.KeysOf(k.kind) {
			if !strings.Contains(page, "| `flows[]."+key) {
				t.Errorf("no row is about %s of %s", key, k.kind)
			}
		}
	}
	if all := config.KeysOf(config.KindNetworkStorage); !slices.Contains(all, "to.segment.keep") || slices.Contains(all, "from.clients") {
		t.Errorf("a capture has the keys %q", all)
	}
}
