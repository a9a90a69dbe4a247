package cudakern

// Streams are operations on the parts of rows, for models with several residual streams.
type Streams struct{ mix, match, sparsify *Function }

// NewStreams loads the kernels.
func NewStreams(c *Context) (*Streams, error) {
	k := &Streams{}
	var err error
	if k.mix, err = c.kernel("streams", "mix_parts"); err != nil {
		return nil, err
	}
	if k.match, err = c.kernel("streams", "match_rms"); err != nil {
		return nil, err
	}
	k.sparsify, err = c.kernel("streams", "sparsify")
	return k, err
}

// Mixture says which parts of Width columns EnqueueMix adds to which: Sources parts of x to each of
// Targets parts of dst, which follow its first To columns.
type Mixture struct{ Targets, Sources, To, Width int }

// EnqueueMix computes dst[i] += Σ_j factors[i·Sources+j] · x[j], parts of rows of float32. factors may
// be 0: all are 1.
func (k *Streams) EnqueueMix(to Queue, dst, x, factors Ptr, m Mixture, rows Ptr, capacity int) error {
	if err := checkLaunch("Mix", capacity, m.Targets*m.Width); err != nil {
		return err
	}
	return k.mix.Launch(to, Dim3{X: blocksFor(m.Targets*m.Width, threads), Y: capacity}, Dim3{X: threads}, 0,
		dst, x, factors, int32(m.Targets), int32(m.Sources), int32(m.To), int32(m.Width), rows)
}

// EnqueueMatchRMS computes x = x · sqrt(mean(y²) / max(mean(x²), floor)) for each of parts parts of x,
// of cols float32 as y.
func (k *Streams) EnqueueMatchRMS(to Queue, x, y Ptr, floor float32, parts, cols int, rows Ptr, capacity int) error {
	if err := checkLaunch("MatchRMS", capacity, parts*cols); err != nil {
		return err
	}
	return k.match.Launch(to, Dim3{X: parts, Y: capacity}, Dim3{X: threads}, normBytes, x, y, floor, int32(cols), rows)
}

// EnqueueSparsify computes x = max(0, x - mean(x) - factor · sqrt(variance(x))), rows of cols float32.
func (k *Streams) EnqueueSparsify(to Queue, x Ptr, factor float32, cols int, rows Ptr, capacity int) error {
	if err := checkLaunch("Sparsify", capacity, cols); err != nil {
		return err
	}
	return k.sparsify.Launch(to, Dim3{X: 1, Y: capacity}, Dim3{X: threads}, normBytes, x, factor, int32(cols), rows)
}
