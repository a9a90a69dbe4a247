package infer

import (
	"path"
	"slices"

	"m40-llm/infer/gguf"
	"m40-llm/infer/placement"
)

// Download describes a model file before it is fetched: enough to decide whether the model fits and
// works.
type Download struct {
	Name       string         `json:"name"`                  // as requested
	File       string         `json:"file"`                  // path in the models folder, with slashes
	Source     string         `json:"source"`                // URL of the file
	Size       int64          `json:"size"`                  // bytes
	SHA256     string         `json:"sha256,omitempty"`      // in hexadecimal; empty if the server does not report it
	Quant      string         `json:"quant,omitempty"`       // from the file's name, such as Q4_K_M
	Partial    int64          `json:"partial,omitempty"`     // bytes that an earlier attempt has fetched
	Present    bool           `json:"present,omitempty"`     // a file with that name and size exists
	DiskNeed   int64          `json:"disk_need,omitempty"`   // bytes that must be free for the rest of the download, including the reserve that stays free
	DiskFree   int64          `json:"disk_free,omitempty"`   // free bytes for the models folder; 0: unknown
	MemoryFree int64          `json:"memory_free,omitempty"` // free bytes of memory; 0: unknown
	Notice     string         `json:"notice,omitempty"`      // a sentence for the user about the choice of the file
	Problem    string         `json:"problem,omitempty"`     // why the model cannot be used here, empty if it can
	Fit        *placement.Fit `json:"fit,omitempty"`         // nil: unknown
	Choices    []Quantisation `json:"choices,omitempty"`     // of the repository, by size; none if the name says which one
	Works      []string       `json:"works,omitempty"`       // if there is a Problem: other quantisations in the repository that can be used
	Parts      []DownloadPart `json:"parts,omitempty"`       // files of a split model in order; File and Source are those of the first, Size is the total
	Companion  *DownloadPart  `json:"companion,omitempty"`   // the file with which the model reads pictures, of which Size is a part, too; nil: the repository has none
}

// Quantisation is one of several files with the same model, and how it would run on this machine.
type Quantisation struct {
	Name            string         `json:"name"` // to pull it
	Quant           string         `json:"quant"`
	Size            int64          `json:"size"`              // bytes
	Fit             *placement.Fit `json:"fit,omitempty"`     // nil: it cannot be used
	On              string         `json:"on,omitempty"`      // the devices that it would be on; empty: it does not fit
	TokensPerSecond float64        `json:"tok_s,omitempty"`   // expected of one short answer; 0: unknown
	Problem         string         `json:"problem,omitempty"` // why it cannot be used
	Chosen          bool           `json:"chosen,omitempty"`  // that of the Download
}

// DownloadPart is a file of a split model, or a companion file.
type DownloadPart struct {
	File   string `json:"file"`
	Source string `json:"source"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256,omitempty"`
}

// Files returns a download for each file of d, the companion last.
func (d Download) Files() (files []Download) {
	one := func(part DownloadPart) Download {
		return Download{Name: d.Name, File: part.File, Source: part.Source, Size: part.Size, SHA256: part.SHA256, Quant: d.Quant}
	}
	for _, part := range d.Parts {
		files = append(files, one(part))
	}
	if len(files) == 0 {
		model := d
		model.Size, model.Companion = d.ModelSize(), nil
		files = append(files, model)
	}
	if d.Companion != nil {
		files = append(files, one(*d.Companion))
	}
	return files
}

// ModelSize returns the bytes of the model without those of its companion.
func (d Download) ModelSize() int64 {
	if d.Companion == nil {
		return d.Size
	}
	return d.Size - d.Companion.Size
}

// Title returns the name of the model: its file name without .gguf and the number of the part.
func (d Download) Title() string { return gguf.ModelName(path.Base(d.File)) }

// Verifiable reports whether the server reports the SHA-256 of all files.
func (d Download) Verifiable() bool {
	return !slices.ContainsFunc(d.Files(), func(f Download) bool { return f.SHA256 == "" })
}

// DownloadPhase is the phase of a download.
type DownloadPhase string

const (
	PhaseResolving   DownloadPhase = "resolving"
	PhaseDownloading DownloadPhase = "downloading"
	PhaseWaiting     DownloadPhase = "waiting"   // before another attempt; Notice says why
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

	Companion string `json:"companion,omitempty"` // as in ModelInfo, for the owner
}

// TensorType counts the tensors of one element format.
type TensorType struct {
	Type     string `json:"type"`
	Tensors  int    `json:"tensors"`
	Elements int64  `json:"elements"`
	Bytes    int64  `json:"bytes"`
}

// Template is a chat template; JSON identifies it, without its source.
type Template struct {
	SHA256 string `json:"sha256"`
	Bytes  int    `json:"bytes"`
	Source string `json:"-"`
	File   string `json:"file,omitempty"` // that it is from, if that is not the model's
}

// Metadata is a key of a model file with its value, shortened for people.
type Metadata struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}
