package resident

import (
	"testing"

	"m40-llm/cudakern/emutest"
)

// testDevice adds barriers and rings to a device of tests.
type testDevice struct{ *emutest.Device }

func open(t testing.TB, library string) *testDevice {
	t.Helper()
	return &testDevice{emutest.Open(t, library)}
}

// emulation opens the emulated device on this goroutine's thread.
func emulation(t testing.TB) *testDevice { return open(t, emutest.Emulation(t)) }

// device opens the device that tests run kernels on.
func device(t testing.TB) *testDevice { return open(t, emutest.Library(t)) }
