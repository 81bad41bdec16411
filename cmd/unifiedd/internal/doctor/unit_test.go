package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestUnitUser: the user is that of the unit whose command names the configuration, with the changes of drop-ins. What
// root starts, and what no unit starts, has none.
func TestUnitUser(t *testing.T) {
	before := unitDirs
	defer func() { unitDirs = before }()
	high, low := t.TempDir(), t.TempDir()
	unitDirs = []string{high, low}
	write := func(name, text string) {
		t.Helper()
		testenv.Must(t, os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644))
	}
	expect := func(what, file, want string) {
		t.Helper()
		if got := unitUser(file); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	const file = "/etc/unifiedd/unifiedd.yaml"
	expect("no unit", file, "")
	write(filepath.Join(low, "unifiedd.service"), "[Service]\nExecStart=/usr/bin/unifiedd run -c \\\n  "+file+"\nUser=nobody\n#User=root\n")
	expect("its unit", file, "nobody")
	expect("no file", "", "")
	expect("another file", "/etc/unifiedd/other.yaml", "")
	write(filepath.Join(high, "unifiedd.service.d", "user.conf"), "[Service]\nUser=daemon\n")
	expect("a drop-in", file, "daemon")
	write(filepath.Join(low, "unifiedd.service.d", "user.conf"), "[Service]\nUser=nobody\n")
	expect("a drop-in that another hides", file, "daemon")
	write(filepath.Join(high, "unifiedd.service.d", "user.conf"), "[Service]\nUser=root\n")
	expect("root", file, "")
	write(filepath.Join(high, "unifiedd.service"), "[Service]\nExecStart=/usr/local/bin/unifiedd run -c /srv/own.yaml\n")
	expect("a unit that another hides", file, "")
}
