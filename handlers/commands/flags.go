package commands

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"m40-llm/handlers/cli"
	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/engine"
	"m40-llm/infer/gguf"
	"m40-llm/infer/guide"
	"m40-llm/infer/hub"
)

// folders are the flags that say where files are.
type folders struct {
	data, models *string
}

func folderFlags(f *cli.Flags) folders {
	return folders{
		data:   f.String("data", "", "DIR", "folder of this program's files (default ~/.m40-llm)"),
		models: f.String("models", "", "DIR", "folder of models, used where they lie (default models in --data)"),
	}
}

// dataDir is the folder of this program's files.
func (f folders) dataDir(t *cli.Terminal) (string, error) {
	if *f.data != "" {
		return *f.data, nil
	}
	home := t.Env("HOME")
	if home == "" {
		return "", cli.Usagef("there is no home folder in the environment (HOME); say --data DIR")
	}
	return filepath.Join(home, ".m40-llm"), nil
}

// catalog lists the models that the folders and the program hold. types are the formats
// of weights that can be computed with; nil: any will do.
func (f folders) catalog(t *cli.Terminal, types []gguf.Type) (*hub.Hub, error) {
	dir := *f.models
	if dir == "" {
		data, err := f.dataDir(t)
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(data, "models")
	}
	return hub.New(hub.Options{Dir: dir, Builtin: map[string][]byte{guideName: guide.Model}, Types: types}), nil
}

// noteMissing says that the folder which --models names is not there: it may be misspelt.
func (f folders) noteMissing(t *cli.Terminal) {
	if *f.models == "" {
		return
	}
	if _, err := os.Stat(*f.models); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(t.Err, "m40-llm: note: there is no folder %s for models yet; a download makes it\n", cli.Line(strconv.Quote(*f.models)))
	}
}

// deviceFlags say what computes.
type deviceFlags struct {
	folders
	device, kv *string
	threads    *int
}

func addDeviceFlags(f *cli.Flags) deviceFlags {
	return deviceFlags{
		folders: folderFlags(f),
		device:  f.String("device", "auto", "auto|cpu|cuda|ref", "what computes: an NVIDIA GPU (cuda), the vector units of the CPU, or slow plain Go (ref); auto: the GPU if it can, else the CPU"),
		threads: f.Int("threads", 0, "threads of the device; 0: as many as there are cores"),
		kv:      f.String("kv", "f16", "f16|f32", "number format of the KV cache"),
	}
}

// engineFlags are the flags of commands that answer.
type engineFlags struct {
	deviceFlags
	ctx *int
}

func addEngineFlags(f *cli.Flags) engineFlags {
	return engineFlags{
		deviceFlags: addDeviceFlags(f),
		ctx:         f.Int("ctx", 0, "tokens that question and answer may have together; 0: what the model was trained on, or what memory allows"),
	}
}

// most bounds threads and parallel answers: beyond it lies no speed, only memory.
const most = 1024

// defaultParallel is how many answers a server writes at once.
const defaultParallel = 16

// models lists what can be answered with.
func (f engineFlags) models(t *cli.Terminal) (*hub.Hub, error) {
	kind, err := f.kind(0)
	if err != nil {
		return nil, err
	}
	return f.catalog(t, kind.types)
}

// options are those of an engine with the model of catalog that the command line calls
// model.
func (f engineFlags) options(catalog *hub.Hub, model string, parallel int, logger *slog.Logger) (engine.Options, error) {
	kind, err := f.kind(parallel)
	if err != nil {
		return engine.Options{}, err
	}
	if *f.ctx < 0 {
		return engine.Options{}, cli.Usagef("--ctx cannot be negative")
	}
	name, err := catalog.Name(model)
	if err != nil {
		return engine.Options{}, err
	}
	o := engine.Options{
		Catalog:       catalog,
		OpenDevice:    func(file *gguf.File) (device.Device, error) { return kind.open(file, *f.threads, logger) },
		Model:         name,
		ContextLength: *f.ctx,
		CacheType:     *f.kv,
		Parallel:      parallel,
		Logger:        logger,
		Version:       version,
		FreeMemory:    cpu.FreeMemory,
	}
	if kind.gpu {
		o.MoreDevices = func() iter.Seq2[device.Device, error] { return moreDevices(*f.threads, logger) }
	}
	return o, nil
}
