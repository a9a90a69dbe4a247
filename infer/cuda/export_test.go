package cuda

import (
	"m40-llm/cudakern"
	"m40-llm/infer/device"
)

// OpenIn opens a device in a context that stays the caller's.
func OpenIn(context *cudakern.Context, path string) (device.Device, error) {
	d, err := open(context, path)
	if err != nil {
		return nil, err
	}
	return d, nil
}
