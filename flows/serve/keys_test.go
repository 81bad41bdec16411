package serve

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme/fabrics/dhchap"
)

// TestHostKeys: a configuration may name every Diffie-Hellman group, and the server refuses a key
// file that other users can read.
func TestHostKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	const line = "nqn.2026-01.com.example:host DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:\n"
	testenv.Must(t, os.WriteFile(file, []byte(line), 0o600))
	for i, name := range append(dhchap.Groups(), "") {
		group := ""
		if name != "" {
			group = ", group: " + name
		} else {
			i = int(dhchap.FFDHE2048)
		}
		c, err := config.Parse("test.yaml", fmt.Appendf(nil, "region: {size: 64MiB}\nflows:\n- name: f\n  from: {file: /f}\n"+
			"  to: {rdma: mlx5_0, listen: \":4420\", subsystem: nqn.a, keys: %s%s}\n", file, group), config.Options{})
		testenv.Must(t, err)
		keys, got, err := hostKeys(&c.Flows[0].To)
		if err != nil || len(keys) != 1 || int(got) != i {
			t.Errorf("group %q: %v, %d keys, %v", name, got, len(keys), err)
		}
	}
	testenv.Must(t, os.Chmod(file, 0o644))
	if _, _, err := hostKeys(&config.To{Keys: file, Group: config.AuthNone}); err == nil || !strings.Contains(err.Error(), "chmod 0600 "+file) {
		t.Error(err)
	}
}
