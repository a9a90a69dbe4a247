package picture

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"slices"
)

// WithoutMetadata returns a picture file without what cameras and programs write next to the picture: EXIF data, such as where a photograph
// was taken, XMP, IPTC, comments, and whatever follows the picture. The orientation of EXIF data stays, so the picture is shown as
// before. Files of other formats than JPEG, PNG and WebP are returned as they are, and so is what cannot be read.
func WithoutMetadata(data []byte) []byte {
	switch f, err := formatOf(data); {
	case err != nil:
	case f.name == jpegFormat.name:
		return blankJPEG(slices.Clone(data))
	case f.name == pngFormat.name:
		return trimPNG(data)
	case f.name == webpFormat.name:
		return blankWebP(slices.Clone(data))
	}
	return data
}

const exifName = "Exif\x00\x00"

// onlyOrientation returns the EXIF data with the orientation of exif alone; nil if the picture is stored as it is shown.
func onlyOrientation(exif []byte) []byte {
	o := orientation(exif)
	if o == 1 {
		return nil
	}
	data := []byte("II*\x00\x08\x00\x00\x00\x01\x00") // one entry, after 8 bytes
	data = binary.LittleEndian.AppendUint16(data, orientationTag)
	data = binary.LittleEndian.AppendUint16(data, 3) // 16 bits
	data = binary.LittleEndian.AppendUint32(data, 1)
	data = binary.LittleEndian.AppendUint32(data, uint32(o))
	return append(data, 0, 0, 0, 0) // no further directory
}

// overwrite replaces a part of a file by text, and zeros after it; by zeros if the text is longer.
func overwrite(part, text []byte) {
	clear(part)
	if len(text) <= len(part) {
		copy(part, text)
	}
}

// blankJPEG overwrites the segments with metadata, and cuts what follows the picture.
func blankJPEG(data []byte) []byte {
	for at := 2; at+2 <= len(data); {
		if data[at] != 0xff { // of a scan
			at++
			continue
		}
		marker := data[at+1]
		switch {
		case marker == 0xff: // padding
			at++
			continue
		case marker == 0xd9: // the end
			return data[:at+2]
		case marker == 0 || marker == 0x01 || 0xd0 <= marker && marker <= 0xd7: // they have no length
			at += 2
			continue
		}
		if at+4 > len(data) {
			return data
		}
		n := int(binary.BigEndian.Uint16(data[at+2:]))
		if n < 2 || n > len(data)-at-2 {
			return data
		}
		if segment := data[at+4 : at+2+n]; marker == 0xe1 || marker == 0xed || marker == 0xfe {
			var stays []byte
			if exif, ok := bytes.CutPrefix(segment, []byte(exifName)); ok {
				if exif = onlyOrientation(exif); exif != nil {
					stays = append([]byte(exifName), exif...)
				}
			}
			overwrite(segment, stays)
		}
		at += 2 + n
	}
	return data
}

// trimPNG returns the chunks without metadata.
func trimPNG(data []byte) []byte {
	out := slices.Clone(data[:8])
	for at := 8; at+12 <= len(data); {
		n := int(binary.BigEndian.Uint32(data[at:]))
		if n > len(data)-at-12 {
			return append(out, data[at:]...)
		}
		chunk := data[at : at+12+n]
		switch name := string(chunk[4:8]); name {
		case "tEXt", "zTXt", "iTXt", "tIME":
		case "eXIf":
			if exif := onlyOrientation(chunk[8 : 8+n]); exif != nil {
				out = binary.BigEndian.AppendUint32(out, uint32(len(exif)))
				out = append(append(out, name...), exif...)
				out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[len(out)-len(exif)-4:]))
			}
		case "IEND":
			return append(out, chunk...)
		default:
			out = append(out, chunk...)
		}
		at += 12 + n
	}
	return out
}

// blankWebP overwrites the chunks with metadata, and cuts what follows the picture.
func blankWebP(data []byte) []byte {
	if size := uint64(binary.LittleEndian.Uint32(data[4:])) + 8; size < uint64(len(data)) {
		data = data[:size]
	}
	webpChunks(data, func(id string, payload []byte) bool {
		switch id {
		case "EXIF":
			overwrite(payload, onlyOrientation(bytes.TrimPrefix(payload, []byte(exifName))))
		case "XMP ":
			clear(payload)
		}
		return true
	})
	return data
}
