package handlerstest

import (
	"testing"

	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/engine"
	"m40-llm/infer/gguf"
	"m40-llm/infer/guide"
	"m40-llm/infer/hub"
)

// OpenGuide starts the real engine with the built-in model, with the options that set has changed.
func OpenGuide(t *testing.T, set ...func(*engine.Options)) *engine.Engine {
	t.Helper()
	o := engine.Options{
		Catalog:    hub.New(hub.Options{Builtin: map[string][]byte{"guide": guide.Model}}),
		OpenDevice: func(*gguf.File) (device.Device, error) { return cpu.Open(1) },
		Model:      "guide",
	}
	for _, change := range set {
		change(&o)
	}
	engine, err := engine.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close() })
	return engine
}
