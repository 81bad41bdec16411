package testenv

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// MessageNames checks that a message contains all of says, and no bare error number.
func MessageNames(t testing.TB, message string, says []string) {
	t.Helper()
	for _, one := range says {
		if !strings.Contains(message, one) {
			t.Errorf("the message does not say %q: %s", one, message)
		}
	}
	if strings.Contains(message, "errno") {
		t.Errorf("the message has an error number: %s", message)
	}
}

// WriteSync writes b at offset of a file and waits until it is durable.
func WriteSync(path string, b []byte, offset int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, offset)
	return errors.Join(err, f.Sync(), f.Close())
}
