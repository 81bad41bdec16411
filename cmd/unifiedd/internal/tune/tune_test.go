package tune

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/pairs"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestDecide: a value is taken only if a bound says that it is better, and never if it loses more.
func TestDecide(t *testing.T) {
	between := func(low, high float64) pairs.Estimate {
		return pairs.Estimate{Ratio: (low + high) / 2, Low: low, High: high}
	}
	for _, c := range []struct {
		name      string
		rate, cpu pairs.Estimate
		lost      float64
		want      bool
	}{
		{"faster", between(1.03, 1.1), between(0.9, 1.1), 0, true},
		{"hardly faster", between(1.01, 1.1), between(0.98, 1.1), 0, false},
		{"faster perhaps", between(0.9, 1.5), between(0.5, 1.1), 0, false},
		{"cheaper", between(0.995, 1.01), between(0.8, 0.96), 0, true},
		{"cheaper and slower", between(0.9, 0.95), between(0.5, 0.6), 0, false},
		{"cheaper perhaps", between(0.995, 1.01), between(0.5, 1.2), 0, false},
		{"faster, and loses", between(1.5, 1.6), between(0.5, 0.6), 0.01, false},
		{"no bounds", pairs.Estimate{Ratio: 2, Low: 0}, between(0.5, 0.6), 0, false},
	} {
		trial := Trial{Rate: c.rate, CPU: c.cpu, With: Figures{Lost: c.lost}}
		if trial.decide(); trial.Taken != c.want || trial.Why == "" {
			t.Errorf("%s: taken %v, %s; want %v", c.name, trial.Taken, trial.Why, c.want)
		}
	}
}

// TestText: the configurations of all values are valid, and differ.
func TestText(t *testing.T) {
	for _, s := range []Subject{
		{Name: "/var/lib/feed", Kind: File, Size: 512, Pages: config.Pages2MiB},
		{Name: "/dev/nvme0n1", Kind: Device, Size: 512, Pages: config.Pages2MiB},
		{Name: "eth1", Kind: Interface, Filter: `udp and host "a"`, Pages: config.PagesOrdinary},
		{Name: "eth1", Kind: Interface, Filter: "udp", Pages: config.PagesOrdinary},
	} {
		all, err := s.settings()
		testenv.Must(t, err)
		seen := map[string]string{}
		for _, one := range all {
			for i, value := range one.values {
				if i == 0 && len(seen) > 0 {
					continue // the defaults
				}
				c := defaults(all).with(one.key, value)
				for _, measured := range []bool{true, false} {
					if _, err := s.parse(c, measured); err != nil {
						t.Errorf("%s with %s %q: %v\n%s", s.Name, one.key, value, err, s.text(c, measured))
					}
				}
				text := s.text(c, true)
				if other, is := seen[text]; is {
					t.Errorf("%s: %s %q has the configuration of %s", s.Name, one.key, value, other)
				}
				seen[text] = one.key + " " + value
			}
		}
	}
}

// TestOnly: only the settings that are named are tried, and a name that is none is refused with those that are.
func TestOnly(t *testing.T) {
	s := Subject{Name: "eth1", Kind: Interface, Pages: config.PagesOrdinary, Only: []string{"from.ring"}}
	all, err := s.settings()
	if err == nil {
		all, err = s.only(all)
	}
	for _, one := range all {
		if err != nil || (len(one.values) > 1) != (one.key == "from.ring") {
			t.Errorf("%s: %q, %v", one.key, one.values, err)
		}
	}
	s.Only = []string{"to.layout"}
	if _, err := s.only(all); len(all) != 3 || err == nil || !strings.Contains(err.Error(), "worker.sleep, from.ring, worker.cpu") {
		t.Errorf("a setting of files: %v", err)
	}
}

// TestKindOf: names are told apart.
func TestKindOf(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	testenv.Must(t, os.WriteFile(file, nil, 0o600))
	testenv.Must(t, os.Symlink("/dev/null", link))
	for name, want := range map[string]Kind{"eth1": Interface, file: File, filepath.Join(dir, "new"): File, dir: "", filepath.Join(dir, "no", "new"): "", link: "", "/dev/null": "", "eth 1": "", "": ""} {
		if got, err := KindOf(name); got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v; want %q", name, got, err, want)
		}
	}
	if _, err := Tune(t.Context(), Subject{Name: file, Kind: File, Size: 512, Pages: config.PagesOrdinary}, 1, nil); err == nil || !strings.Contains(err.Error(), "too short") {
		t.Errorf("a nanosecond: %v", err)
	}
}
