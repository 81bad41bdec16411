package umem_test

import (
	"fmt"
	"log"

	"github.com/unifiedd/unifiedd/umem"
)

// A program opens a region, takes a frame from its pool, and gives it back.
func Example() {
	region, err := umem.Open(umem.Config{Size: 4 << 20, Pages: umem.Ordinary})
	if err != nil {
		log.Fatal(err)
	}
	defer region.Close()
	book := region.NewBook("example") // of one thread
	defer book.Close()
	worker, err := book.NewHolder(umem.OwnerWorker, "example")
	if err != nil {
		log.Fatal(err)
	}
	defer worker.Close()

	frames := make([]umem.Frame, 1)
	fmt.Println(worker.Take(frames), "frame taken, of", region.Frames())
	frames[0].Len = 5
	copy(region.Bytes(frames[0]), "hello")
	fmt.Println(worker.Held(), "frame held by", worker.Name())
	worker.Give(frames)
	fmt.Println(worker.Held(), "frames held")
	// Output:
	// 1 frame taken, of 1024
	// 1 frame held by example
	// 0 frames held
}
