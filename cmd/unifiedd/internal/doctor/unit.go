package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/privsep"
)

// unitDirs are the directories of systemd's units, the most important first (systemd.unit(5)).
var unitDirs = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

// unitUser returns the user that systemd runs the daemon of a configuration as; empty: no unit has it, or root does.
func unitUser(configuration string) string {
	path, err := filepath.Abs(configuration)
	if configuration == "" || err != nil {
		return ""
	}
	for _, dir := range unitDirs {
		text, err := os.ReadFile(filepath.Join(dir, "unifiedd.service"))
		if err != nil {
			continue
		}
		user, runs := "", false
		for key, value := range unitSettings(string(text) + dropIns()) {
			switch key {
			case "ExecStart":
				runs = value != "" && slices.Contains(strings.Fields(value), path)
			case "User":
				user = value
			}
		}
		if uid, _, _, err := privsep.LookUp(user); !runs || user == "" || err != nil || uid == 0 {
			return ""
		}
		return user
	}
	return ""
}

// dropIns returns the changes of the unit, in the order in which systemd makes them.
func dropIns() (text string) {
	byName := map[string]string{}
	for _, dir := range slices.Backward(unitDirs) {
		found, _ := filepath.Glob(filepath.Join(dir, "unifiedd.service.d", "*.conf")) // the pattern is valid
		for _, path := range found {
			byName[filepath.Base(path)] = path
		}
	}
	names := make([]string, 0, len(byName))
	for name := range byName {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		more, _ := os.ReadFile(byName[name]) // systemd leaves out what it cannot read, too
		text += "\n" + string(more)
	}
	return text
}

// unitSettings calls yield for each setting of a unit.
func unitSettings(text string) func(yield func(key, value string) bool) {
	return func(yield func(key, value string) bool) {
		for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
			key, value, is := strings.Cut(strings.TrimSpace(line), "=")
			if is && !strings.HasPrefix(key, "#") && !strings.HasPrefix(key, ";") && !yield(strings.TrimSpace(key), strings.TrimSpace(value)) {
				return
			}
		}
	}
}
