package main

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

	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/netdev"
)

// reloader reads a daemon's configuration again. Any goroutine may use it.
type reloader struct {
	daemon *flows.Daemon
	file   string
	level  *slog.LevelVar // of what is logged
	log    *slog.Logger
}

// reload has the daemon go on with what the file says now.
func (r *reloader) reload() (status.Reload, error) {
	s, err := r.daemon.Reload(func(running *config.Config) (*config.Config, error) {
		notify(r.log, reloading())
		return r.load(running)
	})
	if s.Outcome == status.Applied {
		r.level.Set(r.daemon.Config().Log.Level.Slog())
	}
	if s.Outcome != status.Busy {
		notify(r.log, daemon.SdNotifyReady)
	}
	return s, err
}

func (r *reloader) load(running *config.Config) (*config.Config, error) {
	return config.Load(r.file, config.Options{CheckFilter: checkFilter, FindInterface: netdev.Find, CheckObject: checkObject, Running: running})
}

// plan is what would become of flows: with the text of the file of that name, or with the
// daemon's own file.
func (r *reloader) plan(name string, text io.Reader) (p config.Plan, err error) {
	running := r.daemon.Config()
	var next *config.Config
	if name == "" {
		next, err = r.load(running)
	} else {
		next, err = parseFor(running, name, text)
	}
	if err != nil {
		return p, err
	}
	return r.daemon.Plan(next)
}

func parseFor(running *config.Config, name string, text io.Reader) (*config.Config, error) {
	data, err := io.ReadAll(text)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return config.Parse(name, data, config.Options{CheckFilter: checkFilter, FindInterface: netdev.Find, CheckObject: checkObject, Running: running})
}

// retryReload is how often a signal's reload is tried while another is under way: what it
// asks for must not be lost.
const retryReload = 50 * time.Millisecond

// follow reloads at each signal until the context ends. The log has what came of it.
func (r *reloader) follow(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
		for {
			_, err := r.reload()
			if !errors.Is(err, flows.ErrReloading) || ctx.Err() != nil {
				break
			}
			time.Sleep(retryReload)
		}
	}
}

// reloading tells systemd that a reload begins, and when, which it wants with notify-reload.
func reloading() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return daemon.SdNotifyReloading
	}
	return fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, now.Nano()/1000)
}
