package commands

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"m40-llm/handlers/live"
	"m40-llm/infer"
	"m40-llm/infer/hub"
	"m40-llm/store"
)

// lastModel is the setting that says which model was loaded last.
const lastModel = "last_model"

// usedModel is its value. The path is for files outside of the models folder.
type usedModel struct {
	Name string `json:"name"`
	Path string `json:"path,omitempty"`
}

// keepModelUsed notes which model engine has loaded, whenever that is another one, until
// ctx ends. The engine may be another process, so it is looked at and not asked to tell.
func keepModelUsed(ctx context.Context, engine interface{ Status() infer.Status }, kept *store.Store, logger *slog.Logger) {
	const every = 2 * time.Second
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var noted usedModel
	for more := true; more; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			more = false
		}
		status := engine.Status()
		now := usedModel{status.Model.Name, status.Model.Path}
		if status.State != infer.StateReady || now == noted {
			continue
		}
		value, err := json.Marshal(now)
		if err == nil {
			err = kept.SetSetting(context.WithoutCancel(ctx), live.Owner, lastModel, value)
		}
		if err != nil {
			logger.Warn("the next start will not know which model was used last", "error", err)
		}
		noted = now
	}
}

// modelUsedLast returns that model as the command line would name it, or the built-in one
// if there is none or it cannot be used any more.
func modelUsedLast(ctx context.Context, catalog *hub.Hub, kept *store.Store, logger *slog.Logger) string {
	value, err := kept.Setting(ctx, live.Owner, lastModel)
	if errors.Is(err, store.ErrNotFound) {
		return guideName
	}
	var last usedModel
	if err == nil {
		err = json.Unmarshal(value, &last)
	}
	if err != nil {
		logger.Warn("it is not known which model was used last; "+guideName+" answers", "error", err)
		return guideName
	}
	model := last.Name
	path, err := opens(catalog, model)
	known, _ := errors.AsType[*infer.Error](err)
	missing := known != nil && known.Code == infer.CodeNotFound
	if last.Path != "" && (missing || err == nil && path != last.Path) {
		if name, gone := catalog.AllowPath(last.Path); gone == nil { // it was a file outside of the models folder
			model = last.Path
			_, err = opens(catalog, name)
		}
	}
	if err != nil {
		logger.Warn("the model used last cannot be used any more; "+guideName+" answers", "model", last.Name, "error", err)
		return guideName
	}
	return model
}

// opens opens a model and returns where it lies.
func opens(catalog *hub.Hub, name string) (path string, err error) {
	file, info, err := catalog.Open(name)
	if err != nil {
		return "", err
	}
	return info.Path, file.Close()
}
