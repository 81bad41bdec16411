package bpf

// The compiled program is committed, and generated again where clang and the headers of libbpf are
// installed. Paths are relative and debug sections stripped, so that the same compiler gives the
// same bytes in every checkout.
//
//go:generate go tool bpf2go -cflags "-O2 -g -Wall -Wextra -Werror -mcpu=v3 -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu" -type verdict -type counter capture unifiedd.bpf.c

// An object as users make them, for tests.
//
//go:generate clang -O2 -g -Wall -Wextra -Werror -mcpu=v3 -target bpf -fdebug-compilation-dir=. -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu -c testdata/own.bpf.c -o testdata/own.o
//go:generate llvm-strip -g testdata/own.o
