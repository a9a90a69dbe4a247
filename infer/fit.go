package infer

import (
	"cmp"
	"fmt"
	"strconv"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/units"
)

// Shape is what of a model decides how much memory it takes. A file's header is enough for it.
type Shape struct {
	config  model.Config
	weights int64 // bytes of all tensors
	parts   model.Parts
}

// ShapeOf reads the shape of the model in f, whose configuration is c.
func ShapeOf(f *gguf.File, c model.Config) (*Shape, error) {
	parts, err := model.PartBytes(f, c, model.FileLayout{})
	if err != nil {
		return nil, err
	}
	return &Shape{config: c, weights: model.WeightBytes(f), parts: parts}, nil
}

// Machine is where a model is to be loaded, and how.
type Machine struct {
	Device        device.Info // what computes, with the memory that is free for a model
	Host          device.Info // what takes the layers that a Device with a memory of its own has no room for
	CacheType     string      // as in Options
	Parallel      int         // as in Options
	ContextLength int         // as in Options
}

// Fit says with which context a model fits into a machine's memory. Sizes are in bytes. They
// are those that an engine plans with, but for what a device's layout of weights and its
// kernels take beside: a few percent.
type Fit struct {
	Context int   `json:"context"` // longest that an engine would choose; 0: the model does not fit
	Needs   int64 `json:"needs"`   // memory with that context, or where it does not fit, with the shortest
	Trained int   `json:"trained"` // context that the model was trained on, or the shorter one that was asked for
	Whole   int64 `json:"whole"`   // memory with that
	Free    int64 `json:"free"`    // memory of the machine, that of a GPU included; 0: unknown
}

// Fit returns how the model fits into m.
func (s *Shape) Fit(m Machine) Fit {
	c, l, cache := s.config, limitsOf(m.Parallel, 0), cacheTypes[cmp.Or(m.CacheType, "f16")]
	d := demandOf(c, s.weights, workspace{}, cache, l)
	context := c.ContextLength
	if m.ContextLength > 0 {
		context = min(m.ContextLength, context)
	}
	f := Fit{Trained: context, Whole: d.At(context), Free: m.Device.Memory}
	plan, err := planMemory(c.ContextLength, d, m.Device, m.ContextLength, l)
	if err != nil && m.Device.Dedicated {
		layers := 0
		layers, plan, err = planSplit(c, s.parts, s.parts, workspace{}, m.Device, m.Host, cache, m.ContextLength, l)
		if err == nil && layers == 0 {
			plan, err = planMemory(c.ContextLength, d, m.Host, m.ContextLength, l)
			f.Free = m.Host.Memory
		} else {
			f.Free += m.Host.Memory
		}
	}
	if err != nil {
		plan.context = 0
	}
	f.Context, f.Needs = plan.context, d.At(plan.context)
	if f.Context == 0 {
		f.Needs = d.At(min(context, shortestContext))
	}
	return f
}

// String puts the fit into a sentence without its full stop.
func (f Fit) String() string {
	switch {
	case f.Free == 0:
		return fmt.Sprintf("takes %s with a context of %s; how much memory is free is not known", units.ByteSize(f.Whole), thousands(f.Trained))
	case f.Context == f.Trained:
		return fmt.Sprintf("fits with a context of %s: %s of the %s that are free", thousands(f.Context), units.ByteSize(f.Needs), units.ByteSize(f.Free))
	case f.Context == 0 && f.Trained <= shortestContext:
		return fmt.Sprintf("does not fit: it needs %s, and %s are free", units.ByteSize(f.Needs), units.ByteSize(f.Free))
	case f.Context == 0:
		return fmt.Sprintf("does not fit: a context of %s needs %s, one of %s needs %s, and %s are free",
			thousands(shortestContext), units.ByteSize(f.Needs), thousands(f.Trained), units.ByteSize(f.Whole), units.ByteSize(f.Free))
	}
	more := fmt.Sprintf("%s would need %s", thousands(f.Trained), units.ByteSize(f.Whole))
	if f.Whole+spareMemory <= f.Free {
		more = fmt.Sprintf("--ctx %d would take %s, and leave less to other programs", f.Trained, units.ByteSize(f.Whole))
	}
	return fmt.Sprintf("fits with a context of %s: %s of the %s that are free; %s", thousands(f.Context), units.ByteSize(f.Needs), units.ByteSize(f.Free), more)
}

// thousands writes a count with commas.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
