package picture

import "math"

// squares are how a picture is cut into squares of side pixels: into at least min and at most max of them, in as many rows and columns
// as have nearly its ratio.
type squares struct{ side, min, max int }

// within lowers the most squares to so many tokens, of which each square and the overview have some. 0: it does not.
func (q squares) within(tokens, ofSquare, ofOverview int) squares {
	if tokens > 0 {
		q.max = max(1, min(q.max, (tokens-ofOverview)/ofSquare))
	}
	return q
}

// grid returns the rows and columns whose ratio differs least from that of the picture. Of equal ones it is the larger, as long as the
// picture has more than half of its pixels.
func (q squares) grid(width, height int) (rows, columns int) {
	ratio, area := float64(width)/float64(height), float64(width)*float64(height)
	rows, columns = 1, 1
	best := math.Inf(1)
	for n := q.min; n <= q.max; n++ {
		for c := 1; c <= n; c++ {
			if n%c != 0 {
				continue
			}
			r := n / c
			difference := math.Abs(ratio - float64(c)/float64(r))
			if difference < best || difference == best && area > 0.5*float64(q.side*q.side*n) {
				best, rows, columns = difference, r, c
			}
		}
	}
	return rows, columns
}

// cut returns the squares of a picture row by row, stretched to fill them.
func (q squares) cut(img *Image, rows, columns int, f filter) (list []*Image) {
	img = resize(img, columns*q.side, rows*q.side, f)
	for row := range rows {
		for column := range columns {
			list = append(list, crop(img, part{column * q.side, row * q.side, q.side, q.side}))
		}
	}
	return list
}
