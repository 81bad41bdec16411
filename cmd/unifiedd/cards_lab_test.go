package main

import (
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestZeroCopyIsTold: status and doctor report zero copy for a card that has it. For other cards
// they report why it is missing.
func TestZeroCopyIsTold(t *testing.T) {
	labenv.Guest(t)
	for _, form := range []labenv.Form{labenv.IgbZeroCopy, labenv.VirtioZeroCopy, labenv.VirtioRefused} {
		t.Run(form.Name, func(t *testing.T) {
			if form.Name == labenv.IgbZeroCopy.Name {
				testenv.Long(t, "a virtio card, which also has zero copy, takes less time")
			}
			form.Instead(t)
			t.Run("", func(t *testing.T) { zeroCopyIsTold(t, form) }) // a subtest, so that the daemon ends before the cards are moved back
		})
	}
}

func zeroCopyIsTold(t *testing.T, form labenv.Form) {
	s := startServed(t)
	var doctor, status, errs sink
	s.pair.B.Do(t, func() { run([]string{"doctor", "-i", s.pair.B.Ifname}, &doctor, &errs) })
	s.start(t)
	if code := run([]string{"status", "-o", "wide", "--socket", s.socket}, &status, &errs); code != 0 {
		t.Fatalf("status ends with %d: %s", code, errs)
	}
	told, granted := line(string(doctor), "zero copy"), line(string(status), "  granted  ")
	t.Logf("doctor: %s\nstatus: %s", told, granted)
	var why, refusal string
	switch {
	case form.ZeroCopy(t):
		why, refusal = "the driver offers it", "zero copy"
	case labenv.Kernel(t) == labenv.Linux61:
		why, refusal = "the driver does not have it", "the kernel copies (zero copy: bind queue 0: the driver does not have it"
	case labenv.Kernel(t) == labenv.Linux7:
		why, refusal = "VIRTIO_F_ACCESS_PLATFORM", "the kernel copies (zero copy: bind queue 0: the driver refuses it for this card"
	default:
		why, refusal = "the driver has none", "the kernel copies (zero copy: bind queue 0: the driver does not have it"
	}
	if !strings.Contains(told, why) {
		t.Errorf("doctor says %q, want %q", told, why)
	}
	if !strings.Contains(granted, refusal) || strings.Contains(granted, "the kernel copies") == form.ZeroCopy(t) {
		t.Errorf("status says %q, want %q", granted, refusal)
	}
}

// line returns the first line of a text that contains these words.
func line(text, words string) string {
	for l := range strings.Lines(text) {
		if strings.Contains(l, words) {
			return l
		}
	}
	return ""
}
