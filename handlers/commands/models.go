package commands

import (
	"context"
	"fmt"

	"m40-llm/handlers/cli"
	"m40-llm/infer/cpu"
	"m40-llm/infer/hub"
	"m40-llm/infer/placement"
)

// listModels executes the command list.
func listModels(ctx context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("list", "", "Lists the models on this machine, the built-in one included.")
	dirs := folderFlags(f)
	asJSON := f.Bool("json", "print a JSON array instead of a table")
	onlyNames := f.Bool("names", "print the names only, one a line")
	if _, err := f.Parse(t, args, 0); err != nil {
		return err
	}
	catalog, err := dirs.catalog(t, cpu.WeightTypes())
	if err != nil {
		return err
	}
	dirs.noteMissingFolder(t)
	catalog.SetMachine(thisMachine())
	models, err := catalog.Models(ctx)
	if err != nil {
		return err
	}
	if *onlyNames {
		return cli.Names(t.Results(), models)
	}
	return cli.List(t.Results(), models, *asJSON)
}

// pullModel executes the command pull.
func pullModel(ctx context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("pull", "NAME", `Downloads a model into the models folder. NAME is a repository on Hugging Face, org/repo or
org/repo:quant, such as Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q8_0; a model of the Ollama library, such
as mistral, llama3.2:1b or ollama.com/namespace/model:tag; or the https address of a .gguf file.
The same command resumes a download that was stopped.

environment: HF_TOKEN is the access token for repositories that require one. It is sent to Hugging
Face only. HF_ENDPOINT is the address of another server with the API of https://huggingface.co, a
mirror, and OLLAMA_REGISTRY that of one with the API of https://registry.ollama.ai.`)
	dirs := folderFlags(f)
	force := f.Bool("force", "download the model even if this program cannot run it")
	quant := f.String("quant", "", "Q", "quantisation to download of a repository that has several, such as Q4_K_M; without it, the table of them says which is chosen and why, and at a terminal you can choose another")
	rest, err := f.Parse(t, args, 1)
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		return cli.Usagef("name the model to pull; see m40-llm pull -h")
	}
	name := rest[0]
	if *quant != "" {
		if name, err = hub.WithQuant(name, *quant); err != nil {
			return cli.Usagef("%v", err)
		}
	}
	catalog, err := dirs.catalog(t, cpu.WeightTypes())
	if err != nil {
		return err
	}
	machine := thisMachine()
	catalog.SetMachine(machine)
	puller, err := newPuller(t, catalog, machine, probe("auto", 0), true)
	if err != nil {
		return err
	}
	return cli.Pull(ctx, t, puller, name, *force)
}

// newPuller returns a puller that downloads into the folder of catalog, for a machine whose read
// bandwidth probe returns. addresses says whether it accepts https addresses besides names; only the command line may.
func newPuller(t *cli.Terminal, catalog *hub.Hub, machine func() placement.Machine, probe func(context.Context, placement.Machine) []float64, addresses bool) (*hub.Puller, error) {
	puller, err := hub.NewPuller(catalog, hub.PullOptions{
		Endpoint:   t.Env("HF_ENDPOINT"),
		Library:    t.Env("OLLAMA_REGISTRY"),
		Token:      t.Env("HF_TOKEN"),
		Version:    version,
		Addresses:  addresses,
		FreeMemory: func() int64 { return machine().Free() },

		ReadBandwidth: probe,
	})
	if err != nil {
		return nil, cli.Usagef("%v", err)
	}
	return puller, nil
}

// showModel executes the command show.
func showModel(_ context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("show", "NAME|PATH", "Shows the properties, tensor types and metadata of a model file.")
	dirs := folderFlags(f)
	asJSON := f.Bool("json", "print a JSON object instead of tables")
	rest, err := f.Parse(t, args, 1)
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		return cli.Usagef("name the model to show; m40-llm list lists them")
	}
	catalog, err := dirs.catalog(t, cpu.WeightTypes())
	if err != nil {
		return err
	}
	name, err := catalog.Name(rest[0])
	if err != nil {
		return err
	}
	catalog.SetMachine(thisMachine())
	details, err := catalog.Details(name)
	if err != nil {
		return err
	}
	return cli.Show(t.Results(), details, *asJSON)
}

// copyModel executes the command cp.
func copyModel(ctx context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("cp", "NAME COPY", "Gives a model a second name, COPY, in the models folder. On one disk both share their data, and each stays when the other is removed.")
	dirs := folderFlags(f)
	rest, err := f.Parse(t, args, 2)
	if err != nil {
		return err
	}
	if len(rest) < 2 {
		return cli.Usagef("name the model and its copy; m40-llm list lists the models")
	}
	catalog, err := dirs.catalog(t, cpu.WeightTypes())
	if err != nil {
		return err
	}
	from, err := catalog.Name(rest[0])
	if err != nil {
		return err
	}
	model, err := catalog.Copy(ctx, from, rest[1])
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(t.Out, cli.Line(model.Name))
	return err
}

// removeModel executes the command rm.
func removeModel(ctx context.Context, t *cli.Terminal, args []string) error {
	f := cli.NewFlags("rm", "NAME", "Deletes a model from the models folder, or the partial file of a download that was stopped.")
	dirs := folderFlags(f)
	yes := f.Bool("yes", "delete without asking")
	rest, err := f.Parse(t, args, 1)
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		return cli.Usagef("name the model to delete; m40-llm list lists them")
	}
	catalog, err := dirs.catalog(t, nil)
	if err != nil {
		return err
	}
	model, err := catalog.Removable(rest[0])
	if err != nil {
		return err
	}
	return cli.Remove(ctx, t, model, *yes, func(name string) error {
		if err := catalog.Remove(name); err != nil {
			return err
		}
		caches, err := dirs.kvFiles(t)
		if err != nil {
			return err
		}
		return deleteCaches(caches, model.Name)
	})
}
