package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/internal/selftest"
)

// blockSize is the unit that a made file is verified by: block n is message n of the seed.
const blockSize = 4096

// makeFile makes a file of blocks.
func makeFile(ctx context.Context, _ *client.Client, o options) (r result, err error) {
	if o.size == 0 || o.size%blockSize != 0 {
		return r, fmt.Errorf("-size %d: it must be a multiple of %d", o.size, blockSize)
	}
	f, err := os.OpenFile(o.file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	block := make([]byte, blockSize)
	for n := uint64(0); n < o.size/blockSize && ctx.Err() == nil; n++ {
		selftest.Fill(block, o.seed, n)
		if _, err := f.Write(block); err != nil {
			return r, err
		}
	}
	return result{Did: "made", Messages: o.size / blockSize, Bytes: o.size}, errors.Join(context.Cause(ctx), f.Sync())
}
