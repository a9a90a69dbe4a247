package cuda

import (
	"testing"

	"m40-llm/cudakern"
	"m40-llm/cudakern/resident"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// OpenIn opens a device in a context that stays the caller's.
func OpenIn(context *cudakern.Context) (device.Device, error) {
	d, err := open(context)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// GraphBytes is programGraphBytes.
var GraphBytes = programGraphBytes

// Work returns the bytes that programs which were compiled on d hold beside the tensors and
// caches that they name.
func Work(d device.Device, programs []device.Executable) (total int64) {
	own := d.(*cuda)
	for _, x := range programs {
		total += int64(len(x.(*executable).inputs.hosts[0].Bytes()))
	}
	for _, r := range own.workspaces {
		total += r.bytes
	}
	for _, r := range own.reduced {
		total += int64(len(r.hosts[0].Bytes())) + depth*4*int64(min(r.rows, device.MaxDraws))*int64(r.vocab)
	}
	if own.loader != nil {
		total += 2 * cudakern.LoaderBytes
	}
	return total
}

// Reserve is what a device keeps of its memory.
const Reserve = reserve

// KernelTypes returns the weight types that have kernels, without those that are converted.
func KernelTypes() []gguf.Type { return kernelTypes }

// Launches returns how many launches a compiled program has, and after how many of them the resident kernel has a grid barrier.
func Launches(compiled device.Executable) (launches, barriers int) {
	list := phases(compiled.(*executable).launches)
	for _, phase := range list {
		if phase.Barrier {
			barriers++
		}
	}
	return len(list), barriers
}

// Limit sets the limits of the resident kernels of programs that are compiled later.
func Limit(d device.Device, limits resident.Limits) { d.(*cuda).residents.limits = limits }

// ResidentLimits are those of devices that tests do not limit.
var ResidentLimits = residentLimits

// Resides reports whether a resident kernel is on the GPU.
func Resides(d device.Device) bool {
	for _, k := range d.(*cuda).residents.kernels {
		if k.Running() {
			return true
		}
	}
	return false
}

// ResidentLaunches returns how often resident kernels were launched.
func ResidentLaunches(d device.Device) (n int) {
	for _, k := range d.(*cuda).residents.kernels {
		n += k.Launches()
	}
	return n
}

// LoseArrival takes an arrival back at the barrier of the resident kernel, which waits for a command.
func LoseArrival(t testing.TB, d device.Device) {
	t.Helper()
	for _, k := range d.(*cuda).residents.kernels {
		side, arrived := d.(*cuda).side, make([]uint32, 1)
		err := side.Download(bytesOf(arrived), k.Barrier())
		if err == nil {
			arrived[0]--
			err = side.Upload(k.Barrier(), bytesOf(arrived))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
