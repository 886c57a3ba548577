/*
 * Tells callgrind, from inside the program that it runs, where a count ends and the next begins. A library
 * of its own, loaded with ctypes: the requests are sequences of instructions that valgrind recognises.
 */

#include <valgrind/callgrind.h>

/* Writes what was counted since the last mark, under this name, and counts from zero again. */
void mark(const char *name) { CALLGRIND_DUMP_STATS_AT(name); }
