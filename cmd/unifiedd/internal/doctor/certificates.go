package doctor

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// soon is how long before its end the doctor warns about a certificate.
const soon = 14 * 24 * time.Hour

// addTLS adds the section about the certificates of a configuration with TLS.
func (r *Report) addTLS(n needs) {
	if n.TLS == (config.TLS{}) {
		return
	}
	t := n.TLS
	if _, err := connect.LoadCredentials(t.Certificate, t.Key, t.Authority); err != nil {
		r.add("tls", []Check{fail("files", "%v", err).with("give tls the right files, which the daemon's user may read")})
		return
	}
	now := time.Now()
	r.add("tls", []Check{ok("files", "the key is that of the certificate"), validity("certificate", t.Certificate, now), validity("authority", t.Authority, now)})
}

// validity checks until when the certificates of a PEM file are valid. The first that is not any more, or not yet,
// decides: a chain needs all of them, and of several authorities each is there for some peers.
func validity(name, file string, now time.Time) Check {
	text, err := os.ReadFile(file)
	if err != nil {
		return fail(name, "%v", err)
	}
	var first time.Time
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue // a key in the same file
		}
		if now.Before(c.NotBefore) {
			return fail(name, "%s: the certificate of %s is valid only from %s", file, connect.NameOf(c), c.NotBefore.Format(time.RFC3339)).
				with("wait, or set the clock right")
		}
		if first.IsZero() || c.NotAfter.Before(first) {
			first = c.NotAfter
		}
	}
	left := first.Sub(now)
	switch when := first.Format(time.RFC3339); {
	case first.IsZero():
		return fail(name, "%s has no certificate", file)
	case left <= 0:
		return fail(name, "%s has expired at %s: peers refuse it", file, when).with("replace it, and unifiedd reload")
	case left < soon:
		return warn(name, "%s expires at %s", file, when).with("replace it before, and unifiedd reload")
	default:
		return ok(name, "%s is valid until %s", file, when)
	}
}

// synchronized checks whether something keeps the clock right: adjtimex(2).
func synchronized() Check {
	const name = "clock"
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return unknown(name, "%v", err)
	}
	return judgeClock(state == unix.TIME_ERROR, inContainer() != "", t.Esterror)
}

// judgeClock judges a clock that is off by esterror microseconds, as what keeps it right estimates.
func judgeClock(unsynchronized, contained bool, esterror int64) Check {
	const name = "clock"
	switch {
	case unsynchronized && contained:
		return ok(name, "nothing keeps it right here: that is for the machine, not for a container")
	case unsynchronized:
		return warn(name, "nothing keeps it right: times in captures and logs drift from those of other machines").
			with("run chrony or systemd-timesyncd; in a guest its host must")
	}
	return ok(name, "synchronized, off by an estimated %v", time.Duration(esterror)*time.Microsecond)
}
