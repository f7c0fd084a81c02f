#!/bin/sh
# Makes /opt/testbed, the environment of agent and nodes: from /wheels alone where there are any,
# else from package indexes, and torch from TORCH_INDEX.
set -eu

environment=/opt/testbed
python=$environment/bin/python

# Debian has pip only together with a compiler, so the environment is made without.
python3 -m venv --without-pip "$environment"

install() {
    "$@" install --no-cache-dir --no-compile --only-binary=:all: --disable-pip-version-check \
        --root-user-action=ignore --constraint /build/constraints.txt --requirement "$list"
}

list=/build/requirements.txt
set -- /wheels/pip-*.whl
if [ -e "$1" ]; then
    PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels install "$python" "$1/pip"
else
    # First and from that index alone: another might offer gigabytes of CUDA.
    grep '^torch' "$list" > /build/torch.txt
    list=/build/torch.txt
    PIP_INDEX_URL=$TORCH_INDEX install python3 -m pip --python "$python"
    list=/build/requirements.txt
    install python3 -m pip --python "$python"
fi

packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

# Of torch what only those need who build or test torch.
(
    cd "$packages/torch"
    rm -rf include share test
    find bin -type f ! -name torch_shm_manager -delete
)
find "$packages" -name '*.a' -delete

echo "$environment/package" > "$packages/testbed.pth"
# But for files that say in their names which newer Python they are written for.
"$python" -m compileall -q -j 0 -x '/py3[0-9]*_' --invalidation-mode unchecked-hash "$packages"
