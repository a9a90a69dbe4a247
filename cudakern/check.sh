#!/bin/sh
# Runs what a real GPU must pass, then measures it. make gpu copies this script to bin/gpu, beside the
# programs that it runs; they need a driver, but neither Go nor a compiler:
#
#	M40_LLM_FIXTURES=/path/to/vectors bin/gpu/check.sh [tests|speed] | tee check.log
#
# The tests take about 10 minutes, most of which the driver compiles kernels, and the measurements about
# 10. A failing test does not stop the script; it exits with 1 in the end.
cd "$(dirname "$0")" || exit 1
: "${M40_LLM_LIBCUDA:=libcuda.so.1}"
export M40_LLM_LIBCUDA M40_LLM_TORTURE=1
failed=0
step() {
	echo "== $*"
	"$@" || failed=1
}

if [ "$1" != speed ]; then
	step ./cudakern.test -test.skip 'Sanitizers|Emulat|Bench'
	step ./cudakern.test -test.v -test.run ProductErrors
	step ./device.test -test.run 'Contract|Converted'
	step ./model.test -test.v -test.run 'Reference/.*cuda|OnTheGPU'
fi
if [ "$1" != tests ]; then
	for quant in f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs mxfp4; do
		step ./m40-llm bench --device cuda --shape llama-8b --quant $quant -p 512 -n 64 -r 3
	done
	# Attention without latent values: head dimension 128 and a prompt of 4,096 tokens.
	step ./m40-llm bench --device cuda --shape llama-8b --quant q4_0 -p 4096 -n 16 -r 3
	step ./cudakern.test -test.run '^$' -test.bench 'Products/magic/.*/(gateup|head)/rows=1$' -test.benchtime 20x
	step ./cudakern.test -test.run '^$' -test.bench Attention -test.benchtime 20x
fi
exit $failed
