package placement

import (
	"cmp"
	"fmt"
	"strconv"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/units"
)

// Shape is the data of a model that determine how much memory it takes. It is read from a file's
// header.
type Shape struct {
	config  model.Config
	weights int64 // bytes of all tensors
	parts   model.Parts
	types   Types
}

// ShapeOf reads the shape of the model in f, whose configuration is c.
func ShapeOf(f *gguf.File, c model.Config) (*Shape, error) {
	parts, err := model.PartBytes(f, c, model.FileLayout{})
	if err != nil {
		return nil, err
	}
	return &Shape{config: c, weights: model.WeightBytes(f), parts: parts, types: TypesOf(f)}, nil
}

// Machine is where a model is to be loaded, and how.
type Machine struct {
	Devices       []device.Info // as Place takes them, with the memory that is free for a model
	Converts      Converts      // for devices with a memory of their own; nil: they convert nothing
	CacheType     string        // of the KV cache; empty: f16
	Parallel      int           // answers at once; 0: DefaultAnswers
	ContextLength int           // requested; 0: none
}

// Free returns the free bytes of all devices; 0: unknown.
func (m Machine) Free() (free int64) {
	for _, d := range m.Devices {
		free += d.Memory
	}
	return free
}

// Fit is the context with which a model fits into a machine's memory. Sizes are in bytes, as an
// engine plans them, without what a device's layout of weights and its kernels add: a few
// percent.
type Fit struct {
	Context int   `json:"context"` // longest that an engine would choose; 0: the model does not fit
	Needs   int64 `json:"needs"`   // memory with that context, or with the shortest if it does not fit
	Trained int   `json:"trained"` // context that the model was trained on, or a shorter one that was requested
	Whole   int64 `json:"whole"`   // memory with context Trained
	Free    int64 `json:"free"`    // free memory of the devices that it would be on, or of all if it does not fit; 0: unknown

	InFile    bool   `json:"in_file,omitempty"`   // whether it fits only if weights stay in the model file on the CPU, which is slower; see device.FileReader
	Converted string `json:"converted,omitempty"` // which weights are converted to another type for the GPU that it would be on; see Types.Converted
}

// Fit returns how the model fits into m.
func (s *Shape) Fit(m Machine) Fit {
	steps := StepLimitsOf(m.Parallel, 0)
	sizes := ModelOf(s.config, CacheTypes[cmp.Or(m.CacheType, "f16")])
	var devices []Device
	for _, info := range m.Devices {
		d := Device{Info: info, Weights: s.weights, Parts: s.parts, Scratch: steps.Scratch(s.config)}
		if info.Dedicated {
			d.enlarge(s.types.growth(m.Converts))
		}
		devices = append(devices, d)
	}
	p := &placer{model: sizes, devices: devices, context: s.config.ContextLength}
	if m.ContextLength > 0 {
		p.context = min(m.ContextLength, p.context)
	}
	alone := p.need(Device{Weights: s.weights, Scratch: steps.Scratch(s.config)}, 0, p.layers())
	takes := func(context int) int64 { return alone.with(blocksFor(context)) }
	f := Fit{Trained: p.context, Whole: takes(p.context)}
	limits := Limits{Context: m.ContextLength, Answers: steps.Answers}
	plan, err := Place(sizes, devices, limits)
	if last := len(devices) - 1; err != nil && devices[last].Kind == "cpu" {
		if _, short := Place(sizes, devices, Limits{Answers: 1}); short != nil { // no context fits beside copies
			devices[last].Weights, devices[last].Parts = 0, model.Parts{Layers: make([]int64, len(s.parts.Layers))}
			plan, err = Place(sizes, devices, limits)
			f.InFile = err == nil
		}
	}
	if err != nil {
		f.Needs, f.Free = takes(min(p.context, shortestContext)), m.Free()
		return f
	}
	f.Context, f.Needs = plan.Context, takes(plan.Context)
	for _, stage := range plan.Stages {
		info := m.Devices[stage.Device]
		f.Free += info.Memory
		if info.Dedicated {
			f.Converted = s.types.Converted(m.Converts, "the GPU")
			more := devices[stage.Device].Weights - s.weights
			f.Needs, f.Whole = f.Needs+more, f.Whole+more
		}
	}
	return f
}

// String returns the fit as a sentence without its full stop.
func (f Fit) String() string {
	if f.Converted != "" {
		return f.memory() + "; " + f.Converted
	}
	return f.memory()
}

func (f Fit) memory() string {
	switch {
	case f.Free == 0:
		return fmt.Sprintf("takes %s with a context of %s; how much memory is free is not known", units.ByteSize(f.Whole), thousands(f.Trained))
	case f.InFile:
		return fmt.Sprintf("fits only with weights that stay in the file, which is slower: copies of them and a context of %s need %s, and %s are free",
			thousands(f.Context), units.ByteSize(f.Needs), units.ByteSize(f.Free))
	case f.Context == f.Trained:
		return fmt.Sprintf("fits with a context of %s: %s of the %s that are free", thousands(f.Context), units.ByteSize(f.Needs), units.ByteSize(f.Free))
	case f.Context == 0 && f.Trained <= shortestContext:
		return fmt.Sprintf("does not fit: it needs %s, and %s are free", units.ByteSize(f.Needs), units.ByteSize(f.Free))
	case f.Context == 0:
		return fmt.Sprintf("does not fit: a context of %s needs %s, one of %s needs %s, and %s are free",
			thousands(shortestContext), units.ByteSize(f.Needs), thousands(f.Trained), units.ByteSize(f.Whole), units.ByteSize(f.Free))
	}
	more := fmt.Sprintf("%s would need %s", thousands(f.Trained), units.ByteSize(f.Whole))
	if f.Whole+Spare <= f.Free {
		more = fmt.Sprintf("--ctx %d would take %s, and leave less to other programs", f.Trained, units.ByteSize(f.Whole))
	}
	return fmt.Sprintf("fits with a context of %s: %s of the %s that are free; %s", thousands(f.Context), units.ByteSize(f.Needs), units.ByteSize(f.Free), more)
}

// thousands formats a count with commas.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
