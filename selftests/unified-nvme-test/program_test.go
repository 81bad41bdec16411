package main

import (
	"os"
	"testing"
)

// programVariable makes the test binary run the program itself, for tests that run it as a separate
// process.
const programVariable = "UNIFIEDD_NVME_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		main()
	}
	os.Exit(m.Run())
}
