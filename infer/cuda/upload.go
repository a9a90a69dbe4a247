package cuda

import (
	"slices"

	"m40-llm/cudakern"
	"m40-llm/infer/device"
)

func (d *cuda) allocHost(n int) (*cudakern.Host, error) {
	h, err := d.context.AllocHost(n)
	if err == nil {
		d.close = append(d.close, h.Close)
	}
	return h, err
}

// copyToDevice returns the address of a copy of data on the GPU. data may be a mapped file, and
// reading it may fault. Go can turn the fault into an error but the driver cannot, so chunks are
// copied in Go first.
func (d *cuda) copyToDevice(data []byte) (cudakern.Ptr, error) {
	at, err := d.memory.alloc(int64(len(data)))
	if err != nil {
		return 0, err
	}
	to := at
	var part []byte
	for chunk := range slices.Chunk(data, 4<<20) {
		part = append(part[:0], chunk...)
		if err := d.stream.Upload(to, part); err != nil {
			return 0, err
		}
		to += cudakern.Ptr(len(part))
	}
	return at, nil
}

// weightsOf describes matrix w for cudakern.
func weightsOf(w device.Tensor) cudakern.Weights {
	return cudakern.Weights{Type: kernelName(w.Type), Outputs: w.Rows, Inputs: w.Cols}
}

// asVector returns the address of the weight in the layout of the model file; the first call copies
// it.
func (w *tensor) asVector(d *cuda) (_ cudakern.Ptr, err error) {
	if w.vector == 0 {
		w.vector, err = d.copyToDevice(w.raw)
	}
	return w.vector, err
}

// asMatrix returns the address of the weight in the layout of matrix products and embeddings; the
// first call copies it. The copy is complete after the loader's Sync.
func (w *tensor) asMatrix(d *cuda) (cudakern.Ptr, error) {
	if w.matrix != 0 {
		return w.matrix, nil
	}
	bytes, _, err := weightsOf(w.Tensor).Bytes()
	if err != nil {
		return 0, err
	}
	if d.loader == nil {
		if d.loader, err = cudakern.NewLoader(d.context); err != nil {
			return 0, err
		}
		d.close = append(d.close, d.loader.Close)
	}
	at, err := d.memory.alloc(bytes)
	if err != nil {
		return 0, err
	}
	if w.source != w.Type {
		err = d.loader.LoadFrom(at, weightsOf(w.Tensor), w.converted())
	} else {
		err = d.loader.Load(at, weightsOf(w.Tensor), w.raw)
	}
	if err != nil {
		return 0, err
	}
	w.matrix = at
	return at, nil
}
