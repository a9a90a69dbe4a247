package cuda

import (
	"errors"

	"m40-llm/infer/device"
)

var errNoState = errors.New("cuda: there are no kernels for layers with recurrent state yet; use --device cpu")

// AllocState fails.
func (d *cuda) AllocState(device.StateLayout) (device.State, error) {
	return device.State{}, errNoState
}

// CopyState fails.
func (d *cuda) CopyState(device.State, int32, int32) error { return errNoState }
