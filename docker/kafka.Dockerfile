# The image of a broker, where the official one (apache/kafka) cannot be pulled. `testbed image build
# --kafka` builds it from the jars in $TESTBED_KAFKA; by hand, they are a named build context:
#
#     docker buildx build --build-context jars="$TESTBED_KAFKA/libs" --file docker/kafka.Dockerfile .

# Debian or Ubuntu; with a Java of 17 or newer in it, nothing is installed.
ARG BASE_IMAGE=debian:bookworm-slim
# An image with the jars at its root, for builders without named contexts.
ARG JARS=scratch

FROM ${JARS} AS jars

FROM ${BASE_IMAGE}
RUN command -v java > /dev/null \
    || { apt-get update \
        && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
            openjdk-17-jre-headless \
        && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin; }
COPY --from=jars / /opt/kafka/libs/
