# Two images from one file:
#   docker build --target service .    the service (the default)
#   docker build --target ingest .     the Spark job, with Java and Spark inside
# Every package installed comes from a lock under deploy/locks, by hash; the base image by its digest, which is the tag's index of
# all architectures. A new one: `docker buildx imagetools inspect python:3.12-slim`.

ARG PYTHON=3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea

FROM python:${PYTHON} AS base
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1

# The wheel, and an environment with the build backends.
FROM base AS wheel
WORKDIR /src
RUN python -m venv /build
COPY deploy/locks/build.txt deploy/locks/
RUN /build/bin/pip install --require-hashes --requirement deploy/locks/build.txt
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY tidelog tidelog
COPY app app
COPY engine engine
COPY schemas schemas
COPY deploy/console deploy/console
COPY scripts/build_console.sh scripts/
COPY openapi openapi
COPY console console
RUN PYTHON=/build/bin/python sh scripts/build_console.sh
RUN /build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .
COPY distributions distributions
COPY pyspark_tidelog pyspark_tidelog
RUN /build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /spark-wheels ./distributions/pyspark-tidelog

# pip stays behind: 27 MB that no service needs.
FROM base AS service-environment
COPY deploy/locks/service.txt /locks/
RUN python -m venv /pip && python -m venv --without-pip /opt/tidelog \
    && /pip/bin/pip --python /opt/tidelog/bin/python install --require-hashes --requirement /locks/service.txt
COPY --from=wheel /wheels /wheels
RUN /pip/bin/pip --python /opt/tidelog/bin/python install --no-deps --no-index /wheels/*.whl

FROM base AS ingest-environment
COPY deploy/locks/build.txt deploy/locks/spark.txt /locks/
RUN python -m venv /opt/tidelog \
    && /opt/tidelog/bin/pip install --require-hashes --requirement /locks/build.txt \
    && /opt/tidelog/bin/pip install --require-hashes --no-build-isolation --requirement /locks/spark.txt
COPY --from=wheel /wheels /spark-wheels /wheels/
RUN /opt/tidelog/bin/pip install --no-deps --no-index /wheels/*.whl

# What both images share: nobody's privileges, one folder to write to, for any user of the group 0, as OpenShift assigns them;
# and a standard library that is compiled, which the base image leaves out: every start would compile 180 modules anew, for a
# second.
FROM base AS runtime
RUN python -m compileall -q -x site-packages "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
RUN useradd --uid 10001 --gid 0 --create-home --shell /usr/sbin/nologin tidelog \
    && install --directory --owner tidelog --group root --mode 0770 /var/lib/tidelog /var/lib/lake
ENV PATH=/opt/tidelog/bin:$PATH
USER 10001
ENTRYPOINT ["tidelog"]

FROM runtime AS ingest
COPY --from=ingest-environment /opt/tidelog /opt/tidelog
VOLUME /var/lib/lake
CMD ["ingest", "--help"]

FROM runtime AS service
COPY --from=service-environment /opt/tidelog /opt/tidelog
VOLUME /var/lib/tidelog
EXPOSE 8080
STOPSIGNAL SIGTERM
ENV TIDELOG_DATA_DIRECTORY=/var/lib/tidelog TIDELOG_HEALTH_FILE=/dev/shm/tidelog-ready
# Ready means recovered: a long recovery is not an unhealthy process, so the start period is generous. The service touches the
# file every second while it is ready, so the probe starts no Python, and need not know the port, TLS or a key.
HEALTHCHECK --interval=5s --timeout=3s --start-period=120s --retries=3 \
    CMD ["sh", "-c", "test $(($(date +%s) - $(stat -c %Y \"$TIDELOG_HEALTH_FILE\"))) -le 5"]
# Who may connect is decided by whoever publishes the port, not in here: so it starts only with credentials
# (`docker run … tidelog keys create NAME --scope …` on the same volume, or TIDELOG_JWKS), or with TIDELOG_INSECURE=1.
CMD ["serve", "--host", "0.0.0.0", "--port", "8080"]
