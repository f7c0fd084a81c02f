#!/bin/sh
# Makes FOLDER/archive.tar, which an image is built from where no registry answers:
#
#     offline.sh base FOLDER          a Debian with Python, tini, iperf3 and ping
#     offline.sh kafka-base FOLDER    a Debian with a Java
#     offline.sh wheels FOLDER        the packages that nodes import, and pip, for that Debian's Python
#     offline.sh gpu-wheels FOLDER    the same with the torch for CUDA, which PyPI has: gigabytes
#
# Of the last two, FOLDER has constraints.txt and requirements.txt. Of wheels, TORCH_INDEX may name an
# index of builds of torch for CPUs. FOLDER must be readable to everyone: mmdebstrap may run as another
# user.
set -eu

part=$1 folder=$2
suite=bookworm
# Of the suite: its Python, and its glibc 2.x.
python_version=3.11 glibc_minor=36
export TMPDIR="$folder"

debian() {
    command -v mmdebstrap > /dev/null || { echo "There is no command mmdebstrap." && exit 127; }
    exec mmdebstrap --quiet --variant=minbase "$@" \
        '--dpkgopt=path-exclude=/usr/share/doc/*' \
        '--dpkgopt=path-include=/usr/share/doc/*/copyright' \
        '--dpkgopt=path-exclude=/usr/share/locale/*' \
        "$suite" "$folder/archive.tar"
}

wheels() {
    build=$1  # of torch
    torch=$(sed -n 's/^\(torch==[^ +]*\).*/\1/p' "$folder/constraints.txt")
    if [ -z "$torch" ]; then
        echo "constraints.txt pins no version of torch: expected torch==2.13.0." && exit 1
    fi
    # Wheels of its glibc, and of all before it that wheels are built for.
    machine=$(uname -m) minor=17
    set -- --platform "manylinux2014_$machine"
    while [ "$minor" -le "$glibc_minor" ]; do
        set -- --platform "manylinux_2_${minor}_$machine" "$@"
        minor=$((minor + 1))
    done
    # A build of torch for CPUs by its name, and never one with gigabytes of CUDA; or exactly the one
    # without a name, which is for CUDA.
    case $build in
        cuda) torch="torch===${torch#torch==}" ;;
        cpu)
            torch="$torch+cpu"
            if "$PYTHON" -c 'import sys, urllib.request as r; r.urlopen(sys.argv[1], timeout=3)' \
                "$TORCH_INDEX/torch/" 2> /dev/null; then
                set -- "$@" --extra-index-url "$TORCH_INDEX"
            fi
            ;;
    esac
    "$PYTHON" -m pip download --quiet --disable-pip-version-check --dest "$folder/srv" \
        --only-binary=:all: --implementation cp --python-version "$python_version" "$@" \
        --constraint "$folder/constraints.txt" --requirement "$folder/requirements.txt" \
        pip "$torch"
    tar --create --file "$folder/archive.tar" --directory "$folder" --remove-files srv
}

case $part in
    base) debian --include=python3,tini,iperf3,iputils-ping '--dpkgopt=path-exclude=/usr/share/man/*' ;;
    # Java's package makes links among the manuals, and fails where their folder is missing.
    kafka-base) debian --include=openjdk-17-jre-headless ;;
    wheels) wheels cpu ;;
    gpu-wheels) wheels cuda ;;
    *) echo "unknown part: $part" && exit 2 ;;
esac
