package infer

import (
	"path"
	"slices"

	"m40-llm/infer/gguf"
	"m40-llm/infer/placement"
)

// Download is what a name stands for before its bytes are fetched: enough to tell
// whether the model will fit and work.
type Download struct {
	Name       string         `json:"name"`                  // as it was asked for
	File       string         `json:"file"`                  // where it goes in the models folder, with slashes
	Source     string         `json:"source"`                // address of the bytes
	Size       int64          `json:"size"`                  // bytes
	SHA256     string         `json:"sha256,omitempty"`      // in hexadecimal; empty where the server does not say
	Quant      string         `json:"quant,omitempty"`       // from the file's name, such as Q4_K_M
	Partial    int64          `json:"partial,omitempty"`     // bytes that are here from an earlier try
	Present    bool           `json:"present,omitempty"`     // a file of that name and size is here already
	DiskNeed   int64          `json:"disk_need,omitempty"`   // bytes that have to be free for what is missing, with those that are to stay free
	DiskFree   int64          `json:"disk_free,omitempty"`   // bytes that the models folder can take; 0: unknown
	MemoryFree int64          `json:"memory_free,omitempty"` // bytes that the machine can take; 0: unknown
	Notice     string         `json:"notice,omitempty"`      // what a person should know about the choice
	Problem    string         `json:"problem,omitempty"`     // why the model cannot be used here, empty if it can
	Fit        *placement.Fit `json:"fit,omitempty"`         // nil: not known
	Works      []string       `json:"works,omitempty"`       // quantisations beside it that can be computed with, if there is a Problem
	Parts      []DownloadPart `json:"parts,omitempty"`       // of a split model its files in order; File and Source are the first one's, Size is that of all
}

// DownloadPart is a file of a split model.
type DownloadPart struct {
	File   string `json:"file"`
	Source string `json:"source"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256,omitempty"`
}

// Files returns the downloads of one file each that d consists of.
func (d Download) Files() []Download {
	if len(d.Parts) == 0 {
		return []Download{d}
	}
	files := make([]Download, len(d.Parts))
	for i, part := range d.Parts {
		files[i] = Download{Name: d.Name, File: part.File, Source: part.Source, Size: part.Size, SHA256: part.SHA256, Quant: d.Quant}
	}
	return files
}

// Title returns the name of the model: that of its file without .gguf and the number of a part.
func (d Download) Title() string { return gguf.ModelName(path.Base(d.File)) }

// Verifiable reports whether the server gives the digests of all files.
func (d Download) Verifiable() bool {
	return !slices.ContainsFunc(d.Files(), func(f Download) bool { return f.SHA256 == "" })
}

// DownloadPhase says what a download is doing.
type DownloadPhase string

const (
	PhaseResolving   DownloadPhase = "resolving"
	PhaseDownloading DownloadPhase = "downloading"
	PhaseWaiting     DownloadPhase = "waiting"   // before another try; Notice says why
	PhaseVerifying   DownloadPhase = "verifying" // a file that is here already is read
	PhaseDone        DownloadPhase = "done"
)

// DownloadProgress is a snapshot of a download.
type DownloadProgress struct {
	Phase          DownloadPhase `json:"phase"`
	File           string        `json:"file,omitempty"`
	Done           int64         `json:"done"` // bytes, those of earlier tries included
	Total          int64         `json:"total"`
	BytesPerSecond float64       `json:"bytes_per_second,omitempty"` // 0: not known yet
	ETASeconds     float64       `json:"eta_seconds,omitempty"`      // 0: not known yet
	Notice         string        `json:"notice,omitempty"`
}

// ModelDetails is all that a model file says about itself without its weights.
type ModelDetails struct {
	ModelInfo
	Types    []TensorType `json:"types"`              // of its tensors, those with most bytes first
	Template *Template    `json:"template,omitempty"` // its chat template, if it has one
	Metadata []Metadata   `json:"metadata"`           // in the file's order
}

// TensorType counts the tensors of one element format.
type TensorType struct {
	Type     string `json:"type"`
	Tensors  int    `json:"tensors"`
	Elements int64  `json:"elements"`
	Bytes    int64  `json:"bytes"`
}

// Template identifies a chat template.
type Template struct {
	SHA256 string `json:"sha256"`
	Bytes  int    `json:"bytes"`
}

// Metadata is a key of a model file with its value, shortened for people.
type Metadata struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}
