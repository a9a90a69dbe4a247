package picture

import (
	"fmt"
	"testing"
)

func TestOutline_HasTheSizeOfAPictureAndNoPixels(t *testing.T) {
	for _, size := range [][2]int{{1, 1}, {640, 480}, {8000, 6000}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			info, err := Inspect(Outline(size[0], size[1]), DefaultLimits)
			if err != nil || info.Width != size[0] || info.Height != size[1] {
				t.Errorf("got %+v, %v", info, err)
			}
			if _, err := Decode(Outline(size[0], size[1]), DefaultLimits); err == nil {
				t.Error("it was decoded")
			}
		})
	}
}
