package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/internal/newfile"
	"github.com/unifiedd/unifiedd/internal/selftest"
)

// blockSize is the unit that a made file is verified by: block n is message n of the seed.
const blockSize = 4096

// makeFile makes a file of blocks.
func makeFile(ctx context.Context, _ *client.Client, o options) (r result, err error) {
	if o.size == 0 || o.size%blockSize != 0 {
		return r, fmt.Errorf("-size %d: it must be a multiple of %d", o.size, blockSize)
	}
	f, err := newfile.Replace(o.file, 0o600)
	if err != nil {
		return r, err
	}
	defer func() {
		if err != nil && f != nil {
			err = errors.Join(err, f.Discard())
		}
	}()
	block := make([]byte, blockSize)
	for n := uint64(0); n < o.size/blockSize && ctx.Err() == nil; n++ {
		selftest.Fill(block, o.seed, n)
		if _, err := f.Write(block); err != nil {
			return r, err
		}
	}
	if err := context.Cause(ctx); err != nil {
		return r, err
	}
	err, f = f.Commit(), nil
	return result{Did: "made", Messages: o.size / blockSize, Bytes: o.size}, err
}
