package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/control"
	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/privsep"
	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/recent"
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
			kept, err := keepConfig(&file)
			if err != nil {
				return err
			}
			cfg, err := loadConfig(file)
			if errors.Is(err, fs.ErrPermission) {
				return fmt.Errorf("%w (the daemon reads it as user %s, also at a reload: chgrp it to a group of that user, with mode 0640)", err, userName())
			}
			if err != nil {
				return err
			}
			level := new(slog.LevelVar)
			level.Set(cfg.Log.Level.Slog())
			remembered := recent.New(newLog(cfg.Log.Format, level, c.ErrOrStderr()).Handler())
			log := slog.New(remembered)
			needs := privsep.For(cfg)
			needs.Config = kept
			defer runtime.KeepAlive(kept) // a reload reads it
			here, err := privsep.Start(needs)
			switch {
			case here.Status != 0: // the daemon has ended and reported its error
				return &statusError{here.Status, err}
			case err != nil || !here.Daemon:
				return err
			}
			if here.Missing != 0 {
				log.Warn("some capabilities are missing: operations that need them will fail", "missing", here.Missing.String())
			}
			warnUnfiltered(log, here.Unfiltered)
			if why := openSecret(cfg, file); why != "" {
				log.Warn(why)
			}
			r := newReloader(nil, file, level, log)
			r.Recent = remembered
			return runDaemon(c.Context(), cfg, here.Memory, r)
		},
	}
	addConfig(c, &file, "configuration `FILE`")
	requireConfig(c)
	return c
}

// keepConfig makes a configuration that can be read only once, as from a pipe, one that can be read again: by the process
// with the daemon's rights, and at a reload, which then changes nothing. kept is what the former needs; nil: nothing.
func keepConfig(file *string) (kept *os.File, err error) {
	passed, err := privsep.PassedConfig()
	if err != nil || passed != "" {
		*file = passed
		return nil, err
	}
	info, err := os.Stat(*file)
	if err != nil || info.Mode().IsRegular() || info.IsDir() {
		return nil, nil // loading it says what is wrong
	}
	from, err := os.Open(*file)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	defer from.Close()
	fd, err := unix.MemfdCreate("configuration", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("keep the configuration: %w", err)
	}
	kept = os.NewFile(uintptr(fd), *file)
	if _, err := io.Copy(kept, io.LimitReader(from, config.MaxFile+1)); err != nil {
		return nil, errors.Join(fmt.Errorf("read configuration: %w", err), kept.Close())
	}
	*file = fmt.Sprintf("/proc/self/fd/%d", fd)
	return kept, nil
}

func newReloader(d *flows.Daemon, file string, level *slog.LevelVar, log *slog.Logger) *control.Reloader {
	return &control.Reloader{Daemon: d, File: file, Options: configOptions(), Level: level, Log: log}
}

// runDaemon runs the flows until a signal. It gives the daemon to the reloader.
func runDaemon(parent context.Context, cfg *config.Config, memory *umem.Memory, r *control.Reloader) (err error) {
	ctx, stop := untilOneOf(parent, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	again, stopped := hangups()
	defer stopped()
	log := r.Log
	d, err := flows.Open(cfg, flows.Options{Version: build.Get(version).Version, Log: log, Index: indexApart, Memory: memory, Trace: traceDirectory(cfg), Halts: flows.HaltFile(cfg.Control.State, cfg.Control.Socket), Restart: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeDaemon(d, log)) }()
	r.Daemon = d
	end, err := joinCluster(d, r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	s, err := control.Serve(r, cfg.Metrics.Listen, cfg.Control.Socket)
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
	log.Info("stopping: receiving ends, and what was received is written")
	return nil
}

// start starts the flows. It logs those that fail. It returns an error if all fail.
func start(d *flows.Daemon, log *slog.Logger) error {
	err := d.Start()
	if err == nil {
		return nil
	}
	for _, f := range d.Flows() {
		if f.Status().State == status.Running {
			log.Error("some flows do not run", "err", err)
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

// again is how long after the first signal another one is ignored. timeout(1) sends its signal
// twice at once.
const again = time.Second

// untilSignal returns a context that ends at the first SIGINT, SIGTERM or SIGHUP. SIGHUP does not
// count if it is ignored, as under nohup(1). A later signal ends the process at once. The kernel
// then detaches the program, and the next start recovers the files.
func untilSignal(parent context.Context) (ctx context.Context, stop func()) {
	if signal.Ignored(syscall.SIGHUP) {
		return untilOneOf(parent, syscall.SIGINT, syscall.SIGTERM)
	}
	return untilOneOf(parent, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
}

// untilOneOf is untilSignal for these signals.
func untilOneOf(parent context.Context, those ...os.Signal) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals, stopped := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, those...)
	go func() {
		if !await(signals, stopped) {
			return
		}
		cancel()
		for first := time.Now(); time.Since(first) < again; {
			if !await(signals, stopped) {
				return
			}
		}
		fmt.Fprintln(os.Stderr, "unifiedd: second signal: ending at once; the files are recovered at the next start")
		os.Exit(exitFailed)
	}()
	return ctx, func() { signal.Stop(signals); close(stopped); cancel() }
}

// statisticsAsked returns a channel for the signal that asks for statistics, as with tcpdump.
func statisticsAsked() <-chan os.Signal {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	return asked
}

// hangups returns a channel for the signals at which a daemon reads its configuration again. There
// are none if SIGHUP is ignored. Several signals during one reload count once.
func hangups() (signals chan os.Signal, stop func()) {
	signals = make(chan os.Signal, 1)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	return signals, func() { signal.Stop(signals) }
}

// await waits for a signal. It reports false once stopped is closed.
func await(signals <-chan os.Signal, stopped <-chan struct{}) bool {
	select {
	case <-signals:
		return true
	case <-stopped:
		return false
	}
}

// stopLook is how often sayWaiting checks a stopping flow.
const stopLook = 500 * time.Millisecond

// stopCommand stops the flow of a command, and prints what it waits for.
func stopCommand(f *flows.Flow, w io.Writer) error {
	defer sayWaiting([]*flows.Flow{f}, func(_, why string) {
		fmt.Fprintf(w, "waiting to write what was captured: %s; another Ctrl-C ends at once and loses what is not written\n", why)
	})()
	return f.Stop()
}

// closeDaemon closes a daemon, and logs what its flows wait for.
func closeDaemon(d *flows.Daemon, log *slog.Logger) error {
	defer sayWaiting(d.Flows(), func(name, why string) {
		log.Warn("stopping: a flow waits; another signal ends at once and loses what is not written", "flow", name, "err", why)
	})()
	return d.Close()
}

// sayWaiting reports, once for each stopping flow, what the flow waits for, until stop is called.
func sayWaiting(all []*flows.Flow, say func(name, why string)) (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(stopLook)
		defer tick.Stop()
		told := make(map[string]bool)
		for begun := time.Now(); ; {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			for _, f := range all {
				s := f.Status()
				if s.State == status.Waiting && !told[s.Name] && time.Since(begun) > time.Second {
					told[s.Name] = true
					say(s.Name, s.Error)
				}
			}
		}
	}()
	return func() { close(end); <-done }
}
