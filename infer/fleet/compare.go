package fleet

import (
	"context"
	"os"

	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/units"
)

// maxCompared is how many bytes the files of all comparisons may have together. A worker allows one of them as much.
const maxCompared = 2 << 30

// compare has two models score the prompt of r, each in its own worker: they stay loaded if both fit. The rows of the first wait in a file
// for the second.
func (f *Fleet) compare(ctx context.Context, r infer.Request, yield func(infer.Event, error) bool) {
	if err := r.Validate(); err != nil {
		yield(infer.Event{}, err)
		return
	}
	file, err := os.CreateTemp("", "m40-llm-rows-")
	if err != nil {
		yield(infer.Event{}, fault.Errorf(fault.CodeInternal, "cannot make a temporary file for the rows of the first model: %s", err))
		return
	}
	file.Close()
	defer os.Remove(file.Name())
	if r.Model == "" { // the second worker would take its own
		f.mu.Lock()
		r.Model = f.last(writes).engine.Status().Model.Name
		f.mu.Unlock()
	}
	var scored []infer.Event // tokens, by the first model
	r.RowFile = &infer.RowFile{Path: file.Name()}
	ended := f.repeat(ctx, r, func(e infer.Event, err error) bool {
		switch {
		case err == nil && e.Token != nil:
			scored = append(scored, e)
		case err == nil && e.Done != nil:
		default:
			return yield(e, err) && err == nil
		}
		return true
	})
	if !ended {
		return
	}
	release, err := f.countRows(file.Name())
	defer release()
	if err != nil {
		yield(infer.Event{}, err)
		return
	}
	second := r
	second.RowFile = &infer.RowFile{Path: file.Name(), Second: true}
	second.Rows, second.Alternatives = false, 0 // those of the first model count
	next := 0
	f.repeat(ctx, second, func(e infer.Event, err error) bool {
		switch {
		case err != nil || e.Token == nil:
			return e.IsNote() || yield(e, err)
		case next == len(scored):
			yield(infer.Event{}, fault.Errorf(fault.CodeInternal, "the second model scored more than the %d tokens of the first", next))
			return false
		}
		merged := scored[next]
		merged.Token.Compared = e.Token.Compared
		next++
		return yield(merged, nil)
	})
}

// countRows counts the bytes of a file of rows until release is called. It returns an error if those of all comparisons are too many.
func (f *Fleet) countRows(path string) (release func(), err error) {
	info, err := os.Stat(path)
	if err != nil {
		return func() {}, fault.Of(fault.CodeInternal, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.compared+info.Size() > maxCompared {
		return func() {}, fault.Errorf(fault.CodeQueueFull, "other comparisons use the %s for temporary files; try again later", units.ByteSize(maxCompared))
	}
	f.compared += info.Size()
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.compared -= info.Size()
	}, nil
}
