package archive

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// mirrorVariable names a Debian archive for machines whose own sources name none.
const mirrorVariable = "UNIFIEDD_LAB_MIRROR"

// findMirror returns the address of the Debian archive that the machine uses.
func findMirror(ctx context.Context) (string, error) {
	if m := os.Getenv(mirrorVariable); m != "" {
		return m, nil
	}
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", fmt.Errorf("look for the Debian archive: %w (name one in %s)", err, mirrorVariable)
	}
	targets, err := output(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)")
	if err != nil {
		return "", fmt.Errorf("look for the Debian archive in apt's sources: %w (name one in %s)", err, mirrorVariable)
	}
	mirror := mirrorIn(targets, codename(string(release)))
	if mirror == "" {
		return "", fmt.Errorf("apt's sources name no Debian archive: name one in %s", mirrorVariable)
	}
	return mirror, nil
}

// codename returns VERSION_CODENAME from the text of os-release(5).
func codename(release string) string {
	for line := range strings.Lines(release) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_CODENAME="); ok {
			return strings.Trim(name, `"`)
		}
	}
	return ""
}

// mirrorIn returns the address of the release itself, not of its updates or security updates.
// targets has lines of address, release, component.
func mirrorIn(targets, release string) string {
	for line := range strings.Lines(targets) {
		f := strings.Fields(line)
		if len(f) == 3 && f[2] == "main" && (f[1] == release || f[1] == "stable" || f[1] == "oldstable") {
			return f[0]
		}
	}
	return ""
}
