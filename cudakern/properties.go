package cudakern

// #include "driver.h"
import "C"

import (
	"errors"
	"fmt"
	"slices"
)

// Properties describe a device.
type Properties struct {
	Ordinal     int
	Name        string // "Tesla M40"
	Major       int    // compute capability
	Minor       int
	SMs         int   // multiprocessors
	Memory      int64 // bytes
	ECC         bool  // error correction is on; on a Tesla M40 it costs bandwidth and a sixteenth of the memory
	ExecTimeout bool  // the device drives a display: kernels that run for seconds are killed
	ClockKHz    int   // maximum clock of the multiprocessors
	L2          int   // size of the L2 cache in bytes
	MaxShared   int   // bytes of shared memory that a block can opt in to
}

// The minimum compute capability: the kernels are compiled for it.
const minMajor, minMinor = 5, 2

var errNoDevice = errors.New("the CUDA driver finds no device")

// Usable returns nil if the kernels can run on a device with p, otherwise the reason.
func (p Properties) Usable() error {
	if p.Major < minMajor || p.Major == minMajor && p.Minor < minMinor {
		return fmt.Errorf("%s has compute capability %d.%d; the kernels need %d.%d or later", p.Name, p.Major, p.Minor, minMajor, minMinor)
	}
	if all := []Units{UnitsXMAD, UnitsDP2A, UnitsMMA}; !slices.Contains(all, p.Units()) {
		return fmt.Errorf("M40_LLM_CUDA_UNITS is %q, want one of %s", p.Units(), all)
	}
	return nil
}

// HasCode reports whether the program contains machine code for a device with p. If not, the driver
// compiles PTX when a module is loaded, which takes seconds.
func (p Properties) HasCode() bool { return p.Major == minMajor && p.Minor >= minMinor }

// overlaps reports whether launches can overlap on a device with p: overlap.cuh.
func (p Properties) overlaps() bool { return p.Major >= 9 }

// Devices describes every device that the driver reports, usable or not. It fails if there is none.
func (d *Driver) Devices() ([]Properties, error) {
	var count C.int
	if err := d.check("cuDeviceGetCount", C.call_cuDeviceGetCount(d.calls, &count)); err != nil {
		return nil, err
	}
	if count == 0 {
		return nil, errNoDevice
	}
	list := make([]Properties, count)
	for i := range list {
		var err error
		if _, list[i], err = d.device(i); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (d *Driver) device(ordinal int) (C.CUdevice, Properties, error) {
	p := Properties{Ordinal: ordinal}
	var device C.CUdevice
	if err := d.check("cuDeviceGet", C.call_cuDeviceGet(d.calls, &device, C.int(ordinal))); err != nil {
		return 0, p, err
	}
	var name [256]C.char
	if err := d.check("cuDeviceGetName", C.call_cuDeviceGetName(d.calls, &name[0], C.int(len(name)), device)); err != nil {
		return 0, p, err
	}
	var bytes C.size_t
	if err := d.check("cuDeviceTotalMem_v2", C.call_cuDeviceTotalMem_v2(d.calls, &bytes, device)); err != nil {
		return 0, p, err
	}
	p.Name, p.Memory = C.GoString(&name[0]), int64(bytes)
	var ecc, timeout int
	for _, a := range []struct {
		number C.int // of CUdevice_attribute
		value  *int
	}{
		{13, &p.ClockKHz},
		{16, &p.SMs},
		{17, &timeout},
		{32, &ecc},
		{38, &p.L2},
		{75, &p.Major},
		{76, &p.Minor},
		{97, &p.MaxShared},
	} {
		var value C.int
		if err := d.check("cuDeviceGetAttribute", C.call_cuDeviceGetAttribute(d.calls, &value, a.number, device)); err != nil {
			return 0, p, err
		}
		*a.value = int(value)
	}
	p.ECC, p.ExecTimeout = ecc != 0, timeout != 0
	return device, p, nil
}
