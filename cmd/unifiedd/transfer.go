package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/privsep"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/providers"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/umem"
)

// transferFlags are the flags that send and receive share.
type transferFlags struct {
	rdma                        string
	certificate, key, authority string
	pieceText, memoryText       string
	pages                       string
	reserve                     bool
	user                        string
	quiet                       bool

	piece, window uint64 // of the texts
}

func (f *transferFlags) register(c *cobra.Command) {
	s := c.Flags()
	s.StringVar(&f.rdma, "rdma", "", "RDMA `DEVICE`: roce:INTERFACE, or one of libibverbs, such as mlx5_0")
	s.StringVar(&f.certificate, "cert", "", "certificate `FILE` (PEM): TLS 1.3, with certificates on both sides")
	s.StringVar(&f.key, "key", "", "`FILE` with the certificate's key")
	s.StringVar(&f.authority, "ca", "", "`FILE` with the authority that has signed the other side's certificate")
	c.MarkFlagsRequiredTogether("cert", "key", "ca")
	s.StringVar(&f.pieceText, "piece", "4MiB", "`SIZE` of a message, from 1MiB to 1GiB, a power of two; the shorter one of both sides counts")
	s.StringVar(&f.memoryText, "memory", "32MiB", "`SIZE` of the memory for a transfer's pieces")
	s.StringVar(&f.pages, "pages", string(config.PagesAuto), "pages of the memory: auto, 2MiB or ordinary")
	s.BoolVar(&f.reserve, "reserve", true, "reserve huge pages that are missing, and give them back at the end")
	s.StringVarP(&f.user, "relinquish-privileges", "Z", "", "started as root, go on as `USER` (default: the user who called sudo; else the user unifiedd, if there is one; else root)")
	s.BoolVarP(&f.quiet, "quiet", "q", false, "print errors only")
}

// check reads the texts.
func (f *transferFlags) check() error {
	piece, err := config.ParseSize(f.pieceText)
	if err != nil {
		return fmt.Errorf("--piece: %w", err)
	}
	if piece < config.MiB || piece > config.GiB || piece&(piece-1) != 0 {
		return fmt.Errorf("--piece %s: it must be a power of two from 1MiB to 1GiB", f.pieceText)
	}
	memory, err := config.ParseSize(f.memoryText)
	if err != nil {
		return fmt.Errorf("--memory: %w", err)
	}
	f.piece, f.window = uint64(piece), uint64(memory/piece)
	switch {
	case f.window < 2:
		return fmt.Errorf("--memory %s: it must hold two pieces of %s at least", f.memoryText, f.pieceText)
	case f.window > mostPieces:
		return fmt.Errorf("--memory %s: it must hold at most %d pieces of %s", f.memoryText, mostPieces, f.pieceText)
	case f.pages != string(config.PagesAuto) && f.pages != string(config.Pages2MiB) && f.pages != string(config.PagesOrdinary):
		return fmt.Errorf("--pages %s: it must be auto, 2MiB or ordinary", f.pages)
	case f.user != "":
		return checkUser(f.user)
	}
	return nil
}

// mostPieces is the largest number of pieces of a transfer at once.
const mostPieces = 1024

// Frames of the region besides pieces: for messages, and for the packets of a device in software, at most.
const (
	messageFrames = 512
	packetFrames  = 32 << 10
	frameBytes    = 4096
)

// region is the memory for a number of transfers.
func (f *transferFlags) region(transfers uint64) *umem.Config {
	_, packets := device.ReceiveDepth(f.rdma, packetFrames)
	c := &umem.Config{FrameSize: frameBytes, ExtentSize: f.piece, Extents: transfers * f.window}
	switch config.Pages(f.pages) {
	case config.PagesOrdinary:
		c.Pages = umem.Ordinary
	case config.Pages2MiB:
		c.Pages = umem.Huge2M
	}
	// The extents begin at a multiple of their size: what is before the first one is frames.
	frames := (uint64(packets) + messageFrames*transfers) * frameBytes
	c.Size = c.Extents*c.ExtentSize + (frames+c.ExtentSize-1)/c.ExtentSize*c.ExtentSize
	return c
}

// begin reduces the process to the rights that it needs. In the parent process it returns errEnded, or why the command
// failed.
func (f *transferFlags) begin(region *umem.Config, log *slog.Logger) (*umem.Memory, error) {
	name := f.user
	if name == "" {
		name = privsep.DefaultUser()
	}
	o := privsep.ForTransfer(f.rdma, region, name)
	if !f.reserve {
		o.Region = nil
	}
	here, err := privsep.Start(o)
	switch {
	case here.Status != 0: // the command has ended and reported its error
		return nil, &statusError{here.Status, err}
	case err != nil:
		return nil, err
	case !here.Daemon:
		return nil, errEnded
	}
	warnUnfiltered(log, here.Unfiltered)
	return here.Memory, nil
}

// credentials loads the certificates; nil: there are none.
func (f *transferFlags) credentials(log *slog.Logger) (*connect.Credentials, error) {
	if f.certificate == "" {
		log.Warn("connections are neither encrypted nor authenticated: hosts on the path can read and change the data (--cert, --key and --ca)")
		return nil, nil
	}
	return connect.LoadCredentials(f.certificate, f.key, f.authority)
}

// transferDevice is an open RDMA device with its region.
type transferDevice struct {
	*stream.Endpoint
	region *umem.Region
	device rdma.Device
}

// open opens the region and the device.
func (f *transferFlags) open(region *umem.Config, memory *umem.Memory) (d *transferDevice, err error) {
	d = &transferDevice{}
	region.Memory = memory
	if d.region, err = umem.Open(*region); err != nil {
		return nil, err
	}
	depth, _ := device.ReceiveDepth(f.rdma, packetFrames)
	if d.device, err = providers.Open(f.rdma, roce.Config{Region: d.region, Receive: depth}); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	if d.Endpoint, err = stream.OpenEndpoint(d.device, d.region); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Close gives everything back.
func (d *transferDevice) Close() (err error) {
	if d.Endpoint != nil {
		if err := d.Endpoint.Close(); err != nil {
			return err
		}
	}
	if d.device != nil {
		if err := d.device.Close(); err != nil {
			return err
		}
	}
	return d.region.Close()
}

// copies describes how often each byte was copied: by this program, which copies none, by a device in software, and by
// the kernel for files without direct I/O.
func (d *transferDevice) copies(kernel, bytes uint64) string {
	var s status.RDMADevice
	if soft, is := d.device.(*roce.Device); is {
		device.CountCopies(&s, soft.Counters())
	}
	by := map[string]uint64{"placed": s.Placed}
	for why, n := range s.SentCopied {
		by["sent_"+why] = n
	}
	return fmt.Sprintf("copies per byte: ours 0, the device's %s, the kernel's %s", perByte(by, bytes), perByte(map[string]uint64{"buffered": kernel}, bytes))
}

// progress prints a line that is written over again and again, as rsync's --info=progress2 does: bytes, percent, rate and
// the time that is left.
type progress struct {
	w         io.Writer
	size      uint64
	began     time.Time
	at        [progressSpan]uint64 // the bytes at the last ticks
	times     [progressSpan]time.Time
	ticks     int
	lastWidth int
}

// progressSpan is how many ticks the rate is a mean of.
const progressSpan = 5

// progressEvery is the time between two lines.
const progressEvery = time.Second

func newProgress(w io.Writer, size, begin uint64, now time.Time) *progress {
	p := &progress{w: w, size: size, began: now}
	for i := range p.at {
		p.at[i], p.times[i] = begin, now
	}
	return p
}

// tick prints the line. note is printed behind it.
func (p *progress) tick(at uint64, now time.Time, note string) {
	slot := p.ticks % progressSpan
	rate := 0.0
	if span := now.Sub(p.times[slot]).Seconds(); span > 0 && at > p.at[slot] {
		rate = float64(at-p.at[slot]) / span
	}
	p.at[slot], p.times[slot] = at, now
	p.ticks++
	left := "  ??:??:??"
	if rate > 0 {
		left = clockText(time.Duration(float64(p.size-min(at, p.size)) / rate * float64(time.Second)))
	}
	p.print(at, rate, left, note)
}

// end prints the last line, with the mean rate and the whole time.
func (p *progress) end(at, moved uint64, now time.Time) {
	took := now.Sub(p.began)
	p.print(at, float64(moved)/max(took.Seconds(), 1e-9), clockText(took), "")
	fmt.Fprintln(p.w)
}

func (p *progress) print(at uint64, rate float64, left, note string) {
	percent := 100
	if p.size > 0 {
		percent = int(at * 100 / p.size)
		if at > 1<<56 {
			percent = int(at / (p.size / 100))
		}
	}
	line := fmt.Sprintf("%15s %3d%% %12s %s", status.Grouped(at), percent, rateText(rate), left)
	if note != "" {
		line += " (" + note + ")"
	}
	fmt.Fprintf(p.w, "\r%-*s", p.lastWidth, line)
	p.lastWidth = len(line)
}

// rateText prints a rate in powers of 1024, as --limit has it.
func rateText(rate float64) string {
	for _, unit := range []string{"KiB/s", "MiB/s"} {
		if rate /= 1024; rate < 1024 {
			return fmt.Sprintf("%.2f%s", rate, unit)
		}
	}
	return fmt.Sprintf("%.2fGiB/s", rate/1024)
}

// clockText prints hours, minutes and seconds.
func clockText(d time.Duration) string {
	s := int64(min(d, 9999*time.Hour).Seconds())
	return fmt.Sprintf("%4d:%02d:%02d", s/3600, s/60%60, s%60)
}
