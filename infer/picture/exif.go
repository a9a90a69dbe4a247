package picture

import "encoding/binary"

const orientationTag = 0x0112

// orientation returns the EXIF orientation, 1 to 8. It is 1 if the data have none, or are damaged: a picture is
// shown as stored then.
func orientation(exif []byte) int {
	if len(exif) < 8 {
		return 1
	}
	var order binary.ByteOrder
	switch string(exif[:4]) {
	case "II*\x00":
		order = binary.LittleEndian
	case "MM\x00*":
		order = binary.BigEndian
	default:
		return 1
	}
	at := uint64(order.Uint32(exif[4:]))
	if at+2 > uint64(len(exif)) {
		return 1
	}
	entries := exif[at+2:]
	for range order.Uint16(exif[at:]) {
		if len(entries) < 12 {
			break
		}
		if order.Uint16(entries) == orientationTag {
			if v := order.Uint16(entries[8:]); 1 <= v && v <= 8 {
				return int(v)
			}
			break
		}
		entries = entries[12:]
	}
	return 1
}

// upright returns the picture turned and mirrored as its EXIF orientation says.
func upright(src *Image, orientation int) *Image {
	w, h := src.Width, src.Height
	from := func(x, y int) (int, int) { return x, y }
	switch orientation {
	case 2:
		from = func(x, y int) (int, int) { return w - 1 - x, y }
	case 3:
		from = func(x, y int) (int, int) { return w - 1 - x, h - 1 - y }
	case 4:
		from = func(x, y int) (int, int) { return x, h - 1 - y }
	case 5:
		from = func(x, y int) (int, int) { return y, x }
	case 6:
		from = func(x, y int) (int, int) { return y, h - 1 - x }
	case 7:
		from = func(x, y int) (int, int) { return w - 1 - y, h - 1 - x }
	case 8:
		from = func(x, y int) (int, int) { return w - 1 - y, x }
	default:
		return src
	}
	dst := newImage(w, h)
	if orientation >= 5 {
		dst.Width, dst.Height = h, w
	}
	for y := range dst.Height {
		for x := range dst.Width {
			sx, sy := from(x, y)
			copy(dst.Pix[3*(y*dst.Width+x):], src.Pix[3*(sy*w+sx):][:3])
		}
	}
	return dst
}
