// Stir takes huge pages of 2 MiB and gives them back, up to 16 at a time, until its standard
// input ends. The tests that use huge pages are run beside it by make test-huge-pages.
package main

import (
	"os"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// most is how many pages it takes at once.
const most = 16

func main() { testenv.StirHugePages(os.Stdin, most) }
