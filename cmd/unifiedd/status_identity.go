package main

import (
	"fmt"
	"io"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
)

// printIdentity prints what is wrong with the clock and the certificate, and until when the certificate is valid.
func printIdentity(w io.Writer, s *status.Daemon) {
	if c := s.Clock; c.Steps > 0 {
		fmt.Fprintf(w, "clock\tthe system's clock was set %s, last by %+.1f s (noticed %s): times in captures and logs jump there. See chronyc tracking or timedatectl\n",
			plural(int(c.Steps), "time"), c.Step.Seconds(), when(c.Noticed))
	}
	if c := s.TLS; c != nil && c.Expired {
		fmt.Fprintf(w, "certificate\t%s has expired at %s, and peers refuse it: replace the files of tls, and unifiedd reload\n", c.Name, c.Expires.Format(time.RFC3339))
	} else if c != nil {
		fmt.Fprintf(w, "certificate\t%s, valid until %s\n", c.Name, c.Expires.Format(time.RFC3339))
	}
}
