package page

import (
	"testing"
)

func FuzzReadPresets(f *testing.F) {
	f.Add([]byte(`{"format":"` + PresetFormat + `","presets":[{"name":"x","system":"y","settings":{"top_k":1,"stop":["a"]}}]}`))
	f.Add([]byte(`{"presets":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := readPresets(data)
		if err != nil && list != nil {
			t.Errorf("both presets and an error: %v", err)
		}
		for _, p := range list {
			if p.Settings.Seed != -1 {
				t.Errorf("a preset has the seed %d", p.Settings.Seed)
			}
		}
	})
}
