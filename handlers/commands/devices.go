package commands

import (
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"

	"m40-llm/handlers/cli"
	"m40-llm/infer"
	"m40-llm/infer/cpu"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/placement"
	"m40-llm/infer/ref"
)

// deviceKind is a kind of device that --device names.
type deviceKind struct {
	open  func(f *gguf.File, o cpu.Options, log *slog.Logger) (device.Device, error)
	types []gguf.Type // weight formats that it has kernels for; nil: all
	gpu   bool        // whether it uses a driver, which can crash the process
	among []int       // the GPUs that it uses, by the driver's numbers; nil: the driver's, by their memory

	// check returns why the device cannot be used on this machine; a server that was told
	// to use it then does not start. nil: the device works on every machine.
	check func() error
}

var devices = map[string]deviceKind{
	"cpu":  {open: openCPU, types: cpu.WeightTypes()},
	"cuda": gpus(),
	"ref":  {open: openRef},
}

// auto returns the kind of device that uses the GPU for the models it can run and the CPU
// for the others. The CPU has kernels for every weight format that the GPU has.
func auto() deviceKind {
	return deviceKind{open: openBest, types: cpu.WeightTypes(), gpu: cuda.Installed() == nil}
}

// host returns the options of the CPU.
func (f deviceFlags) host() cpu.Options {
	o := cpu.Options{Threads: *f.threads}
	if *f.noRepack {
		o.NoRepack = "--no-repack"
	}
	return o
}

// kind returns the kind of device that --device names, or an error if the value of a device
// flag or of parallel is invalid.
func (f deviceFlags) kind(parallel int) (deviceKind, error) {
	kind, known := devices[*f.device]
	if *f.device == "auto" {
		kind, known = auto(), true
	}
	_, cacheErr := placement.ParseCache(*f.kv)
	ordinals, err := ordinalsOf(*f.device)
	if ordinals != nil {
		kind, known = gpus(ordinals...), true
	}
	switch {
	case err != nil:
		return kind, err
	case !known:
		return kind, cli.Usagef("--device %q is not one of auto, cpu, cuda, cuda:0,1 … and ref", *f.device)
	case !slices.Contains([]device.Decode{device.DecodeAuto, device.DecodeGraph, device.DecodePersistent}, device.Decode(*f.decode)):
		return kind, cli.Usagef("--decode %q is none of auto, graph and persistent", *f.decode)
	case cacheErr != nil:
		return kind, cli.Usagef("--kv: %s", cacheErr)
	case *f.threads < 0 || parallel < 0:
		return kind, cli.Usagef("--threads and --parallel cannot be negative")
	case *f.threads > maxParallel || parallel > maxParallel:
		return kind, cli.Usagef("--threads and --parallel can be at most %d", maxParallel)
	}
	open := kind.open
	kind.open = func(file *gguf.File, o cpu.Options, log *slog.Logger) (device.Device, error) {
		d, err := open(file, o, log)
		f.chooseDecode(d)
		return d, err
	}
	return kind, nil
}

// chooseDecode tells d the value of --decode.
func (f deviceFlags) chooseDecode(d device.Device) {
	if chooser, ok := d.(device.DecodeChooser); ok {
		chooser.ChooseDecode(device.Decode(*f.decode))
	}
}

// choosing yields the devices of list, which know the value of --decode.
func (f deviceFlags) choosing(list iter.Seq2[device.Device, error]) iter.Seq2[device.Device, error] {
	return func(yield func(device.Device, error) bool) {
		for d, err := range list {
			if f.chooseDecode(d); !yield(d, err) {
				return
			}
		}
	}
}

// ordinalsOf returns the numbers of GPUs that device, a value of --device, lists, as "cuda:0,1"; nil: it lists none.
func ordinalsOf(device string) (ordinals []int, err error) {
	list, lists := strings.CutPrefix(device, "cuda:")
	if !lists {
		return nil, nil
	}
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || slices.Contains(ordinals, n) {
			return nil, cli.Usagef("--device cuda:%s does not list different numbers of GPUs, counted from 0, as cuda:0,1", list)
		}
		ordinals = append(ordinals, n)
	}
	return ordinals, nil
}

// gpus returns the kind of device that uses the GPUs with these numbers, in their order; without numbers, GPUs by their memory.
func gpus(ordinals ...int) deviceKind {
	return deviceKind{
		open: func(*gguf.File, cpu.Options, *slog.Logger) (device.Device, error) {
			d, err := cuda.OpenOrdinals(ordinals...)
			return d, withAdvice(err)
		},
		types: cuda.WeightTypes(),
		gpu:   true,
		among: ordinals,
		check: func() error { return withAdvice(cuda.Check(ordinals...)) },
	}
}

func openCPU(_ *gguf.File, o cpu.Options, _ *slog.Logger) (device.Device, error) {
	return cpu.OpenWith(o)
}

// withAdvice adds to err what to do if --device cuda does not work.
func withAdvice(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w. Check whether nvidia-smi lists the GPU; --device auto uses the CPU instead", err)
}

func openRef(*gguf.File, cpu.Options, *slog.Logger) (device.Device, error) { return ref.New(), nil }

// openBest opens the GPU for the model in f, or the CPU with a notice that says why not the
// GPU. A model that is too large for the GPU alone is no such reason: the engine splits it.
// The reason is logged only if there is a driver, as then there most likely is a GPU too.
func openBest(f *gguf.File, o cpu.Options, log *slog.Logger) (device.Device, error) {
	if err := cuda.Installed(); err != nil {
		return openCPUBecause(o, err)
	}
	gpu, err := cuda.Open()
	if err == nil {
		if err = runs(f, gpu); err == nil {
			return gpu, nil
		}
		gpu.Close()
	}
	log.Warn("using the CPU instead of the GPU", "reason", err)
	return openCPUBecause(o, err)
}

// runs returns an error if dev lacks kernels for the weights or the operations of the model, or of the companion, in f.
func runs(f *gguf.File, dev device.Device) error {
	if name, err := f.Str("general.architecture"); err == nil && name == model.Companion {
		_, err := model.TowerBytesIn(f, dev)
		return err
	}
	if _, err := model.DeviceBytes(f, dev); err != nil {
		return err
	}
	c, err := model.ReadConfig(f)
	if err != nil {
		return err
	}
	return c.Check(dev, device.CacheOf(gguf.F16))
}

// fits returns an error if the weights in f do not fit into the memory of dev.
func fits(f *gguf.File, dev device.Device) error {
	weights, err := model.DeviceBytes(f, dev)
	if err != nil {
		return err
	}
	if info := dev.Info(); info.Memory > 0 && weights > info.Memory {
		return fmt.Errorf("the weights need %.1f GB, and %.1f GB are free on %s; bench does not split a model over devices", float64(weights)/1e9, float64(info.Memory)/1e9, info.Name)
	}
	return nil
}

// moreDevices yields the devices for the layers that are not on the first GPU: the other usable GPUs, or the others of among, then
// the CPU.
func moreDevices(among []int, o cpu.Options, log *slog.Logger) iter.Seq2[device.Device, error] {
	return func(yield func(device.Device, error) bool) {
		for gpu, err := range cuda.Devices(1, among...) {
			if err != nil && among == nil {
				log.Warn("ignoring a GPU that cannot be used", "reason", err)
			} else if !yield(gpu, err) {
				return
			}
		}
		yield(cpu.OpenWith(o))
	}
}

// probeGPU returns the GPU that a server on this machine would use; the zero Info if there is
// none.
func probeGPU() device.Info {
	if cuda.Installed() == nil {
		if gpu, err := cuda.Open(); err == nil {
			defer gpu.Close()
			return gpu.Info()
		}
	}
	return device.Info{}
}

// machine returns the devices and settings with which an engine with the flags f and the
// status s would place another model. The GPU comes from the engine's status: the server
// does not ask the driver itself, which may crash.
func (f engineFlags) machine(s infer.Status, parallel int) placement.Machine {
	m := f.hostMachine(parallel)
	host := m.Devices[0]
	if s.Setup.CacheType != "" { // it may have been changed on the page
		m.CacheType, m.ContextLength = s.Setup.CacheType, s.Setup.ContextLength
	}
	if s.Device.Dedicated {
		m.Devices = []device.Info{s.Device, host}
		return m
	}
	if s.State == infer.StateReady && host.Memory > 0 {
		host.Memory += s.Model.Size + s.Cache.Used // freed when another model replaces this one
	}
	m.Devices = []device.Info{host}
	return m
}

// hostMachine returns main memory, with what is free of it now, and the settings with which an engine with the flags f places models.
func (f engineFlags) hostMachine(parallel int) placement.Machine {
	return placement.Machine{
		Devices: []device.Info{{Kind: "cpu", Memory: cpu.FreeMemory()}}, CacheType: *f.kv, Parallel: parallel, ContextLength: *f.ctx, Converts: cuda.Converts,
	}
}

// thisMachine returns a function that returns the devices on which a server with default
// settings would place a model.
func thisMachine() func() placement.Machine {
	return sync.OnceValue(func() (m placement.Machine) {
		m.Converts = cuda.Converts
		if gpu := probeGPU(); gpu.Dedicated {
			m.Devices = append(m.Devices, gpu)
		}
		m.Devices = append(m.Devices, device.Info{Kind: "cpu", Memory: cpu.FreeMemory()})
		return m
	})
}

// openCPUBecause opens the CPU, with a notice that gives the reason for not using the GPU.
func openCPUBecause(o cpu.Options, reason error) (device.Device, error) {
	o.Notice = "running on the CPU: " + strings.TrimPrefix(reason.Error(), "cuda: ")
	return cpu.OpenWith(o)
}
