package attached_test

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestChannelAtOnce: a reader may open a channel as soon as the writer has opened it.
func TestChannelAtOnce(t *testing.T) {
	writer, reader := hot(t, "hot"), hot(t, "cool")
	for range 300 {
		w, err := writer.WriteChannel("hot")
		testenv.Must(t, err)
		r, err := reader.ReadChannel("hot")
		testenv.Must(t, err)
		testenv.Check(t, r.Close())
		testenv.Check(t, w.Close())
	}
}
