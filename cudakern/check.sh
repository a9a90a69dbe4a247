#!/bin/sh
# Runs what a real GPU must pass, then measures it. make gpu copies this script to bin/gpu, beside the
# programs that it runs; they need a driver, but neither Go nor a compiler:
#
#	M40_LLM_FIXTURES=/path/to/vectors bin/gpu/check.sh [kernels|contract|logits|decode|speed …] | tee check.log
#
# Without arguments it runs all five parts. A failing part does not stop the script; it exits with 1 in
# the end. The first part is slow, because the driver compiles all kernels.
cd "$(dirname "$0")" || exit 1
: "${M40_LLM_LIBCUDA:=libcuda.so.1}"
export M40_LLM_LIBCUDA
failed=0
step() {
	echo "== $*"
	"$@" || failed=1
}

for part in ${*:-kernels contract logits decode speed}; do
	case $part in
	kernels) # each against its reference, and the errors of products
		M40_LLM_TORTURE=1 step ./cudakern.test -test.skip 'Sanitizers|Emulat'
		step ./cudakern.test -test.v -test.run ProductErrors
		;;
	contract) # of the device, with all types of weights
		M40_LLM_TORTURE=1 step ./device.test -test.run 'Contract|Converted'
		;;
	logits) # and texts of the built-in model
		step ./model.test -test.v -test.run 'Reference/.*cuda|OnTheGPU'
		;;
	decode) # of all types, and a prompt of 4,096 tokens
		for quant in q4_0 f16 bf16 q8_0 q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs mxfp4; do
			step ./m40-llm bench --device cuda --shape llama-8b --quant $quant -p 512 -n 64 -r 3
		done
		step ./m40-llm bench --device cuda --shape llama-8b --quant q4_0 -p 4096 -n 16 -r 3
		;;
	speed) # of single kernels
		step ./cudakern.test -test.run '^$' -test.bench 'Products/.*/(gateup|head)/rows=(1|4|8|512)$' -test.benchtime 20x
		step ./cudakern.test -test.run '^$' -test.bench Attention -test.benchtime 20x
		;;
	*)
		echo "check.sh: $part is not one of kernels, contract, logits, decode and speed" >&2
		exit 2
		;;
	esac
done
exit $failed
