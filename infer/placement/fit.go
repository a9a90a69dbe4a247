package placement

import (
	"cmp"
	"fmt"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/units"
)

// Shape is the data of a model that determine how much memory it takes. It is read from a file's
// header.
type Shape struct {
	config    model.Config
	weights   int64 // bytes of all tensors
	parts     model.Parts
	types     Types
	reads     int64 // bytes of weights that are read for a token
	experts   int64 // of them, those of experts
	companion int64 // bytes that its companion file needs next to it
}

// WithCompanion returns the shape of the same model with a companion file that needs bytes on the same device.
func (s *Shape) WithCompanion(bytes int64) *Shape {
	with := *s
	with.companion = bytes
	return &with
}

// ShapeOf reads the shape of the model in f, whose configuration is c.
func ShapeOf(f *gguf.File, c model.Config) (*Shape, error) {
	parts, err := model.PartBytes(f, c, model.FileLayout{})
	if err != nil {
		return nil, err
	}
	reads, err := model.ReadsOf(f, c, device.CacheOf(gguf.F16))
	if err != nil {
		return nil, err
	}
	bytes, _ := reads.Step(1, 0)
	return &Shape{config: c, weights: model.WeightBytes(f), parts: parts, types: TypesOf(f), reads: bytes, experts: reads.Experts()}, nil
}

// Scaled returns the shape of the same model with weights of type t that are factor times as large.
func (s *Shape) Scaled(factor float64, t gguf.Type) *Shape {
	d := Device{Weights: s.weights, Parts: s.parts}
	d.enlarge(factor)
	return &Shape{config: s.config, weights: d.Weights, parts: d.Parts, types: Types{t: d.Weights}, reads: int64(float64(s.reads) * factor), experts: int64(float64(s.experts) * factor)}
}

// Machine is where a model is to be loaded, and how.
type Machine struct {
	Devices       []device.Info // as Place takes them, with the memory that is free for a model
	Converts      Converts      // for devices with a memory of their own; nil: they convert nothing
	CacheType     string        // of the KV cache, a name for ParseCache; empty: f16
	Parallel      int           // answers at once; 0: DefaultAnswers
	ContextLength int           // requested; 0: none
	ReadBandwidth []float64     // of the memory of each of Devices, in bytes per second; 0, or none: unknown
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

	On        string `json:"on,omitempty"`        // the devices that it would be on, with how many layers; empty: it does not fit
	Pictures  string `json:"pictures,omitempty"`  // the device that would encode pictures; empty: the model reads none, or does not fit
	InFile    bool   `json:"in_file,omitempty"`   // whether it fits only if weights stay in the model file on the CPU, which is slower; see device.FileReader
	Cache     string `json:"cache,omitempty"`     // format of the KV cache, if it was chosen automatically and is not f16
	Converted string `json:"converted,omitempty"` // which weights are converted to another type for the GPU that it would be on; see Types.Converted
}

// Fit returns how the model fits into m.
func (s *Shape) Fit(m Machine) Fit {
	f, _, _ := s.place(m)
	return f
}

// Plan returns how the model fits into m, with what it would take of the devices that it would be on; none if it does not fit.
func (s *Shape) Plan(m Machine) (Fit, []Use) {
	f, plan, _ := s.place(m)
	return f, plan.Uses
}

// Estimate is how a model would run on a machine.
type Estimate struct {
	Fit             Fit
	TokensPerSecond float64 // of one short answer; 0: unknown
}

// decodeShare is the share of the read bandwidth that decoding is expected to reach. On CPUs it was
// measured as 0.66 to 0.89; see docs/performance.md.
const decodeShare = 0.7

// Estimate returns how the model would run on m.
func (s *Shape) Estimate(m Machine) Estimate {
	fit, plan, growth := s.place(m)
	e := Estimate{Fit: fit}
	seconds, known := 0.0, len(plan.Stages) > 0 && !fit.InFile
	layers := float64(len(s.config.Layers))
	read := func(device int, bytes float64) {
		if device >= len(m.ReadBandwidth) || m.ReadBandwidth[device] <= 0 {
			known = false
			return
		}
		if m.Devices[device].Dedicated {
			bytes *= growth
		}
		seconds += bytes / (decodeShare * m.ReadBandwidth[device])
	}
	elsewhere := float64(s.experts) * float64(plan.Experts.Layers) / layers
	for _, stage := range plan.Stages {
		read(stage.Device, (float64(s.reads)-elsewhere)*float64(stage.Layers)/layers)
	}
	if elsewhere > 0 {
		read(plan.Experts.Device, elsewhere)
	}
	if known && seconds > 0 {
		e.TokensPerSecond = 1 / seconds
	}
	return e
}

// nameOf returns the name of a device for people.
func nameOf(info device.Info) string {
	if info.Dedicated {
		return info.Name
	}
	return "CPU"
}

// on names the devices of a plan.
func (s *Shape) on(m Machine, plan Plan) string {
	layers := len(s.config.Layers)
	name := func(device int) string { return nameOf(m.Devices[device]) }
	var names []string
	for _, stage := range plan.Stages {
		of := name(stage.Device)
		if stage.Layers < layers {
			of += fmt.Sprintf(", %d of %d layers", stage.Layers, layers)
		}
		names = append(names, of)
	}
	if n := plan.Experts.Layers; n > 0 {
		names = append(names, fmt.Sprintf("%s, the experts of %d of %d layers", name(plan.Experts.Device), n, layers))
	}
	return units.List(names)
}

// place plans the model for m with the first format of the KV cache with which the whole context fits, or the last. growth is by how many
// times its weights are larger on a device with a memory of its own.
func (s *Shape) place(m Machine) (f Fit, plan Plan, growth float64) {
	formats, err := ParseCache(cmp.Or(m.CacheType, "f16"))
	if err != nil {
		formats = []device.CacheType{device.CacheOf(gguf.F16)}
	}
	for i, cache := range formats {
		if f, plan, growth = s.placeWith(m, cache); f.Context == f.Trained || (Setup{Cache: cache}).Of(s.config, 0).Cache != cache {
			break
		}
		if i > 0 && f.Context > 0 {
			f.Cache = cache.String()
		}
	}
	return f, plan, growth
}

// placeWith plans the model for m with a KV cache of a format.
func (s *Shape) placeWith(m Machine, cache device.CacheType) (f Fit, plan Plan, growth float64) {
	growth = s.types.growth(m.Converts)
	setup := Setup{Context: m.ContextLength, Answers: m.Parallel, Cache: cache}.Of(s.config, 0)
	steps, sizes := setup.Steps, ModelOf(s.config, setup.Cache)
	var devices []Device
	for _, info := range m.Devices {
		d := Device{Info: info, Weights: s.weights, Parts: s.parts, Scratch: steps.Scratch(s.config)}
		if info.Dedicated {
			d.enlarge(growth)
		}
		devices = append(devices, d)
	}
	limits := Limits{Context: setup.Context, Answers: setup.Answers, Rows: steps.Rows}
	p := newPlacer(sizes, devices, limits)
	alone := p.need(Device{Weights: s.weights, Scratch: steps.Scratch(s.config)}, 0, p.layers())
	takes := func(context int) int64 {
		if s.config.Embeds() {
			return p.with(alone, p.most()) // for the texts of a step
		}
		return p.with(alone, blocksFor(context))
	}
	f = Fit{Trained: p.context, Whole: takes(p.context)}
	plan, err := Place(sizes, devices, limits)
	if s.companion > 0 && err == nil && len(plan.Stages) == 1 && devices[0].Memory > s.companion { // as the engine: one that fits on a device takes no other
		free := devices[0].Memory
		devices[0].Memory -= s.companion
		if with, short := Place(sizes, devices, limits); short == nil && len(with.Stages) == 1 && with.Stages[0].Device == plan.Stages[0].Device {
			plan = with
			takes = func(context int) int64 { return p.with(alone, blocksFor(context)) + s.companion }
			f.Whole += s.companion
			f.Pictures = nameOf(m.Devices[0])
		}
		devices[0].Memory = free
	}
	if s.companion > 0 && err == nil && f.Pictures == "" {
		f.Pictures = nameOf(device.Info{})
		if len(plan.Stages) > 1 || devices[0].Memory == 0 {
			f.Pictures = nameOf(m.Devices[0])
		}
	}
	if last := len(devices) - 1; err != nil && devices[last].Kind == "cpu" {
		if _, short := Place(sizes, devices, Limits{Answers: 1}); short != nil { // no context fits alongside copies
			devices[last].Weights, devices[last].Parts = 0, model.Parts{Layers: make([]int64, len(s.parts.Layers))}
			plan, err = Place(sizes, devices, limits)
			f.InFile = err == nil
		}
	}
	if err != nil {
		f.Needs, f.Free = takes(min(p.context, shortestContext)), m.Free()
		return f, Plan{}, growth
	}
	f.Context, f.Needs, f.On = plan.Context, takes(plan.Context), s.on(m, plan)
	if plan.Experts.Layers > 0 {
		f.Free += m.Devices[plan.Experts.Device].Memory
	}
	for _, stage := range plan.Stages {
		info := m.Devices[stage.Device]
		f.Free += info.Memory
		if info.Dedicated {
			f.Converted = s.types.Converted(m.Converts, "the GPU")
			more := devices[stage.Device].Weights - s.weights
			f.Needs, f.Whole = f.Needs+more, f.Whole+more
		}
	}
	return f, plan, growth
}

// String returns the fit as a sentence without its full stop.
func (f Fit) String() string {
	text := f.memory()
	if f.Cache != "" {
		text += "; the KV cache is " + f.Cache + ", because the whole context does not fit with f16"
	}
	if f.Converted != "" {
		text += "; " + f.Converted
	}
	return text
}

// needs says what a model needs that does not fit.
func (f Fit) needs() string {
	if f.Needs > f.Free {
		return units.ByteSize(f.Needs)
	}
	return fmt.Sprintf("%s in addition to %s that stay free for the rest of the program", units.ByteSize(f.Needs), units.ByteSize(Spare))
}

func (f Fit) memory() string {
	switch {
	case f.Free == 0:
		return fmt.Sprintf("takes %s with a context of %s; how much memory is free is not known", units.ByteSize(f.Whole), units.Count(f.Trained))
	case f.InFile:
		return fmt.Sprintf("fits only with weights that stay in the file, which is slower: copies of them and a context of %s need %s, and %s are free",
			units.Count(f.Context), units.ByteSize(f.Needs), units.ByteSize(f.Free))
	case f.Context == f.Trained:
		return fmt.Sprintf("fits with a context of %s: %s of the %s that are free", units.Count(f.Context), units.ByteSize(f.Needs), units.ByteSize(f.Free))
	case f.Context == 0 && f.Trained <= shortestContext:
		return fmt.Sprintf("does not fit: it needs %s, and %s are free", f.needs(), units.ByteSize(f.Free))
	case f.Context == 0:
		return fmt.Sprintf("does not fit: a context of %s needs %s, one of %s needs %s, and %s are free",
			units.Count(shortestContext), f.needs(), units.Count(f.Trained), units.ByteSize(f.Whole), units.ByteSize(f.Free))
	}
	more := fmt.Sprintf("%s would need %s", units.Count(f.Trained), units.ByteSize(f.Whole))
	if f.Whole+Spare <= f.Free {
		more = fmt.Sprintf("--ctx %d would take %s, and leave less to other programs", f.Trained, units.ByteSize(f.Whole))
	}
	return fmt.Sprintf("fits with a context of %s: %s of the %s that are free; %s", units.Count(f.Context), units.ByteSize(f.Needs), units.ByteSize(f.Free), more)
}
