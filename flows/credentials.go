package flows

import (
	"errors"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/nvme/fabrics/dhchap"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// tlsStatus describes the daemon's certificate; nil: there is no TLS.
func (d *Daemon) tlsStatus() *status.TLS {
	if d.secret == nil {
		return nil
	}
	name, expires := d.secret.Own()
	return &status.TLS{Name: name, Expires: expires, Expired: !time.Now().Before(expires)}
}

// tlsFiles is the name of the tls section's files in a plan.
const tlsFiles = "tls"

// keyed is a flow whose peers authenticate with keys in a file.
type keyed interface {
	// ReadKeys reads the file again. changed reports whether it has other keys than those in use.
	ReadKeys(to *config.To) (keys map[string]dhchap.Keys, changed bool, err error)
	// UseKeys replaces the keys. It ends the sessions of peers whose key is gone or has changed, and returns
	// how many it ended.
	UseKeys(to *config.To, keys map[string]dhchap.Keys) (ended int, err error)
}

// credentials are certificates and keys that have changed in their files.
type credentials struct {
	secret *connect.Credentials // nil: the files of TLS have not changed
	keys   map[string]map[string]dhchap.Keys
}

// readCredentials reads the certificates and keys of running flows, as a new configuration names
// them. It changes nothing.
func (d *Daemon) readCredentials(next *config.Config, had []*Flow) (c credentials, err error) {
	if d.secret != nil {
		t := next.TLS
		now, err := connect.LoadCredentials(t.Certificate, t.Key, t.Authority)
		if err != nil {
			return c, fmt.Errorf("read tls again: %w", err)
		}
		if !d.secret.Same(now) {
			c.secret = now
		}
	}
	c.keys = make(map[string]map[string]dhchap.Keys)
	for _, f := range had {
		to := next.Flow(f.Name())
		if to == nil {
			continue
		}
		keys, changed, err := f.readKeys(&to.To)
		if err != nil {
			return c, fmt.Errorf("flow %s: %w", f.Name(), err)
		}
		if changed {
			c.keys[f.Name()] = keys
		}
	}
	return c, nil
}

// names returns tlsFiles if the files of TLS have changed, and the flows whose keys have changed, in the
// order of the configuration.
func (c *credentials) names(of *config.Config) (all []string) {
	if c.secret != nil {
		all = append(all, tlsFiles)
	}
	for i := range of.Flows {
		if name := of.Flows[i].Name; c.keys[name] != nil {
			all = append(all, name)
		}
	}
	return all
}

// use puts the credentials into use, and returns how many sessions that ended, by name. Flows that were
// started again have already read their keys.
func (c *credentials) use(d *Daemon) (ended map[string]int, err error) {
	ended = make(map[string]int)
	var revoked []*connect.Conn
	if c.secret != nil {
		revoked = d.secret.Replace(c.secret)
		ended[tlsFiles] = len(revoked)
	}
	var errs []error
	_, flows := d.running()
	for _, f := range flows {
		keys := c.keys[f.Name()]
		if keys == nil {
			continue
		}
		n, err := f.useKeys(keys)
		if err != nil {
			errs = append(errs, fmt.Errorf("flow %s: use other keys: %w", f.Name(), err))
			continue
		}
		ended[f.Name()] = n
	}
	return ended, errors.Join(append(errs, awaitClosed(revoked, closeLimit))...)
}

// closeLimit bounds how long a reload waits for the sessions of revoked peers.
const closeLimit = 5 * time.Second

// awaitClosed waits until the flows have closed the connections. A flow closes the queue pair first,
// unless that fails, which it logs. Until then it may accept messages of the peer.
func awaitClosed(conns []*connect.Conn, limit time.Duration) error {
	late := time.NewTimer(limit)
	defer late.Stop()
	for _, c := range conns {
		select {
		case <-c.Closed():
		case <-late.C:
			return fmt.Errorf("the session of %s is still open after %v, although its certificate %q is no longer valid: stop the flow to end it",
				c.Peer().Addr, limit, c.Peer().Name)
		}
	}
	return nil
}

func (f *Flow) readKeys(to *config.To) (keys map[string]dhchap.Keys, changed bool, err error) {
	f.starting.Lock()
	defer f.starting.Unlock()
	if r, ok := f.runningKind().(keyed); ok {
		return r.ReadKeys(to)
	}
	return nil, false, nil
}

func (f *Flow) useKeys(keys map[string]dhchap.Keys) (int, error) {
	f.starting.Lock()
	defer f.starting.Unlock()
	if r, ok := f.runningKind().(keyed); ok {
		return r.UseKeys(&f.config.To, keys)
	}
	return 0, nil
}
