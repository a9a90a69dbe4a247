package fleet

import (
	"fmt"
	"slices"
	"strings"

	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/infer/placement"
	"m40-llm/infer/units"
)

// makeRoom starts a worker for m if there is room for the model, or makes some: then it returns nil, as it does while a model is being
// loaded or unloaded. The caller has locked mu, and holds the first place of those who wait.
func (f *Fleet) makeRoom(m infer.ModelInfo) (*slot, error) {
	f.measure()
	if f.leaving > 0 {
		return nil, nil
	}
	var empty, pinned, others []*slot // others: idle ones first, then by their last use
	for _, s := range f.slots {
		s.draining = false
		status := s.status()
		switch {
		case s.gone:
		case status.State == infer.StateLoading:
			return nil, nil
		case !occupies(status) && s.using == 0:
			empty = append(empty, s)
		case s.pinned:
			pinned = append(pinned, s)
		default:
			others = append(others, s)
		}
	}
	slices.SortStableFunc(others, func(a, b *slot) int {
		if (a.using == 0) != (b.using == 0) {
			return b.busy() - a.busy()
		}
		return a.used.Compare(b.used)
	})
	alone, _ := f.fit(m, pinned)
	if most := f.most(); most > 0 && len(pinned) >= most {
		return nil, fault.Errorf(fault.CodeMemory, "the model %q cannot be loaded: --models-max allows %d, and as many are pinned: %s", m.Name, most, names(pinned))
	}
	if alone.Context == 0 && m.Shape != nil {
		return nil, f.neverFits(m, alone, pinned)
	}
	victims := 0
	for victims < len(others) && !f.hasRoom(m, alone, slices.Concat(pinned, others[victims:])) {
		victims++
	}
	unload := others[:victims]
	if slices.ContainsFunc(unload, func(s *slot) bool { return s.using > 0 }) {
		f.drain(unload)
		return nil, nil
	}
	if victims > 0 {
		f.evictions += int64(victims)
		f.o.Log.Info("models are unloaded to make room", "models", names(unload), "for", m.Name)
		f.evicted = append(f.evicted, names(unload))
		f.remove(unload)
		return nil, nil
	}
	_, uses := f.fit(m, slices.Concat(pinned, others))
	s, err := f.start(m, slices.Concat(pinned, others), uses)
	if err == nil {
		f.remove(empty)
	}
	return s, err
}

// busy returns -1 for a slot with requests, else 0.
func (s *slot) busy() int {
	if s.using > 0 {
		return -1
	}
	return 0
}

// most returns how many models may be loaded; 0: as many as fit.
func (f *Fleet) most() int {
	if machine := f.o.Machine(); f.o.Most == 0 && machine.Free() == 0 && f.o.Memory == 0 {
		return 1 // it is not known whether a second one fits
	}
	return f.o.Most
}

// hasRoom reports whether m can be loaded alongside others, as well as alone.
func (f *Fleet) hasRoom(m infer.ModelInfo, alone placement.Fit, others []*slot) bool {
	if len(others) == 0 {
		return true
	}
	if most := f.most(); most > 0 && len(others) >= most {
		return false
	}
	if m.Shape == nil {
		return false
	}
	together, _ := f.fit(m, others)
	on := together.On == alone.On || f.isGPU(together.On) && f.isGPU(alone.On) // whole on one, or on another
	return together.Context >= min(alone.Context, placement.CommonContext) && on && together.InFile == alone.InFile
}

// fit returns how m fits alongside the models of others, and what it would take.
func (f *Fleet) fit(m infer.ModelInfo, others []*slot) (placement.Fit, []placement.Use) {
	if m.Shape == nil {
		return placement.Fit{}, nil
	}
	return m.Shape.Plan(f.machine(others))
}

// neverFits returns the error for a model that does not fit alongside the pinned ones, and fits the less alongside others.
func (f *Fleet) neverFits(m infer.ModelInfo, alone placement.Fit, pinned []*slot) error {
	why := ""
	if f.o.Memory > 0 {
		why = fmt.Sprintf("; --memory allows all models together %s of main memory", units.ByteSize(f.o.Memory))
	}
	if len(pinned) > 0 {
		why += "; pinned models stay: " + names(pinned)
	}
	return fault.Errorf(fault.CodeMemory, "the model %q %s%s; use a smaller model", m.Name, alone, why)
}

// Machine returns the devices on which a model would be placed if all but the pinned ones were unloaded.
func (f *Fleet) Machine() placement.Machine {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.measure()
	return f.machine(slices.DeleteFunc(slices.Clone(f.slots), func(s *slot) bool { return !s.pinned }))
}

// machine returns the devices with what is free of them alongside the models of others, if all the rest were unloaded. The caller has
// locked mu.
func (f *Fleet) machine(others []*slot) placement.Machine {
	machine := f.o.Machine()
	if setup := f.last(writes).engine.Status().Setup; setup.CacheType != "" { // it may have been changed on the page
		machine.CacheType, machine.ContextLength = setup.CacheType, setup.ContextLength
	}
	main := &machine.Devices[len(machine.Devices)-1]
	known := main.Memory > 0
	gpus := slices.Clone(f.gpus)
	planned := int64(0) // of main memory
	for _, s := range f.slots {
		status := s.status()
		stays := slices.Contains(others, s)
		for _, use := range status.Memory {
			if i := slices.IndexFunc(gpus, func(d device.Info) bool { return d.Name == use.Device }); i >= 0 && stays {
				gpus[i].Memory = max(1, gpus[i].Memory-use.Total())
			}
		}
		for _, use := range f.takenOfMain(status) {
			if stays {
				planned += use.planned
				main.Memory -= use.planned - use.now
			} else {
				main.Memory += use.now
			}
		}
	}
	if most := f.o.Memory - planned; f.o.Memory > 0 && (!known || most < main.Memory) {
		known, main.Memory = true, most
	}
	if main.Memory = max(1, main.Memory); !known {
		main.Memory = 0
	}
	machine.Devices = append(gpus, *main)
	return machine
}

// taken is what a model takes of main memory, in bytes.
type taken struct{ planned, now int64 }

// takenOfMain returns what a model takes of main memory by each of its plans. The caller has locked mu.
func (f *Fleet) takenOfMain(status infer.Status) (list []taken) {
	cache := status.Cache.Used
	for _, use := range status.Memory {
		if f.isGPU(use.Device) {
			cache -= use.Cache // all of the cache there is allocated
		}
	}
	for _, use := range status.Memory {
		if f.isGPU(use.Device) {
			continue
		}
		t := taken{planned: use.Total()}
		if status.State == infer.StateReady {
			t.now = use.Weights + use.Work + max(0, min(cache, use.Cache))
		}
		list = append(list, t)
	}
	return list
}

// measure notes which GPUs there are, and how much memory those have that models have been loaded to since. The caller has locked mu.
func (f *Fleet) measure() {
	for _, s := range f.slots {
		status := s.engine.Status()
		if s.measured || status.State != infer.StateReady || !status.Device.Dedicated {
			continue
		}
		s.measured = true
		for _, gpu := range status.Devices { // in the order in which workers take them
			if !f.isGPU(gpu.Device) {
				f.gpus = append(f.gpus, device.Info{Kind: gpu.Kind, Name: gpu.Device, Dedicated: true, Memory: gpu.Total})
			}
		}
		free := map[string]int64{}
		for _, use := range status.Memory {
			if use.Kind == status.Device.Kind {
				free[use.Device] += use.Free
			}
		}
		for name, bytes := range free {
			for _, other := range f.slots {
				for _, use := range other.status().Memory {
					if other != s && use.Device == name {
						bytes += use.Total()
					}
				}
			}
			i := slices.IndexFunc(f.gpus, func(d device.Info) bool { return d.Name == name })
			if i < 0 {
				i = len(f.gpus)
				f.gpus = append(f.gpus, device.Info{Kind: status.Device.Kind, Name: name, Dedicated: true})
			}
			f.gpus[i].Memory = bytes
		}
	}
}

// start starts a worker for m alongside others. The caller has locked mu.
func (f *Fleet) start(m infer.ModelInfo, others []*slot, uses []placement.Use) (*slot, error) {
	machine := f.machine(others)
	main := len(machine.Devices) - 1
	memory := f.o.Memory
	if len(others) > 0 || memory > 0 {
		memory = machine.Devices[main].Memory
	}
	var setup *infer.Setup
	if now := f.last(writes).engine.Status().Setup; now.CacheType != "" {
		setup = &now
	}
	whole := !f.refused[key(m)].shrinks && slices.ContainsFunc(others, (*slot).isIdle)
	engine, err := f.o.Start(m.Name, Plan{Memory: memory, Setup: setup, Whole: whole})
	if err != nil {
		return nil, fault.Of(fault.CodeInternal, err)
	}
	f.slots = slices.DeleteFunc(f.slots, func(s *slot) bool { return s.gone })
	s := &slot{engine: engine, used: f.o.Now(), inPlaceOf: strings.Join(f.evicted, ", "), whole: whole, notice: f.refused[key(m)].notice()}
	f.evicted = nil
	for _, use := range uses {
		d := machine.Devices[use.Device]
		s.expected = append(s.expected, infer.MemoryUse{Device: d.Name, Kind: d.Kind, Weights: use.Weights, Cache: use.Cache, Work: use.Work})
	}
	f.slots = append(f.slots, s)
	return s, nil
}

// remove closes the workers of slots, which are not in use. The caller has locked mu. Until they are gone no other is started.
func (f *Fleet) remove(slots []*slot) {
	for _, s := range slots {
		s.gone = true
		if len(f.slots) > 1 {
			f.slots = slices.DeleteFunc(f.slots, func(other *slot) bool { return other == s })
		}
		f.leaving++
		f.closing.Go(func() {
			f.finishReads(s)
			if err := s.engine.Close(); err != nil {
				f.o.Log.Warn("a worker was not closed", "error", err)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			f.leaving--
			f.signal()
		})
	}
}

// finishReads waits until nothing reads files by the worker of s.
func (f *Fleet) finishReads(s *slot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s.read > 0 && !f.closed {
		changed := f.changed
		f.mu.Unlock()
		<-changed
		f.mu.Lock()
	}
}
