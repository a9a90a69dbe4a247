package commands

import (
	"testing"

	"m40-llm/infer/kvfile"
)

func TestTheCachesOfADeletedModelAreDeleted(t *testing.T) {
	d, err := kvfile.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, model := range map[string]string{"short": "small-q8_0", "qualified": "org/repo/small-q8_0", "other": "large-q8_0"} {
		id := kvfile.Identity{Model: model, BlockBytes: []int{8}, Positions: 1}
		if err := d.Allow(name); err != nil {
			t.Fatal(err)
		}
		f, err := d.Open(name, id)
		if err == nil {
			err = f.Append([]int32{1}, 1, make([]byte, 8))
			f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := deleteCaches(d, "org/repo/small-q8_0"); err != nil {
		t.Fatal(err)
	}
	if list, err := d.List(); err != nil || len(list) != 1 || list[0].Name != "other" {
		t.Errorf("%v are left, %v; want the cache of the other model", list, err)
	}
}
