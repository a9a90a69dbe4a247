package model

// ernie45 is ERNIE 4.5.
var ernie45 = architecture{tensors: llama.tensors}
