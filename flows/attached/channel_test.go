package attached_test

import "testing"

// TestChannelAtOnce: a reader may open a channel as soon as the writer has opened it.
func TestChannelAtOnce(t *testing.T) {
	writer, reader := hot(t, "hot"), hot(t, "cool")
	for range 300 {
		w, err := writer.WriteChannel("hot")
		if err != nil {
			t.Fatal(err)
		}
		r, err := reader.ReadChannel("hot")
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}
