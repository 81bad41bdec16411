package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"syscall"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/control"
	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/privsep"
	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	build "github.com/unifiedd/unifiedd/internal/version"
	"github.com/unifiedd/unifiedd/umem"
)

func newRun() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "run -c FILE",
		Short: "Run the daemon until it is told to stop",
		Long: `Run the daemon until SIGTERM or SIGINT, which make it take no more packets, write and
flush what it has, and end. A second signal ends it at once. At SIGHUP it reads its
configuration again, as 'unifiedd reload' has it do.

Flows that cannot start are reported and do not keep others from running.

Started as root it first makes what takes privilege (directories, huge pages with
region.reserve), and then runs the daemon as the configured user, or as root, with
the few capabilities it needs.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := loadConfig(file)
			if errors.Is(err, fs.ErrPermission) {
				return fmt.Errorf("%w (the daemon reads it as user %s, also at a reload: chgrp it to a group of that user, with mode 0640)", err, userName())
			}
			if err != nil {
				return err
			}
			level := new(slog.LevelVar)
			level.Set(cfg.Log.Level.Slog())
			log := newLog(cfg.Log.Format, level, c.ErrOrStderr())
			here, err := privsep.Start(privsep.For(cfg))
			switch {
			case here.Status != 0: // the daemon has ended, and said why
				return &statusError{here.Status, err}
			case err != nil || !here.Daemon:
				return err
			}
			if here.Missing != 0 {
				log.Warn("some capabilities are missing: what needs them will be refused", "missing", here.Missing.String())
			}
			warnUnfiltered(log, here.Unfiltered)
			return runDaemon(c.Context(), cfg, here.Memory, newReloader(nil, file, level, log))
		},
	}
	addConfig(c, &file, "configuration `FILE`")
	requireConfig(c)
	return c
}

func newReloader(d *flows.Daemon, file string, level *slog.LevelVar, log *slog.Logger) *control.Reloader {
	return &control.Reloader{Daemon: d, File: file, Options: configOptions(), Level: level, Log: log}
}

// runDaemon runs the flows until a signal. The reloader gets the daemon.
func runDaemon(parent context.Context, cfg *config.Config, memory *umem.Memory, r *control.Reloader) (err error) {
	ctx, stop := untilOneOf(parent, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	again, stopped := hangups()
	defer stopped()
	log := r.Log
	d, err := flows.Open(cfg, flows.Options{Version: build.Get(version).Version, Log: log, Index: indexApart, Memory: memory})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeDaemon(d, log)) }()
	r.Daemon = d
	s, err := control.Serve(d, r, cfg.Metrics.Listen, cfg.Control.Socket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := start(d, log); err != nil {
		return err
	}
	control.Notify(log, daemon.SdNotifyReady)
	go r.Follow(ctx, again)
	<-ctx.Done()
	control.Notify(log, daemon.SdNotifyStopping)
	log.Info("stopping: no more packets are taken, what was received is written")
	return nil
}

// start starts the flows. Some that fail are logged; when all fail that is an
// error.
func start(d *flows.Daemon, log *slog.Logger) error {
	err := d.Start()
	if err == nil {
		return nil
	}
	for _, f := range d.Flows() {
		if f.Status().State == status.Running {
			log.Error("some flows do not run", "why", err)
			return nil
		}
	}
	return err
}

func newLog(format config.Format, level slog.Leveler, w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if format == config.FormatJSON {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
