package model

// ERNIE 4.5.
var ernie45 = architecture{tensors: llama.tensors}
