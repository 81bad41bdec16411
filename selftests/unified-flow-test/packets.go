package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/unifiedd/unifiedd/flows/client"
)

// checkPackets reads the files of a capture, and verifies every byte of the datagrams that send
// sent.
func checkPackets(ctx context.Context, _ *client.Client, o options) (r result, err error) {
	r = result{Did: "found in the capture and verified"}
	files, err := filepath.Glob(o.file + "*.pcapng")
	if err != nil {
		return r, err
	}
	slices.Sort(files)
	last := uint64(0)
	for _, name := range files {
		if err := o.checkFile(ctx, name, &last, &r); err != nil {
			return r, fmt.Errorf("%s: %w", name, err)
		}
	}
	return r, o.enough(r.Messages)
}

// checkFile verifies one file. Datagrams must be in the order of sending.
func (o *options) checkFile(ctx context.Context, name string, last *uint64, r *result) (err error) {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	packets, err := pcapgo.NewNgReader(f, pcapgo.NgReaderOptions{})
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		packet, _, err := packets.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		b, err := payload(packet)
		if err != nil {
			return err
		}
		n, err := checkDatagram(b, o.seed)
		if err == nil && n <= *last {
			err = fmt.Errorf("datagram %d came behind datagram %d", n, *last)
		}
		if err != nil {
			return err
		}
		*last = n
		r.Messages, r.Bytes = r.Messages+1, r.Bytes+uint64(len(b))
	}
	return context.Cause(ctx)
}
