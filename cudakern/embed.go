package cudakern

// Embed looks up rows of an embedding table.
type Embed struct{ rows *Function }

// NewEmbed loads the kernel for tables of a weight type; see Weights.Type.
func NewEmbed(c *Context, weights string) (*Embed, error) {
	rows, err := c.kernel("embed_"+weights, "embed_"+weights)
	return &Embed{rows}, err
}

// Enqueue computes dst[r] = table[tokens[r]], rows of cols float32. The table has the layout that
// Loader.Load writes for weights of cols inputs.
func (k *Embed) Enqueue(to Queue, dst, table Ptr, cols int, step Step, capacity int) error {
	if err := checkLaunch("Embed", capacity, cols); err != nil {
		return err
	}
	return k.rows.Launch(to, Dim3{X: blocksFor(cols, threads), Y: capacity}, Dim3{X: threads}, 0,
		dst, table, int32(cols), step.Tokens, step.Rows)
}
