package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/recent"
	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
)

// Reloader reads a daemon's configuration again. Any goroutine may use it.
type Reloader struct {
	Daemon  *flows.Daemon
	File    string         // the daemon's configuration
	Options config.Options // of reading it; Running is set here
	Level   *slog.LevelVar // of Log
	Log     *slog.Logger
	Recent  *recent.Handler // the warnings and errors of Log; nil: not remembered
	// Registry reads all daemons of the cluster; nil: there is no resolver.
	Registry func(context.Context) status.Registry
}

// Reload makes the daemon apply the present contents of the file.
func (r *Reloader) Reload() (status.Reload, error) {
	s, err := r.Daemon.Reload(func(running *config.Config) (*config.Config, error) {
		Notify(r.Log, reloading())
		return config.Load(r.File, r.options(running))
	})
	if s.Outcome == status.Applied {
		r.Level.Set(r.Daemon.Config().Log.Level.Slog())
	}
	if s.Outcome != status.Busy {
		Notify(r.Log, daemon.SdNotifyReady)
	}
	return s, err
}

func (r *Reloader) options(running *config.Config) config.Options {
	o := r.Options
	o.Running = running
	return o
}

// plan returns the effects of a reload: with this text of the file of that name, or with the
// daemon's own file if name is empty.
func (r *Reloader) plan(name string, text io.Reader) (config.Plan, error) {
	options := r.options(r.Daemon.Config())
	var next *config.Config
	var err error
	if name == "" {
		next, err = config.Load(r.File, options)
	} else {
		var data []byte
		if data, err = io.ReadAll(text); err != nil {
			return config.Plan{}, fmt.Errorf("read configuration: %w", err)
		}
		next, err = config.Parse(name, data, options)
	}
	if err != nil {
		return config.Plan{}, err
	}
	return r.Daemon.Plan(next)
}

// retryReload is the interval at which Follow retries while another reload runs. A retry keeps the
// signal from being lost.
const retryReload = 50 * time.Millisecond

// Follow reloads at each signal until the context ends. The daemon logs the outcome.
func (r *Reloader) Follow(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
		for {
			_, err := r.Reload()
			if !errors.Is(err, flows.ErrReloading) || ctx.Err() != nil {
				break
			}
			time.Sleep(retryReload)
		}
	}
}

// reloading returns the state of systemd's notify-reload, which includes the start time.
func reloading() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return daemon.SdNotifyReloading
	}
	return fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, now.Nano()/1000)
}

// Notify sends the daemon's state to systemd, if systemd started it.
func Notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("could not notify systemd", "state", state, "err", err)
	}
}
