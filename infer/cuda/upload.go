package cuda

import (
	"errors"
	"slices"

	"m40-llm/cudakern"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
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
// first call copies it, unless it waits for Fill. The copy is complete after the loader's Sync.
func (w *tensor) asMatrix(d *cuda) (cudakern.Ptr, error) {
	if w.matrix != 0 {
		return w.matrix, nil
	}
	if err := w.reserve(d); err != nil {
		return 0, err
	}
	return w.matrix, w.fill(d)
}

// reserve allocates the memory for fill.
func (w *tensor) reserve(d *cuda) error {
	bytes, _, err := weightsOf(w.Tensor).Bytes()
	if err != nil {
		return err
	}
	if d.streamed != nil && d.streamed.stop != nil {
		return errors.New("nothing can be loaded while weights are streamed")
	}
	if err := d.prepareLoader(w.Type); err != nil {
		return err
	}
	w.matrix, err = d.memory.alloc(bytes)
	w.empty = err == nil
	return err
}

// prepareLoader makes the loader ready for weights of type t.
func (d *cuda) prepareLoader(t gguf.Type) (err error) {
	if d.loader == nil {
		if d.loader, err = cudakern.NewLoader(d.context); err != nil {
			return err
		}
		d.close = append(d.close, d.loader.Close)
	}
	return d.loader.Prepare(kernelName(t))
}

// fill copies the weight in the layout of asMatrix.
func (w *tensor) fill(d *cuda) (err error) {
	if w.source != w.Type {
		err = d.loader.LoadFrom(w.matrix, weightsOf(w.Tensor), w.converted())
	} else {
		err = d.loader.Load(w.matrix, weightsOf(w.Tensor), w.raw)
	}
	w.empty = err != nil
	return err
}
