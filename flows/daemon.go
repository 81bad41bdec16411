package flows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/attach"
	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/cluster"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/source/afxdp"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/trace"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/internal/index"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// Options are the settings of a daemon that its configuration does not have.
type Options struct {
	Version  string            // for status and capture files
	Log      *slog.Logger      // nil: slog.Default()
	Count    uint64            // packets after which each flow is done; 0: no limit
	Index    index.Maker       // makes the indexes of segments in another process; nil: this process does
	Stream   io.Writer         // receives packets as a pcapng stream instead of the disk; for one flow only
	Context  context.Context   // cancels opening a flow, which may wait for the end of a pipe; may be nil
	Complete func(path string) // called for each complete file, on a goroutine of its flow; may be nil
	Notes    string            // directory for notes about our rules in cards; empty: SteeringDir
	Trace    string            // directory of the flight recorder, such as trace.DirectoryOf; empty: nothing is recorded
	Halts    string            // file that keeps the kill switches, see HaltFile; empty: they are off when the daemon starts
	Restart  bool              // flows start again by themselves after a failure, unless their settings say never
	Memory   *umem.Memory      // from umem.Allocate with RegionConfig; nil: use free pages. Open releases it
}

// Daemon is one region, its workers and the flows over it. Its methods may be
// called from any goroutine.
type Daemon struct {
	options Options
	region  *umem.Region
	placed  placed
	workers []*worker.Worker
	devices *device.RDMADevices
	attach  *attach.Hub // nil: no program can attach
	states  states
	nets    device.Interfaces
	fanouts device.Fanouts
	secret  *connect.Credentials    // of RDMA connections; nil: no TLS
	found   *cluster.Names          // where named peers are; nil: there is no resolver
	unfound atomic.Pointer[unfound] // what the last Record could not have; never changed
	clock   *clockWatch
	seconds *seconds
	started time.Time
	undo    pipeline.Cleanup
	trace   *trace.Directory // nil: nothing is recorded

	reloading sync.Mutex // held by Start, Reload and Close
	closing   atomic.Bool
	reloads   *reloads
	mu        sync.Mutex // guards the fields below
	config    *config.Config
	flows     []*Flow
	traceErr  error // why flows are not recorded

	halts halts
}

// controlArea is the room for the rings of io_uring.
const controlArea = 2 << 20

// Open opens the region and starts the workers. No flow runs yet. The caller
// closes the daemon.
func Open(c *config.Config, o Options) (*Daemon, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	d := &Daemon{config: c, options: o, started: time.Now(), reloads: newReloads(), clock: newClockWatch()}
	var undo pipeline.Cleanup
	defer undo.Run()
	d.seconds = newSeconds()
	undo.Add(d.seconds.Close)
	giveProcessors(&undo, len(c.Workers))
	d.openTrace(&undo)
	if err := d.halts.open(o.Halts); err != nil {
		o.Log.Error("no order leaves", "err", err)
	}
	var err error
	region := RegionConfig(c)
	region.Memory = o.Memory
	if d.region, err = umem.Open(region); err != nil {
		return nil, err
	}
	undo.Add(d.region.Close)
	d.placed = locate(d.region)
	if err := d.startWorkers(&undo); err != nil {
		return nil, err
	}
	if c.TLS != (config.TLS{}) {
		if d.secret, err = connect.LoadCredentials(c.TLS.Certificate, c.TLS.Key, c.TLS.Authority); err != nil {
			return nil, err
		}
	}
	d.openNames()
	d.devices = device.NewRDMADevices(c, d.region)
	if err := d.openStates(&undo); err != nil {
		return nil, err
	}
	if err := d.openHub(&undo); err != nil {
		return nil, err
	}
	for _, one := range c.Flows {
		d.flows = append(d.flows, newFlow(one, d))
	}
	d.undo = undo.Release()
	return d, nil
}

// allWorkers is how many workers all daemons of this process have. A worker that waits keeps its processor.
var allWorkers atomic.Int32

// giveProcessors gives the Go scheduler two processors more than there are workers. With only one more,
// control work waits for the scheduler's next tick each time: 10 ms and more. It sets the number in any case, because the
// runtime would lower one that it has chosen itself when threads keep off CPUs.
func giveProcessors(undo *pipeline.Cleanup, workers int) {
	want := int(allWorkers.Add(int32(workers))) + 2
	runtime.GOMAXPROCS(max(want, runtime.GOMAXPROCS(0)))
	undo.Add(func() error { allWorkers.Add(int32(-workers)); return nil })
}

// RegionConfig is the region of a configuration, with the control area and the memory of programs.
func RegionConfig(c *config.Config) umem.Config {
	r := umem.Config{
		Size: uint64(c.Region.Size), Pages: pageSize(c.Region.Pages), Device: c.Region.Device, FrameSize: uint32(c.Region.Frame),
		ExtentSize: uint64(c.Region.Extent), Extents: uint64(c.Region.Extents), Control: controlArea, Node: c.Region.Node,
	}
	for _, p := range c.Attach.Programs {
		r.Slices = append(r.Slices, umem.SliceConfig{Name: p.Name, In: uint64(p.In), Out: uint64(p.Out)})
	}
	r.Slices = append(r.Slices, ringSlices(c)...)
	for _, s := range stateConfigs(c) {
		r.Slices = append(r.Slices, s.Slice())
	}
	return r
}

// openHub begins to accept programs.
func (d *Daemon) openHub(undo *pipeline.Cleanup) (err error) {
	a := &d.config.Attach
	if len(a.Programs) == 0 {
		return nil
	}
	c := attach.Config{Socket: a.Socket, Region: d.region, Log: d.options.Log}
	for _, p := range a.Programs {
		c.Programs = append(c.Programs, attach.ProgramConfig{Name: p.Name, User: p.User})
	}
	c.Channels = channelConfigs(d.config)
	c.States = d.readable()
	if d.attach, err = attach.Open(c); err != nil {
		return err
	}
	undo.Add(d.attach.Close)
	return d.attach.Listen()
}

func pageSize(p config.Pages) umem.PageSize {
	switch p {
	case config.Pages1GiB:
		return umem.Huge1G
	case config.PagesOrdinary:
		return umem.Ordinary
	case config.Pages2MiB:
		return umem.Huge2M
	}
	return umem.Auto
}

func (d *Daemon) startWorkers(undo *pipeline.Cleanup) error {
	if err := d.keepOff(undo); err != nil {
		return err
	}
	for _, c := range d.config.Workers {
		w, err := worker.New(c, d.config.Region.Node)
		if err != nil {
			return err
		}
		undo.Add(w.Close)
		d.workers = append(d.workers, w)
	}
	return nil
}

// keepOff keeps all threads but the workers off the CPUs that the configuration gives to workers: what others cause, as
// attached programs do, takes no time of theirs.
func (d *Daemon) keepOff(undo *pipeline.Cleanup) error {
	var cpus []int
	for _, c := range d.config.Workers {
		if c.CPU != nil {
			cpus = append(cpus, *c.CPU)
		}
	}
	back, err := worker.KeepOff(cpus)
	if err == nil {
		undo.Add(back)
	}
	return err
}

func (d *Daemon) worker(name string) *worker.Worker {
	for _, w := range d.workers {
		if w.Config().Name == name {
			return w
		}
	}
	return d.workers[0]
}

// share returns what a flow shares with the others. Its quota is its part of the extents, and of the frames
// that RDMA devices leave.
func (d *Daemon) share(f config.Flow) pipeline.Shared {
	c, _ := d.running()
	frames, extents := c.Share(&f, int(max(0, d.devices.Frames()-d.devices.FramesTaken())), int(d.region.Extents()))
	return pipeline.Shared{
		Quota: pipeline.Quota{Frames: frames, Extents: extents}, Config: c, Interfaces: &d.nets, Fanouts: &d.fanouts, Devices: d.devices, Attach: d.attach, States: d.states.all, Node: d.placed.node,
		Limit: d.options.Count, Stream: d.options.Stream, Application: "unifiedd " + d.options.Version, Release: d.options.Version, Credentials: d.secret, Names: d.found, Context: d.options.Context,
		Complete: d.options.Complete, MakeIndex: d.options.Index, Notes: cmp.Or(d.options.Notes, afxdp.SteeringDir(c)),
	}
}

// Start starts every flow. A flow that cannot start does not keep others from starting; the error names each
// flow that cannot.
func (d *Daemon) Start() error {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	d.warn()
	var errs []error
	for _, f := range d.Flows() {
		errs = append(errs, f.Start())
	}
	return errors.Join(errs...)
}

// warn logs settings that make the daemon slower.
func (d *Daemon) warn() {
	switch {
	case d.config.OnlyPacketSockets(): // their packets are not in the region
	case d.region.WhyOrdinary() != nil:
		d.region.Warn(d.options.Log)
	case d.region.Pages() == umem.Ordinary:
		d.options.Log.Warn("the region is on ordinary pages, as configured: every device is slower")
	}
}

// Flow finds a flow by its name.
func (d *Daemon) Flow(name string) (*Flow, error) {
	for _, f := range d.Flows() {
		if f.Name() == name {
			return f, nil
		}
	}
	return nil, fmt.Errorf("there is no flow %q (there is: %s)", name, strings.Join(d.names(), ", "))
}

func (d *Daemon) names() (all []string) {
	for _, f := range d.Flows() {
		all = append(all, f.Name())
	}
	return all
}

// Flows lists the flows in the order of the configuration.
func (d *Daemon) Flows() []*Flow {
	_, all := d.running()
	return all
}

// Config returns the configuration that the daemon runs with. The caller must not change it.
func (d *Daemon) Config() *config.Config {
	c, _ := d.running()
	return c
}

func (d *Daemon) running() (*config.Config, []*Flow) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.config, d.flows
}

// install makes a configuration and its flows the daemon's.
func (d *Daemon) install(c *config.Config, all []*Flow) {
	d.devices.Expect(c)
	d.useNames(c)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.config, d.flows = c, all
}

// Region is the memory of all flows.
func (d *Daemon) Region() *umem.Region { return d.region }

// Unready is the status of each flow that does not do all it should: nil when every
// flow runs and waits for nothing, or is done.
func (d *Daemon) Unready() (all []status.Flow) {
	for _, f := range d.Flows() {
		if s := f.Status(); s.State != status.Running && s.State != status.Done {
			all = append(all, s)
		}
	}
	return all
}

// Status returns the status of the daemon, its workers and its flows.
func (d *Daemon) Status() status.Daemon {
	s := status.Daemon{Version: d.options.Version, PID: os.Getpid(), Started: d.started, Config: d.reloads.read(), Region: d.regionStatus(), RDMA: d.devices.Status()}
	s.Programs, s.States, s.Trace = d.programs(), d.stateStatus(), d.traceStatus()
	s.Clock, s.TLS, s.Cluster = d.clock.look(), d.tlsStatus(), d.clusterStatus()
	s.Orders = d.halts.status()
	for _, w := range d.workers {
		s.Workers = append(s.Workers, w.Status())
	}
	for _, f := range d.Flows() {
		s.Flows = append(s.Flows, f.Status())
	}
	return s
}

// programs describes the programs that may attach; nil: none may.
func (d *Daemon) programs() *status.Programs {
	if d.attach == nil {
		return nil
	}
	all, refused := d.attach.Stats()
	p := &status.Programs{Socket: d.Config().Attach.Socket, Refused: byReason(refused)}
	for _, one := range all {
		p.Programs = append(p.Programs, status.Program{
			Name: one.Name, Attached: one.Attached, PID: one.PID, Attaches: one.Attaches, In: one.In, Out: one.Out, Ended: byReason(one.Ended),
		})
	}
	p.Channels = channelStatus(d.attach)
	return p
}

func byReason(counts map[wire.Reason]uint64) map[string]uint64 {
	all := make(map[string]uint64, len(counts))
	for why, n := range counts {
		all[why.String()] = n
	}
	return all
}

func (d *Daemon) regionStatus() status.Region {
	r := d.region
	s := status.Region{
		Bytes: r.Size(), Pages: r.Pages().String(), Device: d.config.Region.Device, Ordinary: r.Pages() == umem.Ordinary, FrameSize: r.FrameSize(), Frames: r.Frames(),
		Owners: make(map[string]int64), Registered: r.Registered(), Nodes: d.placed.bytes,
	}
	count := r.Snapshot()
	for _, o := range umem.Owners() {
		s.Owners[o.String()] = count.Of(o)
	}
	return s
}

// Close stops every flow, so that nothing received is lost, and releases everything.
func (d *Daemon) Close() error {
	d.closing.Store(true)
	err := d.stop() // also while a reload waits for a disk
	d.reloading.Lock()
	defer d.reloading.Unlock()
	return errors.Join(err, d.stop(), d.undo.Run())
}

// stop stops the flows together: one with a slow disk must not keep the others waiting.
func (d *Daemon) stop() error {
	all := d.Flows()
	errs := make([]error, len(all))
	var stopping sync.WaitGroup
	for i, f := range all {
		stopping.Go(func() { errs[i] = f.Stop() })
	}
	stopping.Wait()
	return errors.Join(errs...)
}
