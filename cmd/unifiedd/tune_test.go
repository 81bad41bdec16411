package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/tune"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// tuned checks what must hold of the output of tune whatever is measured: it has at least so many trials.
func tuned(t *testing.T, out []byte, err error, trials int) *tune.Result {
	t.Helper()
	var r tune.Result
	if failed, is := errors.AsType[*exec.ExitError](err); is {
		t.Fatalf("%v\n%s", err, failed.Stderr)
	}
	if err != nil || json.Unmarshal(out, &r) != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, one := range r.Trials {
		t.Logf("%s %s against %s: %.0f and %.0f packets a second (%.3f to %.3f), %.0f and %.0f ns (%.3f to %.3f): %s", one.Setting, one.Value, one.Against,
			one.With.Rate, one.Without.Rate, one.Rate.Low, one.Rate.High, one.With.CPU, one.Without.CPU, one.CPU.Low, one.CPU.High, one.Why)
		if one.Pairs > 0 && (one.With.Rate <= 0 || one.Without.CPU <= 0 || one.Rate.Low > one.Rate.High) || one.Pairs == 0 && one.Taken {
			t.Errorf("%+v has no figures", one)
		}
	}
	changed := r.Proposal != r.Defaults || r.Card != nil && slices.ContainsFunc(r.Card.Settings, func(c tune.Changed) bool { return c.Before != c.After })
	if r.Better != changed || len(r.Trials) < trials {
		t.Errorf("the result is %+v", r)
	}
	if _, err := config.Parse("tuned", []byte(r.Proposal), config.Options{}); err != nil {
		t.Errorf("the proposal is not valid: %v", err)
	}
	return &r
}

// forTime returns how long tune measures: UNIFIEDD_TUNE, or a time that is just long enough.
func forTime(enough string) string { return cmp.Or(os.Getenv("UNIFIEDD_TUNE"), enough) }

// TestTuneFile: tune of a file leaves nothing but the configuration, which a daemon accepts. With UNIFIEDD_TUNE it is
// measured with short and with long packets, too.
func TestTuneFile(t *testing.T) {
	testenv.Root(t)
	testenv.Long(t, "it measures")
	testenv.HugePages(t, 160<<20)
	sizes := []string{"512"}
	if os.Getenv("UNIFIEDD_TUNE") != "" {
		sizes = []string{"64", "512", "1500"}
	}
	for _, size := range sizes {
		t.Run(size, func(t *testing.T) { tuneFile(t, size) })
	}
}

func tuneFile(t *testing.T, size string) {
	t.Helper()
	dir, output := testenv.DiskDir(t), filepath.Join(t.TempDir(), "tuned.yaml")
	c := exec.Command(program(t), "tune", filepath.Join(dir, "feed"), "--duration", forTime("12s"), "--size", size, "--json", "-o", output)
	out, err := c.Output()
	r := tuned(t, out, err, 3)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
	if text, err := os.ReadFile(output); err != nil || string(text) != r.Proposal {
		t.Errorf("the file has %q, %v", text, err)
	}
	if said, status := runSays("check", "-c", output); status != 0 {
		t.Errorf("check of the proposal: %s", said)
	}
	if said, status := runSays("tune", filepath.Join(dir, "feed"), "--duration", "1s"); status != exitFailed || !strings.Contains(said, "too short") {
		t.Errorf("a second: status %d, %s", status, said)
	}
}

// TestTuneInterface: tune of an interface measures the traffic that there is, and says so if there is none.
func TestTuneInterface(t *testing.T) {
	testenv.Root(t)
	testenv.Long(t, "it measures")
	testenv.HugePages(t, 160<<20)
	p := testenv.NewPair(t, testenv.PairOptions{})
	out, err := p.B.Command(program(t), "tune", p.B.Ifname, "--duration", "12s").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no packet arrived") {
		t.Errorf("without traffic: %v, %s", err, out)
	}
	traffic(t, p)
	out, err = p.B.Command(program(t), "tune", p.B.Ifname, "--filter", "udp and dst port 5000", "--duration", forTime("12s"), "--json").Output()
	tuned(t, out, err, 3)
}

// traffic sends packets to UDP port 5000 until the test ends.
func traffic(t *testing.T, p *testenv.Pair) {
	t.Helper()
	raw, frame, stop, ended := testenv.NewSender(t, &p.A), testenv.UDP(&p.A, &p.B, 5000, 1, 200), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			for range 100 {
				_, _ = raw.Send(frame) // what arrives is counted
			}
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-ended })
}

// TestTuneDevice: tune of a device needs --force, and proposes a configuration without it.
func TestTuneDevice(t *testing.T) {
	testenv.Root(t)
	testenv.Long(t, "it measures")
	testenv.HugePages(t, 160<<20)
	device := testenv.Zram(t, 192<<20)
	if said, status := runSays("tune", device); status != exitFailed || !strings.Contains(said, "--force") {
		t.Errorf("without --force: status %d, %s", status, said)
	}
	out, err := exec.Command(program(t), "tune", device, "--force", "--duration", forTime("9s"), "--json").Output()
	if r := tuned(t, out, err, 3); strings.Contains(r.Proposal, "force") {
		t.Errorf("the proposal overwrites the device:\n%s", r.Proposal)
	}
}
