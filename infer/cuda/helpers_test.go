package cuda_test

import (
	"testing"

	"m40-llm/cudakern"
	"m40-llm/cudakern/emutest"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/device/devicetest"
)

// gpu is a context on a thread of its own. Devices are opened in it one after another,
// since a real GPU takes a while for each new context.
type gpu struct {
	thread  *devicetest.Thread
	context *cudakern.Context
}

func openGPU(t testing.TB) *gpu {
	t.Helper()
	path := emutest.Library(t)
	g := &gpu{thread: devicetest.NewThread()}
	t.Cleanup(g.thread.Close)
	var err error
	g.thread.Do(func() {
		var d *cudakern.Driver
		if d, err = cudakern.Load(path); err == nil {
			g.context, err = d.Open(0)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.thread.Do(func() { err = g.context.Close() })
		if err != nil {
			t.Error(err)
		}
	})
	return g
}

func (g *gpu) open() (device.Device, error) {
	return g.thread.Open(func() (device.Device, error) { return cuda.OpenIn(g.context) })
}
