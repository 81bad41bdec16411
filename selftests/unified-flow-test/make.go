package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/internal/newfile"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

// blockSize is the unit of verification of such a file: block n is message n of the seed.
const blockSize = 4096

// makeFile makes a file of blocks, or fills the beginning of a device with them.
func makeFile(ctx context.Context, _ *client.Client, o options) (r result, err error) {
	if info, err := os.Stat(o.file); err == nil && info.Mode()&fs.ModeDevice != 0 {
		err = makeOnDevice(ctx, o)
		return result{Did: "made", Messages: o.size / blockSize, Bytes: o.size}, err
	}
	f, err := newfile.Replace(o.file, 0o600)
	if err != nil {
		return r, err
	}
	if err := writeBlocks(ctx, f, o); err != nil {
		return r, errors.Join(err, f.Discard())
	}
	return result{Did: "made", Messages: o.size / blockSize, Bytes: o.size}, f.Commit()
}

// makeOnDevice writes the blocks to a device, which it cannot replace like a file.
func makeOnDevice(ctx context.Context, o options) error {
	f, err := os.OpenFile(o.file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if err = writeBlocks(ctx, f, o); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func writeBlocks(ctx context.Context, to io.Writer, o options) error {
	block := make([]byte, blockSize)
	for n := uint64(0); n < o.size/blockSize && ctx.Err() == nil; n++ {
		harness.Fill(block, o.seed, n)
		if _, err := to.Write(block); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}
