package alarms

import (
	"cmp"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	environment "github.com/unifiedd/unifiedd/internal/testenv/setting"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// launchOnly starts a daemon whose flows need not run.
func launchOnly(s *scene, text string) *daemon.Daemon {
	s.t.Helper()
	s.text = text
	return daemon.Launch(s.t, program, &s.p.B, s.dir, text)
}

// setting returns a number from the environment.
func setting(t *testing.T, name string, otherwise int) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv(name), strconv.Itoa(otherwise)))
	if err != nil || n < 1 {
		t.Fatalf("%s=%s: it must be a number from 1 up", name, os.Getenv(name))
	}
	return n
}

// TestAlarms: there is no alert while all is well. Then each fault is named by its alert and by no other one, and
// explained by the program. UNIFIEDD_ALARMS_SPEED divides the spans of the rules and the time in which all is well.
func TestAlarms(t *testing.T) {
	testenv.Long(t, "it waits for alerts")
	testenv.Root(t)
	speed := setting(t, "UNIFIEDD_ALARMS_SPEED", 60)
	seed := environment.Seed(t)
	t.Logf("UNIFIEDD_ALARMS_SPEED=%d", speed)
	all, names := faults(), []string{"well"}
	for _, f := range all {
		names = append(names, f.name)
	}
	r := newRig(t, speed, names)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	t.Run("all is well", func(t *testing.T) { r.in(t, "well").well() })
	for _, f := range all {
		if only := os.Getenv("UNIFIEDD_ALARMS_ONLY"); only != "" && only != f.name {
			continue
		}
		t.Run(f.name, func(t *testing.T) { r.in(t, f.name).meet(&f) })
	}
}

// well runs a capture and a feed beside each other for ten minutes.
func (s *scene) well() {
	s.sink("")
	_, feed, _ := strings.Cut(s.feed(""), "flows:\n")
	_, registry := s.registry()
	s.launch(registry + s.capture("1ms", ", ring: 2048", toFiles(testenv.DiskDir(s.t))) + feed)
	s.traffic(200)
	s.flowing()
	s.calm(s.within(10 * time.Minute))
}

// meet lets the fault happen, and checks what names and explains it.
func (s *scene) meet(f *fault) {
	s.t.Helper()
	stalls := s.away.count.Load()
	inject, mend := f.prepare(s)
	s.calm(s.within(time.Minute))
	begin := time.Now()
	inject()
	for end := begin.Add(s.within(15*time.Minute) + testenv.Within(15*time.Second)); ; time.Sleep(s.within(interval)) {
		fires := s.prom.firing(s.name)
		lacks := slices.DeleteFunc(slices.Clone(f.alerts), func(name string) bool { _, ok := fires[name]; return ok })
		if len(lacks) == 0 {
			s.t.Logf("after %v: %v", time.Since(begin).Round(10*time.Millisecond), fires)
			s.judge(f, fires, s.away.count.Load() > stalls)
			break
		}
		if time.Now().After(end) {
			s.t.Fatalf("%s: no alert %v; there are %v\n%s\nthe daemon's log:\n%s", f.name, lacks, fires, s.status(), s.d.Log)
		}
	}
	s.explained(f)
	if mend != nil {
		mend()
	}
}

// explained waits until the program explains the fault, as far as it may be a moment later than the alert.
func (s *scene) explained(f *fault) {
	s.t.Helper()
	for end := time.Now().Add(testenv.Within(20 * time.Second)); ; time.Sleep(100 * time.Millisecond) {
		said := f.ask(s)
		lacks := slices.DeleteFunc(slices.Clone(f.says), func(text string) bool { return strings.Contains(said, text) })
		if len(lacks) == 0 {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("%s: it is not explained: %q is missing in\n%s", f.name, lacks, said)
		}
	}
}

// judge finds alerts that the fault does not explain. stalled: the machine had no CPU for this test either, which
// starves workers, too.
func (s *scene) judge(f *fault, fires map[string]alert, stalled bool) {
	s.t.Helper()
	for name, a := range fires {
		if !slices.Contains(f.alerts, name) && !slices.Contains(f.also, name) && (name != "UnifieddWorkerStarved" || !stalled) {
			s.t.Errorf("%s: a wrong alert: %v %v", f.name, a, a.Labels)
		}
	}
}
