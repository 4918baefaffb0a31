#!/bin/sh
# Stands in front of GNU ld: passes all arguments on but the version script of rustc, beside which GNU ld would not take
# the one of this library. Written by build.rs, for the C compiler to find in the place of ld.
compiler=${COLLECT_GCC:-@COMPILER@}
for argument; do
    shift
    case $argument in
    @MAP@) set -- "$@" "$argument" ;;
    --version-script=*) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
# where this script stands, the compiler must not look again
ld=$(unset COMPILER_PATH && "$compiler" "-print-prog-name=${0##*/}") || exit
exec "$ld" "$@"
