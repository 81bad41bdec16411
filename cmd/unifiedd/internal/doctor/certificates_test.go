package doctor

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/authority"
)

// TestCertificates: the doctor says of each certificate until when it is valid, and whether the key is its own.
func TestCertificates(t *testing.T) {
	a := authority.New(t)
	now := time.Now()
	until := func(name string, end time.Duration) config.TLS {
		certificate, key := a.Issue(t, name, func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(-100*24*time.Hour), now.Add(end) })
		return config.TLS{Certificate: certificate, Key: key, Authority: a.File()}
	}
	garbage := filepath.Join(t.TempDir(), "garbage")
	testenv.Must(t, os.WriteFile(garbage, []byte("nothing\n"), 0o600))
	good, short, old := until("good", 90*24*time.Hour), until("short", 24*time.Hour), until("old", -time.Hour)
	mixed := good
	mixed.Key = old.Key
	for _, c := range []struct {
		name  string
		tls   config.TLS
		check string
		state State
		says  string
	}{
		{"valid", good, "certificate", OK, "valid until"},
		{"its end is near", short, "certificate", Warn, "expires at"},
		{"expired", old, "certificate", Fail, "has expired"},
		{"an authority for an hour", good, "authority", Warn, "expires at"},
		{"another's key", mixed, "files", Fail, "private key does not match"},
		{"no authority", config.TLS{Certificate: good.Certificate, Key: good.Key, Authority: garbage}, "files", Fail, "no PEM certificate"},
	} {
		var r Report
		r.addTLS(needs{Config: &config.Config{TLS: c.tls}})
		found := false
		for _, s := range r.Sections {
			for _, check := range s.Checks {
				if found = check.Name == c.check; found {
					if check.State != c.state || !strings.Contains(check.Detail, c.says) {
						t.Errorf("%s: %+v", c.name, check)
					}
					break
				}
			}
		}
		if !found {
			t.Errorf("%s: there is no check %s in %+v", c.name, c.check, r)
		}
	}
	if c := validity("certificate", good.Certificate, now.Add(-200*24*time.Hour)); c.State != Fail || !strings.Contains(c.Detail, "only from") {
		t.Errorf("before its time: %+v", c)
	}
	if c := validity("certificate", garbage, now); c.State != Fail {
		t.Errorf("garbage: %+v", c)
	}
	var r Report
	if r.addTLS(needs{Config: config.Default()}); len(r.Sections) != 0 {
		t.Errorf("without TLS: %+v", r)
	}
}

// TestClock: a clock that nothing keeps right is a warning, but not in a container, which cannot set it.
func TestClock(t *testing.T) {
	if c := judgeClock(true, false, 0); c.State != Warn || c.Remedy == "" {
		t.Errorf("%+v", c)
	}
	if c := judgeClock(false, true, 1500); c.State != OK || !strings.Contains(c.Detail, "1.5ms") {
		t.Errorf("%+v", c)
	}
	if c := judgeClock(true, true, 0); c.State != OK {
		t.Errorf("in a container: %+v", c)
	}
	if c := synchronized(); c.State == Fail {
		t.Errorf("%+v", c)
	}
}
