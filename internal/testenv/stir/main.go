// Stir takes huge pages of 2 MiB and gives them back, up to 16 at a time, until its standard input
// ends. make test must pass beside it.
package main

import (
	"os"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// most is the largest number of pages that it takes at once.
const most = 16

func main() { testenv.StirHugePages(os.Stdin, most) }
