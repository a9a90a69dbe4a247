package presets

// For tests.
var (
	Builtins   = builtins
	FromStored = fromStoredPreset
)

// Limits, for tests.
const (
	MaxName   = maxPresetName
	MaxSystem = maxPresetSystem
	MaxImport = maxPresets
)
