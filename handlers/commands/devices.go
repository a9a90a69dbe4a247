package commands

import (
	"fmt"
	"iter"
	"log/slog"
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

// deviceKind is what --device names.
type deviceKind struct {
	open  func(f *gguf.File, threads int, log *slog.Logger) (device.Device, error)
	types []gguf.Type // formats of weights that it computes with; nil: all
	gpu   bool        // its driver may take the process down

	// check returns why a server that was told to use it must not start, if so; nil: it
	// can be used anywhere.
	check func() error
}

var devices = map[string]deviceKind{
	"cpu":  {open: openCPU, types: cpu.WeightTypes()},
	"cuda": {open: openGPU, types: cuda.WeightTypes(), gpu: true, check: checkGPU},
	"ref":  {open: openRef},
}

// auto is the kind of device that does what it can on the GPU and the rest on the CPU,
// which has kernels for all that the GPU has.
func auto() deviceKind {
	return deviceKind{open: openBest, types: cpu.WeightTypes(), gpu: cuda.Installed() == nil}
}

// kind is the kind of device that is asked for. It refuses values out of range.
func (f deviceFlags) kind(parallel int) (deviceKind, error) {
	kind, known := devices[*f.device]
	if *f.device == "auto" {
		kind, known = auto(), true
	}
	switch {
	case !known:
		return kind, cli.Usagef("--device %q is none of auto, cpu, cuda and ref", *f.device)
	case *f.kv != "f16" && *f.kv != "f32":
		return kind, cli.Usagef("--kv %q is none of f16 and f32", *f.kv)
	case *f.threads < 0 || parallel < 0:
		return kind, cli.Usagef("--threads and --parallel cannot be negative")
	case *f.threads > most || parallel > most:
		return kind, cli.Usagef("--threads and --parallel are %d at most", most)
	}
	return kind, nil
}

func openCPU(_ *gguf.File, threads int, _ *slog.Logger) (device.Device, error) {
	return cpu.Open(threads)
}

func openGPU(*gguf.File, int, *slog.Logger) (device.Device, error) {
	d, err := cuda.Open()
	return d, withAdvice(err)
}

func checkGPU() error { return withAdvice(cuda.Check()) }

// withAdvice adds what to do about a GPU that was asked for by name and cannot be used.
func withAdvice(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w. See whether nvidia-smi lists the GPU; --device auto takes the CPU instead", err)
}

func openRef(*gguf.File, int, *slog.Logger) (device.Device, error) { return ref.New(), nil }

// openBest opens the GPU for the model in f, or the CPU with the reason why not the GPU.
// The engine divides a model that is too large for the GPU alone. A reason is worth a line in the log where there is a driver, and so most likely a GPU.
func openBest(f *gguf.File, threads int, log *slog.Logger) (device.Device, error) {
	if err := cuda.Installed(); err != nil {
		return onCPU(threads, err)
	}
	gpu, err := cuda.Open()
	if err == nil {
		if _, err = model.DeviceBytes(f, gpu); err == nil {
			return gpu, nil
		}
		gpu.Close()
	}
	log.Warn("the CPU computes, not the GPU", "reason", err)
	return onCPU(threads, err)
}

// fits returns nil if dev can hold the weights in f, or why not.
func fits(f *gguf.File, dev device.Device) error {
	weights, err := model.DeviceBytes(f, dev)
	if err != nil {
		return err
	}
	if info := dev.Info(); info.Memory > 0 && weights > info.Memory {
		return fmt.Errorf("the weights take %.1f GB, and %.1f GB are free on %s; bench measures one device", float64(weights)/1e9, float64(info.Memory)/1e9, info.Name)
	}
	return nil
}

// moreDevices yields what takes the layers that the first GPU has no room for: the other GPUs,
// but for those that cannot be used, then the CPU.
func moreDevices(threads int, log *slog.Logger) iter.Seq2[device.Device, error] {
	return func(yield func(device.Device, error) bool) {
		for gpu, err := range cuda.Devices(1) {
			if err != nil {
				log.Warn("a GPU is left out", "reason", err)
			} else if !yield(gpu, nil) {
				return
			}
		}
		yield(cpu.Open(threads))
	}
}

// probeGPU returns the GPU that a server here would compute on; the zero Info if there is none.
func probeGPU() device.Info {
	if cuda.Installed() == nil {
		if gpu, err := cuda.Open(); err == nil {
			defer gpu.Close()
			return gpu.Info()
		}
	}
	return device.Info{}
}

// machine returns where an engine with the flags f, of status s, would put another model. A
// server has the GPU from its engine, as its driver may crash.
func (f engineFlags) machine(s infer.Status, parallel int) placement.Machine {
	host := device.Info{Kind: "cpu", Memory: cpu.FreeMemory()}
	m := placement.Machine{CacheType: *f.kv, Parallel: parallel, ContextLength: *f.ctx}
	if s.Device.Dedicated {
		m.Devices = []device.Info{s.Device, host}
		return m
	}
	if s.State == infer.StateReady && host.Memory > 0 {
		host.Memory += s.Model.Size + s.Cache.Used // which go when another model comes
	}
	m.Devices = []device.Info{host}
	return m
}

// thisMachine returns where a server with default settings would put a model.
func thisMachine() func() placement.Machine {
	return sync.OnceValue(func() (m placement.Machine) {
		if gpu := probeGPU(); gpu.Dedicated {
			m.Devices = append(m.Devices, gpu)
		}
		m.Devices = append(m.Devices, device.Info{Kind: "cpu", Memory: cpu.FreeMemory()})
		return m
	})
}

// noticed is a device with something to say.
type noticed struct {
	device.Device
	notice string
}

func onCPU(threads int, reason error) (device.Device, error) {
	d, err := cpu.Open(threads)
	if err != nil {
		return nil, err
	}
	return noticed{d, "not the GPU: " + strings.TrimPrefix(reason.Error(), "cuda: ")}, nil
}

func (d noticed) Info() device.Info {
	info := d.Device.Info()
	info.Notice = d.notice
	return info
}
