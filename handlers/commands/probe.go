package commands

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"m40-llm/infer/cpu"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/placement"
	"m40-llm/infer/worker"
)

const (
	// probeTime is how long a measurement of the read bandwidth may take.
	probeTime = 3 * time.Second

	// probeMemory is the free memory in bytes without which main memory is not measured: the
	// measurement takes up to a quarter of what is free.
	probeMemory = 1 << 30
)

// readBandwidth is the read bandwidth of the memories of a machine, in bytes per second; 0: unknown.
type readBandwidth struct {
	Host float64 `json:"host"`
	GPU  float64 `json:"gpu,omitempty"`
}

// printBandwidth prints the read bandwidth of main memory with so many threads, 0 for all, and then,
// unless device excludes it, also that of the first GPU.
func printBandwidth(w io.Writer, device string, threads int) error {
	var b readBandwidth
	if free := cpu.FreeMemory(); free == 0 || free >= probeMemory {
		b.Host = bandwidthOf(cpu.Open(threads))
	}
	out := json.NewEncoder(w)
	if err := out.Encode(b); err != nil || device == "cpu" || device == "ref" {
		return err
	}
	b.GPU = gpuBandwidth(device)
	return out.Encode(b)
}

// gpuBandwidth returns the read bandwidth of the first GPU that device, a value of --device, names; 0 if there is none that can be used.
func gpuBandwidth(device string) float64 {
	if cuda.Installed() != nil {
		return 0
	}
	ordinals, _ := ordinalsOf(device) // the flag was checked
	return bandwidthOf(cuda.OpenOrdinals(ordinals...))
}

// bandwidthOf returns the read bandwidth of a device that was just opened, and closes it; 0 if it could
// not be opened or measured.
func bandwidthOf(d device.Device, err error) float64 {
	if err != nil {
		return 0
	}
	defer d.Close()
	meter, ok := d.(device.BandwidthMeter)
	if !ok {
		return 0
	}
	read, err := meter.ReadBandwidth()
	if err != nil {
		return 0
	}
	return read
}

// probe returns a function that returns the read bandwidths of a machine's devices; see
// hub.PullOptions. It measures once, in a process of its own, because a broken driver may crash or
// hang. What is not known within probeTime stays unknown.
func probe(device string, threads int) func(context.Context, placement.Machine) []float64 {
	measured := sync.OnceValue(func() (b readBandwidth) {
		ctx, cancel := context.WithTimeout(context.Background(), probeTime)
		defer cancel()
		program, err := worker.Program()
		if err != nil {
			return b
		}
		// The output is of use even if the process was killed.
		output, _ := exec.CommandContext(ctx, program, "worker", workerProbe, "--device="+device, fmt.Sprintf("--threads=%d", threads)).Output()
		for line := range bytes.Lines(output) {
			if json.Unmarshal(line, &b) != nil {
				break
			}
		}
		return b
	})
	return func(_ context.Context, m placement.Machine) (list []float64) {
		b := measured()
		for _, info := range m.Devices {
			if info.Dedicated {
				list = append(list, b.GPU)
			} else {
				list = append(list, b.Host)
			}
		}
		return list
	}
}
