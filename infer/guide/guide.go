// Package guide embeds the built-in model: a small chat model that answers without a download.
// README.md is its model card; make/ has the scripts that trained it.
package guide

import _ "embed"

// Model is the model file in GGUF format. It is part of the executable and must not be changed.
//
//go:embed guide-q8_0.gguf
var Model []byte
