package hub

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"m40-llm/infer"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
)

// NoCompanion makes models read no pictures; see SetCompanion.
const NoCompanion = "off"

// SetCompanion makes models in files read pictures with the companion file at path instead of one next to them, or read none if
// path is NoCompanion. It must be called before other methods.
func (h *Hub) SetCompanion(path string) { h.companion = path }

// companionOf returns the path of the file with which a model reads pictures, "" if there is none. It is next to the model, has mmproj
// in its name, and apart from that and its number format the beginning of the model's name, or no name.
func (h *Hub) companionOf(e entry) string {
	switch {
	case e.path == "" || h.companion == NoCompanion:
		return ""
	case h.companion != "":
		return h.companion
	}
	dir := filepath.Dir(e.path)
	files, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	var names []string
	for _, file := range files {
		names = append(names, file.Name())
	}
	if best := bestCompanion(filepath.Base(e.path), names); best >= 0 {
		return filepath.Join(dir, names[best])
	}
	return ""
}

// addCompanion adds the file with which a model reads pictures to its description, if there is one.
func (h *Hub) addCompanion(info *infer.ModelInfo, e entry) {
	info.Companion = h.companionOf(e)
	info.Vision = info.Companion != ""
	if info.Vision && info.Shape != nil {
		info.Shape = info.Shape.WithCompanion(h.companionBytes(info.Companion))
	}
}

// companionBytes returns how much memory a companion file needs, 0 if it cannot be used. It reads a file only if it changed since the last
// call.
func (h *Hub) companionBytes(path string) int64 {
	e := newEntry(path, path)
	state, err := e.stat()
	if err != nil {
		return 0
	}
	h.mu.Lock()
	known, ok := h.companions[path]
	h.mu.Unlock()
	if ok && known.state == state {
		return known.bytes
	}
	known = companionFile{state: state}
	if f, err := e.open(); err == nil {
		if bytes, err := model.TowerBytesIn(f, nil); err == nil {
			known.bytes = bytes.Total()
		}
		f.Close()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.companions == nil {
		h.companions = map[string]companionFile{}
	}
	h.companions[path] = known
	return known.bytes
}

// bestCompanion returns the index of the file, of those next to a model, with which it reads pictures; -1 if there is none.
func bestCompanion(model string, files []string) int {
	model = plainName(model)
	best, length, rank := -1, -1, 0
	for i, file := range files {
		stem, ok := companionStem(file)
		if !ok || !strings.HasPrefix(model, stem) {
			continue
		}
		if r := formatRank(file); len(stem) > length || len(stem) == length && r < rank {
			best, length, rank = i, len(stem), r
		}
	}
	return best
}

var (
	numberFormat = regexp.MustCompile(`[-_.]?(bf16|fp?16|f32|i?q[0-9][a-z0-9_]*)$`)
	separators   = strings.NewReplacer("-", "", "_", "", ".", "", " ", "")
)

// companionStem returns the name of the model of a companion file, empty if its name does not say, and whether the file is one.
func companionStem(file string) (stem string, ok bool) {
	name := strings.ToLower(gguf.ModelName(file))
	if !strings.EqualFold(filepath.Ext(file), ".gguf") || !strings.Contains(name, "mmproj") {
		return "", false
	}
	stem = separators.Replace(strings.Replace(numberFormat.ReplaceAllString(name, ""), "mmproj", "", 1))
	return strings.TrimSuffix(stem, "model"), true
}

func plainName(file string) string {
	return separators.Replace(strings.ToLower(gguf.ModelName(file)))
}

// formatRank orders companions of one model: F16 is as exact as published ones are, and others are larger, or newer.
func formatRank(file string) int {
	name := strings.ToLower(file)
	return slices.IndexFunc([]string{"-f16", "_f16", ".f16", "bf16", "q8", ""}, func(s string) bool { return strings.Contains(name, s) })
}
