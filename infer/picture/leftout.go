package picture

import "fmt"

// LeaveOut replaces the pixels of a rectangle by the mean of all pixels of the picture.
func (i *Image) LeaveOut(x, y, width, height int) error {
	if x < 0 || y < 0 || width < 1 || height < 1 || width > i.Width-x || height > i.Height-y {
		return fmt.Errorf("a part of %d x %d pixels at %d, %d is not inside the picture of %d x %d", width, height, x, y, i.Width, i.Height)
	}
	var sum [3]int
	for at, v := range i.Pix {
		sum[at%3] += int(v)
	}
	var mean [3]byte
	n := i.Width * i.Height
	for c := range mean {
		mean[c] = byte((sum[c] + n/2) / n)
	}
	for row := y; row < y+height; row++ {
		part := i.Pix[3*(row*i.Width+x):][:3*width]
		for at := range part {
			part[at] = mean[at%3]
		}
	}
	return nil
}
