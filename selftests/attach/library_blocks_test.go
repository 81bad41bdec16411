package attach

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// blockSetting serves blocks of a file.
const blockSetting = `
region: {size: 32MiB, pages: ordinary}
workers: [{name: main}]
attach: {socket: SOCKET, programs: [{name: writer, user: "USER", out: 1MiB}, {name: reader, user: "USER", in: 2MiB}]}
flows: [{name: image, from: {file: IMAGE}, to: {attach: reader, queue: 64}}]
`

// blockCases are cases of blocks. What is behind the end of the file, or no multiple of its blocks, is refused.
var blockCases = []libraryCase{
	{name: "blocks", setting: blockSetting, image: 1 << 20, steps: `attach SOCKET reader 7 = attached; blocks nothing 0 = error refused no_such_flow;
		blocks image 0 = blocks 1048576 4096; fetch 256 4096 = fetched 256 0; fetch 3000 4096 = fetched 3000 2744; fetch 3 4097 = fetched 3 3;
		fetch 3 8192 = fetched 3 3; fetch 2048 512 = fetched 2048 0; close = closed; blocks image 8 = blocks 1048576 4096;
		fetch 300 4096 = fetched 300 44; detach = detached`},
	{name: "blocks of another program", setting: blockSetting, image: 1 << 20, steps: `attach SOCKET writer 7 = attached;
		blocks image 0 = error refused no_such_flow`},
	{name: "blocks of a file with an odd end", setting: blockSetting, image: 1<<20 + 5000, steps: `attach SOCKET reader 7 = attached;
		blocks image 0 = blocks 1053576 4096; fetch 258 4096 = fetched 258 1`},
	{name: "daemon restarted while blocks are read", setting: blockSetting, image: 128 << 20, steps: `attach SOCKET reader 7 = attached;
		blocks image 0 = blocks 134217728 4096; fetch 32768 4096 &; !kill; !run; = fetched 32768 0; fetch 100 4096 = fetched 100 0`},
	{name: "flow restarted while blocks are read", setting: blockSetting, image: 128 << 20, steps: `attach SOCKET reader 7 = attached;
		blocks image 0 = blocks 134217728 4096; fetch 32768 4096 &; !stop image; !start image; = fetched 32768 0`},
}

// writeImage writes a file whose bytes follow from where they are, in another way in each block.
func writeImage(t *testing.T, path string, size int) {
	t.Helper()
	b := make([]byte, size)
	for o := range b {
		b[o] = byte(o + o/4096)
	}
	testenv.Must(t, os.WriteFile(path, b, 0o600))
}

// checkBlock returns an error for an answer with other bytes than the file's.
func checkBlock(a *attached.Block, length int) error {
	if a.Err == nil && len(a.Data) != length {
		return fmt.Errorf("%d bytes at %d", len(a.Data), a.Offset)
	}
	for i, b := range a.Data {
		if o := int(a.Offset) + i; b != byte(o+o/4096) {
			return fmt.Errorf("the byte at %d is wrong", o)
		}
	}
	return nil
}

// fetch requests blocks, one behind the other, and those again that the daemon took with it.
func (g *goLibrary) fetch(n, length int) (string, error) {
	asked, got, refused := make([]bool, n), make([]bool, n), 0
	for answered, next := 0, 0; answered < n; {
		for ; next < n; next++ {
			if asked[next] || got[next] {
				continue
			}
			if _, err := g.blocks.Request(uint64(next*length), uint32(length)); err != nil {
				break // Wait says what is wrong
			}
			asked[next] = true
		}
		var answers [64]attached.Block
		k, _ := g.blocks.Poll(answers[:]) // Wait says what is wrong
		for i := range answers[:k] {
			a := &answers[i]
			if err := checkBlock(a, length); err != nil {
				return "", err
			}
			at := int(a.Offset) / length
			if at >= n || !asked[at] || got[at] {
				return "", fmt.Errorf("an answer at %d that nobody asked for", a.Offset)
			}
			if got[at] = true; a.Err != nil {
				refused++
			}
		}
		g.blocks.Release(answers[:k])
		if answered += k; k > 0 {
			continue
		}
		if err := g.blocks.Wait(g, time.Second); err != nil {
			return "", err
		}
		if g.blocks.Next() == 1 {
			next, asked = 0, make([]bool, n) // it is open again
		}
	}
	return fmt.Sprintf("fetched %d %d", n, refused), nil
}
