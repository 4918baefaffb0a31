# perftest on roce: docker build --file packaging/Dockerfile --tag roce . first.
FROM roce AS roce

FROM docker.io/library/debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends ibverbs-utils perftest && rm -rf /var/lib/apt/lists/*
COPY --from=roce /usr/bin/roce /usr/bin/roce
RUN useradd --create-home --uid 1000 user
USER 1000
