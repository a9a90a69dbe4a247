// Package guide holds the built-in model: a small chat model that makes the first
// answer possible without a download. README.md is its model card, make/ what it was
// made with.
package guide

import _ "embed"

// Model is the model file, in GGUF format. It lies in the program's image and must not
// be changed.
//
//go:embed guide-q8_0.gguf
var Model []byte
