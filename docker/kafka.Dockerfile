# The image of a broker, where the official one (apache/kafka) cannot be pulled. `testbed image build
# --kafka` builds it from the jars in $TESTBED_KAFKA; by hand:
#
#     docker build --file docker/kafka.Dockerfile "$TESTBED_KAFKA"

# Debian or Ubuntu; with a Java of 17 or newer in it, nothing is installed.
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${BASE_IMAGE}
RUN command -v java > /dev/null \
    || { apt-get update \
        && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
            openjdk-17-jre-headless \
        && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin; }
COPY libs/*.jar /opt/kafka/libs/
