#pragma once

#include "kernel.cuh"

// Returns v, which the compiler takes for another value: it computes what depends on it again instead of keeping it in
// registers from before, and keeps the value itself instead of computing that again.
template <typename T> DEVICE T again(T v)
{
#ifndef EMU
	asm volatile("" : "+r"(v));
#endif
	return v;
}
