package cpu

// #include "engine.h"
import "C"

import (
	"fmt"
	"time"
	"unsafe"

	"m40-llm/infer/cpu/host"
	"m40-llm/infer/device"
)

// packPiece is about how many bytes of a file are packed before Pack looks at the clock again: where the
// system must clear pages first, a piece takes up to 40 ms.
const packPiece = 8 << 20

// unpacked is a weight of which steps read the rows from data that are not packed yet.
type unpacked struct {
	device.Tensor
	data []byte
	to   unsafe.Pointer
	rows int // that are packed
}

// PackLater makes Upload keep views of weights, which Pack replaces; see device.Packer. The copies have
// their addresses from the beginning, but take memory only when they are written.
func (d *cpu) PackLater() { d.packsLater = true }

// Pack packs weights in the order of Upload, using all threads; see device.Packer.
func (d *cpu) Pack(limit time.Duration, release func(view []byte)) (missing int64, err error) {
	if d.engine == nil {
		return 0, errClosed
	}
	for begin := time.Now(); len(d.unpacked) > 0 && time.Since(begin) < limit; {
		w := &d.unpacked[0]
		if w.rows == 0 && d.lacksMemory() {
			d.unpacked, d.missing = nil, 0
			break
		}
		from := w.rows
		if err := d.packPiece(w); err != nil {
			return d.missing, err
		}
		rowBytes := int(w.Type.RowBytes(w.Cols))
		release(w.data[from*rowBytes : w.rows*rowBytes])
		if w.rows == w.Rows {
			d.unpacked = d.unpacked[1:]
		}
	}
	return d.missing, nil
}

// lacksMemory reports whether memory is too short for the copies that are missing, and gives that as the reason why
// weights stay in the file.
func (d *cpu) lacksMemory() bool {
	free := host.MemoryAvailable()
	lacks := free > 0 && free < d.missing
	if lacks {
		d.KeepInFile(fmt.Sprintf("copies of them need %s more, but only %s are free", mebibytes(d.missing), mebibytes(free)))
	}
	return lacks
}

// packPiece packs the next panels of w.
func (d *cpu) packPiece(w *unpacked) error {
	rowBytes, panel := int(w.Type.RowBytes(w.Cols)), panelBytes(w.Type, w.Cols)
	rows := min(max(packPiece/rowBytes/C.PANEL, 1)*C.PANEL, w.Rows-w.rows)
	piece := w.Tensor
	piece.Rows = rows
	if err := d.pack(piece, w.data[w.rows*rowBytes:], unsafe.Add(w.to, int64(w.rows/C.PANEL)*panel)); err != nil {
		return err
	}
	w.rows += rows
	d.replace(w)
	d.missing -= (int64(rows) + C.PANEL - 1) / C.PANEL * panel
	return nil
}

// replace makes all programs read the copy of the rows of w that are packed.
func (d *cpu) replace(w *unpacked) {
	t, all := &d.tensors[w.ID-1], w.rows == w.Rows
	t.copy, t.copied = w.to, w.rows
	if all {
		t.data, t.inFile = w.to, false
	}
	from, stride := (*C.uint8_t)(unsafe.SliceData(w.data)), C.size_t(panelBytes(w.Type, w.Cols))
	for _, ops := range d.compiled {
		for i := range ops {
			op := &ops[i]
			switch {
			case op.w != from || op.in_file == 0:
			case all:
				op.w, op.w_stride, op.in_file = (*C.uint8_t)(w.to), stride, 0
			default:
				op.copy, op.copy_stride, op.copied = (*C.uint8_t)(w.to), stride, C.int32_t(w.rows)
			}
		}
	}
}
