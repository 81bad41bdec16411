package main

import (
	"context"
	"io"
)

func test(ctx context.Context, o options, out io.Writer) error { return nil }
