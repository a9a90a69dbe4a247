package model

import "slices"

// chatGLM is ChatGLM 3 and GLM 4 of 2024: gates and ups are one tensor, and some files have queries, keys and values as one.
var chatGLM = architecture{tensors: slices.Concat(ends, norms, attention, fusedFeedForward)}
