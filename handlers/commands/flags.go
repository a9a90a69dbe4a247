package commands

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"m40-llm/handlers/cli"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/engine"
	"m40-llm/infer/gguf"
	"m40-llm/infer/guide"
	"m40-llm/infer/hub"
	"m40-llm/infer/kvfile"
)

// folders are the flags for the folders of files.
type folders struct {
	data, models *string
}

func folderFlags(f *cli.Flags) folders {
	f.String("config", "", "FILE", "file with the values of flags, in TOML (default config.toml in --data)")
	return folders{
		data:   f.String("data", "", "DIR", "folder for this program's files (default ~/.m40-llm)"),
		models: f.String("models", "", "DIR", "folder of model files (default models in --data)"),
	}
}

// dataDir returns the folder of this program's files.
func (f folders) dataDir(t *cli.Terminal) (string, error) {
	if *f.data != "" {
		return *f.data, nil
	}
	home := t.Env("HOME")
	if home == "" {
		return "", cli.Usagef("the environment variable HOME is not set; set --data DIR")
	}
	return filepath.Join(home, ".m40-llm"), nil
}

// catalog returns the catalog of the models in the models folder and of the built-in model.
// types are the weight formats that can be loaded; nil: all.
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

// kvFolder is where the KV caches of chats are stored, in the data folder.
const kvFolder = "kv"

// kvFiles returns the folder of the KV caches of chats.
func (f folders) kvFiles(t *cli.Terminal) (*kvfile.Dir, error) {
	dir, err := f.dataDir(t)
	if err != nil {
		return nil, err
	}
	return kvfile.OpenDir(filepath.Join(dir, kvFolder))
}

// deleteCaches deletes the KV caches of chats that belong to a model. They name it with its folder, as model
// does, only if another model had the same name.
func deleteCaches(d *kvfile.Dir, model string) error {
	if d == nil {
		return nil
	}
	return d.RemoveIf(func(file kvfile.Stored) bool { return file.Model == model || file.Model == path.Base(model) })
}

// noteMissingFolder prints a note if the folder that --models names does not exist: it may
// be misspelt.
func (f folders) noteMissingFolder(t *cli.Terminal) {
	if *f.models == "" {
		return
	}
	if _, err := os.Stat(*f.models); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(t.Err, "m40-llm: note: the folder %s for models does not exist yet; the first download creates it\n", cli.Line(strconv.Quote(*f.models)))
	}
}

// deviceFlags are the flags for the device that models run on.
type deviceFlags struct {
	folders
	device, kv *string
	decode     *string
	threads    *int
	noRepack   *bool
}

func addDeviceFlags(f *cli.Flags) deviceFlags {
	return deviceFlags{
		folders:  folderFlags(f),
		device:   f.String("device", "auto", "auto|cpu|cuda|ref", "where models run: on an NVIDIA GPU (cuda; cuda:1 is that with the number 1, and cuda:0,1 divides the layers among two), on the CPU's vector units (cpu), or in slow plain Go (ref); auto: on the GPU if possible, else on the CPU"),
		decode:   f.String("decode", "auto", "auto|graph|persistent", "how a GPU runs steps of up to 4 tokens, with the same bits: as a graph of kernels, or in one resident kernel where it can; auto: as is faster, if that was measured on the GPU, else graph"),
		threads:  f.Int("threads", 0, "CPU threads; 0: one for each core"),
		noRepack: f.Bool("no-repack", "compute on the CPU with the weights in the model file instead of a copy that is faster to read: saves memory, is slower; also done if the copy does not fit"),
		kv:       f.String("kv", "f16", strings.Join(infer.CacheTypes, "|"), "format of the KV cache, or of its keys and values as in q8_0/q4_0; auto: f16 where the whole context fits, else q8_0"),
	}
}

// engineFlags are the flags of commands that start an engine.
type engineFlags struct {
	deviceFlags
	ctx      *int
	template *string // nil: the command has no such flag
	mmproj   *string // nil: the command has no such flag
	draft    *string
	ahead    *string

	minPicture, maxPicture *int // nil: the command has no such flags
}

func addEngineFlags(f *cli.Flags) engineFlags {
	return engineFlags{
		deviceFlags: addDeviceFlags(f),
		ctx:         f.Int("ctx", 0, "context length in tokens, for prompt and answer together; 0: the length that the model was trained with, or as much as fits into memory"),
		template:    f.String("chat-template", "", "FILE", "chat template, in Jinja, of all models in files, instead of their own; a file NAME.jinja next to a model is that model's"),
		mmproj:      f.String("mmproj", "", "FILE|off", "companion file with which models in files read pictures, or off: they read none; by default that next to a model, such as mmproj-NAME.gguf"),
		minPicture:  f.Int("image-min-tokens", 0, "tokens that a small picture is enlarged to, in families whose companion files do not say it (Qwen, LFM2-VL); 0: as published"),
		maxPicture:  f.Int("image-max-tokens", 0, "tokens that a large picture is shrunk to, in families whose companion files do not say it (Qwen, Gemma 4, LFM2-VL); 0: as published"),
		draft:       f.String("draft", "auto", "auto|off|lookup|mtp|MODEL", "what drafts the next tokens, of which a step checks several: the same answers in other steps; lookup: the context where they repeat it; mtp: the multi-token prediction block of the model file; MODEL: a smaller model with the same vocabulary, by name or file, which is loaded too; auto: the context or the block, as far as that gains by the measured times of steps"),
		ahead:       f.String("run-ahead", "auto", "auto|on|off", "let a GPU draw tokens itself and compute up to four steps before the server has sampled: the same answers, with shorter pauses between steps; auto: on, where the GPU computes all of the model"),
	}
}

// maxParallel bounds threads and parallel answers. More would need more memory and gain no
// speed.
const maxParallel = 1024

// defaultParallel is how many answers a server generates at once.
const defaultParallel = 16

// models returns the catalog of the models that the chosen device can run.
func (f engineFlags) models(t *cli.Terminal) (*hub.Hub, error) {
	kind, err := f.kind(0)
	if err != nil {
		return nil, err
	}
	catalog, err := f.catalog(t, kind.types)
	if err == nil && f.mmproj != nil && *f.mmproj != "" {
		if _, statErr := os.Stat(*f.mmproj); statErr != nil && *f.mmproj != hub.NoCompanion {
			return nil, cli.Usagef("--mmproj %s cannot be used: %v", *f.mmproj, statErr)
		}
		catalog.SetCompanion(*f.mmproj)
	}
	if err != nil || f.template == nil || *f.template == "" {
		return catalog, err
	}
	source, err := hub.ReadTemplate(*f.template)
	if err == nil && source == "" {
		err = errors.New("it is empty")
	}
	if err == nil {
		_, err = chat.Parse(source)
	}
	if err != nil {
		return nil, cli.Usagef("--chat-template %s cannot be used: %v", *f.template, err)
	}
	catalog.SetTemplate(source)
	return catalog, nil
}

// open opens an engine in this process with the model of catalog that has the name or path model, for requests of the
// command itself. It returns the name for these requests, too.
func (f engineFlags) open(catalog *hub.Hub, model string) (e *engine.Engine, name string, err error) {
	options, err := f.options(catalog, model, 1, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, "", err
	}
	e, err = engine.Open(options)
	return e, options.Model, err
}

// options returns the options of an engine that loads the model of catalog with the name or
// path model.
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
	host := f.host() // the engine opens devices in the goroutine in which it sets the threads
	o := engine.Options{
		Catalog:       catalog,
		OpenDevice:    func(file *gguf.File) (device.Device, error) { return kind.open(file, host, logger) },
		OpenTower:     func(*gguf.File) (device.Device, error) { return cpu.OpenWith(host) },
		Threads:       host.Threads,
		SetThreads:    func(n int) { host.Threads = n },
		Model:         name,
		ContextLength: *f.ctx,
		CacheType:     *f.kv,
		Parallel:      parallel,
		Logger:        logger,
		Version:       version,
		FreeMemory:    cpu.FreeMemory,
	}
	if f.maxPicture != nil {
		least, most := *f.minPicture, *f.maxPicture
		if least < 0 || most < 0 || most > 0 && least > most {
			return engine.Options{}, cli.Usagef("a picture cannot have at least %d and at most %d tokens; see --image-min-tokens and --image-max-tokens", least, most)
		}
		o.Pictures.MinTokens, o.Pictures.MaxTokens = least, most
	}
	if f.draft != nil {
		if o.Draft, err = f.drafter(catalog); err != nil {
			return engine.Options{}, err
		}
	}
	if o.RunAhead, err = choice("run-ahead", f.ahead); err != nil {
		return engine.Options{}, err
	}
	if kind.gpu {
		o.Among = len(kind.among)
		o.MoreDevices = func() iter.Seq2[device.Device, error] {
			return f.choosing(moreDevices(kind.among, host, logger))
		}
	}
	return o, nil
}

// drafter returns what --draft names: a word of package engine, or a model of catalog.
func (f engineFlags) drafter(catalog *hub.Hub) (string, error) {
	switch *f.draft {
	case engine.DraftAuto, engine.DraftOff, engine.DraftLookup, engine.DraftMTP:
		return *f.draft, nil
	}
	name, err := catalog.Name(*f.draft)
	if err != nil {
		return "", fmt.Errorf("--draft: %w", err)
	}
	return name, nil
}

// choice returns the value of a flag that is auto, on or off; nil: auto, or the command has no such flag.
func choice(name string, value *string) (*bool, error) {
	if value == nil || *value == "auto" {
		return nil, nil
	}
	on := *value == "on"
	if !on && *value != "off" {
		return nil, cli.Usagef("--%s %q is none of auto, on and off", name, *value)
	}
	return &on, nil
}
