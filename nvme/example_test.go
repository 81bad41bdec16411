package nvme_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime"

	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/umem"
)

// A program writes a frame to a file from its place in the region, and reads the file.
func Example() {
	runtime.LockOSThread() // the queue belongs to this thread
	defer runtime.UnlockOSThread()
	region, err := umem.Open(umem.Config{Size: 4 << 20, Pages: umem.Ordinary})
	if err != nil {
		log.Fatal(err)
	}
	defer region.Close()
	book := region.NewBook("example")
	defer book.Close()
	worker, err := book.NewHolder(umem.OwnerWorker, "example")
	if err != nil {
		log.Fatal(err)
	}
	defer worker.Close()
	queue, err := nvme.Open(nvme.Config{Worker: worker})
	if err != nil {
		log.Fatal(err)
	}
	defer queue.Close()

	path := filepath.Join(os.TempDir(), fmt.Sprintf("example-%d", os.Getpid()))
	file, err := nvme.OpenTarget(nvme.TargetConfig{Path: path, Create: true, Size: 4096, Prepare: nvme.PrepareAllocate, Buffered: true})
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(path)
	defer file.Close()
	number, err := queue.Add(file)
	if err != nil {
		log.Fatal(err)
	}

	frames := make([]umem.Frame, 1)
	worker.Take(frames)
	frames[0].Len = 4096
	copy(region.Bytes(frames[0]), "hello")
	*region.Side(frames[0]) = umem.Side{Target: number, Block: 0} // where to write it
	queue.Send(frames)                                            // the queue owns the frame now
	for queue.Reap(frames) == 0 {                                 // until it returns it
		if err := queue.Wait(-1); err != nil {
			log.Fatal(err)
		}
	}
	if err := frames[0].Err(); err != nil {
		log.Fatal(err)
	}
	worker.Give(frames)
	written, err := os.ReadFile(path)
	fmt.Printf("%q %v\n", written[:5], err)
	// Output: "hello" <nil>
}
