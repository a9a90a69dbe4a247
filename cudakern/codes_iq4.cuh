// The values of the codes of IQ4_NL and IQ4_XS.
#pragma once

#define CODES -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
