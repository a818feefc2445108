# docker build --target library -t m3b .          the command line: m3b run, predict, ...
# docker build -t m3b-served .                    m3b serve for the model that is mounted at /model
FROM python:3.12-slim-bookworm AS library
LABEL org.opencontainers.image.title="m3b" org.opencontainers.image.licenses="Apache-2.0"
WORKDIR /opt/m3b
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
COPY resources ./resources
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu \
      -c constraints.txt '.[train,serve,dicom]' \
    && useradd --create-home --uid 10001 m3b \
    && install -d -o m3b -m 0700 /data /spool
USER m3b
WORKDIR /data
ENTRYPOINT ["m3b"]
CMD ["--help"]

FROM library AS served
EXPOSE 8000 11112
CMD ["serve", "/model", "--host", "0.0.0.0", "--port", "8000"]
