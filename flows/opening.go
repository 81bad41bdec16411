package flows

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/segment"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/umem"
)

// opening is a flow while it is opened.
type opening struct {
	flow     config.Flow
	region   *umem.Region
	worker   *worker.Worker
	devices  *device.RDMADevices
	shared   sharing
	log      *slog.Logger
	book     *umem.Book
	hands    *umem.Holder      // the worker's, for frames between the two ends
	manifest *segment.Manifest // of a log; nil: it is none
	undo     cleanup           // of what is open so far
}

// newOpening opens a flow's book.
func newOpening(f *Flow) (*opening, error) {
	name := "flow " + f.config.Name
	o := &opening{flow: f.config, region: f.region, worker: f.worker, devices: f.devices, shared: f.share(), log: f.log, book: f.region.NewBook(name)}
	o.undo.add(o.book.Close)
	var err error
	if o.hands, err = o.book.NewHolder(umem.OwnerWorker, name); err != nil {
		o.undo.run()
		return nil, err
	}
	o.undo.add(func() error { o.hands.Close(); return nil })
	return o, nil
}

// context ends what opening waits for.
func (o *opening) context() context.Context {
	if o.shared.context == nil {
		return context.Background()
	}
	return o.shared.context
}

// complete hands what is open over to the run.
func (o *opening) complete(c *common) {
	c.log, c.started, c.undo = o.log, time.Now(), o.undo.release()
}

// open opens both ends of a flow. Nothing moves until a worker polls it and it has begun.
func (f *Flow) open() (run, error) {
	o, err := newOpening(f)
	if err != nil {
		return nil, err
	}
	defer o.undo.run()
	switch kind := f.config.Kind(); kind {
	case config.KindNetworkStorage:
		return opened(openNetworkStorage(o))
	case config.KindRDMAStorage:
		return opened(openRDMAStorage(o))
	case config.KindNetworkRDMA:
		return opened(openNetworkRDMA(o))
	case config.KindRDMARDMA:
		return opened(openRDMARDMA(o))
	case config.KindStorageRDMA:
		return opened(openStorageRDMA(o))
	case config.KindStorageNVMe:
		return opened(openStorageNVMe(o))
	case config.KindStorageNetwork:
		return opened(openStorageNetwork(o))
	case config.KindNullStorage:
		return opened(openNullStorage(o))
	case config.KindNullRDMA:
		return opened(openNullRDMA(o))
	case config.KindNetworkNull:
		return opened(openNetworkNull(o))
	case config.KindRDMANull:
		return opened(openRDMANull(o))
	case config.KindNullNull:
		return opened(openNullNull(o))
	default:
		return nil, fmt.Errorf("flows of kind %s cannot be run by this release", kind)
	}
}

// opened is a run of any kind, and no pointer to nothing when there is an error.
func opened[R run](r R, err error) (run, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}
