package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"time"

	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/umem"
)

// configText is a configuration as a user would write it.
const configText = `# A demo of unifiedd: see docs/reference/configuration.md.
region: {size: %s}
flows:
  - name: demo
    from: {interface: %s, filter: "%s", ring: 8192}
    to: {file: %q, layout: %s, segment: {size: 64MiB}}
`

// capture sends the traffic once while a daemon captures it.
func (s *stage) capture(ctx context.Context, l config.Layout) (r result, err error) {
	r = result{layout: string(l)}
	sender := filepath.Join(s.dir, "trafgen.cfg")
	if err := os.WriteFile(sender, []byte(trafgenConfig()), 0o600); err != nil {
		return r, err
	}
	cfg, err := s.configure(l)
	if err != nil {
		return r, err
	}
	memory, err := umem.Allocate(flows.RegionConfig(cfg))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, memory.GiveBack()) }()
	d, err := s.start(cfg, memory)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if r.sent, err = s.send(ctx, sender); err != nil {
		return r, err
	}
	f := d.Flows()[0]
	await(ctx, 5*time.Second, func() bool { r.status = f.Status(); return r.taken() >= r.sent.packets && r.status.Missing == 0 })
	if err := f.Stop(); err != nil {
		return r, err
	}
	r.status = f.Status()
	if err := s.b.detached(captured); err != nil {
		return r, err
	}
	return r, r.find(filepath.Join(s.dir, string(l)))
}

// configure writes the configuration and loads it.
func (s *stage) configure(l config.Layout) (*config.Config, error) {
	prefix := filepath.Join(s.dir, string(l))
	text := fmt.Sprintf(configText, config.Size(regionSize), captured.name, filterText, prefix, l)
	if err := os.WriteFile(prefix+".yaml", []byte(text), 0o600); err != nil {
		return nil, err
	}
	return s.Load(prefix + ".yaml")
}

// start runs a daemon on the receiving end. The caller closes it.
func (s *stage) start(cfg *config.Config, memory *umem.Memory) (*flows.Daemon, error) {
	d, err := flows.Open(cfg, flows.Options{Version: s.Version, Log: s.Log, Memory: memory})
	if err != nil {
		return nil, err
	}
	if err := s.b.do(d.Start); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// await polls until ok, ctx is done or the time limit has passed. It returns no verdict: later
// checks report a failure.
func await(ctx context.Context, limit time.Duration, ok func() bool) {
	for end := time.Now().Add(limit); !ok() && time.Now().Before(end) && ctx.Err() == nil; {
		time.Sleep(20 * time.Millisecond)
	}
}

// find finds the files that the capture wrote.
func (r *result) find(prefix string) (err error) {
	if r.files, err = filepath.Glob(prefix + "-*.pcapng"); err != nil {
		return err
	}
	sort.Strings(r.files)
	for _, name := range r.files {
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		r.disk += uint64(info.Size())
	}
	return nil
}
