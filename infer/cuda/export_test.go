package cuda

import (
	"m40-llm/cudakern"
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

// Requests is requests for launches that read so many bytes of weights, which follow one another from address 0 on.
func Requests(weights []int64, window int64) [][]cudakern.Range {
	launches, at := make([]launch, len(weights)), int64(0)
	for i, bytes := range weights {
		if bytes > 0 {
			launches[i].reads = []cudakern.Range{{At: cudakern.Ptr(at), Bytes: bytes}}
		}
		at += bytes
	}
	return requests(launches, window)
}
